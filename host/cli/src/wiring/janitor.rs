//! Janitor: removes inbox rows that are older than any route of the database keeps them.
//!
//! Small batches in transactions of their own, so that it neither locks for long nor holds up the lanes. Several
//! hosts may run it: a row that another one removed is no longer found.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::parked::Store;
use ackwright_core::pulse::Pulse;
use ackwright_core::telemetry::{self, Count};
use tokio_util::sync::CancellationToken;

const MOST: usize = 1_000;
const EVERY: Duration = Duration::from_secs(60);
/// Between two batches, so that a large backlog leaves room for the lanes.
const BREATH: Duration = Duration::from_millis(50);

pub async fn clean(database: Arc<str>, store: Arc<dyn Store>, keep: Duration, pulse: Pulse, stop: CancellationToken) {
    loop {
        pulse.beat();
        let pause = match store.clean(keep, MOST).await {
            Ok(rows) => {
                telemetry::count(Count::Cleaned, &database, rows as usize);
                if rows as usize >= MOST { BREATH } else { EVERY }
            }
            Err(error) => {
                tracing::debug!(%database, %error, "the inbox cannot be cleaned now");
                EVERY
            }
        };
        pulse.idle();
        if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}
