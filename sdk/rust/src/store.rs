//! The one transaction that the host holds for this message.
//!
//! Effects are declared here and applied by the host, all or none. Reads see what this message and earlier ones in
//! its batch declared. Any error dooms the message: end the handler with `?`.

use crate::column::ToValue;
use crate::import::store as host;
use crate::row::{Fields, FromRow, Row, Stored};
use crate::{Field, Value};

pub use crate::bindings::ackwright::handler::store::{Error, GuardFailure};

/// How the message is rejected when the condition of its effect does not hold.
pub fn otherwise(code: impl Into<String>, reason: impl Into<String>) -> GuardFailure {
    GuardFailure { code: code.into(), reason: reason.into() }
}

/// The row must not exist: otherwise the message is rejected with the constraint's name.
pub fn insert<R: Stored>(row: &R) -> Result<(), Error> {
    host::insert(R::TABLE, &row.fields())
}

/// No effect where a row with this key exists.
pub fn insert_if_absent<R: Stored>(row: &R) -> Result<(), Error> {
    host::insert_if_absent(R::TABLE, &owned(R::KEY), &row.fields())
}

/// Inserts the row, or sets the columns beside its key.
pub fn upsert<R: Stored>(row: &R) -> Result<(), Error> {
    host::upsert(R::TABLE, &owned(R::KEY), &row.fields())
}

/// Sets the row only where it is absent or its version column is smaller.
pub fn upsert_if_newer<R: Stored>(row: &R) -> Result<(), Error> {
    let Some(version) = R::VERSION else {
        return Err(Error::Invalid(format!("the row type of table {} names no version column", R::TABLE)));
    };
    host::upsert_if_newer(R::TABLE, &owned(R::KEY), version, &row.fields())
}

/// A table by name, for what a row type alone does not say.
pub fn table(name: &str) -> Table<'_> {
    Table(name)
}

/// See [`table`].
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(&'a str);

impl Table<'_> {
    /// The row with this key, if there is one.
    pub fn get<T: FromRow>(self, key: impl Row) -> Result<Option<T>, Error> {
        host::get(self.0, &key.fields())?.map(|row| self.read(row)).transpose()
    }

    /// The same, locked until the transaction ends.
    pub fn get_for_update<T: FromRow>(self, key: impl Row) -> Result<Option<T>, Error> {
        host::get_for_update(self.0, &key.fields())?.map(|row| self.read(row)).transpose()
    }

    /// The row must not exist: otherwise the message is rejected with the constraint's name.
    pub fn insert(self, row: impl Row) -> Result<(), Error> {
        host::insert(self.0, &row.fields())
    }

    /// No effect where a row with the values of these key columns exists.
    pub fn insert_if_absent(self, key: &[&str], row: impl Row) -> Result<(), Error> {
        host::insert_if_absent(self.0, &owned(key), &row.fields())
    }

    /// Inserts the row, or sets the columns beside its key.
    pub fn upsert(self, key: &[&str], row: impl Row) -> Result<(), Error> {
        host::upsert(self.0, &owned(key), &row.fields())
    }

    /// Sets the row only where it is absent or its version column is smaller.
    pub fn upsert_if_newer(self, key: &[&str], version: &str, row: impl Row) -> Result<(), Error> {
        host::upsert_if_newer(self.0, &owned(key), version, &row.fields())
    }

    /// Sets columns of one existing row; where it is absent the message is rejected as `otherwise` says.
    pub fn update(self, key: impl Row, set: impl Row, otherwise: GuardFailure) -> Result<(), Error> {
        host::update(self.0, &key.fields(), &set.fields(), &otherwise)
    }

    /// Adds to numeric columns of one row; where it is absent the message is rejected as `otherwise` says.
    pub fn add(self, key: impl Row, amounts: impl Row, otherwise: GuardFailure) -> Result<(), Error> {
        host::add(self.0, &key.fields(), &amounts.fields(), None, &otherwise)
    }

    /// The same, rejected also where a result would fall below `floor`.
    pub fn add_above(
        self,
        floor: impl ToValue,
        key: impl Row,
        amounts: impl Row,
        otherwise: GuardFailure,
    ) -> Result<(), Error> {
        host::add(self.0, &key.fields(), &amounts.fields(), Some(&floor.to_value()), &otherwise)
    }

    /// Deletes one row; no effect where it is absent.
    pub fn delete(self, key: impl Row) -> Result<(), Error> {
        host::delete(self.0, &key.fields())
    }

    fn read<T: FromRow>(self, row: Vec<Field>) -> Result<T, Error> {
        T::from_row(Fields(row)).map_err(|why| Error::Invalid(format!("read a row of table {}: {why}", self.0)))
    }
}

/// One SELECT over granted tables. Parameters are `$1`, `$2`, ...; see [`params!`](crate::params).
pub fn query<T: FromRow>(sql: &str, parameters: &[Value]) -> Result<Vec<T>, Error> {
    host::query(sql, parameters)?
        .into_iter()
        .map(|row| T::from_row(Fields(row)).map_err(|why| Error::Invalid(format!("read a row of {sql:?}: {why}"))))
        .collect()
}

/// One INSERT, UPDATE or DELETE over granted tables, run at once; returns the rows affected.
pub fn execute(sql: &str, parameters: &[Value]) -> Result<u64, Error> {
    host::execute(sql, parameters)
}

/// Parameters of [`query`] and [`execute`].
///
/// ```
/// # use ackwright_sdk::{params, Value};
/// assert_eq!(params![7, "x"], [Value::Integer(7), Value::from("x")]);
/// ```
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { [$($crate::column::ToValue::to_value(&$value)),*] };
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).into()).collect()
}
