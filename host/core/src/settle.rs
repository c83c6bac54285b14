//! Settling: the only way to finish a delivery at its broker.
//!
//! **Invariant:** settling as done takes a proof that the message's effect is in the database (`Committed`) or
//! was there already (`Duplicate`), so acking early does not compile:
//!
//! ```compile_fail
//! use ackwright_core::{commit::Committed, delivery::Receipt, settle::Settlement};
//! fn ack_early(receipt: Receipt) -> Settlement {
//!     Settlement::done(receipt, Committed { _private: () })
//! }
//! ```

use std::sync::Arc;

use async_trait::async_trait;

use crate::commit::Proof;
use crate::delivery::{Place, Receipt};

/// Finishes deliveries at the broker. One settler serves all lanes of a source.
#[async_trait]
pub trait Settler: Send + Sync {
    /// Settles what can be settled. A receipt of a dead channel or a revoked partition is void: it is counted
    /// and nothing is sent. Failing is not an error for the caller: an unsettled message comes again and is
    /// then a duplicate. Every wait on the broker is bounded.
    async fn settle(&self, places: Vec<(Place, Disposal)>) -> Tally;

    /// A receipt was dropped unsettled, which is a bug of the host: ask for a requeue where the broker can.
    fn forgotten(&self, place: Place);
}

/// What the broker shall do with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// Finished: its effect, or the record of its failure, is committed.
    Done(Finish),
    /// Not finished: hand it over again.
    Requeue,
}

/// Why a delivery is finished; a webhook answers each differently, a queue acks them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Applied,
    Duplicate,
    /// Recorded as failed and parked.
    Rejected,
    /// Parked for a later attempt.
    Waiting,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub settled: usize,
    /// Receipts that were void.
    pub void: usize,
}

/// A delivery about to be settled.
#[derive(Debug)]
pub struct Settlement {
    receipt: Receipt,
    disposal: Disposal,
}

impl Settlement {
    /// Finishes the delivery; the proof says that a repeat would find the record of it.
    pub fn done(receipt: Receipt, proof: &dyn Proof, finish: Finish) -> Self {
        // The proof is evidence only: holding a reference to one shows that it exists.
        let _ = proof;
        Settlement { receipt, disposal: Disposal::Done(finish) }
    }

    /// Hands the delivery back.
    pub fn requeue(receipt: Receipt) -> Self {
        Settlement { receipt, disposal: Disposal::Requeue }
    }
}

/// The one settle site of the program.
#[expect(clippy::disallowed_methods, reason = "this is the one settle site")]
pub async fn settle(settlements: Vec<Settlement>) -> Tally {
    let mut total = Tally::default();
    let mut rest = settlements.into_iter().peekable();
    while let Some(first) = rest.next() {
        let settler = Arc::clone(first.receipt.settler());
        let mut places = vec![(first.receipt.surrender(), first.disposal)];
        // A lane serves one source, but retried messages have a settler of their own.
        while let Some(same) = rest.next_if(|s| Arc::ptr_eq(s.receipt.settler(), &settler)) {
            places.push((same.receipt.surrender(), same.disposal));
        }
        let tally = settler.settle(places).await;
        total.settled += tally.settled;
        total.void += tally.void;
    }
    total
}
