//! Parked and waiting messages.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::key::DedupKey;
use ackwright_core::parked::{Due, Envelope, Filter, InboxRow, Lease, Listed, NewRow, Shown, Store};
use ackwright_core::store::{Error, State};
use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::link::Link;
use super::native::{Array, Native, Param};
use super::outbox::{count, micros, micros_of, read};
use super::session::Session;
use crate::fault;
use crate::sql::storable;

const PARK: &str = "
    INSERT INTO ackwright_parked AS p
        (key, label, writer, route, state, code, reason, detail, attempts, next_attempt_at, envelope, body)
    SELECT key, label, writer, route, state, code, reason, detail, attempts,
           CASE WHEN state = 2 THEN clock_timestamp() + after * interval '1 microsecond' END, envelope, body
    FROM unnest($1::uuid[], $2::text[], $3::int4[], $4::text[], $5::int2[], $6::text[], $7::text[], $8::text[], $9::int4[],
                $10::int8[], $11::text[], $12::bytea[])
         AS n (key, label, writer, route, state, code, reason, detail, attempts, after, envelope, body)
    ON CONFLICT (key) DO UPDATE SET
        label = EXCLUDED.label, writer = EXCLUDED.writer, route = EXCLUDED.route, state = EXCLUDED.state,
        code = EXCLUDED.code, reason = EXCLUDED.reason, detail = EXCLUDED.detail, attempts = EXCLUDED.attempts,
        next_attempt_at = EXCLUDED.next_attempt_at, envelope = EXCLUDED.envelope, body = EXCLUDED.body,
        deliveries = p.deliveries + 1, last_attempt_at = clock_timestamp(), lease = NULL, lease_until = NULL";

const UNPARK: &str = "DELETE FROM ackwright_parked WHERE key = ANY($1)";

const DUE: &str = "
    WITH due AS MATERIALIZED (
        SELECT key FROM ackwright_parked
        WHERE route = $1 AND state = 2 AND next_attempt_at <= clock_timestamp()
          AND (lease_until IS NULL OR lease_until < clock_timestamp())
        ORDER BY next_attempt_at LIMIT $2 FOR UPDATE SKIP LOCKED)
    UPDATE ackwright_parked AS p
    SET lease = gen_random_uuid(), lease_until = clock_timestamp() + $3::int8 * interval '1 microsecond'
    FROM due WHERE p.key = due.key
    RETURNING p.key, p.lease, p.attempts, p.envelope, p.body";

const NEXT_DUE: &str = "
    SELECT (extract(epoch FROM min(greatest(next_attempt_at, lease_until)) - clock_timestamp()) * 1000000)::int8
    FROM ackwright_parked WHERE route = $1 AND state = 2";

const LISTED: &str = "
    SELECT p.key, p.label, w.consumer_group, w.plugin, w.digest, p.route, p.state, p.code, p.reason, p.attempts,
           p.deliveries, octet_length(p.body)::int8 AS bytes,
           (extract(epoch FROM p.first_seen_at) * 1000000)::int8 AS first_seen_at,
           (extract(epoch FROM p.last_attempt_at) * 1000000)::int8 AS last_attempt_at,
           (extract(epoch FROM p.next_attempt_at) * 1000000)::int8 AS next_attempt_at,
           p.detail, p.envelope, p.body
    FROM ackwright_parked AS p JOIN ackwright_writer AS w ON w.id = p.writer";

const INBOX: &str = "
    SELECT i.key, i.label, w.consumer_group, w.plugin, w.digest, i.state,
           (extract(epoch FROM i.created_at) * 1000000)::int8 AS created_at
    FROM ackwright_inbox AS i JOIN ackwright_writer AS w ON w.id = i.writer
    WHERE i.key = $1 OR starts_with(i.label, $2) OR starts_with(i.key::text, lower($2))
    ORDER BY i.created_at DESC LIMIT $3";

