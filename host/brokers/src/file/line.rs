//! Lines and messages.
//!
//! As `body`, a line is the message's body and nothing else. As `envelope`, it is an object:
//!
//! ```json
//! {"id": "7", "subject": "order.paid", "key": "o-1", "headers": [["eventType", "ORDER_PAID"]],
//!  "content_type": "application/json", "published_at": "2026-01-02T03:04:05Z", "body": {"order": 1}}
//! ```
//!
//! All fields are optional. `headers` is an object too where no name repeats. A body that is not JSON is written
//! `{"text": "..."}` or `{"base64": "..."}`; an absent or null one is a tombstone. `published_at` is RFC 3339, or
//! microseconds since the Unix epoch. The publisher writes the same form, so one host's output is another's input.

use ackwright_core::message::{Header, HeaderValue, Message};
use ackwright_core::outbox::Row;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Body,
    Envelope,
}

/// Never fails: a line that is no envelope is delivered whole as the body, with the reason in the property
/// `envelope-error`, and is parked by what comes after.
pub fn message(format: Format, source: &str, line: &[u8]) -> Message {
    let plain = |content_type: Option<&str>| Message {
        source: source.to_owned(),
        content_type: content_type.map(str::to_owned),
        body: Some(Bytes::copy_from_slice(line)),
        ..Message::default()
    };
    match format {
        Format::Body => plain(Some("application/json")),
        Format::Envelope => match envelope(line) {
            Ok(message) => Message { source: source.to_owned(), ..message },
            Err(reason) => {
                let value = HeaderValue::Text(reason);
                Message { properties: vec![Header { name: "envelope-error".into(), value }], ..plain(None) }
            }
        },
    }
}

