//! AMQP fields to header values and back, with nothing lost.
//!
//! A long string that is not UTF-8 arrives as bytes, and a timestamp beyond the range of microseconds as an integer
//! or as text. The other way, what AMQP has no field for is sent as text that says the same, or refused.

use ackwright_core::message::{Header, HeaderValue};
use bytes::Bytes;
use jiff::Timestamp;
use lapin::types::{AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString, ShortString};

use super::settings::SHORT_TEXT;

const MICROS: i64 = 1_000_000;

/// The headers of a table, in the order that the client library gives them.
pub(super) fn headers(table: &FieldTable) -> Vec<Header> {
    table.into_iter().map(|(name, value)| Header { name: name.to_string(), value: from_field(value) }).collect()
}

/// Seconds of AMQP as microseconds, where they fit.
pub(super) fn micros(seconds: u64) -> Option<i64> {
    i64::try_from(seconds).ok()?.checked_mul(MICROS)
}

/// A timestamp in seconds, of whatever range.
pub(super) fn from_seconds(seconds: u64) -> HeaderValue {
    match (micros(seconds), i64::try_from(seconds)) {
        (Some(micros), _) => HeaderValue::Timestamp(micros),
        (None, Ok(seconds)) => HeaderValue::I64(seconds),
        (None, Err(_)) => HeaderValue::Text(seconds.to_string()),
    }
}

fn from_field(value: &AMQPValue) -> HeaderValue {
    match value {
        AMQPValue::Boolean(b) => HeaderValue::Boolean(*b),
        AMQPValue::ShortShortInt(i) => HeaderValue::I8(*i),
        AMQPValue::ShortShortUInt(i) => HeaderValue::U8(*i),
        AMQPValue::ShortInt(i) => HeaderValue::I16(*i),
        AMQPValue::ShortUInt(i) => HeaderValue::U16(*i),
        AMQPValue::LongInt(i) => HeaderValue::I32(*i),
        AMQPValue::LongUInt(i) => HeaderValue::U32(*i),
        AMQPValue::LongLongInt(i) => HeaderValue::I64(*i),
        AMQPValue::Float(f) => HeaderValue::F32(*f),
        AMQPValue::Double(f) => HeaderValue::F64(*f),
        AMQPValue::DecimalValue(d) => HeaderValue::Decimal { scale: d.scale, unscaled: d.value },
        AMQPValue::ShortString(text) => HeaderValue::Text(text.to_string()),
        AMQPValue::LongString(text) => match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => HeaderValue::Text(text.to_owned()),
            Err(_) => HeaderValue::Bytes(Bytes::copy_from_slice(text.as_bytes())),
        },
        AMQPValue::FieldArray(array) => HeaderValue::Array(array.as_slice().iter().map(from_field).collect()),
        AMQPValue::Timestamp(seconds) => from_seconds(*seconds),
        AMQPValue::FieldTable(table) => HeaderValue::Table(headers(table)),
        AMQPValue::ByteArray(bytes) => HeaderValue::Bytes(Bytes::copy_from_slice(bytes.as_slice())),
        AMQPValue::Void => HeaderValue::Null,
    }
}

/// Headers that AMQP cannot carry.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Error {
    #[error("a header name of {0} bytes is longer than the {SHORT_TEXT} that AMQP allows")]
    Name(usize),
    #[error("header {0:?} occurs twice; an AMQP table holds a name once")]
    Repeated(String),
}

/// The table of these headers.
pub(super) fn table(headers: &[Header]) -> Result<FieldTable, Error> {
    let mut table = FieldTable::default();
    for header in headers {
        let name = ShortString::try_new(header.name.as_str()).map_err(|_| Error::Name(header.name.len()))?;
        if table.contains_key(name.as_str()) {
            return Err(Error::Repeated(header.name.clone()));
        }
        table.insert(name, to_field(&header.value)?);
    }
    Ok(table)
}

fn to_field(value: &HeaderValue) -> Result<AMQPValue, Error> {
    Ok(match value {
        HeaderValue::Null => AMQPValue::Void,
        HeaderValue::Boolean(b) => AMQPValue::Boolean(*b),
        HeaderValue::I8(i) => AMQPValue::ShortShortInt(*i),
        HeaderValue::U8(i) => AMQPValue::ShortShortUInt(*i),
        HeaderValue::I16(i) => AMQPValue::ShortInt(*i),
        HeaderValue::U16(i) => AMQPValue::ShortUInt(*i),
        HeaderValue::I32(i) => AMQPValue::LongInt(*i),
        HeaderValue::U32(i) => AMQPValue::LongUInt(*i),
        HeaderValue::I64(i) => AMQPValue::LongLongInt(*i),
        HeaderValue::F32(f) => AMQPValue::Float(*f),
        HeaderValue::F64(f) => AMQPValue::Double(*f),
        HeaderValue::Decimal { scale, unscaled } => {
            AMQPValue::DecimalValue(DecimalValue { scale: *scale, value: *unscaled })
        }
        HeaderValue::Text(text) => AMQPValue::LongString(LongString::from(text.as_str())),
        HeaderValue::Bytes(bytes) => AMQPValue::ByteArray(ByteArray::from(&bytes[..])),
        HeaderValue::Timestamp(micros) => to_time(*micros),
        HeaderValue::Array(values) => {
            AMQPValue::FieldArray(FieldArray::from(values.iter().map(to_field).collect::<Result<Vec<_>, _>>()?))
        }
        HeaderValue::Table(headers) => AMQPValue::FieldTable(table(headers)?),
    })
}

