//! The tests' pipeline: takes deliveries and settles them as told.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ackwright_core::delivery::{Delivery, Place};
use ackwright_core::health::{Health, Reporter};
use ackwright_core::message::Message;
use ackwright_core::settle::{Disposal, Finish, Settler, Tally};
use ackwright_core::source::Source;

pub const DEADLINE: Duration = Duration::from_secs(10);

pub const APPLIED: Disposal = Disposal::Done(Finish::Applied);

pub fn reporter() -> Reporter {
    Health::default().component("broker.test")
}

pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it happens before the deadline")
}

pub struct Taken {
    pub message: Arc<Message>,
    pub place: Place,
    pub redelivered: bool,
}

/// Takes the place out of a delivery. The receipt is forgotten on purpose: only core can make the proof that
/// settling it as done takes, and dropping it would ask for a requeue.
pub fn surrender(delivery: Delivery) -> Taken {
    let Delivery { message, receipt, redelivered } = delivery;
    let place = receipt.place();
    std::mem::forget(receipt);
    Taken { message, place, redelivered }
}

pub async fn take(source: &mut dyn Source, most: usize) -> Vec<Taken> {
    let taken = soon(source.next(most)).await.expect("the source goes on");
    taken.into_iter().map(surrender).collect()
}

/// Takes until there are `count`.
pub async fn take_all(source: &mut dyn Source, count: usize) -> Vec<Taken> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(take(source, count - all.len()).await);
    }
    all
}

#[expect(clippy::disallowed_methods, reason = "the tests stand in for core's settle site")]
pub async fn settle(settler: &Arc<dyn Settler>, places: Vec<(Place, Disposal)>) -> Tally {
    soon(settler.settle(places)).await
}

pub fn text(taken: &Taken) -> String {
    String::from_utf8_lossy(taken.message.body.as_deref().unwrap_or_default()).into_owned()
}
