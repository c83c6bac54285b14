//! A table in memory: columns, unique keys, and the effects on it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Index;

use super::decimal::Decimal;
use crate::column::case;
use crate::store::{Error, GuardFailure};
use crate::{Field, Rejection, Uuid, Value, reject};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Boolean,
    Integer,
    Float,
    Decimal,
    Text,
    Bytes,
    Timestamp,
    Uuid,
    Json,
}

/// A table of the fake host.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    columns: Vec<Column>,
    keys: Vec<Vec<String>>,
    read: bool,
    write: bool,
    rows: Vec<Cells>,
    /// The first effect whose condition did not hold, or which a constraint refused.
    violation: Option<Rejection>,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    kind: Type,
    nullable: bool,
    default: Option<Value>,
}

type Cells = BTreeMap<String, Value>;

/// A row that a test looks at: `row["column"]`; columns without a value are null.
#[derive(Clone, Debug, PartialEq)]
pub struct Found(Cells);

impl Index<&str> for Found {
    type Output = Value;

    /// # Panics
    /// Where the table has no such column.
    fn index(&self, column: &str) -> &Value {
        self.0.get(column).unwrap_or_else(|| panic!("the table has no column {column}"))
    }
}

impl Table {
    pub fn new(name: &str) -> Self {
        Table {
            name: name.into(),
            columns: Vec::new(),
            keys: Vec::new(),
            read: true,
            write: true,
            rows: Vec::new(),
            violation: None,
        }
    }

    /// Adds a column that is NOT NULL and has no default.
    pub fn column(self, name: &str, kind: Type) -> Self {
        self.with(name, kind, false, None)
    }

    pub fn nullable(self, name: &str, kind: Type) -> Self {
        self.with(name, kind, true, None)
    }

    /// Adds a NOT NULL column that the database fills in where the row has no value.
    pub fn defaulted(self, name: &str, kind: Type, default: impl Into<Value>) -> Self {
        self.with(name, kind, false, Some(default.into()))
    }

    /// Adds a unique key; the first one is the primary key.
    pub fn key(mut self, columns: &[&str]) -> Self {
        self.keys.push(columns.iter().map(|c| (*c).into()).collect());
        self
    }

    /// The plugin has no grant to write it.
    pub fn read_only(mut self) -> Self {
        self.write = false;
        self
    }

    /// The plugin has no grant to read it.
    pub fn write_only(mut self) -> Self {
        self.read = false;
        self
    }

