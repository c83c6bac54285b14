//! Database values as plugins and stores exchange them.

use bytes::Bytes;
use uuid::Uuid;

/// One value of a row. It either survives the round trip to the database exactly or the call fails.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    /// Exact decimal number as text, also for unsigned 64-bit and wider integers.
    Decimal(String),
    Text(String),
    Bytes(Bytes),
    /// Microseconds since the Unix epoch, UTC.
    Timestamp(i64),
    Uuid(Uuid),
    Json(String),
}

impl Value {
    /// The WIT case name, for error messages.
    pub fn case(&self) -> &'static str {
        match self {
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

    /// Appends an encoding that is equal for equal values only and sorts the same way on every host.
    pub fn encode(&self, out: &mut Vec<u8>) {
        fn framed(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
            out.push(tag);
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
        match self {
            Value::Null => out.push(0),
            Value::Boolean(b) => out.extend_from_slice(&[1, u8::from(*b)]),
            Value::Integer(i) => {
                out.push(2);
                // Flipping the sign bit makes the byte order the numeric order.
                out.extend_from_slice(&(*i as u64 ^ (1 << 63)).to_be_bytes());
            }
            Value::Float(f) => {
                out.push(3);
                out.extend_from_slice(&f.to_bits().to_be_bytes());
            }
            Value::Decimal(t) => framed(out, 4, t.as_bytes()),
            Value::Text(t) => framed(out, 5, t.as_bytes()),
            Value::Bytes(b) => framed(out, 6, b),
            Value::Timestamp(t) => {
                out.push(7);
                out.extend_from_slice(&(*t as u64 ^ (1 << 63)).to_be_bytes());
            }
            Value::Uuid(u) => {
                out.push(8);
                out.extend_from_slice(u.as_bytes());
            }
            Value::Json(t) => framed(out, 9, t.as_bytes()),
        }
    }
}
