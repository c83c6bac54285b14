//! Relay: publishes committed outbox rows and marks them sent once the broker confirmed them.
//!
//! **Invariants:** rows are taken by state and never by "greater than the last position". One relay at a time works
//! on a shard, so rows of one order key go out in order. A crash between confirm and mark publishes again, with
//! the same id, headers and body. A broker that is away costs no attempts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::health::{Health, Reporter};
use crate::key::DedupKey;
use crate::lane::chain;
use crate::outbox::{Fate, Row, Store};
use crate::publisher::{self, Publisher};
use crate::pulse::{Pulse, Pulses};
use crate::route::Backoff;
use crate::telemetry::{self, Count};

#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the database whose outbox it is.
    pub database: Arc<str>,
    /// Names this host among all that share the database.
    pub relay: Uuid,
    /// How a refused row is tried again; then it is parked.
    pub retry: Backoff,
    /// How long sent rows stay; zero deletes them at once.
    pub keep: Duration,
}

/// How long another host waits before it takes over the shards of a host that is gone.
pub const LEASE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
/// Only a net: commits wake the relay.
const POLL: Duration = Duration::from_millis(500);
const MOST: usize = 1024;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Sent rows removed in one transaction.
const CLEANED: usize = 1000;

pub struct Relay {
    pub settings: Settings,
    pub store: Arc<dyn Store>,
    pub publishers: BTreeMap<String, Arc<dyn Publisher>>,
    /// Notified after commits that wrote outbox rows.
    pub emitted: Arc<Notify>,
    pub health: Health,
    pub pulses: Pulses,
}

impl Relay {
    /// Runs until `stop`, whether or not deliveries arrive; then gives its shards back.
    pub async fn run(self, stop: CancellationToken) {
        let database = Arc::clone(&self.settings.database);
        let shards = Arc::new(Shards::default());
        let mut tasks = JoinSet::new();
        let mut wakes = Vec::new();
        for (broker, publisher) in &self.publishers {
            let wake = Arc::new(Notify::new());
            wakes.push(Arc::clone(&wake));
            let line = Line {
                settings: self.settings.clone(),
                broker: broker.clone(),
                store: Arc::clone(&self.store),
                publisher: Arc::clone(publisher),
                shards: Arc::clone(&shards),
                wake,
                health: self.health.component(format!("relay.{database}.{broker}")),
                pulse: self.pulses.task(format!("relay.{database}.{broker}")),
            };
            line.health.ready();
            tasks.spawn(line.run(stop.clone()));
        }
        let leases = self.health.component(format!("relay.{database}"));
        let mut renewed: Option<Instant> = None;
        let mut cleaned = Instant::now();
        loop {
            if renewed.is_none_or(|at| at.elapsed() >= RENEW) {
                self.renew(&shards, &leases).await;
                renewed = Some(Instant::now());
                wakes.iter().for_each(|wake| wake.notify_one());
            }
            if cleaned.elapsed() >= LEASE && !self.settings.keep.is_zero() {
                cleaned = Instant::now();
                match self.store.clean(self.settings.keep, CLEANED).await {
                    Ok(rows) => telemetry::count(Count::Cleaned, &database, rows as usize),
                    Err(error) => tracing::debug!(%database, error = %chain(&error), "outbox cannot be cleaned now"),
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.emitted.notified() => wakes.iter().for_each(|wake| wake.notify_one()),
                () = tokio::time::sleep(RENEW) => {}
            }
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%database, %error, "relay line ended badly");
            }
        }
        // Best effort: a lease that stays runs out.
        if let Err(error) = self.store.release(self.settings.relay).await {
            tracing::debug!(%database, error = %chain(&error), "outbox shards were not given back");
        }
        for publisher in self.publishers.values() {
            publisher.close().await;
        }
    }

    async fn renew(&self, shards: &Shards, health: &Reporter) {
        let asked = Instant::now();
        match self.store.lease(self.settings.relay, LEASE).await {
            Ok(held) => {
                health.ready();
                shards.set(held, asked + LEASE);
            }
            Err(error) => {
                // What is held stays held until it runs out.
                health.down(chain(&error));
            }
        }
        if let Ok(counts) = self.store.counts().await {
            telemetry::outbox_pending(&self.settings.database, counts.pending + counts.refused);
        }
    }
}

/// The shards that this host holds, and until when it may believe so.
#[derive(Default)]
struct Shards(Mutex<Option<(Vec<i16>, Instant)>>);

