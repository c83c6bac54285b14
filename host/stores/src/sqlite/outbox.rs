//! The outbox as the relay reads and settles it, in short transactions on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::outbox::{Counts, Fate, Listed, Pending, Row, SHARDS, Store};
use ackwright_core::store::Error;
use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::connect::{File, NOW, Open, Spare};
use super::fault::system;
use super::inbox::{micros, uuid};
use super::values::{Parameters, chunks, execute, fetch, values};

const PENDING: i64 = 0;
const REFUSED: i64 = 1;
const PARKED: i64 = 2;
const SENT: i64 = 3;
const STATES: [&str; 4] = ["pending", "refused", "parked", "sent"];

pub(super) struct Outbox {
    spare: Spare,
}

impl Outbox {
    pub(super) fn new(file: Arc<File>) -> Self {
        Outbox { spare: Spare::new(file) }
    }

    async fn rows(&self, attempted: &str, sql: String, parameters: Parameters) -> Result<Vec<SqliteRow>, Error> {
        let mut connection = self.spare.read().await?;
        let rows = fetch(&mut connection, sql, parameters).await.map_err(|error| system(error, attempted))?;
        self.spare.keep(connection).await;
        Ok(rows)
    }

    /// One statement in a transaction of its own; returns how many rows it changed.
    async fn change(&self, attempted: &str, sql: String, parameters: Parameters) -> Result<u64, Error> {
        let mut open = self.spare.write().await?;
        let done = execute(&mut open.connection, sql, parameters).await.map_err(|error| system(error, attempted))?;
        self.spare.keep(open.end(attempted).await?).await;
        Ok(done.rows_affected())
    }
}

#[async_trait]
impl Store for Outbox {
    async fn lease(&self, relay: Uuid, time: Duration) -> Result<Vec<i16>, Error> {
        let attempted = "lease shards of the outbox";
        let mut open = self.spare.write().await?;
        let mut parameters = Parameters::default();
        for shard in 0..SHARDS {
            parameters.push(i64::from(shard));
            parameters.bytes(relay.as_bytes());
            parameters.push(open.now.saturating_add(micros(time)));
        }
        parameters.push(open.now);
        let sql = format!(
            "INSERT INTO ackwright_relay AS r (shard, owner, until) {} ON CONFLICT (shard) DO UPDATE \
             SET owner = excluded.owner, until = excluded.until WHERE r.owner = excluded.owner OR r.until <= ? \
             RETURNING shard",
            values(SHARDS as usize, 3)
        );
        let rows = fetch(&mut open.connection, sql, parameters).await;
        let shards = rows.and_then(|rows| rows.iter().map(|row| row.try_get::<i16, _>(0)).collect());
        let mut shards: Vec<i16> = shards.map_err(|error| system(error, attempted))?;
        self.spare.keep(open.end(attempted).await?).await;
        shards.sort_unstable();
        Ok(shards)
    }

    async fn release(&self, relay: Uuid) -> Result<(), Error> {
        let mut parameters = Parameters::default();
        parameters.bytes(relay.as_bytes());
        let sql = "DELETE FROM ackwright_relay WHERE owner = ?".into();
        self.change("release shards of the outbox", sql, parameters).await.map(|_| ())
    }

