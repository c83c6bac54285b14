//! Columns of SQLite by their declared types: what each holds, how a value is stored, and how it is read back.
//!
//! **Invariant:** a value survives the round trip exactly or the call fails. SQLite converts what it stores by the
//! column's affinity, so values that it would change are refused before they get there, and what is read must have
//! the storage class that the declared type calls for.

use ackwright_core::catalog::{Column, Kind};
use ackwright_core::value::Value;
use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, TypeInfo, ValueRef};
use uuid::Uuid;

use super::decimal::{Decimal, significant};
use super::values::Parameters;

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// INTEGER 0 or 1.
    Boolean,
    Integer,
    Real,
    /// TEXT, compared and added by the host.
    DecimalText,
    /// INTEGER or REAL; exact to 15 digits.
    DecimalNumber,
    Text,
    Blob,
    /// INTEGER: microseconds since the Unix epoch, UTC.
    Micros,
    /// TEXT: lower-case with hyphens.
    UuidText,
    /// BLOB of 16 bytes.
    UuidBlob,
    /// TEXT; `numeric` where SQLite turns text that looks like a number into one.
    Json {
        numeric: bool,
    },
    Opaque {
        numeric: bool,
    },
}

/// A declared type, taken apart: `VARCHAR(20)`.
struct Declared {
    name: String,
    arguments: Vec<u32>,
}

impl Declared {
    fn parse(text: &str) -> Self {
        let text = text.to_ascii_uppercase();
        let (name, rest) = text.split_once('(').unwrap_or((&text, ""));
        let arguments = rest.split([',', ')']).filter_map(|a| a.trim().parse().ok()).collect();
        Declared { name: name.split_whitespace().collect::<Vec<_>>().join(" "), arguments }
    }

    /// <https://www.sqlite.org/datatype3.html#determination_of_column_affinity>, rules 1 to 5; true for NUMERIC,
    /// INTEGER and REAL, which turn text that looks like a number into one.
    fn numeric(&self) -> bool {
        let has = |part: &str| self.name.contains(part);
        if has("INT") {
            return true;
        }
        !(has("CHAR") || has("CLOB") || has("TEXT") || has("BLOB") || self.name.is_empty() || self.name == "ANY")
    }

    fn storage(&self) -> Storage {
        match self.name.as_str() {
            "BOOLEAN" | "BOOL" => Storage::Boolean,
            "INTEGER" | "INT" | "BIGINT" | "SMALLINT" | "TINYINT" | "MEDIUMINT" | "INT2" | "INT4" | "INT8"
            | "UNSIGNED BIG INT" => Storage::Integer,
            "REAL" | "DOUBLE" | "DOUBLE PRECISION" | "FLOAT" => Storage::Real,
            "DECIMAL_TEXT" | "NUMERIC_TEXT" => Storage::DecimalText,
            "DECIMAL" | "NUMERIC" | "NUMBER" => Storage::DecimalNumber,
            "TEXT" | "VARCHAR" | "CHAR" | "CHARACTER" | "CHARACTER VARYING" | "VARYING CHARACTER" | "NCHAR"
            | "NVARCHAR" | "NATIVE CHARACTER" | "CLOB" => Storage::Text,
            "BLOB" | "BYTEA" | "BINARY" | "VARBINARY" => Storage::Blob,
            "TIMESTAMP" | "TIMESTAMPTZ" | "TIMESTAMP WITH TIME ZONE" | "DATETIME" => Storage::Micros,
            "UUID" | "GUID" | "UNIQUEIDENTIFIER" | "UUID_TEXT" => Storage::UuidText,
            "UUID_BLOB" => Storage::UuidBlob,
            "JSON" | "JSON_TEXT" => Storage::Json { numeric: self.numeric() },
            _ => Storage::Opaque { numeric: self.numeric() },
        }
    }
}