impl Shards {
    fn set(&self, held: Vec<i16>, until: Instant) {
        *self.0.lock().unwrap_or_else(|e| e.into_inner()) = Some((held, until));
    }

    fn held(&self) -> Vec<i16> {
        match &*self.0.lock().unwrap_or_else(|e| e.into_inner()) {
            Some((held, until)) if Instant::now() < *until => held.clone(),
            Some(_) | None => Vec::new(),
        }
    }
}

/// The relay's work for one broker, so that a broker that is away holds up no other.
struct Line {
    settings: Settings,
    broker: String,
    store: Arc<dyn Store>,
    publisher: Arc<dyn Publisher>,
    shards: Arc<Shards>,
    wake: Arc<Notify>,
    health: Reporter,
    pulse: Pulse,
}

impl Line {
    async fn run(self, stop: CancellationToken) {
        let mut pause = Duration::ZERO;
        loop {
            self.pulse.idle();
            let wait = if pause.is_zero() { POLL } else { pause };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // While the broker is away commits do not shorten the wait.
                () = self.wake.notified(), if pause.is_zero() => {}
                () = tokio::time::sleep(wait) => {}
            }
            loop {
                self.pulse.beat();
                match self.pass().await {
                    Pass::More => pause = Duration::ZERO,
                    Pass::Done => {
                        pause = Duration::ZERO;
                        break;
                    }
                    Pass::Away => {
                        pause = (pause * 2).clamp(Duration::from_millis(100), LONGEST_PAUSE);
                        break;
                    }
                }
                if stop.is_cancelled() {
                    return;
                }
            }
        }
    }

    async fn pass(&self) -> Pass {
        let shards = self.shards.held();
        if shards.is_empty() {
            return Pass::Done;
        }
        let pending = match self.store.pending(&self.broker, &shards, MOST).await {
            Ok(pending) => pending,
            Err(error) => {
                self.health.down(chain(&error));
                return Pass::Away;
            }
        };
        if pending.is_empty() {
            self.health.ready();
            return Pass::Done;
        }
        fail::fail_point!("relay:before");
        let rows = pending.rows;
        // A publisher need not expect to be called for nothing.
        let answers = if rows.is_empty() { Vec::new() } else { self.publisher.publish(&rows).await };
        fail::fail_point!("relay:after");
        let mut fates = Vec::with_capacity(rows.len() + pending.unreadable.len());
        let mut away = None;
        for (row, answer) in rows.iter().zip(answers) {
            match self.fate(row, answer) {
                Ok(fate) => fates.push((row.position, fate)),
                Err(why) => away = Some(why),
            }
        }
        let total = rows.len() + pending.unreadable.len();
        for row in pending.unreadable {
            tracing::error!(broker = %self.broker, id = %row.id, reason = %row.reason, "outbox row is parked");
            fates.push((row.position, Fate::Parked { reason: row.reason }));
        }
        let name: Arc<str> = self.broker.as_str().into();
        let sent = fates.iter().filter(|(_, fate)| *fate == Fate::Sent).count();
        let parked = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Parked { .. })).count();
        if !fates.is_empty()
            && let Err(error) = self.store.settle(self.settings.relay, &fates, self.settings.keep).await
        {
            self.health.down(chain(&error));
            return Pass::Away;
        }
        telemetry::count(Count::Published, &name, sent);
        telemetry::count(Count::OutboxParked, &name, parked);
        telemetry::count(Count::PublishFailures, &name, total - sent - parked);
        match away {
            Some(why) => {
                self.health.down(why);
                Pass::Away
            }
            None => {
                self.health.ready();
                Pass::More
            }
        }
    }

    fn fate(&self, row: &Row, answer: Result<(), publisher::Error>) -> Result<Fate, String> {
        match answer {
            Ok(()) => Ok(Fate::Sent),
            Err(publisher::Error::Unavailable(why)) => Err(why),
            Err(publisher::Error::Refused(reason)) => {
                let attempts = row.attempts + 1;
                tracing::warn!(broker = %self.broker, id = %row.id, attempts, %reason, "broker refused an outbox row");
                if attempts >= self.settings.retry.attempts {
                    Ok(Fate::Parked { reason })
                } else {
                    Ok(Fate::Refused { reason, after: self.settings.retry.after(attempts, &DedupKey(row.id)) })
                }
            }
            Err(publisher::Error::Permanent(reason)) => {
                tracing::error!(broker = %self.broker, id = %row.id, %reason, "outbox row can never be published, it is parked");
                Ok(Fate::Parked { reason })
            }
        }
    }
}

enum Pass {
    More,
    Done,
    Away,
}
