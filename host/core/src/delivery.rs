//! A delivery is one hand-over of a message; its receipt is the only thing that can settle it.
//!
//! **Invariant:** dropping a delivery never acks it, and a receipt settles at most once.

use std::sync::Arc;

use crate::message::Message;
use crate::settle::Settler;

#[derive(Debug)]
pub struct Delivery {
    pub message: Arc<Message>,
    pub receipt: Receipt,
    /// The broker says that it handed this message over before.
    pub redelivered: bool,
}

/// Where a delivery stands at its broker. Meaning of the numbers is the adapter's: RabbitMQ has one stream a
/// channel and the delivery tag as position; Kafka has one stream a partition and the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Channel or assignment that handed the message over; a receipt of an earlier generation is void.
    pub generation: u64,
    pub stream: u32,
    pub position: u64,
}

/// The right to settle one delivery. It cannot be copied, and settling consumes it.
pub struct Receipt {
    place: Place,
    /// Taken when the receipt is settled; still there on drop means that the delivery was forgotten.
    settler: Option<Arc<dyn Settler>>,
}

impl Receipt {
    pub fn new(place: Place, settler: Arc<dyn Settler>) -> Self {
        Receipt { place, settler: Some(settler) }
    }

    pub fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn settler(&self) -> &Arc<dyn Settler> {
        // Only `surrender` takes it, and that consumes the receipt.
        self.settler.as_ref().expect("a live receipt has its settler")
    }

    pub(crate) fn surrender(mut self) -> Place {
        self.settler = None;
        self.place
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(settler) = self.settler.take() {
            crate::telemetry::forgotten();
            settler.forgotten(self.place);
        }
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Receipt").field(&self.place).finish()
    }
}
