//! The tables of a database as the host found them: what effects are checked against before they run.

use std::collections::HashMap;

use uuid::Uuid;

use crate::value::Value;

pub type TableId = u16;
pub type ColumnId = u16;

#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tables: Vec<Table>,
    by_name: HashMap<String, TableId>,
}

#[derive(Clone, Debug)]
pub struct Table {
    /// As plugins and grants write it; a name outside the default schema is qualified: `billing.orders`.
    pub name: String,
    pub columns: Vec<Column>,
    /// Unique keys, the primary key first.
    pub keys: Vec<UniqueKey>,
    /// Tables that this one refers to by foreign keys.
    pub parents: Vec<String>,
    /// A trigger, a rule or a cascading foreign key watches single changes, so effects on this table run in
    /// the order in which they were declared and are never folded.
    pub observed: bool,
    /// Position in the canonical order: parents before children, then by name.
    pub rank: u32,
    by_name: HashMap<String, ColumnId>,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// The database's own name of the type, for casts and for error messages.
    pub native: String,
    pub nullable: bool,
    /// The database fills it in where the row has none.
    pub defaulted: bool,
    /// Computed by the database; plugins cannot set it.
    pub generated: bool,
    /// No check, foreign key or further unique key looks at this column, so several changes of it in one batch
    /// may be written as the last one, or as their sum.
    pub foldable: bool,
}

#[derive(Clone, Debug)]
pub struct UniqueKey {
    pub name: String,
    pub columns: Vec<ColumnId>,
}

/// What a column holds, in the terms of the contract.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Boolean,
    Integer {
        min: i64,
        max: i64,
    },
    Float {
        single: bool,
    },
    /// Exact numbers; `None` where the database sets no bound. Also unsigned 64-bit integers.
    Decimal {
        precision: Option<u32>,
        scale: Option<u32>,
    },
    /// Length in characters.
    Text {
        most: Option<u32>,
    },
    /// Length in bytes.
    Bytes {
        most: Option<u32>,
    },
    Timestamp,
    Uuid,
    Json,
    /// Read and written as text through the database's own cast: enums, dates, intervals, ...
    Opaque,
}

impl Catalog {
    /// Takes the tables as introspected and derives ranks and look-ups.
    pub fn new(mut tables: Vec<Table>) -> Self {
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        let index: HashMap<String, usize> = tables.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        let mut ranks: Vec<Option<u32>> = vec![None; tables.len()];
        let mut next = 0;
        for start in 0..tables.len() {
            place(start, &tables, &index, &mut ranks, &mut vec![false; tables.len()], &mut next);
        }
        for (table, rank) in tables.iter_mut().zip(&ranks) {
            table.rank = rank.unwrap_or(u32::MAX);
        }
        let by_name = tables.iter().enumerate().map(|(i, t)| (t.name.clone(), i as TableId)).collect();
        Catalog { tables, by_name }
    }

    pub fn table(&self, id: TableId) -> &Table {
        &self.tables[usize::from(id)]
    }

    pub fn find(&self, name: &str) -> Option<TableId> {
        self.by_name.get(name).copied()
    }

    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Table)> {
        self.tables.iter().enumerate().map(|(i, t)| (i as TableId, t))
    }
}

/// Depth first: parents get their place before their children; a cycle is cut where it closes.
fn place(
    at: usize,
    tables: &[Table],
    index: &HashMap<String, usize>,
    ranks: &mut [Option<u32>],
    open: &mut [bool],
    next: &mut u32,
) {
    if ranks[at].is_some() || open[at] {
        return;
    }
    open[at] = true;
    for parent in &tables[at].parents {
        if let Some(&parent) = index.get(parent) {
            place(parent, tables, index, ranks, open, next);
        }
    }
    ranks[at] = Some(*next);
    *next += 1;
}

impl Table {
    pub fn new(name: impl Into<String>, columns: Vec<Column>, keys: Vec<UniqueKey>) -> Self {
        let by_name = columns.iter().enumerate().map(|(i, c)| (c.name.clone(), i as ColumnId)).collect();
        Table { name: name.into(), columns, keys, parents: Vec::new(), observed: false, rank: 0, by_name }
    }

    pub fn column(&self, id: ColumnId) -> &Column {
        &self.columns[usize::from(id)]
    }

    pub fn find(&self, name: &str) -> Option<ColumnId> {
        self.by_name.get(name).copied()
    }

