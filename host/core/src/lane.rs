//! Lane: takes what has arrived, brings it into the database in one transaction, and settles it.
//!
//! **Invariants:** messages of one order key are in one lane and keep their order. Only a run alone, in declared
//! order, condemns a message; a batch that is refused merely runs again in smaller parts. Faults of database and
//! broker spend no attempts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::attempt::{Attempt, Fate, attempt};
use crate::catalog::Catalog;
use crate::commit;
use crate::handler::{Outcome, Ran};
use crate::health::Reporter;
use crate::identify::Identified;
use crate::invoke::{Fault, condemned};
use crate::pulse::Pulse;
use crate::route::Route;
use crate::settle::{Finish, Settlement, settle};
use crate::store::{Refusal, Session, Store};
use crate::telemetry::{self, Count};

pub struct Lane {
    pub route: Arc<Route>,
    pub store: Arc<dyn Store>,
    pub catalog: Arc<Catalog>,
    pub intake: mpsc::Receiver<Identified>,
    /// Wakes the relay when outbox rows were committed.
    pub emitted: Arc<Notify>,
    /// Gives up what the database does not take; set when the host drains.
    pub draining: CancellationToken,
    pub health: Reporter,
    pub pulse: Pulse,
}

/// The first wait after the database gave out, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// The smallest batch after refusals.
const SMALLEST: usize = 16;

impl Lane {
    /// Runs until the intake ends, then finishes what it has taken.
    pub async fn run(mut self) {
        let mut session = Some(self.store.session());
        let most = self.route.settings.batch.max(1);
        let mut limit = most;
        let mut taken: Vec<Identified> = Vec::with_capacity(most);
        loop {
            self.pulse.idle();
            if taken.is_empty() && self.intake.recv_many(&mut taken, limit).await == 0 {
                return;
            }
            self.pulse.beat();
            let batch = cut(&mut taken, limit, self.route.settings.batch_bytes);
            let smooth = self.work(&mut session, batch).await;
            limit = if smooth { (limit * 2).min(most) } else { (limit / 4).max(SMALLEST.min(most)) };
        }
    }

