//! What a route or a broker section of the configuration says about RabbitMQ.

use std::time::Duration;

use ackwright_core::message::{Header, HeaderValue};

use super::address::Address;

/// AMQP's limit on names: exchanges, queues, routing keys, header names.
pub(super) const SHORT_TEXT: usize = 255;

#[derive(Clone, Debug)]
pub struct SourceSettings {
    pub address: Address,
    pub queue: String,
    /// Deliveries that the broker hands over ahead of their acks. Twice the largest batch keeps the host busy.
    pub prefetch: u16,
    /// A silent broker is noticed within two of these. At least two seconds.
    pub heartbeat: Duration,
    /// Shown in the broker's management pages; the broker makes one up where it is empty. Must be unique on the
    /// broker's side per connection only, so replicas may share it.
    pub consumer_tag: String,
    /// Name of the connection in the management pages.
    pub connection_name: String,
    /// Creates the queue where it is missing: durable, and a quorum queue unless `arguments` name another
    /// `x-queue-type`. Off, a missing queue is waited for.
    pub declare: bool,
    /// Arguments that the queue must have; a queue that differs is refused with the argument, the expected and the
    /// actual value. Empty: not compared.
    pub arguments: Vec<Header>,
    /// Certificates, in PEM, that sign the broker's, beside the public roots.
    pub tls_ca: Option<String>,
}

impl SourceSettings {
    pub fn new(address: Address, queue: impl Into<String>) -> Self {
        SourceSettings {
            address,
            queue: queue.into(),
            prefetch: 1024,
            heartbeat: Duration::from_secs(10),
            consumer_tag: String::new(),
            connection_name: "ackwright".into(),
            declare: false,
            arguments: Vec::new(),
            tls_ca: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.queue.is_empty() {
            return Err(Error::NoQueue);
        }
        short("queue", &self.queue)?;
        short("consumer_tag", &self.consumer_tag)?;
        if self.prefetch == 0 {
            return Err(Error::Prefetch);
        }
        for argument in &self.arguments {
            short("queue argument", &argument.name)?;
        }
        super::fields::table(&self.arguments).map_err(|e| Error::Arguments(e.to_string()))?;
        heartbeat(self.heartbeat)
    }

    /// The arguments to declare the queue with.
    pub(super) fn queue_arguments(&self) -> Vec<Header> {
        let mut arguments = self.arguments.clone();
        if self.declare && !arguments.iter().any(|a| a.name == QUEUE_TYPE) {
            arguments.push(Header { name: QUEUE_TYPE.into(), value: HeaderValue::Text("quorum".into()) });
        }
        arguments
    }
}

const QUEUE_TYPE: &str = "x-queue-type";

#[derive(Clone, Debug)]
pub struct PublisherSettings {
    pub address: Address,
    /// Where destinations without an exchange of their own go; empty is AMQP's default exchange, whose routing keys
    /// are queue names.
    pub exchange: String,
    pub heartbeat: Duration,
    pub connection_name: String,
    /// How long one batch may wait for the broker before what is unconfirmed counts as not sent.
    pub confirm_timeout: Duration,
    pub tls_ca: Option<String>,
}

impl PublisherSettings {
    pub fn new(address: Address) -> Self {
        PublisherSettings {
            address,
            exchange: String::new(),
            heartbeat: Duration::from_secs(10),
            connection_name: "ackwright publisher".into(),
            confirm_timeout: Duration::from_secs(10),
            tls_ca: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        short("exchange", &self.exchange)?;
        if self.confirm_timeout.is_zero() {
            return Err(Error::ConfirmTimeout);
        }
        heartbeat(self.heartbeat)
    }
}

/// A setting that no broker would accept.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error(
        "the URL is not one of RabbitMQ; expected amqp://user:password@host:5672/vhost or amqps://..., with special characters percent-encoded"
    )]
    Url,
    #[error("the queue has no name")]
    NoQueue,
    #[error("{what} is {bytes} bytes long; AMQP allows {SHORT_TEXT}")]
    TooLong { what: &'static str, bytes: usize },
    #[error("prefetch is 0; RabbitMQ would hand over the whole queue at once")]
    Prefetch,
    #[error("heartbeat is {0:?}; it must be between 2 seconds and 18 hours")]
    Heartbeat(Duration),
    #[error("confirm_timeout is 0; no message could ever be confirmed")]
    ConfirmTimeout,
    #[error("the queue arguments cannot be sent: {0}")]
    Arguments(String),
}

fn short(what: &'static str, text: &str) -> Result<(), Error> {
    if text.len() > SHORT_TEXT {
        return Err(Error::TooLong { what, bytes: text.len() });
    }
    Ok(())
}

fn heartbeat(time: Duration) -> Result<(), Error> {
    if time < Duration::from_secs(2) || time.as_secs() > u64::from(u16::MAX) {
        return Err(Error::Heartbeat(time));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SourceSettings {
        SourceSettings::new(Address::parse("amqp://localhost").unwrap(), "orders")
    }

    #[test]
    fn settings_that_no_broker_accepts_are_refused_at_once() {
        assert_eq!(settings().check(), Ok(()));
        assert_eq!(SourceSettings { queue: String::new(), ..settings() }.check(), Err(Error::NoQueue));
        assert_eq!(
            SourceSettings { queue: "q".repeat(256), ..settings() }.check(),
            Err(Error::TooLong { what: "queue", bytes: 256 })
        );
        assert_eq!(SourceSettings { prefetch: 0, ..settings() }.check(), Err(Error::Prefetch));
        let second = Duration::from_secs(1);
        assert_eq!(SourceSettings { heartbeat: second, ..settings() }.check(), Err(Error::Heartbeat(second)));
    }

    #[test]
    fn a_declared_queue_is_a_quorum_queue_unless_it_says_otherwise() {
        assert!(settings().queue_arguments().is_empty());
        let declared = SourceSettings { declare: true, ..settings() };
        assert_eq!(declared.queue_arguments()[0].value, HeaderValue::Text("quorum".into()));
        let classic = Header { name: QUEUE_TYPE.into(), value: HeaderValue::Text("classic".into()) };
        let declared = SourceSettings { declare: true, arguments: vec![classic.clone()], ..settings() };
        assert_eq!(declared.queue_arguments(), [classic]);
    }
}