const CLEAN: &str = "
    DELETE FROM ackwright_inbox WHERE key IN (
        SELECT key FROM ackwright_inbox
        WHERE state = 0 AND created_at < clock_timestamp() - $1::int8 * interval '1 microsecond'
        LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// Parked rows count as 1 and waiting ones as 2, as inbox states do.
fn name(state: i16) -> String {
    match State::from_code(state) {
        Some(State::Failed) => "parked".into(),
        Some(State::Waiting) => "waiting".into(),
        Some(State::Done) | None => format!("unknown ({state})"),
    }
}

pub(super) async fn park(session: &mut Session, rows: &[NewRow]) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let attempted = format!("park {} messages", rows.len());
    let mut rows: Vec<&NewRow> = rows.iter().collect();
    rows.sort_by_key(|row| row.key);
    let mut envelopes = Vec::with_capacity(rows.len());
    for row in &rows {
        envelopes.push(serde_json::to_string(&*row.envelope).map_err(|e| fault::system(&attempted, e))?);
    }
    let text = |of: fn(&NewRow) -> &str| Array::of(Native::Text, rows.iter().map(|r| storable(of(r)).into_owned()));
    let mut details = Array::new(Native::Text, rows.len());
    let mut bodies = Array::new(Native::Bytea, rows.len());
    for row in &rows {
        details.optional(row.detail.as_deref().map(storable).as_deref().map(str::as_bytes));
        bodies.optional(row.body.as_deref());
    }
    let params = vec![
        Array::of(Native::Uuid, rows.iter().map(|r| r.key.0.into_bytes())),
        text(|r| &r.label),
        Array::of(Native::Int4, rows.iter().map(|r| r.writer.0.to_be_bytes())),
        text(|r| &r.route),
        Array::of(Native::Int2, rows.iter().map(|r| (r.state as i16).to_be_bytes())),
        text(|r| &r.code),
        text(|r| &r.reason),
        details.param(),
        Array::of(Native::Int4, rows.iter().map(|r| r.attempts.to_be_bytes())),
        Array::of(Native::Int8, rows.iter().map(|r| micros_of(r.after).to_be_bytes())),
        Array::of(Native::Text, envelopes.iter()),
        bodies.param(),
    ];
    session.own(&attempted, PARK, params).await.map(drop)
}

pub(super) async fn unpark(session: &mut Session, keys: &[DedupKey]) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let attempted = format!("remove {} parked copies", keys.len());
    let keys = Array::of(Native::Uuid, keys.iter().map(|key| key.0.into_bytes()));
    session.own(&attempted, UNPARK, vec![keys]).await.map(drop)
}

pub(super) struct Parked {
    pub(super) link: Arc<Link>,
}

#[async_trait]
impl Store for Parked {
    async fn due(&self, route: &str, most: usize, lease: Duration) -> Result<Vec<Due>, Error> {
        const ATTEMPTED: &str = "lease waiting messages";
        let rows = self.link.rows(ATTEMPTED, DUE, vec![Param::text(route), count(most), micros(lease)]).await?;
        let mut due = Vec::with_capacity(rows.len());
        for row in &rows {
            let read = || -> Result<Due, sqlx::Error> {
                Ok(Due {
                    key: DedupKey(super::uuid(row, "key")?),
                    lease: Lease(super::uuid(row, "lease")?),
                    attempts: row.try_get("attempts")?,
                    envelope: envelope(row)?,
                    body: row.try_get::<Option<Vec<u8>>, _>("body")?.map(Bytes::from),
                })
            };
            match read() {
                Ok(message) => due.push(message),
                // One unreadable row must not hold up the others; its lease keeps it from being met at once again.
                Err(error) => {
                    tracing::error!(key = ?super::uuid(row, "key").ok(), %error, "a waiting message cannot be read")
                }
            }
        }
        Ok(due)
    }

    async fn next_due(&self, route: &str) -> Result<Option<Duration>, Error> {
        const ATTEMPTED: &str = "look for the next waiting message";
        let rows = self.link.rows(ATTEMPTED, NEXT_DUE, vec![Param::text(route)]).await?;
        let micros: Vec<Option<i64>> = read(ATTEMPTED, &rows, |row| row.try_get(0))?;
        Ok(micros.into_iter().flatten().next().map(|m| Duration::from_micros(m.max(0).unsigned_abs())))
    }

