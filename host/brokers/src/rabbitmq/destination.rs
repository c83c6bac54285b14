//! The text of a destination.
//!
//! `routing.key` goes to the publisher's own exchange; `exchange/routing.key` names the exchange, up to the first
//! slash; `/routing.key` is AMQP's default exchange, whose routing keys are queue names. A routing key that holds a
//! slash is written with its exchange.

use ackwright_core::publisher::Error;
use lapin::types::ShortString;

use super::settings::SHORT_TEXT;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Destination {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
}

impl Destination {
    pub(super) fn parse(text: &str, own_exchange: &str) -> Result<Self, Error> {
        let (exchange, routing_key) = text.split_once('/').unwrap_or((own_exchange, text));
        Ok(Destination {
            exchange: short("exchange", exchange, text)?,
            routing_key: short("routing key", routing_key, text)?,
        })
    }
}

fn short(what: &str, part: &str, text: &str) -> Result<ShortString, Error> {
    ShortString::try_new(part).map_err(|_| {
        let start: String = text.chars().take(40).collect();
        Error::Permanent(format!(
            "the {what} of destination \"{start}...\" is {} bytes long; AMQP allows {SHORT_TEXT}",
            part.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_slash_ends_the_exchange() {
        let parse = |text: &str| {
            let destination = Destination::parse(text, "events").unwrap();
            (destination.exchange.to_string(), destination.routing_key.to_string())
        };
        assert_eq!(parse("coupon.issued"), ("events".into(), "coupon.issued".into()));
        assert_eq!(parse("billing/invoice.paid"), ("billing".into(), "invoice.paid".into()));
        assert_eq!(parse("billing/a/b"), ("billing".into(), "a/b".into()));
        assert_eq!(parse("/queue.audit"), (String::new(), "queue.audit".into()));
        assert_eq!(parse("fanout/"), ("fanout".into(), String::new()));
        let error = Destination::parse(&"k".repeat(256), "events").unwrap_err();
        assert!(matches!(&error, Error::Permanent(text) if text.contains("256 bytes")), "{error}");
    }
}
