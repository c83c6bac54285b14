//! The types that travel in PostgreSQL's binary form, each value exactly or not at all.

use ackwright_core::value::Value;
use bytes::Bytes;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, Postgres};
use uuid::Uuid;

use super::numeric;

/// Microseconds from the Unix epoch to 2000-01-01, where PostgreSQL counts from.
const EPOCH: i64 = 946_684_800_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytea,
    Uuid,
    Timestamptz,
    Timestamp,
    Json,
    Jsonb,
}

impl Native {
    /// Object ids of built-in types are the same in every installation.
    fn oids(self) -> (u32, u32) {
        match self {
            Native::Bool => (16, 1000),
            Native::Int2 => (21, 1005),
            Native::Int4 => (23, 1007),
            Native::Int8 => (20, 1016),
            Native::Float4 => (700, 1021),
            Native::Float8 => (701, 1022),
            Native::Numeric => (1700, 1231),
            Native::Text => (25, 1009),
            Native::Bytea => (17, 1001),
            Native::Uuid => (2950, 2951),
            Native::Timestamptz => (1184, 1185),
            Native::Timestamp => (1114, 1115),
            Native::Json => (114, 199),
            Native::Jsonb => (3802, 3807),
        }
    }

    /// `varchar`, `char(n)`, `name` and untyped literals travel as text does.
    pub(super) fn of(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Native::Bool,
            21 => Native::Int2,
            23 => Native::Int4,
            20 => Native::Int8,
            700 => Native::Float4,
            701 => Native::Float8,
            1700 => Native::Numeric,
            25 | 1043 | 1042 | 19 | 705 => Native::Text,
            17 => Native::Bytea,
            2950 => Native::Uuid,
            1184 => Native::Timestamptz,
            1114 => Native::Timestamp,
            114 => Native::Json,
            3802 => Native::Jsonb,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Native::Bool => "bool",
            Native::Int2 => "int2",
            Native::Int4 => "int4",
            Native::Int8 => "int8",
            Native::Float4 => "float4",
            Native::Float8 => "float8",
            Native::Numeric => "numeric",
            Native::Text => "text",
            Native::Bytea => "bytea",
            Native::Uuid => "uuid",
            Native::Timestamptz => "timestamptz",
            Native::Timestamp => "timestamp",
            Native::Json => "json",
            Native::Jsonb => "jsonb",
        }
    }

    /// Appends the binary form of a value that is not NULL.
    fn encode(self, value: &Value, out: &mut Vec<u8>) -> Result<(), String> {
        let no = |why: &str| Err(format!("a {} cannot hold this {} value{why}", self.name(), value.case()));
        match (self, value) {
            (Native::Bool, Value::Boolean(b)) => out.push(u8::from(*b)),
            (Native::Int2, Value::Integer(i)) => match i16::try_from(*i) {
                Ok(i) => out.extend_from_slice(&i.to_be_bytes()),
                Err(_) => return no(": it is out of range"),
            },
            (Native::Int4, Value::Integer(i)) => match i32::try_from(*i) {
                Ok(i) => out.extend_from_slice(&i.to_be_bytes()),
                Err(_) => return no(": it is out of range"),
            },
            (Native::Int8, Value::Integer(i)) => out.extend_from_slice(&i.to_be_bytes()),
            (Native::Float4, Value::Float(f)) => {
                let single = *f as f32;
                if f64::from(single) != *f && !f.is_nan() {
                    return no(" without losing digits");
                }
                out.extend_from_slice(&single.to_be_bytes());
            }
            (Native::Float8, Value::Float(f)) => out.extend_from_slice(&f.to_be_bytes()),
            (Native::Numeric, Value::Decimal(text)) => numeric::encode(text, out)?,
            (Native::Numeric, Value::Integer(i)) => numeric::encode(&i.to_string(), out)?,
            (Native::Text, Value::Text(text)) | (Native::Json, Value::Json(text)) => {
                if text.contains('\0') {
                    return no(": it contains a NUL character");
                }
                out.extend_from_slice(text.as_bytes());
            }
            (Native::Jsonb, Value::Json(text)) => {
                out.push(1);
                out.extend_from_slice(text.as_bytes());
            }
            (Native::Bytea, Value::Bytes(bytes)) => out.extend_from_slice(bytes),
            (Native::Uuid, Value::Uuid(uuid)) => out.extend_from_slice(uuid.as_bytes()),
            (Native::Timestamptz | Native::Timestamp, Value::Timestamp(micros)) => match micros.checked_sub(EPOCH) {
                // The two extremes mean infinity.
                Some(since) if since != i64::MIN && since != i64::MAX => out.extend_from_slice(&since.to_be_bytes()),
                _ => return no(": it is out of range"),
            },
            (_, _) => return no(""),
        }
        Ok(())
    }

    /// The value of a binary form, or why it has none in the terms of the contract.
    pub(super) fn decode(self, bytes: &[u8]) -> Result<Value, String> {
        fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
            bytes.try_into().map_err(|_| format!("{} bytes came where {N} were due", bytes.len()))
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| "it is not UTF-8".to_owned());
        Ok(match self {
            Native::Bool => Value::Boolean(exact::<1>(bytes)?[0] != 0),
            Native::Int2 => Value::Integer(i16::from_be_bytes(exact(bytes)?).into()),
            Native::Int4 => Value::Integer(i32::from_be_bytes(exact(bytes)?).into()),
            Native::Int8 => Value::Integer(i64::from_be_bytes(exact(bytes)?)),
            Native::Float4 => Value::Float(f32::from_be_bytes(exact(bytes)?).into()),
            Native::Float8 => Value::Float(f64::from_be_bytes(exact(bytes)?)),
            Native::Numeric => Value::Decimal(numeric::decode(bytes)?),
            Native::Text => Value::Text(text(bytes)?),
            Native::Bytea => Value::Bytes(Bytes::copy_from_slice(bytes)),
            Native::Uuid => Value::Uuid(Uuid::from_bytes(exact(bytes)?)),
            Native::Timestamptz | Native::Timestamp => match i64::from_be_bytes(exact(bytes)?) {
                i64::MIN | i64::MAX => return Err("infinity is no point in time".into()),
                since => Value::Timestamp(since.checked_add(EPOCH).ok_or("it is out of range")?),
            },
            Native::Json => Value::Json(text(bytes)?),
            Native::Jsonb => match bytes.split_first() {
                Some((1, rest)) => Value::Json(text(rest)?),
                _ => return Err("it is in an unknown version of jsonb".into()),
            },
        })
    }
}

