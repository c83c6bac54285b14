//! The inbox: one row a message, inserted before anything else of it is written.
//!
//! **Invariant:** whether a row is new is told by RETURNING and never by a number of affected rows.

use std::collections::{HashMap, HashSet};

use ackwright_core::key::DedupKey;
use ackwright_core::store::{Claim, Claimed, Error, State};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::native::{Array, Native, Param};
use super::session::Session;
use crate::fault::{self, Broken};
use crate::sql::storable;

const INSERT: &str = "
    INSERT INTO ackwright_inbox (key, label, body_hash, state, writer)
    SELECT key, label, body_hash, state, writer
    FROM unnest($1::uuid[], $2::text[], $3::int8[], $4::int2[], $5::int4[]) AS c (key, label, body_hash, state, writer)
    ON CONFLICT (key) DO NOTHING
    RETURNING key";

/// A row that waits is taken over; one that is done or failed was settled by somebody else.
const TAKE_OVER: &str = "
    INSERT INTO ackwright_inbox AS i (key, label, body_hash, state, writer)
    SELECT key, label, body_hash, state, writer
    FROM unnest($1::uuid[], $2::text[], $3::int8[], $4::int2[], $5::int4[]) AS c (key, label, body_hash, state, writer)
    ON CONFLICT (key) DO UPDATE SET state = EXCLUDED.state, writer = EXCLUDED.writer WHERE i.state = 2
    RETURNING key";

const LEASED: &str = "
    SELECT p.key FROM unnest($1::uuid[], $2::uuid[]) AS c (key, lease)
    JOIN ackwright_parked AS p ON p.key = c.key AND p.lease = c.lease
    WHERE p.state = 2 ORDER BY p.key FOR UPDATE OF p";

const FOUND: &str = "SELECT key, state, body_hash FROM ackwright_inbox WHERE key = ANY($1)";

const RECORD: &str = "
    UPDATE ackwright_inbox AS i SET state = c.state FROM unnest($1::uuid[], $2::int2[]) AS c (key, state)
    WHERE i.key = c.key RETURNING i.key";

/// How often rows that were removed between insert and look-up are tried again.
const ROUNDS: usize = 3;

pub(super) async fn claim(session: &mut Session, claims: &[Claim]) -> Result<Vec<Claimed>, Error> {
    let attempted = format!("claim {} messages", claims.len());
    let mut answers: Vec<Option<Claimed>> = vec![None; claims.len()];
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|at| claims[*at].key);
    let (retried, mut fresh): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|at| claims[*at].retry.is_some());
    if !retried.is_empty() {
        take_over(session, &attempted, claims, &retried, &mut answers).await?;
    }
    for _ in 0..ROUNDS {
        if fresh.is_empty() {
            break;
        }
        let inserted = keys(&session.own(&attempted, INSERT, columns(claims, &fresh)).await?, &attempted)?;
        let mut mine = inserted.clone();
        // The first claim of a key in this batch is the one that inserted it.
        fresh.retain(|at| {
            let new = mine.remove(&claims[*at].key.0);
            if new {
                answers[*at] = Some(Claimed::New);
            }
            !new
        });
        if fresh.is_empty() {
            break;
        }
        let sought = Array::of(Native::Uuid, fresh.iter().map(|at| claims[*at].key.0.into_bytes()));
        let mut found = HashMap::new();
        for row in session.own(&attempted, FOUND, vec![sought]).await? {
            let (key, state, hash) = found_row(&row, &attempted)?;
            found.insert(key, (state, hash));
        }
        fresh.retain(|at| match found.get(&claims[*at].key.0) {
            Some((state, hash)) => {
                answers[*at] = Some(Claimed::Duplicate { state: *state, same_body: *hash == claims[*at].body_hash });
                false
            }
            None => true,
        });
    }
    let answers: Option<Vec<Claimed>> = answers.into_iter().collect();
    answers.ok_or_else(|| {
        fault::conflict(&attempted, Broken::Answer("inbox rows came and went while they were looked for".into()))
    })
}

async fn take_over(
    session: &mut Session,
    attempted: &str,
    claims: &[Claim],
    retried: &[usize],
    answers: &mut [Option<Claimed>],
) -> Result<(), Error> {
    let leases = retried.iter().map(|at| claims[*at].retry.map_or(Uuid::nil(), |l| l.0).into_bytes());
    let sought = Array::of(Native::Uuid, retried.iter().map(|at| claims[*at].key.0.into_bytes()));
    let rows = session.own(attempted, LEASED, vec![sought, Array::of(Native::Uuid, leases)]).await?;
    let leased = keys(&rows, attempted)?;
    let ours: Vec<usize> = retried.iter().copied().filter(|at| leased.contains(&claims[*at].key.0)).collect();
    let taken = if ours.is_empty() {
        HashSet::new()
    } else {
        keys(&session.own(attempted, TAKE_OVER, columns(claims, &ours)).await?, attempted)?
    };
    for at in retried {
        let new = taken.contains(&claims[*at].key.0);
        answers[*at] = Some(if new { Claimed::New } else { Claimed::Gone });
    }
    Ok(())
}

pub(super) async fn record(session: &mut Session, states: &[(DedupKey, State)]) -> Result<(), Error> {
    if states.is_empty() {
        return Ok(());
    }
    let attempted = format!("record the state of {} messages", states.len());
    let mut states = states.to_vec();
    states.sort_by_key(|(key, _)| *key);
    let keyed = Array::of(Native::Uuid, states.iter().map(|(key, _)| key.0.into_bytes()));
    let codes = Array::of(Native::Int2, states.iter().map(|(_, state)| (*state as i16).to_be_bytes()));
    let recorded = keys(&session.own(&attempted, RECORD, vec![keyed, codes]).await?, &attempted)?;
    match states.iter().find(|(key, _)| !recorded.contains(&key.0)) {
        None => Ok(()),
        Some((key, _)) => {
            Err(fault::system(&attempted, Broken::Answer(format!("the inbox has no row with key {}", key.0))))
        }
    }
}

fn columns(claims: &[Claim], which: &[usize]) -> Vec<Param> {
    let rows = || which.iter().map(|at| &claims[*at]);
    vec![
        Array::of(Native::Uuid, rows().map(|c| c.key.0.into_bytes())),
        Array::of(Native::Text, rows().map(|c| storable(&c.label).into_owned())),
        Array::of(Native::Int8, rows().map(|c| c.body_hash.to_be_bytes())),
        Array::of(Native::Int2, rows().map(|c| (c.state as i16).to_be_bytes())),
        Array::of(Native::Int4, rows().map(|c| c.writer.0.to_be_bytes())),
    ]
}

fn keys(rows: &[PgRow], attempted: &str) -> Result<HashSet<Uuid>, Error> {
    rows.iter().map(|row| super::uuid(row, "key").map_err(|e| fault::system(attempted, e))).collect()
}

fn found_row(row: &PgRow, attempted: &str) -> Result<(Uuid, State, i64), Error> {
    let wrong = |e: sqlx::Error| fault::system(attempted, e);
    let code: i16 = row.try_get("state").map_err(wrong)?;
    let state = State::from_code(code)
        .ok_or_else(|| fault::system(attempted, Broken::Answer(format!("the inbox state {code} is not known"))))?;
    Ok((super::uuid(row, "key").map_err(wrong)?, state, row.try_get("body_hash").map_err(wrong)?))
}