    /// Whether the columns are exactly those of one unique key, in any order.
    pub fn is_unique_key(&self, columns: &[ColumnId]) -> bool {
        self.keys
            .iter()
            .any(|key| key.columns.len() == columns.len() && columns.iter().all(|c| key.columns.contains(c)))
    }
}

impl Column {
    /// Brings a value to the one form in which this column's values are compared, or says why it cannot hold it.
    pub fn accept(&self, value: Value) -> Result<Value, String> {
        if self.generated {
            return Err(format!("column {} is generated by the database and cannot be set", self.name));
        }
        let no = |value: &Value, why: &str| {
            Err(format!("column {} is {}: it cannot hold this {} value{why}", self.name, self.native, value.case()))
        };
        match (self.kind, value) {
            (_, Value::Null) if self.nullable => Ok(Value::Null),
            (_, value @ Value::Null) => no(&value, ", it is NOT NULL"),
            (Kind::Boolean, value @ Value::Boolean(_)) => Ok(value),
            (Kind::Integer { min, max }, Value::Integer(i)) if (min..=max).contains(&i) => Ok(Value::Integer(i)),
            (Kind::Integer { min, max }, value @ Value::Integer(_)) => {
                no(&value, &format!(", its range is {min} to {max}"))
            }
            (Kind::Integer { min, max }, Value::Decimal(text)) => match text.parse::<i64>() {
                Ok(i) if (min..=max).contains(&i) => Ok(Value::Integer(i)),
                _ => no(&Value::Decimal(text), &format!(", it takes whole numbers from {min} to {max}")),
            },
            (Kind::Float { single: true }, Value::Float(f)) if f64::from(f as f32) != f && !f.is_nan() => {
                no(&Value::Float(f), " without losing digits")
            }
            (Kind::Float { .. }, value @ Value::Float(_)) => Ok(value),
            (Kind::Decimal { precision, scale }, Value::Integer(i)) => {
                self.decimal(&i.to_string(), precision, scale).map(Value::Decimal)
            }
            (Kind::Decimal { precision, scale }, Value::Decimal(text)) => {
                self.decimal(&text, precision, scale).map(Value::Decimal)
            }
            (Kind::Text { most }, Value::Text(text)) => match most {
                Some(most) if text.chars().count() > most as usize => {
                    no(&Value::Text(text), &format!(", it takes {most} characters"))
                }
                _ => Ok(Value::Text(text)),
            },
            (Kind::Bytes { most }, Value::Bytes(bytes)) => match most {
                Some(most) if bytes.len() > most as usize => {
                    no(&Value::Bytes(bytes), &format!(", it takes {most} bytes"))
                }
                _ => Ok(Value::Bytes(bytes)),
            },
            (Kind::Timestamp, value @ Value::Timestamp(_)) => Ok(value),
            (Kind::Uuid, value @ Value::Uuid(_)) => Ok(value),
            (Kind::Uuid, Value::Text(text)) => match Uuid::parse_str(&text) {
                Ok(uuid) => Ok(Value::Uuid(uuid)),
                Err(_) => no(&Value::Text(text), ", it takes a UUID"),
            },
            (Kind::Json, Value::Json(text)) => match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
                Ok(_) => Ok(Value::Json(text)),
                Err(error) => no(&Value::Json(text), &format!(", it is not JSON: {error}")),
            },
            (Kind::Opaque, value @ Value::Text(_)) => Ok(value),
            (_, value) => no(&value, ""),
        }
    }

    /// One spelling for each number: no sign of zero, no leading zeros, no trailing zeros of the fraction.
    fn decimal(&self, text: &str, precision: Option<u32>, scale: Option<u32>) -> Result<String, String> {
        let no = |why: &str| {
            Err(format!("column {} is {}: it cannot hold the decimal {text:?}{why}", self.name, self.native))
        };
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return no(", it takes digits with at most one point");
        }
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        if let Some(scale) = scale
            && fraction.len() > scale as usize
        {
            return no(&format!(", it keeps {scale} digits after the point"));
        }
        if let Some(precision) = precision
            && whole.len() > precision.saturating_sub(scale.unwrap_or(0)) as usize
        {
            return no(&format!(", it takes {} digits before the point", precision.saturating_sub(scale.unwrap_or(0))));
        }
        let mut canonical = String::with_capacity(text.len());
        if negative && !(whole.is_empty() && fraction.is_empty()) {
            canonical.push('-');
        }
        canonical.push_str(if whole.is_empty() { "0" } else { whole });
        if !fraction.is_empty() {
            canonical.push('.');
            canonical.push_str(fraction);
        }
        Ok(canonical)
    }
}