/// One parameter, encoded.
#[derive(Debug)]
pub(super) struct Param {
    oid: u32,
    bytes: Option<Vec<u8>>,
}

impl Param {
    pub(super) fn value(native: Native, value: &Value) -> Result<Self, String> {
        let oid = native.oids().0;
        if *value == Value::Null {
            return Ok(Param { oid, bytes: None });
        }
        let mut bytes = Vec::new();
        native.encode(value, &mut bytes)?;
        Ok(Param { oid, bytes: Some(bytes) })
    }

    pub(super) fn text(text: &str) -> Self {
        Param { oid: 25, bytes: Some(text.as_bytes().to_vec()) }
    }

    pub(super) fn optional_text(text: Option<&str>) -> Self {
        Param { oid: 25, bytes: text.map(|t| t.as_bytes().to_vec()) }
    }

    pub(super) fn int8(i: i64) -> Self {
        Param { oid: 20, bytes: Some(i.to_be_bytes().to_vec()) }
    }

    pub(super) fn optional_int2(i: Option<i16>) -> Self {
        Param { oid: 21, bytes: i.map(|i| i.to_be_bytes().to_vec()) }
    }

    pub(super) fn uuid(uuid: Uuid) -> Self {
        Param { oid: 2950, bytes: Some(uuid.as_bytes().to_vec()) }
    }

    pub(super) fn optional_uuid(uuid: Option<Uuid>) -> Self {
        Param { oid: 2950, bytes: uuid.map(|u| u.as_bytes().to_vec()) }
    }
}

impl sqlx::Type<Postgres> for Param {
    fn type_info() -> PgTypeInfo {
        // Never asked for: `produces` names the type of each value.
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl sqlx::Encode<'_, Postgres> for Param {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        match &self.bytes {
            None => Ok(IsNull::Yes),
            Some(bytes) => {
                buffer.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
        }
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.oid)))
    }

    fn size_hint(&self) -> usize {
        self.bytes.as_ref().map_or(0, Vec::len)
    }
}

