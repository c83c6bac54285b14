//! Retry: brings waiting messages back into their lanes when they are due.
//!
//! **Invariant:** a waiting message runs on one host at a time. Its lease is checked again by the claim, inside
//! the transaction, so a lease that ran out costs a run and never an effect.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::delivery::{Delivery, Place, Receipt};
use crate::identify::{Retry, identify};
use crate::intake::{Lanes, hand_over};
use crate::lane::chain;
use crate::parked;
use crate::pulse::Pulse;
use crate::route::Route;
use crate::settle::{Disposal, Settlement, Settler, Tally, settle};

/// How long a host may take for a waiting message before another host tries it.
pub const LEASE: Duration = Duration::from_secs(60);
/// Due messages of other hosts, or made due by an operator, are noticed this late.
const POLL: Duration = Duration::from_secs(1);
const MOST: usize = 64;

/// Runs until the host stops.
pub async fn retries(
    route: &Route,
    store: Arc<dyn parked::Store>,
    lanes: Lanes,
    stop: &CancellationToken,
    pulse: &Pulse,
) {
    let settler: Arc<dyn Settler> = Arc::new(Unbrokered);
    let name = &route.settings.name;
    while !stop.is_cancelled() {
        pulse.idle();
        let wait = match store.next_due(name).await {
            Ok(Some(due)) => due.min(POLL),
            Ok(None) => POLL,
            Err(error) => {
                tracing::debug!(route = %name, error = %chain(&error), "waiting messages cannot be looked up now");
                POLL
            }
        };
        if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
            return;
        }
        let due = match store.due(name, MOST, LEASE).await {
            Ok(due) => due,
            Err(error) => {
                tracing::debug!(route = %name, error = %chain(&error), "waiting messages cannot be taken now");
                continue;
            }
        };
        for message in due {
            pulse.beat();
            let retry = Retry { lease: message.lease, attempts: message.attempts };
            let place = Place { generation: 0, stream: 0, position: 0 };
            let delivery = Delivery {
                message: Arc::new(message.envelope.into_message(message.body)),
                receipt: Receipt::new(place, Arc::clone(&settler)),
                redelivered: true,
            };
            let mut identified = identify(route, delivery, Some(retry)).await;
            if identified.key != message.key {
                // Another plugin version, or another route, would compute another key: the old key stands, since
                // it is the one that the inbox knows.
                identified.key = message.key;
            }
            pulse.idle();
            if let Err(left) = hand_over(identified, &lanes, stop).await {
                settle(vec![Settlement::requeue(left.receipt)]).await;
                return;
            }
        }
    }
}

/// No broker waits for these: their state is in the database, and the transaction changes it.
struct Unbrokered;

#[async_trait]
impl Settler for Unbrokered {
    async fn settle(&self, places: Vec<(Place, Disposal)>) -> Tally {
        Tally { settled: places.len(), void: 0 }
    }

    fn forgotten(&self, _place: Place) {
        // The lease runs out and the message comes again.
    }
}
