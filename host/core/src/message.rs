//! The broker-neutral content of a delivery.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What a producer sent, with nothing lost on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The producer's message id, for tracing. It is not the dedup key.
    pub id: Option<String>,
    /// Queue, topic, webhook path or file name.
    pub source: String,
    /// Routing key, where the broker has one.
    pub subject: Option<String>,
    /// Partition key, where the broker has one.
    pub key: Option<Bytes>,
    pub content_type: Option<String>,
    /// In the producer's order; a name may repeat.
    pub headers: Vec<Header>,
    /// When the producer or the broker stamped it, microseconds since the Unix epoch, UTC.
    pub published_at: Option<i64>,
    /// Absent for a tombstone, which differs from empty.
    pub body: Option<Bytes>,
    /// What only the broker understands (exchange, priority, partition, ...), kept for parking and redrive;
    /// plugins do not see it.
    pub properties: Vec<Header>,
}

impl Message {
    /// Memory that the message holds, roughly: what byte limits count.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().chain(&self.properties).map(|h| h.name.len() + 32).sum();
        self.body.as_ref().map_or(0, Bytes::len) + headers + 128
    }

    /// The first header of that name, as text; a header of another type has no text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|h| h.name == name).and_then(|h| match &h.value {
            HeaderValue::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Hash of the body that the inbox keeps, so that the same key with another body is noticed.
    pub fn body_hash(&self) -> i64 {
        let mut hasher = blake3::Hasher::new();
        match &self.body {
            None => hasher.update(&[0]),
            Some(body) => hasher.update(&[1]).update(body),
        };
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        i64::from_be_bytes(first)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub name: String,
    pub value: HeaderValue,
}

/// Every field type that a broker can carry, with its width kept, so that a redrive sends what came in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderValue {
    Null,
    Boolean(bool),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    #[serde(with = "crate::float")]
    F32(f32),
    #[serde(with = "crate::float")]
    F64(f64),
    /// AMQP 0-9-1 decimal: unscaled value and number of decimal places.
    Decimal {
        scale: u8,
        unscaled: u32,
    },
    Text(String),
    #[serde(with = "crate::base16")]
    Bytes(Bytes),
    /// Microseconds since the Unix epoch, UTC.
    Timestamp(i64),
    Array(Vec<HeaderValue>),
    Table(Vec<Header>),
}

impl HeaderValue {
    /// The value as text to compare with, for the kinds that have one spelling.
    pub fn text(&self) -> Option<std::borrow::Cow<'_, str>> {
        Some(match self {
            HeaderValue::Text(text) => text.as_str().into(),
            HeaderValue::Boolean(b) => b.to_string().into(),
            HeaderValue::I8(i) => i.to_string().into(),
            HeaderValue::U8(i) => i.to_string().into(),
            HeaderValue::I16(i) => i.to_string().into(),
            HeaderValue::U16(i) => i.to_string().into(),
            HeaderValue::I32(i) => i.to_string().into(),
            HeaderValue::U32(i) => i.to_string().into(),
            HeaderValue::I64(i) => i.to_string().into(),
            HeaderValue::Null
            | HeaderValue::F32(_)
            | HeaderValue::F64(_)
            | HeaderValue::Decimal { .. }
            | HeaderValue::Bytes(_)
            | HeaderValue::Timestamp(_)
            | HeaderValue::Array(_)
            | HeaderValue::Table(_) => return None,
        })
    }
}
