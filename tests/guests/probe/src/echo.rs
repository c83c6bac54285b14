//! Writes a message down as JSON, so that a test can see what reached a plugin.

use ackwright_sdk::{Failure, HeaderValue, Identity, Message, outbox};
use serde_json::{Value, json};

/// Everything that the message holds, nothing merged: bytes are lists of numbers, an absent field is null, and every
/// header is `{"name": .., "<case>": ..}`.
pub fn json(message: &Message) -> Value {
    json!({
        "id": message.id,
        "source": message.source,
        "subject": message.subject,
        "key": message.key,
        "content-type": message.content_type,
        "headers": message.headers.iter().map(|h| header(&h.name, &h.value)).collect::<Vec<_>>(),
        "published-at": message.published_at,
        "body": message.body,
    })
}

fn header(name: &str, value: &HeaderValue) -> Value {
    let (case, value) = match value {
        HeaderValue::Null => ("null", Value::Null),
        HeaderValue::Boolean(truth) => ("boolean", json!(truth)),
        HeaderValue::Integer(i) => ("integer", json!(i)),
        // JSON has no NaN and no infinities; their text has no other reading.
        HeaderValue::Float(f) if !f.is_finite() => ("float", json!(f.to_string())),
        HeaderValue::Float(f) => ("float", json!(f)),
        HeaderValue::Text(text) => ("text", json!(text)),
        HeaderValue::Bytes(bytes) => ("bytes", json!(bytes)),
        HeaderValue::Timestamp(t) => ("timestamp", json!(t)),
        HeaderValue::Json(text) => ("json", json!(text)),
    };
    json!({"name": name, case: value})
}

/// The identity of a message that is no script: event type `echo`, and its id, or else all that it holds.
pub fn identity(message: &Message) -> Identity {
    let key = message.id.clone().unwrap_or_else(|| json(message).to_string());
    Identity::new("echo").key(key)
}

pub fn emit(message: &Message, destination: &str) -> Result<(), Failure> {
    outbox::to(destination).emit_json(&json(message))?;
    Ok(())
}