    async fn list(&self, filter: &Filter, most: usize) -> Result<Vec<Listed>, Error> {
        const ATTEMPTED: &str = "list parked messages";
        let sql = format!(
            "{LISTED} WHERE ($1::text IS NULL OR p.route = $1) AND ($2::text IS NULL OR p.code = $2)
             AND ($3::int2 IS NULL OR p.state = $3) ORDER BY p.last_attempt_at DESC, p.key LIMIT $4"
        );
        let params = vec![
            Param::optional_text(filter.route.as_deref()),
            Param::optional_text(filter.code.as_deref()),
            Param::optional_int2(filter.state.map(|s| s as i16)),
            count(most),
        ];
        let rows = self.link.rows(ATTEMPTED, &sql, params).await?;
        read(ATTEMPTED, &rows, listed)
    }

    async fn show(&self, key: Uuid) -> Result<Option<Shown>, Error> {
        const ATTEMPTED: &str = "show a parked message";
        let rows = self.link.rows(ATTEMPTED, &format!("{LISTED} WHERE p.key = $1"), vec![Param::uuid(key)]).await?;
        let shown = read(ATTEMPTED, &rows, |row| {
            Ok(Shown {
                listed: listed(row)?,
                detail: row.try_get("detail")?,
                envelope: envelope(row)?,
                body: row.try_get::<Option<Vec<u8>>, _>("body")?.map(Bytes::from),
            })
        })?;
        Ok(shown.into_iter().next())
    }

    async fn inbox(&self, text: &str, most: usize) -> Result<Vec<InboxRow>, Error> {
        const ATTEMPTED: &str = "look up inbox rows";
        let key = Uuid::parse_str(text.trim()).ok();
        let text = storable(text);
        let params = vec![Param::optional_uuid(key), Param::text(&text), count(most)];
        let rows = self.link.rows(ATTEMPTED, INBOX, params).await?;
        read(ATTEMPTED, &rows, |row| {
            let code: i16 = row.try_get("state")?;
            let state = match State::from_code(code) {
                Some(State::Done) => "done".to_owned(),
                Some(State::Failed) => "failed".to_owned(),
                Some(State::Waiting) => "waiting".to_owned(),
                None => format!("unknown ({code})"),
            };
            Ok(InboxRow {
                key: super::uuid(row, "key")?,
                label: row.try_get("label")?,
                group: row.try_get("consumer_group")?,
                plugin: row.try_get("plugin")?,
                digest: row.try_get("digest")?,
                state,
                created_at: row.try_get("created_at")?,
            })
        })
    }

    async fn clean(&self, age: Duration, most: usize) -> Result<u64, Error> {
        self.link.affected("remove old inbox rows", CLEAN, vec![micros(age), count(most)]).await
    }
}

fn envelope(row: &PgRow) -> Result<Envelope, sqlx::Error> {
    let text: &str = row.try_get("envelope")?;
    serde_json::from_str(text).map_err(|e| sqlx::Error::Decode(e.into()))
}

fn listed(row: &PgRow) -> Result<Listed, sqlx::Error> {
    Ok(Listed {
        key: super::uuid(row, "key")?,
        label: row.try_get("label")?,
        group: row.try_get("consumer_group")?,
        plugin: row.try_get("plugin")?,
        digest: row.try_get("digest")?,
        route: row.try_get("route")?,
        state: name(row.try_get("state")?),
        code: row.try_get("code")?,
        reason: row.try_get("reason")?,
        attempts: row.try_get("attempts")?,
        deliveries: row.try_get("deliveries")?,
        bytes: row.try_get("bytes")?,
        first_seen_at: row.try_get("first_seen_at")?,
        last_attempt_at: row.try_get("last_attempt_at")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
    })
}
