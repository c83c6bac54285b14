//! Values in scripts and in what the probe writes back.
//!
//! JSON null, booleans, whole numbers, other numbers, and strings are the values of those names. Everything else is an
//! object with one member: `{"decimal": "1.50"}`, `{"bytes": [0, 255]}`, `{"timestamp": 1}`, `{"uuid": ".."}`,
//! `{"json": {..}}`, and where the plain form would be ambiguous `{"float": 1.0}`, `{"integer": 1}`, `{"text": ".."}`.

use ackwright_sdk::row::Fields;
use ackwright_sdk::{HeaderValue, Json, Rejection, Value, reject};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Literal {
    Integer(i64),
    Float(f64),
    Decimal(String),
    Text(String),
    Bytes(Vec<u8>),
    Timestamp(i64),
    Uuid(String),
    Json(serde_json::Value),
}

impl Literal {
    /// The database value that JSON in a script stands for.
    pub fn value(json: serde_json::Value) -> Result<Value, Rejection> {
        use serde_json::Value as J;
        Ok(match json {
            J::Null => Value::Null,
            J::Bool(truth) => Value::Boolean(truth),
            J::String(text) => Value::Text(text),
            J::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(i), _, _) => Value::Integer(i),
                (None, Some(u), _) => Value::Decimal(u.to_string()),
                (None, None, f) => Value::Float(f.unwrap_or(f64::NAN)),
            },
            other => match parse(other)? {
                Literal::Integer(i) => Value::Integer(i),
                Literal::Float(f) => Value::Float(f),
                Literal::Decimal(text) => Value::Decimal(text),
                Literal::Text(text) => Value::Text(text),
                Literal::Bytes(bytes) => Value::Bytes(bytes),
                Literal::Timestamp(t) => Value::Timestamp(t),
                Literal::Uuid(text) => Value::Uuid(text),
                Literal::Json(json) => Json::of(&json)?.into(),
            },
        })
    }

    /// The header value that JSON in a script stands for.
    pub fn header(json: serde_json::Value) -> Result<HeaderValue, Rejection> {
        Ok(match Literal::value(json)? {
            Value::Null => HeaderValue::Null,
            Value::Boolean(truth) => HeaderValue::Boolean(truth),
            Value::Integer(i) => HeaderValue::Integer(i),
            Value::Float(f) => HeaderValue::Float(f),
            Value::Text(text) | Value::Uuid(text) => HeaderValue::Text(text),
            Value::Bytes(bytes) => HeaderValue::Bytes(bytes),
            Value::Timestamp(t) => HeaderValue::Timestamp(t),
            Value::Json(text) | Value::Decimal(text) => HeaderValue::Json(text),
        })
    }
}

fn parse(json: serde_json::Value) -> Result<Literal, Rejection> {
    serde_json::from_value(json).map_err(|e| reject("bad-script", format!("read a value: {e}")))
}

/// A row that was read, with the case of every value: `{"id": {"integer": 1}, "note": null}`.
pub fn row(fields: Fields) -> serde_json::Value {
    fields.0.into_iter().map(|field| (field.name, typed(field.value))).collect::<serde_json::Map<_, _>>().into()
}

fn typed(value: Value) -> serde_json::Value {
    use serde_json::json;
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(truth) => json!(truth),
        Value::Integer(i) => json!({"integer": i}),
        Value::Float(f) => json!({"float": f}),
        Value::Decimal(text) => json!({"decimal": text}),
        Value::Text(text) => json!({"text": text}),
        Value::Bytes(bytes) => json!({"bytes": bytes}),
        Value::Timestamp(t) => json!({"timestamp": t}),
        Value::Uuid(text) => json!({"uuid": text}),
        // As text: the spelling that the database returned is what a test compares.
        Value::Json(text) => json!({"json": text}),
    }
}

/// The plain text of a log field.
pub fn plain(json: &serde_json::Value) -> String {
    json.as_str().map_or_else(|| json.to_string(), Into::into)
}
