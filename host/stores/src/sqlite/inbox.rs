//! Inbox rows, parked copies and outbox rows of a batch, written inside its transaction.
//!
//! **Invariant:** what a claim finds is told by rows (which keys came back), never by a count of affected rows.

use std::collections::{HashMap, HashSet};

use ackwright_core::key::DedupKey;
use ackwright_core::store::{Claim, Claimed, Error, State};
use ackwright_core::{outbox, parked};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::connect::Open;
use super::fault::{failed, system};
use super::values::{Parameters, chunks, execute, fetch, values};

pub(super) async fn claim(open: &mut Open, claims: &[Claim]) -> Result<Vec<Claimed>, Error> {
    let attempted = || format!("claim {} messages", claims.len());
    let taken = take_over(open, claims).await.map_err(|error| system(error, attempted()))?;
    // Of two claims with the same key the first wins, as it would over two transactions.
    let mut first: HashMap<DedupKey, usize> = HashMap::new();
    for (at, claim) in claims.iter().enumerate().filter(|(_, claim)| claim.retry.is_none()) {
        first.entry(claim.key).or_insert(at);
    }
    let mut fresh: Vec<&Claim> = first.values().map(|at| &claims[*at]).collect();
    fresh.sort_by_key(|claim| claim.key);
    let inserted = insert(open, &fresh).await.map_err(|error| system(error, attempted()))?;
    let there: Vec<DedupKey> = fresh.iter().map(|claim| claim.key).filter(|key| !inserted.contains(&key.0)).collect();
    let there = look_up(&mut open.connection, &there).await.map_err(|error| system(error, attempted()))?;
    claims
        .iter()
        .enumerate()
        .map(|(at, claim)| {
            if claim.retry.is_some() {
                return Ok(if taken.contains(&claim.key.0) { Claimed::New } else { Claimed::Gone });
            }
            let winner = first[&claim.key];
            if inserted.contains(&claim.key.0) {
                let same_body = claims[winner].body_hash == claim.body_hash;
                let state = claims[winner].state;
                return Ok(if winner == at { Claimed::New } else { Claimed::Duplicate { state, same_body } });
            }
            match there.get(&claim.key.0) {
                Some((state, hash)) => Ok(Claimed::Duplicate { state: *state, same_body: *hash == claim.body_hash }),
                None => {
                    Err(failed(attempted(), true, false, format!("inbox row {} is neither old nor new", claim.key.0)))
                }
            }
        })
        .collect()
}

async fn insert(open: &mut Open, claims: &[&Claim]) -> Result<HashSet<Uuid>, sqlx::Error> {
    let mut inserted = HashSet::with_capacity(claims.len());
    for chunk in chunks(claims.len(), 6) {
        let mut parameters = Parameters::default();
        for claim in &claims[chunk.clone()] {
            parameters.bytes(claim.key.0.as_bytes());
            parameters.push(claim.label.clone());
            parameters.push(claim.body_hash);
            parameters.push(i64::from(claim.state as i16));
            parameters.push(i64::from(claim.writer.0));
            parameters.push(open.now);
        }
        let sql = format!(
            "INSERT INTO ackwright_inbox (key, label, body_hash, state, writer, created_at) {} \
             ON CONFLICT (key) DO NOTHING RETURNING key",
            values(chunk.len(), 6)
        );
        for row in fetch(&mut open.connection, sql, parameters).await? {
            inserted.insert(uuid(&row, 0)?);
        }
    }
    Ok(inserted)
}

async fn look_up(
    connection: &mut SqliteConnection,
    keys: &[DedupKey],
) -> Result<HashMap<Uuid, (State, i64)>, sqlx::Error> {
    let mut found = HashMap::with_capacity(keys.len());
    for chunk in chunks(keys.len(), 1) {
        let sql =
            format!("SELECT key, state, body_hash FROM ackwright_inbox WHERE key IN ({})", values(chunk.len(), 1));
        for row in fetch(connection, sql, keyed(&keys[chunk])).await? {
            let code: i64 = row.try_get(1)?;
            let state = i16::try_from(code).ok().and_then(State::from_code);
            let state = state.ok_or_else(|| sqlx::Error::Decode(format!("inbox state {code} is unknown").into()))?;
            found.insert(uuid(&row, 0)?, (state, row.try_get(2)?));
        }
    }
    Ok(found)
}

/// Takes over the waiting rows whose lease is still the one that the claim holds.
async fn take_over(open: &mut Open, claims: &[Claim]) -> Result<HashSet<Uuid>, sqlx::Error> {
    let leased: Vec<(&Claim, parked::Lease)> = claims.iter().filter_map(|c| Some((c, c.retry?))).collect();
    let mut taken = HashSet::with_capacity(leased.len());
    for chunk in chunks(leased.len(), 5) {
        let mut parameters = Parameters::default();
        for (claim, lease) in &leased[chunk.clone()] {
            parameters.bytes(claim.key.0.as_bytes());
            parameters.bytes(lease.0.as_bytes());
            parameters.push(i64::from(claim.state as i16));
            parameters.push(i64::from(claim.writer.0));
            parameters.push(claim.body_hash);
        }
        let sql = format!(
            "UPDATE ackwright_inbox AS i SET state = v.column3, writer = v.column4, body_hash = v.column5 \
             FROM ({}) AS v WHERE i.key = v.column1 AND i.state = 2 AND EXISTS (SELECT 1 FROM ackwright_parked p \
             WHERE p.key = v.column1 AND p.state = 2 AND p.lease = v.column2) RETURNING key",
            values(chunk.len(), 5)
        );
        for row in fetch(&mut open.connection, sql, parameters).await? {
            taken.insert(uuid(&row, 0)?);
        }
    }
    Ok(taken)
}

