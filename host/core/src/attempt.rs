//! One attempt at a batch: claim, invoke, apply, commit, in one transaction.
//!
//! **Invariant:** inbox rows, business rows, outbox rows and parked copies of the batch commit together or not at
//! all. Messages that failed leave nothing but their record; their neighbours commit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::commit::{self, Committed, Looked, Verdict};
use crate::effect::Effect;
use crate::handler::{Class, Failure, Outcome, Ran, Run};
use crate::identify::Identified;
use crate::invoke::{self, Fault, Reading};
use crate::key::DedupKey;
use crate::lane::Lane;
use crate::outbox;
use crate::parked;
use crate::plan::{self, Order};
use crate::route::Settings;
use crate::store::{Claim, Claimed, Session, State};

/// What became of a batch.
pub struct Attempt {
    /// Absent where nothing had to be written.
    pub committed: Option<Committed>,
    pub looked: Looked,
    /// One a message, in order.
    pub fates: Vec<Fate>,
    pub emitted: bool,
    pub mismatches: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Applied,
    /// Recorded as failed and parked.
    Failed,
    /// Parked for a later attempt.
    Waiting,
    /// The same key came earlier in this batch.
    Repeated,
    /// An earlier transaction recorded it.
    Duplicate,
}

/// Runs the batch once. The session comes back unless a handler kept it.
pub async fn attempt(
    lane: &Lane,
    session: Box<dyn Session>,
    part: &mut [Identified],
) -> (Option<Box<dyn Session>>, Result<Attempt, Fault>) {
    let mut session = Some(session);
    let result = run(lane, &mut session, part).await;
    if let (Err(_), Some(session)) = (&result, &mut session) {
        session.rollback().await;
    }
    (session, result)
}

async fn run(lane: &Lane, slot: &mut Option<Box<dyn Session>>, part: &mut [Identified]) -> Result<Attempt, Fault> {
    let settings = &lane.route.settings;
    let session = open(slot)?;
    fail::fail_point!("claim:before");
    session.begin().await?;
    let (leaders, mut fates, mut mismatches) = lead(part);
    let claims: Vec<Claim> = leaders.iter().map(|at| claim(&part[*at])).collect();
    let claimed = session.claim(&claims).await?;
    fail::fail_point!("claim:after");

    let mut ours = Vec::with_capacity(leaders.len());
    for (at, claimed) in leaders.iter().zip(&claimed) {
        match claimed {
            Claimed::New => ours.push(*at),
            Claimed::Duplicate { same_body, .. } => {
                mismatches += usize::from(!same_body);
                fates[*at] = Fate::Duplicate;
            }
            Claimed::Gone => fates[*at] = Fate::Duplicate,
        }
    }
    if ours.is_empty() {
        session.rollback().await;
        return Ok(Attempt { committed: None, looked: commit::looked(), fates, emitted: false, mismatches });
    }

    let late = invoke_readers(lane, slot, part, &ours).await?;
    let session = open(slot)?;

    let mut effects: Vec<(u32, &Effect)> = late.pending.iter().map(|(at, e)| (*at, e)).collect();
    let mut rows = Vec::new();
    let mut parked = Vec::new();
    let mut unparked = Vec::new();
    let mut corrected = Vec::new();
    for at in ours {
        let message = &part[at];
        let run = match (&message.ran, late.runs.get(&at)) {
            (_, Some(run)) => run,
            (Ran::Finished(run), None) => run,
            (Ran::NeedsReads, None) => continue,
        };
        match &run.outcome {
            Outcome::Failed(failure) => {
                let row = park(settings, message, failure);
                fates[at] = if row.state == State::Waiting { Fate::Waiting } else { Fate::Failed };
                if row.state != planned_state(message) {
                    corrected.push((message.key, row.state));
                }
                parked.push(row);
            }
            Outcome::Done | Outcome::Unavailable(_) => {
                fates[at] = Fate::Applied;
                if !late.staged {
                    effects.extend(run.effects.effects.iter().map(|e| (at as u32, e)));
                }
                emit(message, run, &mut rows);
                if message.retry.is_some() {
                    unparked.push(message.key);
                }
            }
        }
    }

    fail::fail_point!("apply:before");
    // The host's own rows first: nobody waits for them, while business rows may be hot, and a lock on one is held
    // from here to the commit.
    if !rows.is_empty() {
        session.emit(&rows).await?;
    }
    if !parked.is_empty() {
        session.park(&parked).await?;
    }
    if !unparked.is_empty() {
        session.unpark(&unparked).await?;
    }
    if !corrected.is_empty() {
        session.record(&corrected).await?;
    }
    let order = if part.len() == 1 { Order::Declared } else { Order::Coalesced };
    let plan = plan::build(effects, &lane.catalog, order);
    if !plan.groups.is_empty() {
        session.apply(&plan).await?;
    }
    fail::fail_point!("apply:after");
    fail::fail_point!("commit:before");
    match commit::commit(session.as_mut()).await {
        Verdict::Committed(committed) => {
            fail::fail_point!("commit:after");
            let emitted = !rows.is_empty();
            Ok(Attempt { committed: Some(committed), looked: commit::looked(), fates, emitted, mismatches })
        }
        Verdict::RolledBack(error) => Err(Fault::System(error)),
        Verdict::Refused(refusal) => Err(Fault::Refused(refusal)),
        Verdict::InDoubt(error) => {
            crate::telemetry::count(crate::telemetry::Count::InDoubt, &settings.name, 1);
            tracing::warn!(route = %settings.name, error = %crate::lane::chain(&error), "commit in doubt, the inbox will tell");
            Err(Fault::System(error))
        }
    }
}