    async fn pending(&self, broker: &str, shards: &[i16], most: usize) -> Result<Pending, Error> {
        let attempted = "read pending outbox rows";
        if shards.is_empty() || most == 0 {
            return Ok(Pending::default());
        }
        let mut parameters = Parameters::default();
        parameters.push(broker.to_owned());
        for shard in shards {
            parameters.push(i64::from(*shard));
        }
        parameters.push(limit(most));
        let sql = format!(
            "SELECT o.position, o.id, o.broker, o.destination, o.order_key, o.content_type, o.headers, o.body, \
             o.attempts FROM ackwright_outbox AS o INDEXED BY ackwright_outbox_pending \
             WHERE o.state < 2 AND o.broker = ? AND o.shard IN ({}) \
             AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= (SELECT {NOW})) \
             AND NOT EXISTS (SELECT 1 FROM ackwright_outbox AS e WHERE e.state = {REFUSED} \
             AND e.order_key = o.order_key AND e.broker = o.broker AND e.position < o.position AND e.next_attempt_at > (SELECT {NOW})) \
             ORDER BY o.position LIMIT ?",
            values(shards.len(), 1)
        );
        let rows = self.rows(attempted, sql, parameters).await?;
        let mut found = Pending::default();
        for row in &rows {
            pending(row, &mut found).map_err(|error| system(error, attempted))?;
        }
        Ok(found)
    }

    async fn settle(&self, relay: Uuid, fates: &[(i64, Fate)], keep: Duration) -> Result<(), Error> {
        let attempted = "record what became of outbox rows";
        let mut open = self.spare.write().await?;
        settle(&mut open, relay, fates, keep).await.map_err(|error| system(error, attempted))?;
        self.spare.keep(open.end(attempted).await?).await;
        Ok(())
    }

    async fn clean(&self, keep: Duration, most: usize) -> Result<u64, Error> {
        let mut parameters = Parameters::default();
        parameters.push(micros(keep));
        parameters.push(limit(most));
        let sql = format!(
            "DELETE FROM ackwright_outbox WHERE position IN (SELECT position FROM ackwright_outbox \
             WHERE state = {SENT} AND sent_at <= {NOW} - ? ORDER BY sent_at LIMIT ?)"
        );
        self.change("clean sent outbox rows", sql, parameters).await
    }

    async fn counts(&self) -> Result<Counts, Error> {
        let attempted = "count outbox rows";
        let sql = format!(
            "SELECT count(*) FILTER (WHERE state = {PENDING}), count(*) FILTER (WHERE state = {REFUSED}), \
             (SELECT count(*) FROM ackwright_outbox WHERE state = {PARKED}) FROM ackwright_outbox WHERE state < 2"
        );
        let rows = self.rows(attempted, sql, Parameters::default()).await?;
        let count = |at: usize| match rows.first() {
            Some(row) => row.try_get::<i64, _>(at).map_err(|error| system(error, attempted)),
            None => Ok(0),
        };
        Ok(Counts { pending: count(0)?, refused: count(1)?, parked: count(2)? })
    }

    async fn list(&self, state: Option<&str>, most: usize) -> Result<Vec<Listed>, Error> {
        let attempted = "list outbox rows";
        let mut parameters = Parameters::default();
        // A state that does not exist matches no row.
        let code = state.map(|name| STATES.iter().position(|known| *known == name).map_or(-1, |at| at as i64));
        parameters.push(code);
        parameters.push(limit(most));
        let sql = "SELECT position, id, broker, destination, order_key, state, attempts, reason, length(body), \
                   created_at, next_attempt_at, sent_at FROM ackwright_outbox WHERE ?1 IS NULL OR state = ?1 \
                   ORDER BY position DESC LIMIT ?2";
        let rows = self.rows(attempted, sql.into(), parameters).await?;
        rows.iter().rev().map(|row| listed(row).map_err(|error| system(error, attempted))).collect()
    }

    async fn retry(&self, ids: &[Uuid]) -> Result<u64, Error> {
        let attempted = "make outbox rows due again";
        let sql = |which: &str| {
            format!(
                "UPDATE ackwright_outbox SET state = {PENDING}, next_attempt_at = NULL \
                 WHERE state IN ({REFUSED}, {PARKED}){which}"
            )
        };
        if ids.is_empty() {
            return self.change(attempted, sql(""), Parameters::default()).await;
        }
        let mut open = self.spare.write().await?;
        let mut count = 0;
        for chunk in chunks(ids.len(), 1) {
            let mut parameters = Parameters::default();
            for id in &ids[chunk.clone()] {
                parameters.bytes(id.as_bytes());
            }
            let sql = sql(&format!(" AND id IN ({})", values(chunk.len(), 1)));
            let done = execute(&mut open.connection, sql, parameters).await;
            count += done.map_err(|error| system(error, attempted))?.rows_affected();
        }
        self.spare.keep(open.end(attempted).await?).await;
        Ok(count)
    }
}

