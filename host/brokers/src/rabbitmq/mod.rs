//! RabbitMQ (AMQP 0-9-1): a queue as source, exchanges as destinations.
//!
//! A source and a publisher have a connection each, so that a broker that stops reading publishes under a memory
//! alarm still takes acks. Each reconnects by itself: a keeper task opens the link, watches it, and replaces it; the
//! client library's own recovery stays off, because it would carry delivery tags of a dead channel into a new one.
//!
//! Limits of the client library that show here: a header table is sorted by name and holds a name once, and a
//! message whose header names or properties are not UTF-8 cannot be read at all (health says so).

mod address;
mod backoff;
mod destination;
mod fields;
mod incoming;
mod link;
mod outgoing;
mod publisher;
mod settings;
mod settler;
mod source;
mod stats;
mod tracker;
mod wave;

pub use address::Address;
pub use publisher::Publisher;
pub use settings::{Error, PublisherSettings, SourceSettings};
pub use source::Source;
pub use stats::{PublisherCounts, SourceCounts};