/// Picks the first message of each key; the others follow it. Counts those whose body differs from the first.
fn lead(part: &[Identified]) -> (Vec<usize>, Vec<Fate>, usize) {
    let mut first: HashMap<DedupKey, usize> = HashMap::with_capacity(part.len());
    let mut mismatches = 0;
    let mut leaders = Vec::with_capacity(part.len());
    let mut fates = Vec::with_capacity(part.len());
    for (at, message) in part.iter().enumerate() {
        match first.entry(message.key) {
            Entry::Vacant(place) => {
                place.insert(at);
                leaders.push(at);
                fates.push(Fate::Duplicate);
            }
            Entry::Occupied(first) => {
                mismatches += usize::from(part[*first.get()].message.body != message.message.body);
                fates.push(Fate::Repeated);
            }
        }
    }
    (leaders, fates, mismatches)
}

fn claim(message: &Identified) -> Claim {
    Claim {
        key: message.key,
        label: message.label.clone(),
        body_hash: message.message.body_hash(),
        writer: message.writer,
        state: planned_state(message),
        retry: message.retry.map(|r| r.lease),
    }
}

/// The state that the claim writes; what a reader's run changes is corrected before the commit.
fn planned_state(message: &Identified) -> State {
    match &message.ran {
        Ran::NeedsReads => State::Done,
        Ran::Finished(run) => match &run.outcome {
            Outcome::Done | Outcome::Unavailable(_) => State::Done,
            Outcome::Failed(failure) => match failure.class {
                Class::Retry { .. } => State::Waiting,
                Class::Rejected | Class::Trapped | Class::Denied => State::Failed,
            },
        },
    }
}

/// Runs of handlers inside the transaction, by message.
#[derive(Default)]
struct Late {
    runs: HashMap<usize, Run>,
    /// Effects of the whole batch that no read has needed yet.
    pending: Vec<(u32, Effect)>,
    /// Handlers ran here, so `pending` is all there is left to apply.
    staged: bool,
}

