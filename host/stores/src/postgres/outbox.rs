//! The outbox: written by sessions, read and settled by relays.
//!
//! **Invariant:** rows are taken by their state; a position is an order, never a watermark.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::outbox::{Counts, Fate, Listed, NewRow, Pending, Row, Store};
use ackwright_core::store::Error;
use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::link::Link;
use super::native::{Array, Native, Param};
use super::session::Session;
use crate::fault;
use crate::sql::storable;

const EMIT: &str = "
    INSERT INTO ackwright_outbox (shard, id, broker, destination, order_key, content_type, headers, body)
    SELECT * FROM unnest($1::int2[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])";

const LEASE: &str = "
    WITH free AS MATERIALIZED (
        SELECT shard FROM ackwright_relay
        WHERE owner = $1 OR owner IS NULL OR until < clock_timestamp() ORDER BY shard FOR UPDATE)
    UPDATE ackwright_relay AS r SET owner = $1, until = clock_timestamp() + $2::int8 * interval '1 microsecond'
    FROM free WHERE r.shard = free.shard RETURNING r.shard";

const PENDING: &str = "
    WITH blocked AS MATERIALIZED (
        SELECT order_key, shard, min(position) AS position FROM ackwright_outbox
        WHERE broker = $3 AND shard = ANY($1) AND state = 1 AND next_attempt_at > clock_timestamp() GROUP BY order_key, shard)
    SELECT o.position, o.id, o.broker, o.destination, o.order_key, o.content_type, o.headers, o.body, o.attempts
    FROM ackwright_outbox AS o
    WHERE o.state < 2 AND o.broker = $3 AND o.shard = ANY($1) AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock_timestamp())
      AND NOT EXISTS (SELECT FROM blocked AS b
                      WHERE b.order_key = o.order_key AND b.shard = o.shard AND b.position < o.position)
    ORDER BY o.position LIMIT $2";

/// The shared lock on the leases keeps another relay from taking a shard over while its rows are settled.
const HELD: &str = "
    WITH held AS MATERIALIZED (SELECT shard FROM ackwright_relay WHERE owner = $1 ORDER BY shard FOR SHARE)";

const SETTLE: &str = ",
    fate AS (SELECT * FROM unnest($2::int8[], $3::int2[], $4::text[], $5::int8[]) AS f (position, state, reason, after)),
    removed AS (
        DELETE FROM ackwright_outbox AS o USING fate AS f
        WHERE o.position = f.position AND f.state IS NULL AND o.state < 2 AND o.shard IN (SELECT shard FROM held)
        RETURNING 1)
    UPDATE ackwright_outbox AS o SET
        state = f.state,
        attempts = o.attempts + (f.state <> 3)::int,
        reason = coalesce(f.reason, o.reason),
        next_attempt_at = CASE WHEN f.state = 1 THEN clock_timestamp() + f.after * interval '1 microsecond' END,
        sent_at = CASE WHEN f.state = 3 THEN clock_timestamp() END
    FROM fate AS f
    WHERE o.position = f.position AND f.state IS NOT NULL AND o.state < 2 AND o.shard IN (SELECT shard FROM held)";

