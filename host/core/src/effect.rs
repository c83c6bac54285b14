//! Effects: what a handler declares. Nothing here touches a database.

use bytes::Bytes;

use crate::access::{Access, Denied, Right};
use crate::catalog::{ColumnId, TableId};
use crate::message::Header;
use crate::value::Value;

/// Cells of one row, sorted by column.
pub type Cells = Vec<(ColumnId, Value)>;

/// One declared mutation of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub table: TableId,
    /// The cells that name the row. Empty where the database makes the key.
    pub key: Cells,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Cells beside the key. The row must not exist.
    Insert(Cells),
    InsertIfAbsent(Cells),
    Upsert(Cells),
    UpsertIfNewer {
        version: ColumnId,
        cells: Cells,
    },
    Update {
        set: Cells,
        otherwise: Guard,
    },
    Add {
        amounts: Cells,
        floor: Option<Value>,
        otherwise: Guard,
    },
    Delete,
}

/// How the message is rejected when the condition of its effect does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    pub code: String,
    pub reason: String,
}

/// A message for the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Emit {
    /// `broker:destination`.
    pub destination: String,
    pub key: Option<String>,
    pub content_type: Option<String>,
    pub headers: Vec<Header>,
    pub body: Bytes,
}

/// Why a host call of a plugin failed. Any of these dooms the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Denied(#[from] Denied),
    #[error("{message}")]
    Invalid { code: String, message: String },
    #[error("the database cannot serve now: {0}")]
    Unavailable(String),
}

impl Error {
    pub fn invalid(code: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Invalid { code: code.into(), message: message.into() }
    }
}

/// Bounds on what one message may declare.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub effects: usize,
    pub emits: usize,
    /// Bytes of all values and bodies.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { effects: 10_000, emits: 1_000, bytes: 16 << 20 }
    }
}

/// The effects of one message, in the order in which they were declared.
#[derive(Debug, Default)]
pub struct Buffer {
    pub effects: Vec<Effect>,
    pub emits: Vec<Emit>,
    emitted: u32,
    counted: usize,
    bytes: usize,
    limits: Limits,
}

pub type NamedRow = Vec<(String, Value)>;

impl Buffer {
    pub fn new(limits: Limits) -> Self {
        Buffer { limits, ..Buffer::default() }
    }

    pub fn insert(&mut self, access: &Access, table: &str, row: NamedRow) -> Result<(), Error> {
        let table = access.table(Right::Write, table)?;
        let row = self.cells(access, table, row)?;
        let primary = access.catalog().table(table).keys.first().map_or(&[][..], |k| &k.columns);
        let (key, rest): (Cells, Cells) = row.into_iter().partition(|(c, _)| primary.contains(c));
        // A partial key means that the database makes the rest of it.
        let (key, rest) = if key.len() == primary.len() { (key, rest) } else { (Vec::new(), sorted(key, rest)) };
        self.push(Effect { table, key, change: Change::Insert(rest) })
    }

    pub fn insert_if_absent(
        &mut self,
        access: &Access,
        table: &str,
        key: &[String],
        row: NamedRow,
    ) -> Result<(), Error> {
        let (table, key, cells) = self.keyed(access, table, key, row)?;
        self.push(Effect { table, key, change: Change::InsertIfAbsent(cells) })
    }

    pub fn upsert(&mut self, access: &Access, table: &str, key: &[String], row: NamedRow) -> Result<(), Error> {
        let (table, key, cells) = self.keyed(access, table, key, row)?;
        self.push(Effect { table, key, change: Change::Upsert(cells) })
    }

    pub fn upsert_if_newer(
        &mut self,
        access: &Access,
        table: &str,
        key: &[String],
        version: &str,
        row: NamedRow,
    ) -> Result<(), Error> {
        let (table, key, cells) = self.keyed(access, table, key, row)?;
        let version = access.column(Right::Write, table, version)?;
        match cells.iter().find(|(c, _)| *c == version) {
            Some((_, Value::Null)) | None => {
                let name = &access.catalog().table(table).column(version).name;
                return Err(Error::invalid(
                    "invalid:version",
                    format!("the row sets no version: column {name} must have a value"),
                ));
            }
            Some(_) => {}
        }
        self.push(Effect { table, key, change: Change::UpsertIfNewer { version, cells } })
    }

    pub fn update(
        &mut self,
        access: &Access,
        table: &str,
        key: NamedRow,
        set: NamedRow,
        otherwise: Guard,
    ) -> Result<(), Error> {
        let table = access.table(Right::Write, table)?;
        let key = self.key(access, table, key)?;
        let set = self.cells(access, table, set)?;
        if set.is_empty() {
            return Err(Error::invalid("invalid:update", "an update sets at least one column"));
        }
        self.push(Effect { table, key, change: Change::Update { set, otherwise } })
    }

    pub fn add(
        &mut self,
        access: &Access,
        table: &str,
        key: NamedRow,
        amounts: NamedRow,
        floor: Option<Value>,
        otherwise: Guard,
    ) -> Result<(), Error> {
        let table = access.table(Right::Write, table)?;
        let key = self.key(access, table, key)?;
        let amounts = self.cells(access, table, amounts)?;
        if amounts.is_empty() {
            return Err(Error::invalid("invalid:add", "an add names at least one column"));
        }
        let known = access.catalog().table(table);
        for (column, amount) in &amounts {
            if !matches!(amount, Value::Integer(_) | Value::Decimal(_) | Value::Float(_)) {
                let name = &known.column(*column).name;
                return Err(Error::invalid(
                    "invalid:add",
                    format!("column {name} takes a number to add, not {}", amount.case()),
                ));
            }
        }
        let floor = match floor {
            None | Some(Value::Null) => None,
            Some(value) => {
                let column = known.column(amounts[0].0);
                Some(column.accept(value).map_err(|why| Error::invalid("invalid:floor", format!("floor: {why}")))?)
            }
        };
        self.push(Effect { table, key, change: Change::Add { amounts, floor, otherwise } })
    }

