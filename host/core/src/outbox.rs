//! The outbox as the pipeline writes it and the relay reads it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::message::Header;
use crate::store::Error;

/// Shards of the outbox. Rows of one order key share a shard, and one relay at a time works on a shard.
pub const SHARDS: i16 = 16;

/// A row to be written with the message's transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRow {
    /// Derived from dedup key and ordinal: a repeat carries the same id.
    pub id: Uuid,
    pub broker: Arc<str>,
    pub destination: String,
    pub order_key: String,
    pub content_type: Option<String>,
    pub headers: Vec<Header>,
    pub body: Bytes,
}

impl NewRow {
    pub fn shard(&self) -> i16 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.order_key.as_bytes());
        i16::from(hasher.finalize().as_bytes()[0]) % SHARDS
    }
}

/// A row that waits to be published.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Position in the outbox: order of insertion within an order key.
    pub position: i64,
    pub id: Uuid,
    pub broker: String,
    pub destination: String,
    pub order_key: String,
    pub content_type: Option<String>,
    pub headers: Vec<Header>,
    pub body: Bytes,
    /// Failed attempts that counted.
    pub attempts: i32,
}

/// What `pending` found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pending {
    pub rows: Vec<Row>,
    /// Rows whose headers nobody can read any more; they must not hold up the others.
    pub unreadable: Vec<Unreadable>,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.unreadable.is_empty()
    }

    /// Takes a row in, with its headers as they are stored.
    pub fn push(&mut self, row: Row, headers: &str) {
        match serde_json::from_str(headers) {
            Ok(headers) => self.rows.push(Row { headers, ..row }),
            Err(error) => {
                let reason = format!("its stored headers cannot be read: {error}");
                self.unreadable.push(Unreadable { position: row.position, id: row.id, reason });
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub position: i64,
    pub id: Uuid,
    pub reason: String,
}

/// What became of a row that a relay tried to publish.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// The broker confirmed it.
    Sent,
    /// The broker refused it: try again after this time; later rows of its key wait behind it.
    Refused { reason: String, after: Duration },
    /// It can never be published, or its attempts are spent: out of the way, kept with its reason.
    Parked { reason: String },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub pending: i64,
    pub refused: i64,
    pub parked: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    pub position: i64,
    pub id: Uuid,
    pub broker: String,
    pub destination: String,
    pub order_key: String,
    /// `pending`, `refused`, `parked` or `sent`.
    pub state: String,
    pub attempts: i32,
    pub reason: Option<String>,
    pub bytes: i64,
    /// Microseconds since the Unix epoch, by the database's clock.
    pub created_at: i64,
    pub next_attempt_at: Option<i64>,
    pub sent_at: Option<i64>,
}

/// The relay's side. Rows are taken by their state, never by "greater than the last position": a transaction
/// that drew a lower position may commit later.
#[async_trait]
pub trait Store: Send + Sync {
    /// Takes or renews the leases on all shards that nobody else holds, by the database's clock. Returns the
    /// shards that `relay` holds now.
    async fn lease(&self, relay: Uuid, time: Duration) -> Result<Vec<i16>, Error>;

    /// Gives the leases back.
    async fn release(&self, relay: Uuid) -> Result<(), Error>;

    /// Up to `most` rows for one broker in these shards that are due, in order of position; a row stays out while
    /// an earlier row of its key was refused and is not due.
    async fn pending(&self, broker: &str, shards: &[i16], most: usize) -> Result<Pending, Error>;

    /// Records fates, in one transaction, only for rows of shards that `relay` still holds. `keep` is how long
    /// sent rows stay; zero deletes them at once.
    async fn settle(&self, relay: Uuid, fates: &[(i64, Fate)], keep: Duration) -> Result<(), Error>;

    /// Removes sent rows older than `keep`, at most `most`; returns how many.
    async fn clean(&self, keep: Duration, most: usize) -> Result<u64, Error>;

    async fn counts(&self) -> Result<Counts, Error>;

    /// Newest last; `state` filters.
    async fn list(&self, state: Option<&str>, most: usize) -> Result<Vec<Listed>, Error>;

    /// Makes refused and parked rows due again; all where `ids` is empty. Returns how many.
    async fn retry(&self, ids: &[Uuid]) -> Result<u64, Error>;
}
