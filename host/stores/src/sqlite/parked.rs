//! Parked and waiting messages, and the inbox as people look at it, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::key::DedupKey;
use ackwright_core::parked::{Due, Filter, InboxRow, Lease, Listed, Shown, Store};
use ackwright_core::store::{Error, State};
use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::connect::{File, NOW, Spare};
use super::fault::system;
use super::inbox::{micros, uuid};
use super::outbox::limit;
use super::values::{Parameters, execute, fetch};

const LISTED: &str = "p.key, p.label, w.consumer_group, w.plugin, w.digest, p.route, p.state, p.code, p.reason, \
                      p.attempts, p.deliveries, length(p.body), p.first_seen_at, p.last_attempt_at, p.next_attempt_at";
const FROM: &str = "FROM ackwright_parked AS p LEFT JOIN ackwright_writer AS w ON w.id = p.writer";

pub(super) struct Parked {
    spare: Spare,
}

impl Parked {
    pub(super) fn new(file: Arc<File>) -> Self {
        Parked { spare: Spare::new(file) }
    }

    async fn rows(&self, attempted: &str, sql: String, parameters: Parameters) -> Result<Vec<SqliteRow>, Error> {
        let mut connection = self.spare.read().await?;
        let rows = fetch(&mut connection, sql, parameters).await.map_err(|error| system(error, attempted))?;
        self.spare.keep(connection).await;
        Ok(rows)
    }
}

#[async_trait]
impl Store for Parked {
    async fn due(&self, route: &str, most: usize, lease: Duration) -> Result<Vec<Due>, Error> {
        let attempted = "lease waiting messages that are due";
        let mut open = self.spare.write().await?;
        let mut parameters = Parameters::default();
        parameters.push(open.now.saturating_add(micros(lease)));
        parameters.push(route.to_owned());
        parameters.push(open.now);
        parameters.push(limit(most));
        let sql = "UPDATE ackwright_parked SET lease = randomblob(16), lease_until = ?1 WHERE key IN \
                   (SELECT key FROM ackwright_parked WHERE route = ?2 AND state = 2 AND next_attempt_at <= ?3 \
                   AND (lease_until IS NULL OR lease_until <= ?3) ORDER BY next_attempt_at LIMIT ?4) \
                   RETURNING key, lease, attempts, envelope, body, next_attempt_at";
        let rows = fetch(&mut open.connection, sql.into(), parameters).await;
        let rows = rows.map_err(|error| system(error, attempted))?;
        let mut due_now = Vec::with_capacity(rows.len());
        for row in &rows {
            match due(row) {
                Ok(message) => due_now.push(message),
                // One unreadable row must not hold up the others; its lease keeps it from being met at once again.
                Err(error) => tracing::error!(key = ?uuid(row, 0).ok(), %error, "a waiting message cannot be read"),
            }
        }
        self.spare.keep(open.end(attempted).await?).await;
        due_now.sort_by_key(|(at, _)| *at);
        Ok(due_now.into_iter().map(|(_, message)| message).collect())
    }