    fn with(mut self, name: &str, kind: Type, nullable: bool, default: Option<Value>) -> Self {
        self.columns.push(Column { name: name.into(), kind, nullable, default });
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn readable(&self) -> bool {
        self.read
    }

    pub(super) fn writable(&self) -> bool {
        self.write
    }

    pub(super) fn violation(&mut self) -> Option<Rejection> {
        self.violation.take()
    }

    pub(super) fn rows(&self) -> Vec<Found> {
        self.rows.iter().cloned().map(Found).collect()
    }

    pub(super) fn find(&self, key: &[Field]) -> Option<Found> {
        let key = self.accept(key).ok()?;
        self.position(&key).map(|at| Found(self.rows[at].clone()))
    }

    pub(super) fn get(&self, key: &[Field]) -> Result<Option<Vec<Field>>, Error> {
        let key = self.key_cells(key)?;
        let row = |at: usize| {
            let cells = self.columns.iter().map(|c| (&c.name, &self.rows[at][&c.name]));
            cells.map(|(name, value)| Field { name: name.clone(), value: value.clone() }).collect()
        };
        Ok(self.position(&key).map(row))
    }

    pub(super) fn insert(&mut self, row: &[Field]) -> Result<(), Error> {
        let cells = self.accept(row)?;
        self.add_row(cells);
        Ok(())
    }

    pub(super) fn insert_if_absent(&mut self, key: &[String], row: &[Field]) -> Result<(), Error> {
        let (key, cells) = self.split(key, row)?;
        if self.position(&key).is_none() {
            self.add_row(cells);
        }
        Ok(())
    }

    pub(super) fn upsert(&mut self, key: &[String], row: &[Field]) -> Result<(), Error> {
        let (key, cells) = self.split(key, row)?;
        match self.position(&key) {
            Some(at) => self.change(at, cells),
            None => self.add_row(cells),
        }
        Ok(())
    }

    pub(super) fn upsert_if_newer(&mut self, key: &[String], version: &str, row: &[Field]) -> Result<(), Error> {
        let (key, cells) = self.split(key, row)?;
        let Some(new) = cells.get(version).filter(|v| **v != Value::Null) else {
            return Err(self.invalid(format!("the row sets no version: column {version} must have a value")));
        };
        match self.position(&key) {
            None => self.add_row(cells),
            Some(at) => {
                let old = &self.rows[at][version];
                if *old == Value::Null || compare(old, new) == Some(Ordering::Less) {
                    self.change(at, cells);
                }
            }
        }
        Ok(())
    }

    pub(super) fn update(&mut self, key: &[Field], set: &[Field], otherwise: &GuardFailure) -> Result<(), Error> {
        let key = self.key_cells(key)?;
        let set = self.accept(set)?;
        if set.is_empty() {
            return Err(self.invalid("an update sets at least one column".into()));
        }
        match self.position(&key) {
            Some(at) => self.change(at, set),
            None => self.violate(guard(otherwise)),
        }
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        key: &[Field],
        amounts: &[Field],
        floor: Option<&Value>,
        otherwise: &GuardFailure,
    ) -> Result<(), Error> {
        let key = self.key_cells(key)?;
        let amounts = self.accept(amounts)?;
        if amounts.is_empty() {
            return Err(self.invalid("an add names at least one column".into()));
        }
        if let Some((name, value)) =
            amounts.iter().find(|(_, v)| !matches!(v, Value::Integer(_) | Value::Decimal(_) | Value::Float(_)))
        {
            return Err(self.invalid(format!("column {name} takes a number to add, not {}", case(value))));
        }
        let Some(at) = self.position(&key) else {
            self.violate(guard(otherwise));
            return Ok(());
        };
        let mut changed = Cells::new();
        for (name, amount) in amounts {
            match sum(&self.rows[at][&name], &amount) {
                Some(total) if floor.is_none_or(|floor| compare(&total, floor) != Some(Ordering::Less)) => {
                    changed.insert(name, total);
                }
                Some(_) => {
                    self.violate(guard(otherwise));
                    return Ok(());
                }
                None => {
                    let code = format!("out-of-range:{}.{name}", self.name);
                    self.violate(reject(code, format!("column {name} cannot hold the sum")));
                    return Ok(());
                }
            }
        }
        self.change(at, changed);
        Ok(())
    }

    pub(super) fn delete(&mut self, key: &[Field]) -> Result<(), Error> {
        let key = self.key_cells(key)?;
        if let Some(at) = self.position(&key) {
            self.rows.remove(at);
        }
        Ok(())
    }

    /// Looks up and checks the cells of a row.
    fn accept(&self, row: &[Field]) -> Result<Cells, Error> {
        let mut cells = Cells::new();
        for Field { name, value } in row {
            let Some(column) = self.columns.iter().find(|c| c.name == *name) else {
                return Err(self.invalid(format!("no such column {name}")));
            };
            let value = column.accept(value).map_err(|why| self.invalid(why))?;
            if cells.insert(name.clone(), value).is_some() {
                return Err(self.invalid(format!("column {name} is given twice")));
            }
        }
        Ok(cells)
    }

    /// Cells that must be those of one unique key.
    fn key_cells(&self, key: &[Field]) -> Result<Cells, Error> {
        let key = self.accept(key)?;
        self.unique(&key)?;
        Ok(key)
    }

    fn split(&self, key: &[String], row: &[Field]) -> Result<(Cells, Cells), Error> {
        let cells = self.accept(row)?;
        let mut found = Cells::new();
        for name in key {
            let Some(value) = cells.get(name) else {
                return Err(self.invalid(format!("the row has no value for key column {name}")));
            };
            found.insert(name.clone(), value.clone());
        }
        self.unique(&found)?;
        Ok((found, cells))
    }

    fn unique(&self, key: &Cells) -> Result<(), Error> {
        let is_key = |columns: &Vec<String>| columns.len() == key.len() && columns.iter().all(|c| key.contains_key(c));
        if !self.keys.iter().any(is_key) {
            let names: Vec<_> = key.keys().map(String::as_str).collect();
            return Err(self.invalid(format!("({}) is no unique key", names.join(", "))));
        }
        match key.iter().find(|(_, value)| **value == Value::Null) {
            Some((name, _)) => Err(self.invalid(format!("key column {name} is null"))),
            None => Ok(()),
        }
    }

    fn position(&self, key: &Cells) -> Option<usize> {
        self.rows.iter().position(|row| key.iter().all(|(name, value)| row.get(name) == Some(value)))
    }

    fn add_row(&mut self, given: Cells) {
        let mut row = Cells::new();
        for column in &self.columns {
            let value = given.get(&column.name).or(column.default.as_ref()).cloned().unwrap_or(Value::Null);
            if value == Value::Null && !column.nullable {
                let code = format!("not-null:{}.{}", self.name, column.name);
                let why = format!("column {} has no value and no default", column.name);
                return self.violate(reject(code, why));
            }
            row.insert(column.name.clone(), value);
        }
        self.put(None, row);
    }

    fn change(&mut self, at: usize, set: Cells) {
        let mut row = self.rows[at].clone();
        row.extend(set);
        self.put(Some(at), row);
    }

    /// Puts a row in place, unless another one holds one of its unique keys.
    fn put(&mut self, at: Option<usize>, row: Cells) {
        for (ordinal, columns) in self.keys.iter().enumerate() {
            let taken = self.rows.iter().enumerate().any(|(other, old)| {
                Some(other) != at && columns.iter().all(|c| row[c] != Value::Null && old[c] == row[c])
            });
            if taken {
                // The names that PostgreSQL gives to constraints.
                let code = match ordinal {
                    0 => format!("{}_pkey", self.name),
                    _ => format!("{}_{}_key", self.name, columns.join("_")),
                };
                return self.violate(reject(code, format!("table {}: a row with this key exists", self.name)));
            }
        }
        match at {
            Some(at) => self.rows[at] = row,
            None => self.rows.push(row),
        }
    }

    fn violate(&mut self, rejection: Rejection) {
        self.violation.get_or_insert(rejection);
    }

    fn invalid(&self, why: String) -> Error {
        Error::Invalid(format!("table {}: {why}", self.name))
    }
}

impl Column {
    fn accept(&self, value: &Value) -> Result<Value, String> {
        match (self.kind, value) {
            (_, Value::Null) if self.nullable => Ok(Value::Null),
            (Type::Boolean, Value::Boolean(_))
            | (Type::Integer, Value::Integer(_))
            | (Type::Float, Value::Float(_))
            | (Type::Text, Value::Text(_))
            | (Type::Bytes, Value::Bytes(_))
            | (Type::Timestamp, Value::Timestamp(_)) => Ok(value.clone()),
            (Type::Decimal, Value::Integer(i)) => Ok(Value::Decimal(i.to_string())),
            (Type::Decimal, Value::Decimal(text)) => match Decimal::parse(text) {
                Some(decimal) => Ok(Value::Decimal(decimal.text())),
                None => Err(format!("column {} is decimal: it cannot hold {text:?}", self.name)),
            },
            (Type::Uuid, Value::Uuid(text) | Value::Text(text)) => match Uuid::parse_str(text) {
                Ok(uuid) => Ok(Value::Uuid(uuid.to_string())),
                Err(_) => Err(format!("column {} is uuid: it cannot hold {text:?}", self.name)),
            },
            (Type::Json, Value::Json(text)) => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
                Ok(_) => Ok(value.clone()),
                Err(error) => Err(format!("column {} is json: {error}", self.name)),
            },
            (kind, value) => {
                Err(format!("column {} is {kind:?}: it cannot hold this {} value", self.name, case(value)))
            }
        }
    }
}

fn guard(otherwise: &GuardFailure) -> Rejection {
    reject(&otherwise.code, &otherwise.reason)
}

fn sum(old: &Value, amount: &Value) -> Option<Value> {
    match (old, amount) {
        (Value::Integer(a), Value::Integer(b)) => a.checked_add(*b).map(Value::Integer),
        (Value::Float(a), Value::Float(b)) => Some(Value::Float(a + b)),
        (Value::Decimal(a), Value::Decimal(b)) => {
            Decimal::parse(a)?.plus(Decimal::parse(b)?).map(|total| Value::Decimal(total.text()))
        }
        _ => None,
    }
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Decimal(a), Value::Decimal(b)) => Decimal::parse(a)?.compare(Decimal::parse(b)?),
        (Value::Decimal(a), Value::Integer(b)) => Decimal::parse(a)?.compare(Decimal::parse(&b.to_string())?),
        (Value::Integer(a), Value::Decimal(b)) => Decimal::parse(&a.to_string())?.compare(Decimal::parse(b)?),
        _ => None,
    }
}
