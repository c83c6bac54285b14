//! Where deliveries come from.

use std::sync::Arc;

use async_trait::async_trait;

use crate::delivery::Delivery;
use crate::settle::Settler;

/// What a broker can do; the pipeline asks for capabilities and never for the broker's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Deliveries of one stream come in the order of their positions and are settled up to a position.
    pub ordered: bool,
    /// Another host may receive what this one has not settled.
    pub shared: bool,
    /// A requeued delivery comes back by itself.
    pub requeues: bool,
}

/// One route's intake. The source owns its reconnect loop: `next` waits for as long as the broker is away and
/// says so through health, and it only fails when it can never deliver again.
#[async_trait]
pub trait Source: Send {
    fn capabilities(&self) -> Capabilities;

    fn settler(&self) -> Arc<dyn Settler>;

    /// Waits for a delivery, then adds whatever else has arrived, up to `most`. Cancelling it loses nothing.
    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, Error>;

    /// Stops intake: the broker hands over nothing more; receipts stay valid until `close`.
    async fn stop(&mut self);

    /// Ends the connection. Whatever was not settled goes back to the broker.
    async fn close(&mut self);
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A finite source has come to its end.
    #[error("the source has no more deliveries")]
    Ended,
    #[error("the source cannot go on: {0}")]
    Fatal(String),
}