    async fn next_due(&self, route: &str) -> Result<Option<Duration>, Error> {
        let attempted = "see when the next waiting message is due";
        let mut parameters = Parameters::default();
        parameters.push(route.to_owned());
        let sql = format!(
            "SELECT min(max(next_attempt_at, coalesce(lease_until, 0))) - {NOW} FROM ackwright_parked \
             WHERE route = ? AND state = 2"
        );
        let rows = self.rows(attempted, sql, parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let left: Option<i64> = row.try_get(0).map_err(|error| system(error, attempted))?;
        Ok(left.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or(0))))
    }

    async fn list(&self, filter: &Filter, most: usize) -> Result<Vec<Listed>, Error> {
        let attempted = "list parked messages";
        let mut parameters = Parameters::default();
        parameters.push(filter.route.clone());
        parameters.push(filter.code.clone());
        parameters.push(filter.state.map(|state| i64::from(state as i16)));
        parameters.push(limit(most));
        let sql = format!(
            "SELECT {LISTED} {FROM} WHERE (?1 IS NULL OR p.route = ?1) AND (?2 IS NULL OR p.code = ?2) \
             AND (?3 IS NULL OR p.state = ?3) ORDER BY p.last_attempt_at DESC, p.key LIMIT ?4"
        );
        let rows = self.rows(attempted, sql, parameters).await?;
        rows.iter().map(|row| listed(row).map_err(|error| system(error, attempted))).collect()
    }

    async fn show(&self, key: Uuid) -> Result<Option<Shown>, Error> {
        let attempted = "show a parked message";
        let mut parameters = Parameters::default();
        parameters.bytes(key.as_bytes());
        let sql = format!("SELECT {LISTED}, p.detail, p.envelope, p.body {FROM} WHERE p.key = ?");
        let rows = self.rows(attempted, sql, parameters).await?;
        rows.first().map(|row| shown(row).map_err(|error| system(error, attempted))).transpose()
    }

    async fn inbox(&self, text: &str, most: usize) -> Result<Vec<InboxRow>, Error> {
        let attempted = "look up inbox rows";
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let hexadecimal = (1..=32).contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_hexdigit());
        let mut parameters = Parameters::default();
        parameters.push(text.to_owned());
        parameters.push(hexadecimal.then(|| digits.to_uppercase()));
        parameters.push(limit(most));
        let sql = "SELECT i.key, i.label, w.consumer_group, w.plugin, w.digest, i.state, i.created_at \
                   FROM ackwright_inbox AS i LEFT JOIN ackwright_writer AS w ON w.id = i.writer \
                   WHERE substr(i.label, 1, length(?1)) = ?1 OR substr(hex(i.key), 1, length(?2)) = ?2 \
                   ORDER BY i.created_at DESC, i.key LIMIT ?3";
        let rows = self.rows(attempted, sql.into(), parameters).await?;
        rows.iter().map(|row| inbox_row(row).map_err(|error| system(error, attempted))).collect()
    }

    async fn clean(&self, age: Duration, most: usize) -> Result<u64, Error> {
        let attempted = "clean old inbox rows";
        let mut open = self.spare.write().await?;
        let mut parameters = Parameters::default();
        parameters.push(open.now.saturating_sub(micros(age)));
        parameters.push(limit(most));
        let sql = "DELETE FROM ackwright_inbox WHERE key IN (SELECT key FROM ackwright_inbox \
                   WHERE state = 0 AND created_at < ? ORDER BY created_at LIMIT ?)";
        let done = execute(&mut open.connection, sql.into(), parameters).await;
        let count = done.map_err(|error| system(error, attempted))?.rows_affected();
        self.spare.keep(open.end(attempted).await?).await;
        Ok(count)
    }
}

fn due(row: &SqliteRow) -> Result<(i64, Due), sqlx::Error> {
    let envelope: String = row.try_get(3)?;
    let due = Due {
        key: DedupKey(uuid(row, 0)?),
        lease: Lease(uuid(row, 1)?),
        attempts: row.try_get(2)?,
        envelope: serde_json::from_str(&envelope).map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        body: row.try_get::<Option<Vec<u8>>, _>(4)?.map(Into::into),
    };
    Ok((row.try_get(5)?, due))
}

fn listed(row: &SqliteRow) -> Result<Listed, sqlx::Error> {
    let name = |at: usize| row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default);
    let state = match state(row, 6)? {
        State::Done | State::Failed => "parked",
        State::Waiting => "waiting",
    };
    Ok(Listed {
        key: uuid(row, 0)?,
        label: row.try_get(1)?,
        group: name(2)?,
        plugin: name(3)?,
        digest: name(4)?,
        route: row.try_get(5)?,
        state: state.into(),
        code: row.try_get(7)?,
        reason: row.try_get(8)?,
        attempts: row.try_get(9)?,
        deliveries: row.try_get(10)?,
        bytes: row.try_get(11)?,
        first_seen_at: row.try_get(12)?,
        last_attempt_at: row.try_get(13)?,
        next_attempt_at: row.try_get(14)?,
    })
}

fn shown(row: &SqliteRow) -> Result<Shown, sqlx::Error> {
    let envelope: String = row.try_get(16)?;
    Ok(Shown {
        listed: listed(row)?,
        detail: row.try_get(15)?,
        envelope: serde_json::from_str(&envelope).map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        body: row.try_get::<Option<Vec<u8>>, _>(17)?.map(Into::into),
    })
}

fn inbox_row(row: &SqliteRow) -> Result<InboxRow, sqlx::Error> {
    let name = |at: usize| row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default);
    let state = match state(row, 5)? {
        State::Done => "done",
        State::Failed => "failed",
        State::Waiting => "waiting",
    };
    Ok(InboxRow {
        key: uuid(row, 0)?,
        label: row.try_get(1)?,
        group: name(2)?,
        plugin: name(3)?,
        digest: name(4)?,
        state: state.into(),
        created_at: row.try_get(6)?,
    })
}

fn state(row: &SqliteRow, at: usize) -> Result<State, sqlx::Error> {
    let code: i64 = row.try_get(at)?;
    let state = i16::try_from(code).ok().and_then(State::from_code);
    state.ok_or_else(|| sqlx::Error::Decode(format!("state {code} is unknown").into()))
}
