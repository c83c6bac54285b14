//! Messages that are kept whole in the database: parked for good, or waiting for their next attempt.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::key::{DedupKey, Identity};
use crate::message::{Header, Message};
use crate::store::{Error, State, Writer};

/// Everything of a message but its body, as stored. The body has a column of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    pub id: Option<String>,
    pub source: String,
    pub subject: Option<String>,
    #[serde(with = "optional_base16", default)]
    pub key: Option<Bytes>,
    pub content_type: Option<String>,
    pub headers: Vec<Header>,
    pub published_at: Option<i64>,
    pub properties: Vec<Header>,
    /// Absent where no plugin could identify the message.
    pub identity: Option<Identity>,
}

impl Envelope {
    pub fn of(message: &Message, identity: Option<&Identity>) -> Self {
        Envelope {
            id: message.id.clone(),
            source: message.source.clone(),
            subject: message.subject.clone(),
            key: message.key.clone(),
            content_type: message.content_type.clone(),
            headers: message.headers.clone(),
            published_at: message.published_at,
            properties: message.properties.clone(),
            identity: identity.cloned(),
        }
    }

    pub fn into_message(self, body: Option<Bytes>) -> Message {
        Message {
            id: self.id,
            source: self.source,
            subject: self.subject,
            key: self.key,
            content_type: self.content_type,
            headers: self.headers,
            published_at: self.published_at,
            body,
            properties: self.properties,
        }
    }
}

/// A message to be parked with the transaction.
#[derive(Clone, Debug)]
pub struct NewRow {
    pub key: DedupKey,
    pub label: String,
    pub writer: Writer,
    pub route: Arc<str>,
    /// `Failed` is parked for good, `Waiting` runs again.
    pub state: State,
    /// Stable, for grouping: `rejected:insufficient-funds`, `trap:unreachable`, `denied:write:orders`.
    pub code: String,
    pub reason: String,
    /// Backtrace, stderr tail and the like.
    pub detail: Option<String>,
    /// Attempts spent so far, this one included.
    pub attempts: i32,
    /// When a waiting message is due, from now by the database's clock.
    pub after: Duration,
    pub envelope: Arc<Envelope>,
    pub body: Option<Bytes>,
}

/// Proof that this host may run a waiting message now. Another host gets it once the lease has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(pub Uuid);

/// A waiting message that is due.
#[derive(Clone, Debug)]
pub struct Due {
    pub key: DedupKey,
    pub lease: Lease,
    pub attempts: i32,
    pub envelope: Envelope,
    pub body: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    pub key: Uuid,
    pub label: String,
    pub group: String,
    pub plugin: String,
    pub digest: String,
    pub route: String,
    /// `parked` or `waiting`.
    pub state: String,
    pub code: String,
    pub reason: String,
    pub attempts: i32,
    /// How many deliveries of it were seen.
    pub deliveries: i32,
    pub bytes: Option<i64>,
    /// Microseconds since the Unix epoch, by the database's clock.
    pub first_seen_at: i64,
    pub last_attempt_at: i64,
    pub next_attempt_at: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub listed: Listed,
    pub detail: Option<String>,
    pub envelope: Envelope,
    pub body: Option<Bytes>,
}

/// One inbox row as `inbox show` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InboxRow {
    pub key: Uuid,
    pub label: String,
    pub group: String,
    pub plugin: String,
    pub digest: String,
    /// `done`, `failed` or `waiting`.
    pub state: String,
    /// Microseconds since the Unix epoch, by the database's clock.
    pub created_at: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub route: Option<String>,
    pub code: Option<String>,
    pub state: Option<State>,
}

#[async_trait]
pub trait Store: Send + Sync {
    /// Leases up to `most` waiting messages of a route that are due, by the database's clock.
    async fn due(&self, route: &str, most: usize, lease: Duration) -> Result<Vec<Due>, Error>;

    /// When the next waiting message of a route is due, from now; absent where none waits.
    async fn next_due(&self, route: &str) -> Result<Option<Duration>, Error>;

    async fn list(&self, filter: &Filter, most: usize) -> Result<Vec<Listed>, Error>;

    async fn show(&self, key: Uuid) -> Result<Option<Shown>, Error>;

    /// Inbox rows whose key or readable form is, or starts with, `text`.
    async fn inbox(&self, text: &str, most: usize) -> Result<Vec<InboxRow>, Error>;

    /// Removes inbox rows in state `done` older than `age`, at most `most`; returns how many.
    async fn clean(&self, age: Duration, most: usize) -> Result<u64, Error>;
}

mod optional_base16 {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Hex(#[serde(with = "crate::base16")] Bytes);

    pub fn serialize<S: Serializer>(bytes: &Option<Bytes>, to: S) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Hex).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Hex>::deserialize(from)?.map(|hex| hex.0))
    }
}
