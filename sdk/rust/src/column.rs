//! Rust types as database values.
//!
//! | Rust | value | Rust | value |
//! |---|---|---|---|
//! | `bool` | boolean | [`Bytes`], `Vec<u8>` | bytes |
//! | `i8` to `i64`, `u8` to `u32` | integer | [`Timestamp`] | timestamp |
//! | `u64`, `i128`, `u128` | integer, or decimal where it does not fit | [`Uuid`] | uuid |
//! | `f32`, `f64` | float | [`Json`], `serde_json::Value` | json |
//! | [`Decimal`] | decimal | `Option` | null or the inner value |
//! | `String`, `&str` | text | [`Value`] | itself |

use std::fmt;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Rejection, Uuid, Value, reject};

/// A type that a column can be written from.
pub trait ToValue {
    fn to_value(&self) -> Value;
}

/// A type that a column can be read into.
pub trait FromValue: Sized {
    /// Says what was expected where the value does not fit.
    fn from_value(value: Value) -> Result<Self, String>;
}

/// Bytes, for columns and for struct fields that serde should not take for a list of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes(pub Vec<u8>);

/// Microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    pub const fn from_millis(millis: i64) -> Self {
        Timestamp(millis * 1_000)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }
}

/// An exact decimal number as text. It is carried, not computed with: bring a decimal crate for arithmetic.
///
/// ```
/// # use ackwright_sdk::Decimal;
/// let price: Decimal = "19.90".parse().unwrap();
/// assert_eq!(price.to_string(), "19.90");
/// assert!("1e3".parse::<Decimal>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Decimal(String);

impl FromStr for Decimal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let fine = (!whole.is_empty() || !fraction.is_empty())
            && whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
        if fine {
            Ok(Decimal(text.into()))
        } else {
            Err(format!("{text:?} is no decimal number: it takes digits with at most one point"))
        }
    }
}

impl TryFrom<String> for Decimal {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Decimal> for String {
    fn from(decimal: Decimal) -> Self {
        decimal.0
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Decimal {
    /// The number with its sign turned.
    pub fn negated(&self) -> Self {
        match self.0.strip_prefix('-') {
            Some(rest) => Decimal(rest.into()),
            None => Decimal(format!("-{}", self.0.trim_start_matches('+'))),
        }
    }

    pub fn is_negative(&self) -> bool {
        self.0.starts_with('-') && !self.is_zero()
    }

    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|b| matches!(b, b'0' | b'.' | b'-' | b'+'))
    }
}

/// One JSON document, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// Writes a value as JSON; rejected as `bad-json` where JSON cannot hold it.
    pub fn of(value: &impl Serialize) -> Result<Self, Rejection> {
        serde_json::to_string(value).map(Json).map_err(|e| reject("bad-json", format!("write a column as JSON: {e}")))
    }

    pub fn get<T: DeserializeOwned>(&self) -> Result<T, Rejection> {
        serde_json::from_str(&self.0).map_err(|e| reject("bad-json", format!("read a column as JSON: {e}")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The WIT case name, for messages.
pub(crate) fn case(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) => "integer",
        Value::Float(_) => "float",
        Value::Decimal(_) => "decimal",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytes",
        Value::Timestamp(_) => "timestamp",
        Value::Uuid(_) => "uuid",
        Value::Json(_) => "json",
    }
}

fn expected<T>(what: &str, value: &Value) -> Result<T, String> {
    Err(format!("expected {what}, found {}", case(value)))
}

macro_rules! column {
    ($type:ty, $what:literal, |$from:ident| $to:expr, $($pattern:pat => $result:expr),+) => {
        impl ToValue for $type {
            fn to_value(&self) -> Value {
                let $from = self;
                $to
            }
        }

        impl FromValue for $type {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    $($pattern => Ok($result),)+
                    other => expected($what, &other),
                }
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                value.to_value()
            }
        }
    };
}

column!(bool, "boolean", |b| Value::Boolean(*b), Value::Boolean(b) => b);
column!(String, "text", |t| Value::Text(t.clone()), Value::Text(t) => t);
column!(Bytes, "bytes", |b| Value::Bytes(b.0.clone()), Value::Bytes(b) => Bytes(b));
column!(Vec<u8>, "bytes", |b| Value::Bytes(b.clone()), Value::Bytes(b) => b);
column!(Timestamp, "timestamp", |t| Value::Timestamp(t.0), Value::Timestamp(t) => Timestamp(t));
column!(Json, "json", |j| Value::Json(j.0.clone()), Value::Json(t) => Json(t));
column!(Decimal, "decimal", |d| Value::Decimal(d.0.clone()), Value::Decimal(t) => Decimal(t), Value::Integer(i) => Decimal(i.to_string()));

macro_rules! integer {
    ($($type:ty)*) => {$(
        impl ToValue for $type {
            fn to_value(&self) -> Value {
                match i64::try_from(*self) {
                    Ok(i) => Value::Integer(i),
                    Err(_) => Value::Decimal(self.to_string()),
                }
            }
        }

        impl FromValue for $type {
            fn from_value(value: Value) -> Result<Self, String> {
                let out_of_range = |number: &str| format!("{number} does not fit into {}", stringify!($type));
                match value {
                    Value::Integer(i) => <$type>::try_from(i).map_err(|_| out_of_range(&i.to_string())),
                    Value::Decimal(t) => t.parse().map_err(|_| out_of_range(&t)),
                    other => expected("integer", &other),
                }
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                value.to_value()
            }
        }
    )*};
}

integer!(i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);

macro_rules! float {
    ($($type:ty)*) => {$(
        impl ToValue for $type {
            fn to_value(&self) -> Value {
                Value::Float(f64::from(*self))
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                value.to_value()
            }
        }
    )*};
}

float!(f32 f64);

impl FromValue for f64 {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Float(f) => Ok(f),
            other => expected("float", &other),
        }
    }
}

impl FromValue for f32 {
    fn from_value(value: Value) -> Result<Self, String> {
        let wide = f64::from_value(value)?;
        let narrow = wide as f32;
        if f64::from(narrow) == wide || wide.is_nan() {
            Ok(narrow)
        } else {
            Err(format!("{wide} does not fit into f32"))
        }
    }
}

impl ToValue for Uuid {
    fn to_value(&self) -> Value {
        Value::Uuid(self.to_string())
    }
}

impl FromValue for Uuid {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Uuid(t) => Uuid::parse_str(&t).map_err(|e| format!("{t:?} is no UUID: {e}")),
            other => expected("uuid", &other),
        }
    }
}

impl From<Uuid> for Value {
    fn from(uuid: Uuid) -> Self {
        uuid.to_value()
    }
}

impl ToValue for serde_json::Value {
    fn to_value(&self) -> Value {
        Value::Json(self.to_string())
    }
}

impl FromValue for serde_json::Value {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Json(t) => serde_json::from_str(&t).map_err(|e| format!("read JSON: {e}")),
            other => expected("json", &other),
        }
    }
}

impl ToValue for str {
    fn to_value(&self) -> Value {
        Value::Text(self.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value {
        (**self).to_value()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl<T: ToValue> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.to_value()
    }
}

impl ToValue for Value {
    fn to_value(&self) -> Value {
        self.clone()
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, String> {
        Ok(value)
    }
}