    pub fn delete(&mut self, access: &Access, table: &str, key: NamedRow) -> Result<(), Error> {
        let table = access.table(Right::Write, table)?;
        let key = self.key(access, table, key)?;
        self.push(Effect { table, key, change: Change::Delete })
    }

    /// Returns the emit's ordinal, from which its message id derives.
    pub fn emit(&mut self, access: &Access, emit: Emit) -> Result<u32, Error> {
        access.emit(&emit.destination)?;
        let ordinal = self.emitted;
        self.spend(emit.body.len() + 64 * emit.headers.len())?;
        if self.emits.len() >= self.limits.emits {
            return Err(Error::invalid(
                "limit:emits",
                format!("a message emits at most {} messages", self.limits.emits),
            ));
        }
        self.emitted += 1;
        self.emits.push(emit);
        Ok(ordinal)
    }

    /// Takes what was declared so far, to be applied before a read; ordinals and limits go on.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn push(&mut self, effect: Effect) -> Result<(), Error> {
        self.counted += 1;
        if self.counted > self.limits.effects {
            return Err(Error::invalid(
                "limit:effects",
                format!("a message declares at most {} effects", self.limits.effects),
            ));
        }
        self.effects.push(effect);
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes > self.limits.bytes {
            return Err(Error::invalid(
                "limit:bytes",
                format!("the effects of a message hold at most {} bytes", self.limits.bytes),
            ));
        }
        Ok(())
    }

    /// Looks up, checks and sorts the cells of a row.
    fn cells(&mut self, access: &Access, table: TableId, row: NamedRow) -> Result<Cells, Error> {
        let mut cells = Vec::with_capacity(row.len());
        let known = access.catalog().table(table);
        for (name, value) in row {
            let column = access.column(Right::Write, table, &name)?;
            self.spend(match &value {
                Value::Decimal(t) | Value::Text(t) | Value::Json(t) => t.len(),
                Value::Bytes(b) => b.len(),
                _ => 8,
            })?;
            let value = known.column(column).accept(value).map_err(|why| {
                Error::invalid(format!("invalid:value:{}.{name}", known.name), format!("table {}: {why}", known.name))
            })?;
            cells.push((column, value));
        }
        cells.sort_by_key(|(c, _)| *c);
        if let Some(pair) = cells.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = &known.column(pair[0].0).name;
            return Err(Error::invalid("invalid:row", format!("table {}: column {name} is given twice", known.name)));
        }
        Ok(cells)
    }

    /// A key that must name exactly one row.
    fn key(&mut self, access: &Access, table: TableId, key: NamedRow) -> Result<Cells, Error> {
        let key = self.cells(access, table, key)?;
        unique(access, table, &key)?;
        Ok(key)
    }

    fn keyed(
        &mut self,
        access: &Access,
        table: &str,
        key: &[String],
        row: NamedRow,
    ) -> Result<(TableId, Cells, Cells), Error> {
        let table = access.table(Right::Write, table)?;
        let cells = self.cells(access, table, row)?;
        let mut columns = Vec::with_capacity(key.len());
        for name in key {
            columns.push(access.column(Right::Write, table, name)?);
        }
        let (key, rest): (Cells, Cells) = cells.into_iter().partition(|(c, _)| columns.contains(c));
        if key.len() != columns.len() {
            let known = access.catalog().table(table);
            return Err(Error::invalid(
                "invalid:key",
                format!("table {}: the row has no value for a key column", known.name),
            ));
        }
        unique(access, table, &key)?;
        Ok((table, key, rest))
    }
}

/// Checks that the cells are those of a unique key and that none is NULL, since NULL names no row.
pub fn unique(access: &Access, table: TableId, key: &Cells) -> Result<(), Error> {
    let known = access.catalog().table(table);
    let columns: Vec<ColumnId> = key.iter().map(|(c, _)| *c).collect();
    let names =
        |columns: &[ColumnId]| columns.iter().map(|c| known.column(*c).name.as_str()).collect::<Vec<_>>().join(", ");
    if !known.is_unique_key(&columns) {
        let keys: Vec<_> = known.keys.iter().map(|k| format!("({})", names(&k.columns))).collect();
        let keys = if keys.is_empty() { "none".into() } else { keys.join(", ") };
        return Err(Error::invalid(
            "invalid:key",
            format!("table {}: ({}) is no unique key; its unique keys are {keys}", known.name, names(&columns)),
        ));
    }
    if let Some((column, _)) = key.iter().find(|(_, v)| *v == Value::Null) {
        return Err(Error::invalid(
            "invalid:key",
            format!("table {}: key column {} is null", known.name, known.column(*column).name),
        ));
    }
    Ok(())
}

fn sorted(mut a: Cells, b: Cells) -> Cells {
    a.extend(b);
    a.sort_by_key(|(c, _)| *c);
    a
}