pub(super) async fn record(open: &mut Open, states: &[(DedupKey, State)]) -> Result<(), Error> {
    for chunk in chunks(states.len(), 2) {
        let mut parameters = Parameters::default();
        for (key, state) in &states[chunk.clone()] {
            parameters.bytes(key.0.as_bytes());
            parameters.push(i64::from(*state as i16));
        }
        let sql = format!(
            "UPDATE ackwright_inbox AS i SET state = v.column2 FROM ({}) AS v WHERE i.key = v.column1",
            values(chunk.len(), 2)
        );
        let done = execute(&mut open.connection, sql, parameters).await;
        done.map_err(|error| system(error, format!("record the states of {} messages", states.len())))?;
    }
    Ok(())
}

pub(super) async fn emit(open: &mut Open, rows: &[outbox::NewRow]) -> Result<(), Error> {
    let attempted = || format!("write {} outbox rows", rows.len());
    for chunk in chunks(rows.len(), 9) {
        let mut parameters = Parameters::default();
        for row in &rows[chunk.clone()] {
            let headers =
                serde_json::to_string(&row.headers).map_err(|error| failed(attempted(), false, false, error))?;
            parameters.push(i64::from(row.shard()));
            parameters.bytes(row.id.as_bytes());
            parameters.push(row.broker.to_string());
            parameters.push(row.destination.clone());
            parameters.push(row.order_key.clone());
            parameters.push(row.content_type.clone());
            parameters.push(headers);
            parameters.bytes(&row.body);
            parameters.push(open.now);
        }
        let sql = format!(
            "INSERT INTO ackwright_outbox (shard, id, broker, destination, order_key, content_type, headers, body, \
             created_at) {}",
            values(chunk.len(), 9)
        );
        execute(&mut open.connection, sql, parameters).await.map_err(|error| system(error, attempted()))?;
    }
    Ok(())
}

pub(super) async fn park(open: &mut Open, rows: &[parked::NewRow]) -> Result<(), Error> {
    const WIDTH: usize = 14;
    let attempted = || format!("park {} messages", rows.len());
    for chunk in chunks(rows.len(), WIDTH) {
        let mut parameters = Parameters::default();
        for row in &rows[chunk.clone()] {
            let envelope =
                serde_json::to_string(&*row.envelope).map_err(|error| failed(attempted(), false, false, error))?;
            let due = (row.state == State::Waiting).then(|| open.now.saturating_add(micros(row.after)));
            parameters.bytes(row.key.0.as_bytes());
            parameters.push(row.label.clone());
            parameters.push(i64::from(row.writer.0));
            parameters.push(row.route.to_string());
            parameters.push(i64::from(row.state as i16));
            parameters.push(row.code.clone());
            parameters.push(row.reason.clone());
            parameters.push(row.detail.clone());
            parameters.push(i64::from(row.attempts));
            parameters.push(envelope);
            parameters.push(row.body.as_ref().map(|body| body.to_vec()));
            parameters.push(open.now);
            parameters.push(open.now);
            parameters.push(due);
        }
        let sql = format!(
            "INSERT INTO ackwright_parked AS p (key, label, writer, route, state, code, reason, detail, attempts, \
             envelope, body, first_seen_at, last_attempt_at, next_attempt_at) {} ON CONFLICT (key) DO UPDATE SET \
             label = excluded.label, writer = excluded.writer, route = excluded.route, state = excluded.state, \
             code = excluded.code, reason = excluded.reason, detail = excluded.detail, attempts = excluded.attempts, \
             deliveries = p.deliveries + 1, envelope = excluded.envelope, body = excluded.body, \
             last_attempt_at = excluded.last_attempt_at, next_attempt_at = excluded.next_attempt_at, lease = NULL, \
             lease_until = NULL",
            values(chunk.len(), WIDTH)
        );
        execute(&mut open.connection, sql, parameters).await.map_err(|error| system(error, attempted()))?;
    }
    Ok(())
}

pub(super) async fn unpark(open: &mut Open, keys: &[DedupKey]) -> Result<(), Error> {
    for chunk in chunks(keys.len(), 1) {
        let sql = format!("DELETE FROM ackwright_parked WHERE key IN ({})", values(chunk.len(), 1));
        let done = execute(&mut open.connection, sql, keyed(&keys[chunk])).await;
        done.map_err(|error| system(error, format!("remove the parked copies of {} messages", keys.len())))?;
    }
    Ok(())
}

fn keyed(keys: &[DedupKey]) -> Parameters {
    let mut parameters = Parameters::default();
    for key in keys {
        parameters.bytes(key.0.as_bytes());
    }
    parameters
}

pub(super) fn micros(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn uuid(row: &sqlx::sqlite::SqliteRow, at: usize) -> Result<Uuid, sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(at)?;
    Uuid::from_slice(&bytes).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
