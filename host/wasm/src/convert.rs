//! Between the guest's values and the host's: exact, or a clear error.

use ackwright_core::effect::{self, Emit, Guard, NamedRow};
use ackwright_core::key::Identity;
use ackwright_core::message::{Header, HeaderValue, Message};
use ackwright_core::value::Value;
use serde_json::Number;
use uuid::Uuid;

use crate::bindings::ackwright::handler::outbox::Outgoing;
use crate::bindings::ackwright::handler::store::GuardFailure;
use crate::bindings::ackwright::handler::types as wit;

pub(crate) fn value_in(value: wit::Value) -> Result<Value, effect::Error> {
    Ok(match value {
        wit::Value::Null => Value::Null,
        wit::Value::Boolean(v) => Value::Boolean(v),
        wit::Value::Integer(v) => Value::Integer(v),
        wit::Value::Float(v) => Value::Float(v),
        wit::Value::Decimal(v) => Value::Decimal(v),
        wit::Value::Text(v) => Value::Text(v),
        wit::Value::Bytes(v) => Value::Bytes(v.into()),
        wit::Value::Timestamp(v) => Value::Timestamp(v),
        wit::Value::Uuid(v) => Value::Uuid(
            Uuid::parse_str(&v)
                .map_err(|why| effect::Error::invalid("invalid:uuid", format!("{v:?} is no UUID: {why}")))?,
        ),
        wit::Value::Json(v) => Value::Json(v),
    })
}

pub(crate) fn value_out(value: Value) -> wit::Value {
    match value {
        Value::Null => wit::Value::Null,
        Value::Boolean(v) => wit::Value::Boolean(v),
        Value::Integer(v) => wit::Value::Integer(v),
        Value::Float(v) => wit::Value::Float(v),
        Value::Decimal(v) => wit::Value::Decimal(v),
        Value::Text(v) => wit::Value::Text(v),
        Value::Bytes(v) => wit::Value::Bytes(v.into()),
        Value::Timestamp(v) => wit::Value::Timestamp(v),
        Value::Uuid(v) => wit::Value::Uuid(v.to_string()),
        Value::Json(v) => wit::Value::Json(v),
    }
}

pub(crate) fn row_in(row: Vec<wit::Field>) -> Result<NamedRow, effect::Error> {
    row.into_iter().map(|field| Ok((field.name, value_in(field.value)?))).collect()
}

pub(crate) fn row_out(row: NamedRow) -> Vec<wit::Field> {
    row.into_iter().map(|(name, value)| wit::Field { name, value: value_out(value) }).collect()
}

pub(crate) fn guard(failure: GuardFailure) -> Guard {
    Guard { code: failure.code, reason: failure.reason }
}

pub(crate) fn emit(outgoing: Outgoing) -> Result<Emit, effect::Error> {
    Ok(Emit {
        destination: outgoing.destination,
        key: outgoing.key,
        content_type: outgoing.content_type,
        headers: outgoing
            .headers
            .into_iter()
            .map(|header| Ok(Header { value: header_in(&header.name, header.value)?, name: header.name }))
            .collect::<Result<_, effect::Error>>()?,
        body: outgoing.body.into(),
    })
}

fn header_in(name: &str, value: wit::HeaderValueResult) -> Result<HeaderValue, effect::Error> {
    use wit::HeaderValueResult as Wit;
    Ok(match value {
        Wit::Null => HeaderValue::Null,
        Wit::Boolean(v) => HeaderValue::Boolean(v),
        Wit::Integer(v) => HeaderValue::I64(v),
        Wit::Float(v) => HeaderValue::F64(v),
        Wit::Text(v) => HeaderValue::Text(v),
        Wit::Bytes(v) => HeaderValue::Bytes(v.into()),
        Wit::Timestamp(v) => HeaderValue::Timestamp(v),
        Wit::Json(text) => {
            let json = serde_json::from_str(&text).map_err(|why| {
                effect::Error::invalid("invalid:header", format!("header {name:?} is no JSON: {why}"))
            })?;
            header_of_json(json)
        }
    })
}

fn header_of_json(json: serde_json::Value) -> HeaderValue {
    match json {
        serde_json::Value::Null => HeaderValue::Null,
        serde_json::Value::Bool(v) => HeaderValue::Boolean(v),
        serde_json::Value::Number(v) => match v.as_i64() {
            Some(i) => HeaderValue::I64(i),
            // Every JSON number that is no i64 reads as a float; serde_json has no third kind without a feature.
            None => HeaderValue::F64(v.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(v) => HeaderValue::Text(v),
        serde_json::Value::Array(v) => HeaderValue::Array(v.into_iter().map(header_of_json).collect()),
        serde_json::Value::Object(v) => HeaderValue::Table(
            v.into_iter().map(|(name, value)| Header { name, value: header_of_json(value) }).collect(),
        ),
    }
}

/// Texts that a borrowed view of a message needs and the message does not hold as such.
pub(crate) struct Rendered(Vec<Option<String>>);

impl Rendered {
    pub fn of(message: &Message) -> Self {
        Rendered(message.headers.iter().map(|h| rendered(&h.value)).collect())
    }
}

/// The message as the guest sees it. The bytes are copied once, into the guest.
pub(crate) fn headers<'a>(message: &'a Message, rendered: &'a Rendered) -> Vec<wit::HeaderParam<'a>> {
    message
        .headers
        .iter()
        .zip(&rendered.0)
        .map(|(header, json)| wit::HeaderParam { name: &header.name, value: header_out(&header.value, json) })
        .collect()
}

pub(crate) fn message<'a>(message: &'a Message, headers: &'a [wit::HeaderParam<'a>]) -> wit::Message<'a> {
    wit::Message {
        id: message.id.as_deref(),
        source: &message.source,
        subject: message.subject.as_deref(),
        key: message.key.as_deref(),
        content_type: message.content_type.as_deref(),
        headers,
        published_at: message.published_at,
        body: message.body.as_deref(),
    }
}