/// What core is told of a column that was declared like this: its kind and its type's name for messages.
pub(super) fn describe(declared: &str) -> (Kind, String) {
    let parsed = Declared::parse(declared);
    let argument = |i: usize| parsed.arguments.get(i).copied();
    let kind = match parsed.storage() {
        Storage::Boolean => Kind::Boolean,
        Storage::Integer => Kind::Integer { min: i64::MIN, max: i64::MAX },
        Storage::Real => Kind::Float { single: false },
        Storage::DecimalText => {
            Kind::Decimal { precision: argument(0), scale: argument(0).map(|_| argument(1).unwrap_or(0)) }
        }
        Storage::DecimalNumber => match argument(0) {
            Some(precision) => {
                Kind::Decimal { precision: Some(precision.min(15)), scale: Some(argument(1).unwrap_or(0)) }
            }
            None => Kind::Decimal { precision: None, scale: None },
        },
        Storage::Text => Kind::Text { most: argument(0) },
        Storage::Blob => Kind::Bytes { most: argument(0) },
        Storage::Micros => Kind::Timestamp,
        Storage::UuidText | Storage::UuidBlob => Kind::Uuid,
        Storage::Json { .. } => Kind::Json,
        Storage::Opaque { .. } => Kind::Opaque,
    };
    (kind, if declared.is_empty() { "untyped".into() } else { declared.into() })
}

pub(super) fn storage(column: &Column) -> Storage {
    if column.native == "untyped" {
        Storage::Opaque { numeric: false }
    } else {
        Declared::parse(&column.native).storage()
    }
}

/// Binds a value that core accepted for a column stored like this, or says why SQLite cannot keep it.
pub(super) fn bind(parameters: &mut Parameters, storage: Storage, value: &Value) -> Result<(), String> {
    match (storage, value) {
        (_, Value::Null) => parameters.push(None::<i64>),
        (Storage::Boolean, Value::Boolean(b)) => parameters.push(i64::from(*b)),
        (Storage::Integer, Value::Integer(i)) => parameters.push(*i),
        (Storage::Micros, Value::Timestamp(t)) => parameters.push(*t),
        (Storage::Real, Value::Float(f)) => parameters.push(float(*f)?),
        (Storage::DecimalText, Value::Decimal(text)) => parameters.push(text.clone()),
        (Storage::DecimalNumber, Value::Decimal(text)) => decimal(parameters, text)?,
        (Storage::Text, Value::Text(text)) => parameters.push(text.clone()),
        (Storage::Blob, Value::Bytes(bytes)) => parameters.bytes(bytes),
        (Storage::UuidText, Value::Uuid(uuid)) => parameters.push(uuid.hyphenated().to_string()),
        (Storage::UuidBlob, Value::Uuid(uuid)) => parameters.bytes(uuid.as_bytes()),
        (Storage::Json { numeric }, Value::Json(text)) => {
            if numeric && looks_numeric(text) && !whole(text) {
                return Err(format!(
                    "SQLite would turn the JSON number {text} in a JSON column into a binary float; declare the column \
                     JSON_TEXT"
                ));
            }
            parameters.push(text.clone());
        }
        (Storage::Opaque { numeric }, Value::Text(text)) => {
            if numeric && looks_numeric(text) {
                return Err(format!(
                    "SQLite would turn the text {text:?} into a number in a column of this type; declare the column TEXT"
                ));
            }
            parameters.push(text.clone());
        }
        (storage, value) => {
            return Err(format!("a column stored as {storage:?} cannot hold this {} value", value.case()));
        }
    }
    Ok(())
}

/// Binds a parameter of plugin SQL, where no column is known.
pub(super) fn bind_free(parameters: &mut Parameters, value: &Value) -> Result<(), String> {
    match value {
        Value::Null => parameters.push(None::<i64>),
        Value::Boolean(b) => parameters.push(i64::from(*b)),
        Value::Integer(i) | Value::Timestamp(i) => parameters.push(*i),
        Value::Float(f) => parameters.push(float(*f)?),
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) => parameters.push(text.clone()),
        Value::Bytes(bytes) => parameters.bytes(bytes),
        Value::Uuid(uuid) => parameters.push(uuid.hyphenated().to_string()),
    }
    Ok(())
}

fn float(f: f64) -> Result<f64, String> {
    if f.is_nan() {
        return Err("SQLite stores NaN as NULL".into());
    }
    if f == 0.0 && f.is_sign_negative() {
        return Err("SQLite stores -0.0 as 0.0".into());
    }
    Ok(f)
}

fn decimal(parameters: &mut Parameters, text: &str) -> Result<(), String> {
    if let Ok(whole) = text.parse::<i64>() {
        parameters.push(whole);
        return Ok(());
    }
    if significant(text) > 15 {
        return Err(format!(
            "SQLite keeps 15 digits in a DECIMAL column, and {text} has {}; declare the column DECIMAL_TEXT",
            significant(text)
        ));
    }
    let number = text.parse::<f64>().map_err(|_| format!("{text:?} is not a decimal"))?;
    parameters.push(number);
    Ok(())
}