    /// Works on a batch until everything in it is settled. Says whether it went through at once.
    async fn work(&mut self, session: &mut Option<Box<dyn Session>>, batch: Vec<Identified>) -> bool {
        let mut smooth = true;
        let mut parts = VecDeque::from([batch]);
        let mut pause = FIRST_PAUSE;
        while let Some(mut part) = parts.pop_front() {
            self.pulse.beat();
            let started = Instant::now();
            let open = session.take().unwrap_or_else(|| self.store.session());
            let (back, outcome) = attempt(self, open, &mut part).await;
            *session = back;
            match outcome {
                Ok(done) => {
                    pause = FIRST_PAUSE;
                    self.health.ready();
                    self.finish(part, done, started.elapsed()).await;
                }
                Err(Fault::System(error)) => {
                    smooth = false;
                    let name = &self.route.settings.name;
                    if error.conflict {
                        telemetry::count(Count::Conflicts, name, 1);
                        tracing::info!(route = %name, messages = part.len(), error = %chain(&error), "batch gives way and runs again");
                        let rest = part.split_off(part.len().div_ceil(2));
                        if !rest.is_empty() {
                            parts.push_front(rest);
                        }
                        parts.push_front(part);
                    } else {
                        telemetry::count(Count::SystemFaults, name, 1);
                        tracing::warn!(route = %name, messages = part.len(), error = %chain(&error), "database did not take the batch, it runs again");
                        self.health.down(chain(&error));
                        parts.push_front(part);
                    }
                    if self.draining.is_cancelled() {
                        let left = parts.into_iter().flatten().map(|m| Settlement::requeue(m.receipt)).collect();
                        settle(left).await;
                        return false;
                    }
                    // Cut short when the host drains, so that the rest goes back in time.
                    let _ = tokio::time::timeout(jittered(pause), self.draining.cancelled()).await;
                    pause = if error.conflict { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                }
                Err(Fault::Refused(refusal)) => {
                    smooth = false;
                    telemetry::count(Count::Refusals, &self.route.settings.name, 1);
                    for piece in divide(part, refusal).into_iter().rev() {
                        parts.push_front(piece);
                    }
                }
            }
        }
        smooth
    }

    async fn finish(&mut self, part: Vec<Identified>, done: Attempt, time: Duration) {
        let name = &self.route.settings.name;
        let mut applied = 0;
        let mut duplicates = 0;
        let mut parked = 0;
        let mut waiting = 0;
        let seen_before = commit::duplicate(&done.looked);
        let settlements: Vec<Settlement> = part
            .into_iter()
            .zip(&done.fates)
            .map(|(message, fate)| {
                let (finish, recorded) = match fate {
                    Fate::Applied => {
                        applied += 1;
                        (Finish::Applied, true)
                    }
                    Fate::Failed => {
                        parked += 1;
                        (Finish::Rejected, true)
                    }
                    Fate::Waiting => {
                        waiting += 1;
                        (Finish::Waiting, true)
                    }
                    Fate::Repeated => {
                        duplicates += 1;
                        (Finish::Duplicate, done.committed.is_some())
                    }
                    Fate::Duplicate => {
                        duplicates += 1;
                        (Finish::Duplicate, false)
                    }
                };
                match (&done.committed, recorded) {
                    (Some(committed), true) => Settlement::done(message.receipt, committed, finish),
                    (_, false) => Settlement::done(message.receipt, &seen_before, finish),
                    // Nothing was recorded in a transaction that was not committed.
                    (None, true) => Settlement::requeue(message.receipt),
                }
            })
            .collect();
        if done.emitted {
            self.emitted.notify_waiters();
            self.emitted.notify_one();
        }
        if done.committed.is_some() {
            telemetry::count(Count::Batches, name, 1);
            telemetry::batch(name, settlements.len(), time);
        }
        telemetry::count(Count::Applied, name, applied);
        telemetry::count(Count::Duplicates, name, duplicates);
        telemetry::count(Count::Parked, name, parked);
        telemetry::count(Count::Retries, name, waiting);
        telemetry::count(Count::Mismatches, name, done.mismatches);
        fail::fail_point!("settle:before");
        let tally = settle(settlements).await;
        fail::fail_point!("settle:after");
        telemetry::count(Count::Settled, name, tally.settled);
        telemetry::count(Count::VoidReceipts, name, tally.void);
    }
}

/// Takes a batch from the front: at most so many messages and bytes, but at least one.
fn cut(taken: &mut Vec<Identified>, most: usize, bytes: usize) -> Vec<Identified> {
    let mut sum = 0;
    let fits = taken.iter().take(most).take_while(|m| {
        sum += m.message.size();
        sum <= bytes
    });
    let end = fits.count().max(1).min(taken.len());
    let rest = taken.split_off(end);
    std::mem::replace(taken, rest)
}

/// Divides a refused batch: the messages that cannot be to blame together, then the suspects one by one. What
/// shares its order key with an earlier suspect stays behind it. A message that was refused alone is condemned.
fn divide(mut part: Vec<Identified>, refusal: Refusal) -> Vec<Vec<Identified>> {
    if part.len() == 1 {
        if let Some(message) = part.first_mut() {
            let run = crate::handler::Run { outcome: Outcome::Failed(condemned(refusal)), effects: Default::default() };
            message.ran = Ran::Finished(run);
        }
        return vec![part];
    }
    let all = refusal.suspects.is_empty() || refusal.suspects.len() >= part.len();
    if all {
        let size = part.len().div_ceil(4);
        let mut pieces = Vec::with_capacity(4);
        while !part.is_empty() {
            let rest = part.split_off(size.min(part.len()));
            pieces.push(std::mem::replace(&mut part, rest));
        }
        return pieces;
    }
    let mut held: Vec<u64> = Vec::new();
    let mut free = Vec::with_capacity(part.len());
    let mut alone = Vec::new();
    for (at, message) in part.into_iter().enumerate() {
        if refusal.suspects.contains(&(at as u32)) || held.contains(&message.order) {
            held.push(message.order);
            alone.push(vec![message]);
        } else {
            free.push(message);
        }
    }
    let mut pieces = Vec::with_capacity(alone.len() + 1);
    if !free.is_empty() {
        pieces.push(free);
    }
    pieces.extend(alone);
    pieces
}

/// Spreads lanes that fail together; up to half is taken away.
fn jittered(pause: Duration) -> Duration {
    pause - pause.mul_f64(rand::random::<f64>() / 2.0)
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