const CLEAN: &str = "
    DELETE FROM ackwright_outbox WHERE position IN (
        SELECT position FROM ackwright_outbox
        WHERE state = 3 AND sent_at < clock_timestamp() - $1::int8 * interval '1 microsecond'
        ORDER BY sent_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

const LIST: &str = "
    SELECT * FROM (
        SELECT position, id, broker, destination, order_key, state, attempts, reason, octet_length(body)::int8 AS bytes,
               (extract(epoch FROM created_at) * 1000000)::int8 AS created_at,
               (extract(epoch FROM next_attempt_at) * 1000000)::int8 AS next_attempt_at,
               (extract(epoch FROM sent_at) * 1000000)::int8 AS sent_at
        FROM ackwright_outbox WHERE $1::int2 IS NULL OR state = $1 ORDER BY position DESC LIMIT $2) AS newest
    ORDER BY position";

const RETRY: &str = "
    UPDATE ackwright_outbox SET state = 0, next_attempt_at = NULL
    WHERE state IN (1, 2) AND (id = ANY($1) OR cardinality($1) = 0)";

const STATES: [&str; 4] = ["pending", "refused", "parked", "sent"];

pub(super) async fn emit(session: &mut Session, rows: &[NewRow]) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let attempted = format!("write {} outbox rows", rows.len());
    let mut headers = Vec::with_capacity(rows.len());
    for row in rows {
        headers.push(serde_json::to_string(&row.headers).map_err(|e| fault::system(&attempted, e))?);
    }
    let text = |of: fn(&NewRow) -> &str| Array::of(Native::Text, rows.iter().map(|r| storable(of(r)).into_owned()));
    let mut types = Array::new(Native::Text, rows.len());
    rows.iter().for_each(|r| types.optional(r.content_type.as_deref().map(storable).as_deref().map(str::as_bytes)));
    let params = vec![
        Array::of(Native::Int2, rows.iter().map(|r| r.shard().to_be_bytes())),
        Array::of(Native::Uuid, rows.iter().map(|r| r.id.into_bytes())),
        text(|r| &r.broker),
        text(|r| &r.destination),
        text(|r| &r.order_key),
        types.param(),
        Array::of(Native::Text, headers.iter()),
        Array::of(Native::Bytea, rows.iter().map(|r| &r.body)),
    ];
    session.own(&attempted, EMIT, params).await.map(drop)
}

pub(super) struct Outbox {
    pub(super) link: Arc<Link>,
}

#[async_trait]
impl Store for Outbox {
    async fn lease(&self, relay: Uuid, time: Duration) -> Result<Vec<i16>, Error> {
        const ATTEMPTED: &str = "lease outbox shards";
        let rows = self.link.rows(ATTEMPTED, LEASE, vec![Param::uuid(relay), micros(time)]).await?;
        let mut shards = read(ATTEMPTED, &rows, |row| row.try_get(0))?;
        shards.sort_unstable();
        Ok(shards)
    }

    async fn release(&self, relay: Uuid) -> Result<(), Error> {
        const RELEASE: &str = "UPDATE ackwright_relay SET owner = NULL, until = NULL WHERE owner = $1";
        self.link.affected("release outbox shards", RELEASE, vec![Param::uuid(relay)]).await.map(drop)
    }

    async fn pending(&self, broker: &str, shards: &[i16], most: usize) -> Result<Pending, Error> {
        const ATTEMPTED: &str = "read pending outbox rows";
        let shards = Array::of(Native::Int2, shards.iter().map(|s| s.to_be_bytes()));
        let rows = self.link.rows(ATTEMPTED, PENDING, vec![shards, count(most), Param::text(broker)]).await?;
        let rows = read(ATTEMPTED, &rows, |row| {
            let headers: String = row.try_get("headers")?;
            let row = Row {
                position: row.try_get("position")?,
                id: super::uuid(row, "id")?,
                broker: row.try_get("broker")?,
                destination: row.try_get("destination")?,
                order_key: row.try_get("order_key")?,
                content_type: row.try_get("content_type")?,
                headers: Vec::new(),
                body: Bytes::from(row.try_get::<Vec<u8>, _>("body")?),
                attempts: row.try_get("attempts")?,
            };
            Ok((row, headers))
        })?;
        let mut pending = Pending::default();
        rows.into_iter().for_each(|(row, headers)| pending.push(row, &headers));
        Ok(pending)
    }