async fn invoke_readers(
    lane: &Lane,
    slot: &mut Option<Box<dyn Session>>,
    part: &mut [Identified],
    ours: &[usize],
) -> Result<Late, Fault> {
    let mut late = Late::default();
    if !ours.iter().any(|at| matches!(part[*at].ran, Ran::NeedsReads)) {
        return Ok(late);
    }
    let Some(session) = slot.take() else { return Err(lost()) };
    let mut reading = Reading::new(session, Arc::clone(&lane.store), Arc::clone(&lane.catalog));
    for at in ours {
        lane.pulse.beat();
        if let Ran::Finished(run) = &part[*at].ran {
            // Readers behind it see what it declared. It is planned with the rest where nobody reads it.
            if run.outcome == Outcome::Done {
                reading.pending.extend(run.effects.effects.iter().cloned().map(|e| (*at as u32, e)));
            }
            continue;
        }
        let (back, ran) = invoke::invoke(reading, *at as u32, &part[*at]).await;
        let Some(mut back) = back else {
            stopped(&mut part[*at], &ran);
            return Err(ran.err().unwrap_or_else(lost));
        };
        let mut run = match ran {
            Ok(run) => run,
            Err(fault) => {
                *slot = Some(back.session);
                return Err(fault);
            }
        };
        match &run.outcome {
            Outcome::Done => back.pending.extend(run.effects.take_effects().into_iter().map(|e| (*at as u32, e))),
            Outcome::Failed(failure) if failure.class == Class::Trapped && part[*at].traps < 2 => {
                // Once more in a fresh guest and a fresh transaction; the second time it stands.
                let message = &mut part[*at];
                message.traps += 1;
                if message.traps >= 2 {
                    message.ran = Ran::Finished(Run { outcome: run.outcome.clone(), effects: Default::default() });
                }
                *slot = Some(back.session);
                return Err(again("a handler was stopped inside the transaction"));
            }
            Outcome::Failed(_) => {}
            Outcome::Unavailable(why) => {
                let fault = again(why);
                *slot = Some(back.session);
                return Err(fault);
            }
        }
        late.runs.insert(*at, run);
        reading = back;
    }
    late.pending = std::mem::take(&mut reading.pending);
    late.staged = true;
    *slot = Some(reading.session);
    Ok(late)
}

/// A handler that kept the transaction counts as stopped.
fn stopped(message: &mut Identified, ran: &Result<Run, Fault>) {
    message.traps += 1;
    if message.traps >= 2
        && let Err(fault) = ran
    {
        let failure = Failure {
            class: Class::Trapped,
            code: "trap:transaction-kept".into(),
            reason: format!("the handler did not give the transaction back: {fault:?}"),
            detail: None,
        };
        message.ran = Ran::Finished(Run { outcome: Outcome::Failed(failure), effects: Default::default() });
    }
}

fn again(why: &str) -> Fault {
    Fault::System(crate::store::Error {
        attempted: "run handlers in the transaction".into(),
        lost: false,
        conflict: true,
        source: why.to_owned().into(),
    })
}

fn lost() -> Fault {
    Fault::System(crate::store::Error {
        attempted: "go on with the transaction".into(),
        lost: true,
        conflict: false,
        source: "the session is gone".into(),
    })
}

fn open(slot: &mut Option<Box<dyn Session>>) -> Result<&mut Box<dyn Session>, Fault> {
    slot.as_mut().ok_or_else(lost)
}

fn emit(message: &Identified, run: &Run, rows: &mut Vec<outbox::NewRow>) {
    for (ordinal, emit) in run.effects.emits.iter().enumerate() {
        let (broker, destination) = emit.destination.split_once(':').unwrap_or(("", &emit.destination));
        let order_key = emit.key.clone().or_else(|| message.identity.as_ref().map(|i| i.order_text()));
        rows.push(outbox::NewRow {
            id: message.key.emit_id(ordinal as u32),
            broker: broker.into(),
            destination: destination.to_owned(),
            order_key: order_key.unwrap_or_default(),
            content_type: emit.content_type.clone(),
            headers: emit.headers.clone(),
            body: emit.body.clone(),
        });
    }
}

fn park(settings: &Settings, message: &Identified, failure: &Failure) -> parked::NewRow {
    let attempts = message.retry.map_or(0, |r| r.attempts) + 1;
    let (state, after) = match failure.class {
        Class::Retry { after } if attempts < settings.retry.attempts => {
            (State::Waiting, after.unwrap_or_else(|| settings.retry.after(attempts, &message.key)))
        }
        Class::Retry { .. } | Class::Rejected | Class::Trapped | Class::Denied => {
            (State::Failed, std::time::Duration::ZERO)
        }
    };
    parked::NewRow {
        key: message.key,
        label: message.label.clone(),
        writer: message.writer,
        route: Arc::clone(&settings.name),
        state,
        code: failure.code.clone(),
        reason: failure.reason.clone(),
        detail: failure.detail.clone(),
        attempts,
        after,
        envelope: Arc::new(parked::Envelope::of(&message.message, message.identity.as_ref())),
        body: message.message.body.clone(),
    }
}