/// AMQP's timestamps are whole seconds since 1970; any other time is RFC 3339 text, or a plain number of
/// microseconds where even that has no form.
fn to_time(micros: i64) -> AMQPValue {
    match u64::try_from(micros) {
        Ok(positive) if micros % MICROS == 0 => AMQPValue::Timestamp(positive / MICROS as u64),
        _ => match Timestamp::from_microsecond(micros) {
            Ok(time) => AMQPValue::LongString(time.to_string().into()),
            Err(_) => AMQPValue::LongLongInt(micros),
        },
    }
}

/// Bytes of a table on the wire.
pub(super) fn table_size(table: &FieldTable) -> usize {
    4 + table.into_iter().map(|(name, value)| 1 + name.as_str().len() + field_size(value)).sum::<usize>()
}

fn field_size(value: &AMQPValue) -> usize {
    1 + match value {
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => 1 + text.as_str().len(),
        AMQPValue::LongString(text) => 4 + text.len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.len(),
        AMQPValue::FieldArray(array) => 4 + array.as_slice().iter().map(field_size).sum::<usize>(),
        AMQPValue::FieldTable(table) => table_size(table),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = HeaderValue> {
        let leaf = prop_oneof![
            Just(HeaderValue::Null),
            any::<bool>().prop_map(HeaderValue::Boolean),
            any::<i8>().prop_map(HeaderValue::I8),
            any::<u8>().prop_map(HeaderValue::U8),
            any::<i16>().prop_map(HeaderValue::I16),
            any::<u16>().prop_map(HeaderValue::U16),
            any::<i32>().prop_map(HeaderValue::I32),
            any::<u32>().prop_map(HeaderValue::U32),
            any::<i64>().prop_map(HeaderValue::I64),
            prop::num::f32::NORMAL.prop_map(HeaderValue::F32),
            prop::num::f64::NORMAL.prop_map(HeaderValue::F64),
            any::<(u8, u32)>().prop_map(|(scale, unscaled)| HeaderValue::Decimal { scale, unscaled }),
            any::<String>().prop_map(HeaderValue::Text),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(|b| HeaderValue::Bytes(b.into())),
            (0..i64::MAX / MICROS).prop_map(|s| HeaderValue::Timestamp(s * MICROS)),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(HeaderValue::Array),
                prop::collection::btree_map("[a-zé]{0,9}", inner, 0..5).prop_map(|named| {
                    HeaderValue::Table(named.into_iter().map(|(name, value)| Header { name, value }).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_survives_the_way_out_and_in(value in value()) {
            prop_assert_eq!(from_field(&to_field(&value).unwrap()), value);
        }
    }

    #[test]
    fn what_amqp_has_no_field_for_keeps_its_meaning() {
        let name = |name: &str| Header { name: name.into(), value: HeaderValue::Null };
        assert_eq!(table(&[name("a"), name("a")]), Err(Error::Repeated("a".into())));
        assert_eq!(table(&[name(&"n".repeat(256))]), Err(Error::Name(256)));
        assert_eq!(to_time(1_700_000_000_000_001), AMQPValue::LongString("2023-11-14T22:13:20.000001Z".into()));
        assert_eq!(to_time(-1_000_000), AMQPValue::LongString("1969-12-31T23:59:59Z".into()));
        assert_eq!(to_time(i64::MAX), AMQPValue::LongLongInt(i64::MAX));
        assert_eq!(from_seconds(u64::MAX), HeaderValue::Text(u64::MAX.to_string()));
        assert_eq!(from_seconds(i64::MAX as u64), HeaderValue::I64(i64::MAX));
    }

    #[test]
    fn text_that_is_not_utf8_arrives_as_bytes() {
        let odd = AMQPValue::LongString(LongString::from(vec![0xff, 0x00, 0xfe]));
        assert_eq!(from_field(&odd), HeaderValue::Bytes(Bytes::from_static(&[0xff, 0x00, 0xfe])));
    }
}