/// One array parameter in the making: a column of many rows.
#[derive(Debug)]
pub(super) struct Array {
    native: Native,
    count: i32,
    nulls: bool,
    bytes: Vec<u8>,
}

/// Dimensions, flags, element type, length, lower bound.
const HEADER: usize = 20;

impl Array {
    pub(super) fn new(native: Native, rows: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER + rows * 12);
        bytes.resize(HEADER, 0);
        Array { native, count: 0, nulls: false, bytes }
    }

    pub(super) fn push(&mut self, value: &Value) -> Result<(), String> {
        if *value == Value::Null {
            self.null();
            return Ok(());
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        if let Err(why) = self.native.encode(value, &mut self.bytes) {
            self.bytes.truncate(at);
            return Err(why);
        }
        self.close(at);
        Ok(())
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(bytes);
        self.close(at);
    }

    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(&(-1i32).to_be_bytes());
        self.nulls = true;
        self.count += 1;
    }

    pub(super) fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.null(),
            Some(bytes) => self.raw(bytes),
        }
    }

    fn close(&mut self, at: usize) {
        let length = (self.bytes.len() - at - 4) as i32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        self.count += 1;
    }

    pub(super) fn param(mut self) -> Param {
        let (element, array) = self.native.oids();
        self.bytes[..4].copy_from_slice(&i32::from(self.count > 0).to_be_bytes());
        self.bytes[4..8].copy_from_slice(&i32::from(self.nulls).to_be_bytes());
        self.bytes[8..12].copy_from_slice(&element.to_be_bytes());
        if self.count > 0 {
            self.bytes[12..16].copy_from_slice(&self.count.to_be_bytes());
            self.bytes[16..20].copy_from_slice(&1i32.to_be_bytes());
        } else {
            self.bytes.truncate(12);
        }
        Param { oid: array, bytes: Some(self.bytes) }
    }

    pub(super) fn of<T: AsRef<[u8]>>(native: Native, items: impl ExactSizeIterator<Item = T>) -> Param {
        let mut array = Array::new(native, items.len());
        items.for_each(|item| array.raw(item.as_ref()));
        array.param()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(native: Native, value: Value) -> Value {
        let mut bytes = Vec::new();
        native.encode(&value, &mut bytes).unwrap();
        native.decode(&bytes).unwrap()
    }

    #[test]
    fn every_type_comes_back_as_it_went() {
        let cases = [
            (Native::Bool, Value::Boolean(true)),
            (Native::Int2, Value::Integer(i16::MIN.into())),
            (Native::Int4, Value::Integer(i32::MAX.into())),
            (Native::Int8, Value::Integer(i64::MIN)),
            (Native::Float4, Value::Float(0.5)),
            (Native::Float8, Value::Float(-0.1)),
            (Native::Numeric, Value::Decimal("-12345678901234567890.000001".into())),
            (Native::Text, Value::Text("čaj 🍵".into())),
            (Native::Bytea, Value::Bytes(Bytes::from_static(b"\0\xff"))),
            (Native::Uuid, Value::Uuid(Uuid::from_u128(7))),
            (Native::Timestamptz, Value::Timestamp(-1)),
            (Native::Timestamp, Value::Timestamp(1_700_000_000_000_001)),
            (Native::Jsonb, Value::Json("{\"a\": 1}".into())),
        ];
        for (native, value) in cases {
            assert_eq!(round(native, value.clone()), value, "{native:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let cases = [
            (Native::Int2, Value::Integer(40_000)),
            (Native::Int4, Value::Integer(1 << 40)),
            (Native::Float4, Value::Float(0.1)),
            (Native::Text, Value::Text("a\0b".into())),
            (Native::Timestamptz, Value::Timestamp(i64::MIN)),
            (Native::Bool, Value::Integer(1)),
        ];
        for (native, value) in cases {
            assert!(native.encode(&value, &mut Vec::new()).is_err(), "{native:?} took {value:?}");
        }
        assert!(Native::Timestamptz.decode(&i64::MAX.to_be_bytes()).is_err());
    }
}
