//! A message of RabbitMQ as the pipeline sees it.

use ackwright_core::message::{Header, HeaderValue, Message};
use lapin::message::Delivery;
use lapin::types::ShortString;

use super::fields;

/// Message id, content type, headers, routing key and timestamp have places of their own. The other properties keep
/// their AMQP names; `exchange` is left out for AMQP's default exchange, and `timestamp` is there only where it is
/// beyond the range of microseconds.
pub(super) fn message(queue: &str, delivery: Delivery) -> Message {
    let Delivery { exchange, routing_key, properties, data, .. } = delivery;
    let mut rest = Vec::with_capacity(2);
    let mut keep = |name: &str, value: HeaderValue| rest.push(Header { name: name.to_owned(), value });
    if !exchange.as_str().is_empty() {
        keep("exchange", HeaderValue::Text(exchange.into()));
    }
    for (name, number) in [("delivery-mode", properties.delivery_mode()), ("priority", properties.priority())] {
        if let Some(number) = number {
            keep(name, HeaderValue::U8(*number));
        }
    }
    for (name, text) in [
        ("content-encoding", properties.content_encoding()),
        ("correlation-id", properties.correlation_id()),
        ("reply-to", properties.reply_to()),
        ("expiration", properties.expiration()),
        ("type", properties.kind()),
        ("user-id", properties.user_id()),
        ("app-id", properties.app_id()),
        ("cluster-id", properties.cluster_id()),
    ] {
        if let Some(text) = text {
            keep(name, HeaderValue::Text(text.to_string()));
        }
    }
    let published_at = properties.timestamp().and_then(|seconds| {
        let micros = fields::micros(seconds);
        if micros.is_none() {
            keep("timestamp", fields::from_seconds(seconds));
        }
        micros
    });
    let text = |property: &Option<ShortString>| property.as_ref().map(ShortString::to_string);
    Message {
        id: text(properties.message_id()),
        source: queue.to_owned(),
        subject: Some(routing_key.into()),
        key: None,
        content_type: text(properties.content_type()),
        headers: properties.headers().as_ref().map(fields::headers).unwrap_or_default(),
        published_at,
        // AMQP has no null body.
        body: Some(data.into()),
        properties: rest,
    }
}