/// The line of an outbox row, with its line feed.
pub fn of_row(row: &Row) -> Vec<u8> {
    let headers = row.headers.iter().map(|h| (h.name.as_str(), to_json(&h.value))).collect();
    let written = Written {
        id: row.id.to_string(),
        subject: &row.destination,
        key: &row.order_key,
        headers,
        content_type: row.content_type.as_deref(),
        body: written_body(&row.body),
    };
    let mut line = serde_json::to_vec(&written).expect("strings, JSON values and headers with text names");
    line.push(b'\n');
    line
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    id: Option<String>,
    subject: Option<String>,
    key: Option<Octets>,
    #[serde(default)]
    headers: Headers,
    content_type: Option<String>,
    published_at: Option<Time>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Written<'a> {
    id: String,
    subject: &'a str,
    key: &'a str,
    headers: Vec<(&'a str, Value)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    body: Body,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body {
    Json(Box<RawValue>),
    Text { text: String },
    Base64 { base64: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped {
    text: Option<String>,
    base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Octets {
    Text(String),
    Base64 { base64: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Microseconds(i64),
    Text(String),
}

fn envelope(line: &[u8]) -> Result<Message, String> {
    let envelope: Envelope = serde_json::from_slice(line).map_err(|e| format!("not an envelope: {e}"))?;
    let headers = envelope.headers.0.into_iter().map(|(name, value)| {
        from_json(value).map(|value| Header { name: name.clone(), value }).map_err(|e| format!("header {name:?}: {e}"))
    });
    Ok(Message {
        id: envelope.id,
        source: String::new(),
        subject: envelope.subject,
        key: envelope.key.map(octets).transpose()?,
        content_type: envelope.content_type,
        headers: headers.collect::<Result<_, _>>()?,
        published_at: envelope.published_at.map(microseconds).transpose()?,
        body: envelope.body.map(read_body).transpose()?,
        properties: Vec::new(),
    })
}

fn octets(octets: Octets) -> Result<Bytes, String> {
    match octets {
        Octets::Text(text) => Ok(text.into_bytes().into()),
        Octets::Base64 { base64 } => decode(&base64, "key"),
    }
}

fn decode(base64: &str, what: &str) -> Result<Bytes, String> {
    STANDARD.decode(base64).map(Bytes::from).map_err(|e| format!("{what} is not Base64: {e}"))
}

fn microseconds(time: Time) -> Result<i64, String> {
    match time {
        Time::Microseconds(time) => Ok(time),
        Time::Text(text) => text
            .parse::<jiff::Timestamp>()
            .map(|t| t.as_microsecond())
            .map_err(|e| format!("published_at {text:?} is not an RFC 3339 time: {e}")),
    }
}

/// The bytes of the value as they stand in the line, or what its wrapper holds.
fn read_body(raw: &RawValue) -> Result<Bytes, String> {
    match serde_json::from_str(raw.get()) {
        Ok(Wrapped { text: Some(text), base64: None }) => Ok(text.into_bytes().into()),
        Ok(Wrapped { text: None, base64: Some(base64) }) => decode(&base64, "body"),
        _ => Ok(Bytes::copy_from_slice(raw.get().as_bytes())),
    }
}

/// As JSON where reading gives the same bytes back.
fn written_body(body: &[u8]) -> Body {
    let Ok(text) = std::str::from_utf8(body) else {
        return Body::Base64 { base64: STANDARD.encode(body) };
    };
    let one_line = !text.contains(['\n', '\r']) && text.trim() == text && text != "null";
    match RawValue::from_string(text.to_owned()) {
        Ok(raw) if one_line && read_body(&raw).is_ok_and(|read| read == body) => Body::Json(raw),
        _ => Body::Text { text: text.to_owned() },
    }
}

/// Null, booleans, whole numbers and text as they are; all other types as an object that names the type.
fn to_json(value: &HeaderValue) -> Value {
    match value {
        HeaderValue::Null => Value::Null,
        HeaderValue::Boolean(v) => (*v).into(),
        HeaderValue::I64(v) => (*v).into(),
        HeaderValue::Text(v) => v.as_str().into(),
        other => serde_json::to_value(other).unwrap_or_else(|_| format!("{other:?}").into()),
    }
}

fn from_json(value: Value) -> Result<HeaderValue, String> {
    Ok(match value {
        Value::Null => HeaderValue::Null,
        Value::Bool(v) => HeaderValue::Boolean(v),
        Value::Number(number) => match number.as_i64() {
            Some(v) => HeaderValue::I64(v),
            None if number.is_u64() => return Err(format!("{number} does not fit in 64 bits with a sign")),
            None => HeaderValue::F64(number.as_f64().ok_or_else(|| format!("{number} is not a number"))?),
        },
        Value::String(v) => HeaderValue::Text(v),
        Value::Array(values) => HeaderValue::Array(values.into_iter().map(from_json).collect::<Result<_, _>>()?),
        Value::Object(fields) => {
            if fields.len() == 1
                && let Ok(typed) = HeaderValue::deserialize(Value::Object(fields.clone()))
            {
                return Ok(typed);
            }
            let field = |(name, value)| from_json(value).map(|value| Header { name, value });
            HeaderValue::Table(fields.into_iter().map(field).collect::<Result<_, _>>()?)
        }
    })
}

/// An object or a list of pairs, in the order of the line, repeats kept.
#[derive(Default)]
struct Headers(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("headers as an object or as a list of [name, value]")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Headers(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Headers, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = list.next_element()? {
                    pairs.push(pair);
                }
                Ok(Headers(pairs))
            }
        }
        from.deserialize_any(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn read(line: &str) -> Message {
        message(Format::Envelope, "in.ndjson", line.as_bytes())
    }

    #[test]
    fn an_envelope_is_read_whole() {
        let message = read(
            r#"{"id":"7","subject":"s","key":{"base64":"/w=="},"headers":[["a",1],["a",null],["b",{"u8":5}]],
                "content_type":"x/y","published_at":"2026-01-02T03:04:05.000006Z","body": {"n": 1.50} }"#,
        );
        assert_eq!(
            message,
            Message {
                id: Some("7".into()),
                source: "in.ndjson".into(),
                subject: Some("s".into()),
                key: Some(Bytes::from_static(b"\xff")),
                content_type: Some("x/y".into()),
                headers: vec![
                    Header { name: "a".into(), value: HeaderValue::I64(1) },
                    Header { name: "a".into(), value: HeaderValue::Null },
                    Header { name: "b".into(), value: HeaderValue::U8(5) },
                ],
                published_at: Some(1_767_323_045_000_006),
                body: Some(Bytes::from_static(br#"{"n": 1.50}"#)),
                properties: Vec::new(),
            }
        );
    }

    #[test]
    fn headers_as_an_object_keep_their_order_and_repeats() {
        let message = read(r#"{"headers":{"z":"1","a":{"x":true},"z":"2"}}"#);
        let names: Vec<_> = message.headers.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["z", "a", "z"]);
        let inner = Header { name: "x".into(), value: HeaderValue::Boolean(true) };
        assert_eq!(message.headers[1].value, HeaderValue::Table(vec![inner]));
    }

    #[test]
    fn an_absent_body_differs_from_an_empty_one() {
        assert_eq!(read("{}").body, None);
        assert_eq!(read(r#"{"body":null}"#).body, None);
        assert_eq!(read(r#"{"body":{"text":""}}"#).body, Some(Bytes::new()));
        assert_eq!(read(r#"{"body":""}"#).body, Some(Bytes::from_static(b"\"\"")));
        let both = r#"{"text":"a","base64":"YQ=="}"#;
        assert_eq!(read(&format!(r#"{{"body":{both}}}"#)).body, Some(Bytes::from(both)));
    }

    #[test]
    fn a_line_that_is_no_envelope_is_delivered_whole_with_the_reason() {
        for line in [
            &b"not json"[..],
            b"\xff\xfe",
            b"[1]",
            br#"{"bodi":1}"#,
            br#"{"body":{"base64":"*"}}"#,
            br#"{"published_at":"yesterday"}"#,
            br#"{"headers":{"n":18446744073709551615}}"#,
            br#"{"id":"a","id":"b"}"#,
        ] {
            let message = message(Format::Envelope, "f", line);
            assert_eq!(message.body.as_deref(), Some(line));
            assert_eq!(message.properties.len(), 1, "{:?}", String::from_utf8_lossy(line));
            assert_eq!(message.properties[0].name, "envelope-error");
            assert!((message.id, message.headers.is_empty()) == (None, true));
        }
        assert_eq!(message(Format::Body, "f", b"\xff").body.as_deref(), Some(&b"\xff"[..]));
    }

    fn header_value() -> impl Strategy<Value = HeaderValue> {
        let leaf = prop_oneof![
            Just(HeaderValue::Null),
            any::<bool>().prop_map(HeaderValue::Boolean),
            any::<u8>().prop_map(HeaderValue::U8),
            any::<i64>().prop_map(HeaderValue::I64),
            any::<i32>().prop_map(|v| HeaderValue::F64(f64::from(v) / 8.0)),
            ".{0,8}".prop_map(HeaderValue::Text),
            prop::collection::vec(any::<u8>(), 0..8).prop_map(|v| HeaderValue::Bytes(v.into())),
            any::<i64>().prop_map(HeaderValue::Timestamp),
            (any::<u8>(), any::<u32>()).prop_map(|(scale, unscaled)| HeaderValue::Decimal { scale, unscaled }),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(HeaderValue::Array),
                prop::collection::vec((".{0,4}", inner), 0..4).prop_map(|fields| HeaderValue::Table(
                    fields.into_iter().map(|(name, value)| Header { name, value }).collect()
                )),
            ]
        })
    }

    fn body() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..32),
            r#"[ \n]?(null|-?[0-9]{1,20}(\.50)?|"\PC{0,4}"|\{"(base64|text|a)": ?"\PC{0,4}"\}|\[1, 2\])[ \n]?"#
                .prop_map(String::into_bytes),
        ]
    }

    proptest! {
        /// What the publisher writes, the source reads back.
        #[test]
        fn a_written_row_is_one_line_that_reads_back(
            headers in prop::collection::vec((".{0,6}", header_value()), 0..4),
            body in body(),
            destination in ".{0,8}",
            order_key in ".{0,8}",
            content_type in prop::option::of(".{0,8}"),
        ) {
            let headers: Vec<_> = headers.into_iter().map(|(name, value)| Header { name, value }).collect();
            let row = Row {
                position: 1, id: Uuid::from_u128(9), broker: "f".into(), destination, order_key, content_type,
                headers, body: body.into(), attempts: 0,
            };
            let line = of_row(&row);
            prop_assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
            let read = message(Format::Envelope, "f", &line[..line.len() - 1]);
            prop_assert_eq!(&read.properties, &[]);
            prop_assert_eq!(read.body, Some(row.body));
            prop_assert_eq!(read.headers, row.headers);
            prop_assert_eq!(read.subject, Some(row.destination));
            prop_assert_eq!(read.key, Some(Bytes::from(row.order_key)));
            prop_assert_eq!(read.content_type, row.content_type);
            prop_assert_eq!(read.id, Some(row.id.to_string()));
        }

        #[test]
        fn no_line_is_lost(line in prop::collection::vec(any::<u8>(), 0..64)) {
            let message = message(Format::Body, "f", &line);
            prop_assert_eq!(message.body, Some(Bytes::from(line)));
        }
    }
}