/// Whether SQLite's numeric affinity would turn this text into a number; too strict rather than too lax.
fn looks_numeric(text: &str) -> bool {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
    let digits = text.trim_start_matches(['+', '-']);
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && text.parse::<f64>().is_ok()
}

/// A whole number that comes back spelled the same.
fn whole(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|i| i.to_string() == text)
}

/// Reads a value of a known column.
pub(super) fn decode(row: &SqliteRow, at: usize, column: &Column, storage: Storage) -> Result<Value, String> {
    let raw = raw(row, at)?;
    let found = raw.class();
    let value = match (storage, raw) {
        (_, Raw::Null) => Some(Value::Null),
        (Storage::Boolean, Raw::Integer(i @ 0..=1)) => Some(Value::Boolean(i == 1)),
        (Storage::Integer, Raw::Integer(i)) => Some(Value::Integer(i)),
        (Storage::Real, Raw::Real(f)) => Some(Value::Float(f)),
        (Storage::DecimalText | Storage::DecimalNumber, Raw::Integer(i)) => Some(Value::Decimal(i.to_string())),
        (Storage::DecimalText | Storage::DecimalNumber, Raw::Text(text)) => {
            Decimal::parse(&text).map(|d| Value::Decimal(d.text()))
        }
        (Storage::DecimalText | Storage::DecimalNumber, Raw::Real(f)) => shortest(f).map(Value::Decimal),
        (Storage::Text, Raw::Text(text)) => Some(Value::Text(text)),
        (Storage::Blob, Raw::Blob(bytes)) => Some(Value::Bytes(bytes)),
        (Storage::Micros, Raw::Integer(t)) => Some(Value::Timestamp(t)),
        (Storage::Micros, Raw::Text(text)) => micros(&text).map(Value::Timestamp),
        (Storage::UuidText, Raw::Text(text)) => {
            Uuid::parse_str(&text).ok().filter(|u| u.hyphenated().to_string() == text).map(Value::Uuid)
        }
        (Storage::UuidBlob, Raw::Blob(bytes)) => Uuid::from_slice(&bytes).ok().map(Value::Uuid),
        (Storage::Json { .. }, Raw::Text(text)) => Some(Value::Json(text)),
        (Storage::Json { .. }, Raw::Integer(i)) => Some(Value::Json(i.to_string())),
        (Storage::Opaque { .. }, Raw::Text(text)) => Some(Value::Text(text)),
        _ => None,
    };
    value.ok_or_else(|| {
        format!(
            "column {} is declared {}, but this row holds {found} there that is no value of that type{}",
            column.name,
            column.native,
            hint(storage)
        )
    })
}

fn hint(storage: Storage) -> &'static str {
    match storage {
        Storage::Boolean => " (INTEGER 0 or 1)",
        Storage::Integer => " (INTEGER)",
        Storage::Real => " (REAL)",
        Storage::DecimalText | Storage::DecimalNumber => " (a number that 15 digits tell exactly, or digits as TEXT)",
        Storage::Text | Storage::Json { .. } | Storage::Opaque { .. } => " (TEXT)",
        Storage::Blob => " (BLOB)",
        Storage::Micros => " (INTEGER microseconds since 1970, or the TEXT of CURRENT_TIMESTAMP)",
        Storage::UuidText => " (TEXT in lower case with hyphens; for 16 bytes declare UUID_BLOB)",
        Storage::UuidBlob => " (BLOB of 16 bytes; for text declare UUID)",
    }
}

/// Reads a value of an expression by its storage class alone.
pub(super) fn decode_free(row: &SqliteRow, at: usize) -> Result<Value, String> {
    Ok(match raw(row, at)? {
        Raw::Null => Value::Null,
        Raw::Integer(i) => Value::Integer(i),
        Raw::Real(f) => Value::Float(f),
        Raw::Text(text) => Value::Text(text),
        Raw::Blob(bytes) => Value::Bytes(bytes),
    })
}

enum Raw {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Bytes),
}

impl Raw {
    fn class(&self) -> &'static str {
        match self {
            Raw::Null => "NULL",
            Raw::Integer(_) => "an INTEGER",
            Raw::Real(_) => "a REAL",
            Raw::Text(_) => "a TEXT",
            Raw::Blob(_) => "a BLOB",
        }
    }
}