    async fn settle(&self, relay: Uuid, fates: &[(i64, Fate)], keep: Duration) -> Result<(), Error> {
        if fates.is_empty() {
            return Ok(());
        }
        let mut fates: Vec<_> = fates.iter().collect();
        fates.sort_by_key(|(position, _)| *position);
        let mut states = Array::new(Native::Int2, fates.len());
        let mut reasons = Array::new(Native::Text, fates.len());
        let mut afters = Array::new(Native::Int8, fates.len());
        for (_, fate) in &fates {
            // No state means that the row goes.
            let (state, reason, after) = match fate {
                Fate::Sent if keep.is_zero() => (None, None, None),
                Fate::Sent => (Some(3i16), None, None),
                Fate::Refused { reason, after } => (Some(1), Some(reason), Some(micros_of(*after))),
                Fate::Parked { reason } => (Some(2), Some(reason), None),
            };
            states.optional(state.map(i16::to_be_bytes).as_ref().map(<[u8; 2]>::as_slice));
            reasons.optional(reason.map(|r| storable(r)).as_deref().map(str::as_bytes));
            afters.optional(after.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
        }
        let positions = Array::of(Native::Int8, fates.iter().map(|(position, _)| position.to_be_bytes()));
        let params = vec![Param::uuid(relay), positions, states.param(), reasons.param(), afters.param()];
        let attempted = format!("settle {} outbox rows", fates.len());
        self.link.affected(&attempted, &format!("{HELD}{SETTLE}"), params).await.map(drop)
    }

    async fn clean(&self, keep: Duration, most: usize) -> Result<u64, Error> {
        self.link.affected("remove sent outbox rows", CLEAN, vec![micros(keep), count(most)]).await
    }

    async fn counts(&self) -> Result<Counts, Error> {
        const ATTEMPTED: &str = "count outbox rows";
        // One sub-select a state, so that each reads its own partial index and none reads what was sent.
        const COUNTS: &str = "
            SELECT (SELECT count(*) FROM ackwright_outbox WHERE state < 2) AS open,
                   (SELECT count(*) FROM ackwright_outbox WHERE state = 1) AS refused,
                   (SELECT count(*) FROM ackwright_outbox WHERE state = 2) AS parked";
        let rows = self.link.rows(ATTEMPTED, COUNTS, Vec::new()).await?;
        let counts = read(ATTEMPTED, &rows, |row| {
            let (open, refused): (i64, i64) = (row.try_get("open")?, row.try_get("refused")?);
            Ok(Counts { pending: open - refused, refused, parked: row.try_get("parked")? })
        })?;
        Ok(counts.into_iter().next().unwrap_or_default())
    }

    async fn list(&self, state: Option<&str>, most: usize) -> Result<Vec<Listed>, Error> {
        const ATTEMPTED: &str = "list outbox rows";
        let code = match state {
            None => None,
            Some(name) => match STATES.iter().position(|s| *s == name) {
                Some(code) => Some(code as i16),
                None => return Ok(Vec::new()),
            },
        };
        let rows = self.link.rows(ATTEMPTED, LIST, vec![Param::optional_int2(code), count(most)]).await?;
        read(ATTEMPTED, &rows, |row| {
            let code: i16 = row.try_get("state")?;
            Ok(Listed {
                position: row.try_get("position")?,
                id: super::uuid(row, "id")?,
                broker: row.try_get("broker")?,
                destination: row.try_get("destination")?,
                order_key: row.try_get("order_key")?,
                state: STATES.get(code as usize).map_or_else(|| format!("unknown ({code})"), |s| (*s).to_owned()),
                attempts: row.try_get("attempts")?,
                reason: row.try_get("reason")?,
                bytes: row.try_get("bytes")?,
                created_at: row.try_get("created_at")?,
                next_attempt_at: row.try_get("next_attempt_at")?,
                sent_at: row.try_get("sent_at")?,
            })
        })
    }

    async fn retry(&self, ids: &[Uuid]) -> Result<u64, Error> {
        let ids = Array::of(Native::Uuid, ids.iter().map(|id| id.into_bytes()));
        self.link.affected("make outbox rows due again", RETRY, vec![ids]).await
    }
}

pub(super) fn read<T>(
    attempted: &str,
    rows: &[PgRow],
    of: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, Error> {
    rows.iter().map(|row| of(row).map_err(|e| fault::system(attempted, e))).collect()
}

pub(super) fn micros(time: Duration) -> Param {
    Param::int8(micros_of(time))
}

/// A century is as good as for ever, and fits the database's calendar.
pub(super) fn micros_of(time: Duration) -> i64 {
    const CENTURY: i64 = 100 * 365 * 24 * 3600 * 1_000_000;
    i64::try_from(time.as_micros()).unwrap_or(CENTURY).min(CENTURY)
}

pub(super) fn count(most: usize) -> Param {
    Param::int8(i64::try_from(most).unwrap_or(i64::MAX))
}
