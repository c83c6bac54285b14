//! Where emitted messages go.

use async_trait::async_trait;

use crate::outbox::Row;

/// Publishes outbox rows on a connection of its own. It reconnects by itself.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Publishes all rows, keeping their order within an order key, and returns one answer a row, in the same
    /// order, once the broker has confirmed or refused it. Every wait is bounded.
    async fn publish(&self, rows: &[Row]) -> Vec<Result<(), Error>>;

    async fn close(&self);
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The broker is away or blocked: no attempt is spent.
    #[error("the broker cannot take messages now: {0}")]
    Unavailable(String),
    /// The broker refused this row (no such exchange, unroutable, ...): it backs off and others go on.
    #[error("the broker refused the message: {0}")]
    Refused(String),
    /// No later attempt can succeed (too large, malformed destination, ...).
    #[error("the message can never be published: {0}")]
    Permanent(String),
}
