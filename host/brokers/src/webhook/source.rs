//! A route's intake: the deliveries that are posted to its path.

use std::sync::Arc;

use ackwright_core::delivery::{Delivery, Receipt};
use ackwright_core::settle::{Disposal, Settler};
use ackwright_core::source::{self, Capabilities};
use async_trait::async_trait;
use tokio::sync::mpsc;

use super::answer::Answer;
use super::endpoint::{Endpoint, Queued};

/// Made by [`super::listener::Listener::source`].
pub struct Source {
    endpoint: Arc<Endpoint>,
    queued: mpsc::UnboundedReceiver<Queued>,
}

impl Source {
    pub(super) fn new(endpoint: Arc<Endpoint>, queued: mpsc::UnboundedReceiver<Queued>) -> Self {
        Source { endpoint, queued }
    }
}

#[async_trait]
impl source::Source for Source {
    fn capabilities(&self) -> Capabilities {
        // A sender that is told to try again comes back by itself, perhaps at another host.
        Capabilities { ordered: false, shared: true, requeues: true }
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::clone(&self.endpoint) as Arc<dyn Settler>
    }

    /// Ends once `stop` was called.
    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, source::Error> {
        let mut queued = Vec::new();
        self.queued.recv_many(&mut queued, most.max(1)).await;
        if queued.is_empty() {
            return Err(source::Error::Ended);
        }
        let delivery = |Queued { message, place }| Delivery {
            message,
            receipt: Receipt::new(place, self.settler()),
            redelivered: false,
        };
        Ok(queued.into_iter().map(delivery).collect())
    }

    async fn stop(&mut self) {
        self.endpoint.stop();
        self.queued.close();
        // What no lane has taken goes back to its sender.
        while let Ok(queued) = self.queued.try_recv() {
            self.endpoint.answer(queued.place, Answer::Settled(Disposal::Requeue));
        }
    }

    async fn close(&mut self) {
        self.endpoint.close();
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.endpoint.close();
    }
}
