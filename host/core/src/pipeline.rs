//! The pipeline of one route, from its source to settled deliveries.
//!
//! ```text
//! source -> route -> identify -> claim -> invoke -> apply -> commit -> settle
//! ```

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::catalog::Catalog;
use crate::health::Health;
use crate::intake::{Lanes, intake};
use crate::lane::Lane;
use crate::pulse::Pulses;
use crate::retry::retries;
use crate::route::Route;
use crate::source::{Error, Source};
use crate::store::Store;

/// What a route's pipeline works with.
pub struct Pipeline {
    pub route: Arc<Route>,
    pub source: Box<dyn Source>,
    pub store: Arc<dyn Store>,
    pub catalog: Arc<Catalog>,
    /// Wakes the relay of the database.
    pub emitted: Arc<Notify>,
    pub health: Health,
    pub pulses: Pulses,
}

impl Pipeline {
    /// Runs until `stop`, then finishes or hands back what was taken, and closes the source. A finite source ends
    /// it as well.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Error> {
        let name = Arc::clone(&self.route.settings.name);
        let count = self.route.settings.lanes.max(1);
        let mut tasks = JoinSet::new();
        let mut senders = Vec::with_capacity(count);
        for number in 0..count {
            // One batch waits while another commits: that is what the next batch is made of.
            let (sender, receiver) = mpsc::channel(self.route.settings.batch.max(1));
            senders.push(sender);
            let lane = Lane {
                route: Arc::clone(&self.route),
                store: Arc::clone(&self.store),
                catalog: Arc::clone(&self.catalog),
                intake: receiver,
                emitted: Arc::clone(&self.emitted),
                draining: stop.clone(),
                health: self.health.component(format!("route.{name}.lane.{number}")),
                pulse: self.pulses.task(format!("route.{name}.lane.{number}")),
            };
            lane.health.ready();
            tasks.spawn(lane.run());
        }
        let lanes: Lanes = senders.into();

        // The end of a finite source ends the retries too: what still waits is in the database.
        let ending = stop.child_token();
        let again = tokio::spawn({
            let (route, store, lanes) = (Arc::clone(&self.route), self.store.parked(), Arc::clone(&lanes));
            let (ending, pulse) = (ending.clone(), self.pulses.task(format!("route.{name}.retries")));
            async move { retries(&route, store, lanes, &ending, &pulse).await }
        });

        let pulse = self.pulses.task(format!("route.{name}.intake"));
        let result = intake(&self.route, self.source.as_mut(), &lanes, &stop, &pulse).await;
        drop(pulse);
        self.source.stop().await;
        ending.cancel();
        if let Err(error) = again.await {
            tracing::error!(route = %name, %error, "retries ended badly");
        }
        drop(lanes);
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(route = %name, %error, "lane ended badly");
            }
        }
        self.source.close().await;
        result
    }
}