fn header_out<'a>(value: &'a HeaderValue, json: &'a Option<String>) -> wit::HeaderValueParam<'a> {
    use wit::HeaderValueParam as Wit;
    match value {
        HeaderValue::Null => Wit::Null,
        HeaderValue::Boolean(v) => Wit::Boolean(*v),
        HeaderValue::I8(v) => Wit::Integer(i64::from(*v)),
        HeaderValue::U8(v) => Wit::Integer(i64::from(*v)),
        HeaderValue::I16(v) => Wit::Integer(i64::from(*v)),
        HeaderValue::U16(v) => Wit::Integer(i64::from(*v)),
        HeaderValue::I32(v) => Wit::Integer(i64::from(*v)),
        HeaderValue::U32(v) => Wit::Integer(i64::from(*v)),
        HeaderValue::I64(v) => Wit::Integer(*v),
        HeaderValue::F32(v) => Wit::Float(f64::from(*v)),
        HeaderValue::F64(v) => Wit::Float(*v),
        HeaderValue::Text(v) => Wit::Text(v),
        HeaderValue::Bytes(v) => Wit::Bytes(v),
        HeaderValue::Timestamp(v) => Wit::Timestamp(*v),
        HeaderValue::Decimal { .. } | HeaderValue::Array(_) | HeaderValue::Table(_) => {
            Wit::Json(json.as_deref().unwrap_or("null"))
        }
    }
}

/// JSON of the compound fields; nothing for those that have a case of their own.
fn rendered(value: &HeaderValue) -> Option<String> {
    match value {
        HeaderValue::Decimal { .. } | HeaderValue::Array(_) | HeaderValue::Table(_) => {
            let mut text = String::new();
            write_json(value, &mut text);
            Some(text)
        }
        _ => None,
    }
}

/// Written by hand so that a decimal keeps all of its digits and a table the order of its fields.
fn write_json(value: &HeaderValue, out: &mut String) {
    use std::fmt::Write;
    let number = |out: &mut String, text: std::fmt::Arguments<'_>| {
        // Writing to a String does not fail.
        let _ = out.write_fmt(text);
    };
    match value {
        HeaderValue::Null => out.push_str("null"),
        HeaderValue::Boolean(v) => number(out, format_args!("{v}")),
        HeaderValue::I8(v) => number(out, format_args!("{v}")),
        HeaderValue::U8(v) => number(out, format_args!("{v}")),
        HeaderValue::I16(v) => number(out, format_args!("{v}")),
        HeaderValue::U16(v) => number(out, format_args!("{v}")),
        HeaderValue::I32(v) => number(out, format_args!("{v}")),
        HeaderValue::U32(v) => number(out, format_args!("{v}")),
        HeaderValue::I64(v) | HeaderValue::Timestamp(v) => number(out, format_args!("{v}")),
        HeaderValue::F32(v) => float(f64::from(*v), out),
        HeaderValue::F64(v) => float(*v, out),
        HeaderValue::Decimal { scale, unscaled } => {
            let digits = format!("{unscaled:0>width$}", width = usize::from(*scale) + 1);
            let (whole, fraction) = digits.split_at(digits.len() - usize::from(*scale));
            out.push_str(whole);
            if !fraction.is_empty() {
                out.push('.');
                out.push_str(fraction);
            }
        }
        HeaderValue::Text(v) => out.push_str(&quoted(v)),
        HeaderValue::Bytes(v) => out.push_str(&quoted(&ackwright_core::base16::encode(v))),
        HeaderValue::Array(list) => {
            out.push('[');
            for (i, value) in list.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(value, out);
            }
            out.push(']');
        }
        HeaderValue::Table(fields) => {
            out.push('{');
            for (i, field) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&quoted(&field.name));
                out.push(':');
                write_json(&field.value, out);
            }
            out.push('}');
        }
    }
}

/// JSON has no infinities and no NaN.
fn float(value: f64, out: &mut String) {
    match Number::from_f64(value) {
        Some(number) => out.push_str(&number.to_string()),
        None => out.push_str("null"),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(crate) fn identity(identity: wit::Identity) -> Identity {
    Identity { event_type: identity.event_type, business_key: identity.business_key, order_key: identity.order_key }
}