fn raw(row: &SqliteRow, at: usize) -> Result<Raw, String> {
    let value = row.try_get_raw(at).map_err(|error| error.to_string())?;
    if value.is_null() {
        return Ok(Raw::Null);
    }
    let class = value.type_info().into_owned();
    let read = match class.name() {
        "INTEGER" => <i64 as Decode<Sqlite>>::decode(value).map(Raw::Integer),
        "REAL" => <f64 as Decode<Sqlite>>::decode(value).map(Raw::Real),
        "TEXT" => <String as Decode<Sqlite>>::decode(value).map(Raw::Text),
        "BLOB" => <Vec<u8> as Decode<Sqlite>>::decode(value).map(|bytes| Raw::Blob(bytes.into())),
        other => return Err(format!("SQLite reports the unknown storage class {other}")),
    };
    read.map_err(|error| format!("column {at} of the answer holds a {} that cannot be read: {error}", class.name()))
}

/// The number that 15 digits tell, where they tell this float and no other.
fn shortest(f: f64) -> Option<String> {
    let text = format!("{f:.14e}");
    if text.parse::<f64>().ok()? != f {
        return None;
    }
    let (digits, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    if exponent.abs() > 30 {
        return None;
    }
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |d| ("-", d));
    let digits = digits.replace('.', "");
    let point = exponent + 1;
    let plain = if point <= 0 {
        format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize))
    } else if point as usize >= digits.len() {
        format!("{sign}{digits}{}", "0".repeat(point as usize - digits.len()))
    } else {
        format!("{sign}{}.{}", &digits[..point as usize], &digits[point as usize..])
    };
    Decimal::parse(&plain).map(Decimal::text)
}

/// `2026-01-31 12:30:00`, with or without a fraction: what CURRENT_TIMESTAMP and `datetime()` write, in UTC.
fn micros(text: &str) -> Option<i64> {
    let time: jiff::civil::DateTime = text.strip_suffix('Z').unwrap_or(text).parse().ok()?;
    let stamp = jiff::tz::TimeZone::UTC.to_timestamp(time).ok()?;
    (stamp.subsec_nanosecond() % 1000 == 0).then(|| stamp.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t11_declared_types_become_kinds() {
        let kind = |text: &str| describe(text).0;
        assert_eq!(kind("varchar( 20 )"), Kind::Text { most: Some(20) });
        assert_eq!(kind("Unsigned  Big Int"), Kind::Integer { min: i64::MIN, max: i64::MAX });
        assert_eq!(kind("DECIMAL(10,2)"), Kind::Decimal { precision: Some(10), scale: Some(2) });
        assert_eq!(kind("DECIMAL(30,2)"), Kind::Decimal { precision: Some(15), scale: Some(2) });
        assert_eq!(kind("DECIMAL_TEXT(30,2)"), Kind::Decimal { precision: Some(30), scale: Some(2) });
        assert_eq!(kind("double precision"), Kind::Float { single: false });
        assert_eq!(kind(""), Kind::Opaque);
        assert_eq!(Declared::parse("DATE").storage(), Storage::Opaque { numeric: true });
        assert_eq!(Declared::parse("JSON_TEXT").storage(), Storage::Json { numeric: false });
    }

    #[test]
    fn t11_floats_become_decimals_only_where_15_digits_tell_them() {
        assert_eq!(shortest(0.1).as_deref(), Some("0.1"));
        assert_eq!(shortest(-1234.5).as_deref(), Some("-1234.5"));
        assert_eq!(shortest(0.000_001).as_deref(), Some("0.000001"));
        assert_eq!(shortest(1e20).as_deref(), Some("100000000000000000000"));
        assert_eq!(shortest(0.1 + 0.2), None);
        assert_eq!(shortest(f64::INFINITY), None);
    }

    #[test]
    fn t11_text_that_sqlite_would_turn_into_a_number_is_recognised() {
        for text in ["1", " 1.50 ", "-2e3", ".5", "5."] {
            assert!(looks_numeric(text), "{text:?}");
        }
        for text in ["2026-01-31", "1 day", "abc", "", "infinity", "0x10"] {
            assert!(!looks_numeric(text), "{text:?}");
        }
    }

    #[test]
    fn t11_timestamps_of_sqlite_are_read_as_utc() {
        assert_eq!(micros("1970-01-01 00:00:01"), Some(1_000_000));
        assert_eq!(micros("1970-01-01 00:00:00.25"), Some(250_000));
        assert_eq!(micros("yesterday"), None);
    }
}
