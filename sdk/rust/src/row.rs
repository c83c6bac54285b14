//! Rows: a derived struct, a single `("column", value)` pair, or [`row!`](crate::row!) where a struct is too much.

use crate::column::{FromValue, ToValue};
use crate::{Field, Value};

/// Something that names columns with values. Derive it: `#[derive(Row)]`, with the column names of the fields.
///
/// ```
/// use ackwright_sdk::prelude::*;
///
/// #[derive(Row)]
/// #[row(table = "profiles", key("user_id"), version = "revision")]
/// struct Profile<'a> {
///     user_id: &'a str,
///     revision: i64,
///     #[row(column = "display name")]
///     name: Option<String>,
/// }
///
/// let profile = Profile { user_id: "ada", revision: 3, name: None };
/// assert_eq!(profile.fields()[2].name, "display name");
/// assert_eq!(profile.fields()[2].value, Value::Null);
/// assert_eq!(Profile::KEY, ["user_id"]);
/// ```
pub trait Row {
    fn fields(&self) -> Vec<Field>;
}

/// A row that knows its table: `#[row(table = "..", key("..", ".."), version = "..")]`.
pub trait Stored: Row {
    const TABLE: &'static str;
    /// The columns of one unique key; empty where the derive names none.
    const KEY: &'static [&'static str];
    /// For `upsert_if_newer`.
    const VERSION: Option<&'static str>;
}

/// A type that a row of the database can be read into. Derive it: `#[derive(FromRow)]`. A column that the row does
/// not have reads as null; columns without a field are ignored.
///
/// ```
/// use ackwright_sdk::{prelude::*, row::Fields};
///
/// #[derive(FromRow, Debug, PartialEq)]
/// struct Account {
///     id: String,
///     balance: i64,
///     note: Option<String>,
/// }
///
/// let account = Account::from_row(Fields(row! { "id": "a", "balance": 5 })).unwrap();
/// assert_eq!(account, Account { id: "a".into(), balance: 5, note: None });
/// assert_eq!(
///     Account::from_row(Fields(row! { "id": 7, "balance": 5 })).unwrap_err(),
///     "column id: expected text, found integer",
/// );
/// ```
pub trait FromRow: Sized {
    /// Says which column did not fit, and how.
    fn from_row(row: Fields) -> Result<Self, String>;
}

/// The fields of a row as the host returned them.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Vec<Field>);

impl Fields {
    /// Takes one column out, as the type of a struct field.
    pub fn take<T: FromValue>(&mut self, column: &str) -> Result<T, String> {
        let value = match self.0.iter_mut().find(|f| f.name == column) {
            Some(field) => std::mem::replace(&mut field.value, Value::Null),
            None => Value::Null,
        };
        T::from_value(value).map_err(|why| format!("column {column}: {why}"))
    }

    pub fn get(&self, column: &str) -> Option<&Value> {
        self.0.iter().find(|f| f.name == column).map(|f| &f.value)
    }
}

impl FromRow for Fields {
    fn from_row(row: Fields) -> Result<Self, String> {
        Ok(row)
    }
}

impl Row for Fields {
    fn fields(&self) -> Vec<Field> {
        self.0.clone()
    }
}

impl<T: Row + ?Sized> Row for &T {
    fn fields(&self) -> Vec<Field> {
        (**self).fields()
    }
}

impl Row for Vec<Field> {
    fn fields(&self) -> Vec<Field> {
        self.clone()
    }
}

impl<V: ToValue> Row for (&str, V) {
    fn fields(&self) -> Vec<Field> {
        vec![Field { name: self.0.into(), value: self.1.to_value() }]
    }
}

impl<V: ToValue, const N: usize> Row for [(&str, V); N] {
    fn fields(&self) -> Vec<Field> {
        self.iter().map(|(name, value)| Field { name: (*name).into(), value: value.to_value() }).collect()
    }
}

/// A row of columns with values of any column types.
///
/// ```
/// # use ackwright_sdk::{row, Value};
/// let key = row! { "order_id": "o-1", "line": 2 };
/// assert_eq!(key[1].value, Value::Integer(2));
/// ```
#[macro_export]
macro_rules! row {
    ($($column:literal : $value:expr),* $(,)?) => {
        vec![$($crate::Field {
            name: ::std::string::String::from($column),
            value: $crate::column::ToValue::to_value(&$value),
        }),*]
    };
}