async fn settle(open: &mut Open, relay: Uuid, fates: &[(i64, Fate)], keep: Duration) -> Result<(), sqlx::Error> {
    let now = open.now;
    let held = "shard IN (SELECT shard FROM ackwright_relay WHERE owner = ? AND until > ?)";
    let sent: Vec<i64> = fates.iter().filter(|(_, fate)| *fate == Fate::Sent).map(|(at, _)| *at).collect();
    for chunk in chunks(sent.len(), 1) {
        let mut parameters = Parameters::default();
        let list = values(chunk.len(), 1);
        let sql = if keep.is_zero() {
            format!("DELETE FROM ackwright_outbox WHERE position IN ({list}) AND {held}")
        } else {
            parameters.push(now);
            format!(
                "UPDATE ackwright_outbox SET state = {SENT}, sent_at = ?, reason = NULL, next_attempt_at = NULL \
                 WHERE position IN ({list}) AND {held}"
            )
        };
        for position in &sent[chunk] {
            parameters.push(*position);
        }
        parameters.bytes(relay.as_bytes());
        parameters.push(now);
        execute(&mut open.connection, sql, parameters).await?;
    }
    for (position, fate) in fates {
        let (state, reason, due) = match fate {
            Fate::Sent => continue,
            Fate::Refused { reason, after } => (REFUSED, reason, Some(now.saturating_add(micros(*after)))),
            Fate::Parked { reason } => (PARKED, reason, None),
        };
        let mut parameters = Parameters::default();
        parameters.push(state);
        parameters.push(reason.clone());
        parameters.push(due);
        parameters.push(*position);
        parameters.bytes(relay.as_bytes());
        parameters.push(now);
        let sql = format!(
            "UPDATE ackwright_outbox SET state = ?, reason = ?, next_attempt_at = ?, attempts = attempts + 1 \
             WHERE position = ? AND {held}"
        );
        execute(&mut open.connection, sql, parameters).await?;
    }
    Ok(())
}

fn pending(row: &SqliteRow, found: &mut Pending) -> Result<(), sqlx::Error> {
    let headers: String = row.try_get(6)?;
    let row = Row {
        position: row.try_get(0)?,
        id: uuid(row, 1)?,
        broker: row.try_get(2)?,
        destination: row.try_get(3)?,
        order_key: row.try_get(4)?,
        content_type: row.try_get(5)?,
        headers: Vec::new(),
        body: row.try_get::<Vec<u8>, _>(7)?.into(),
        attempts: row.try_get(8)?,
    };
    found.push(row, &headers);
    Ok(())
}

fn listed(row: &SqliteRow) -> Result<Listed, sqlx::Error> {
    let state: i64 = row.try_get(5)?;
    let name = usize::try_from(state).ok().and_then(|at| STATES.get(at));
    let name = name.ok_or_else(|| sqlx::Error::Decode(format!("outbox state {state} is unknown").into()))?;
    Ok(Listed {
        position: row.try_get(0)?,
        id: uuid(row, 1)?,
        broker: row.try_get(2)?,
        destination: row.try_get(3)?,
        order_key: row.try_get(4)?,
        state: (*name).into(),
        attempts: row.try_get(6)?,
        reason: row.try_get(7)?,
        bytes: row.try_get(8)?,
        created_at: row.try_get(9)?,
        next_attempt_at: row.try_get(10)?,
        sent_at: row.try_get(11)?,
    })
}

pub(super) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
