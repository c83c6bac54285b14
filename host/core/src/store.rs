//! What the pipeline asks of a database. One `Session` is one connection; a lane has its own.
//!
//! Words and statements are the adapter's. The pipeline decides what runs in which order; the adapter
//! classifies what went wrong, by error code and never by the words of a message.

use std::sync::Arc;

use async_trait::async_trait;

use crate::access::Access;
use crate::catalog::{Catalog, ColumnId, TableId};
use crate::effect::{self, Cells};
use crate::key::DedupKey;
use crate::outbox;
use crate::parked;
use crate::plan::Plan;
use crate::value::Value;

/// A database that is out of reach, or that asks for the same transaction again (deadlock, serialization
/// failure, lock or statement timeout). Never the fault of a message, so it spends no attempts.
#[derive(Debug, thiserror::Error)]
#[error("{attempted}")]
pub struct Error {
    /// What the host was doing: "claim 12 messages".
    pub attempted: String,
    /// The connection is unusable; the session opens a new one on the next `begin`.
    pub lost: bool,
    /// The server chose this transaction to give way: run it again, smaller.
    pub conflict: bool,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Several sessions can write at the same time. Where they cannot, one lane does as well as many.
    pub concurrent_writers: bool,
    /// A savepoint survives a failed statement.
    pub savepoints: bool,
}

/// Names who wrote an inbox row: consumer group, plugin and plugin digest, interned by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Writer(pub i32);

#[async_trait]
pub trait Store: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    /// The tables as they are now. Fails while the database is out of reach.
    async fn catalog(&self) -> Result<Arc<Catalog>, Error>;

    async fn writer(&self, group: &str, plugin: &str, digest: &str) -> Result<Writer, Error>;

    /// A session that connects on its first `begin`.
    fn session(&self) -> Box<dyn Session>;

    /// Parses SQL of a plugin and admits one SELECT (for reading) or one INSERT, UPDATE or DELETE over granted
    /// tables; refuses the rest with the reason. The answer is cached by text and access.
    fn admit(&self, sql: &str, access: &Access, purpose: Purpose) -> Result<Statement, effect::Error>;

    /// The outbox for the relay, on connections of its own.
    fn outbox(&self) -> Arc<dyn outbox::Store>;

    /// Parked and waiting messages, on connections of its own.
    fn parked(&self) -> Arc<dyn parked::Store>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    Query,
    Execute,
}

/// SQL that the guard admitted.
#[derive(Clone, Debug)]
pub struct Statement {
    pub sql: Arc<str>,
    pub purpose: Purpose,
    /// Tables that it reads or writes, so that effects declared on them are applied first.
    pub tables: Vec<TableId>,
}

/// One connection with at most one open transaction.
///
/// **Invariant:** a call that is dropped before it returned leaves the session unusable until the next `begin`,
/// which opens a new connection, so a half-sent statement or an unread answer is never met by later work.
#[async_trait]
pub trait Session: Send {
    /// Opens a transaction, connecting first where needed. Sets the server's own limits on lock waits and on
    /// statements, so that a lost host does not hold locks.
    async fn begin(&mut self) -> Result<(), Error>;

    /// Inserts inbox rows and says for each claim, in the order given, what was found. Waits a bounded time for
    /// another transaction that holds the same key. Rows are inserted in key order.
    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Error>;

    /// Changes the state of inbox rows that this transaction holds.
    async fn record(&mut self, states: &[(DedupKey, State)]) -> Result<(), Error>;

    /// Writes planned effects, one statement a group where the database can.
    async fn apply(&mut self, plan: &Plan) -> Result<(), ApplyError>;

    async fn emit(&mut self, rows: &[outbox::NewRow]) -> Result<(), Error>;

    /// Stores messages whole; a row with the same key and state `waiting` or `parked` is replaced and counted up.
    async fn park(&mut self, rows: &[parked::NewRow]) -> Result<(), Error>;

    /// Removes the parked copies of messages that succeeded at last.
    async fn unpark(&mut self, keys: &[DedupKey]) -> Result<(), Error>;

    /// The row with this key: values of `columns`, in that order. `lock` holds the row until the transaction ends.
    async fn get(
        &mut self,
        table: TableId,
        key: &Cells,
        columns: &[ColumnId],
        lock: bool,
    ) -> Result<Option<Vec<Value>>, ReadError>;

    /// At most `most` rows, with the names of their columns; more is an error.
    async fn query(&mut self, statement: &Statement, parameters: &[Value], most: usize) -> Result<Rows, ReadError>;

    /// Rows affected.
    async fn execute(&mut self, statement: &Statement, parameters: &[Value]) -> Result<u64, ApplyError>;

    /// Savepoints are a stack of one: `rollback_to` and `release` end the latest.
    async fn savepoint(&mut self) -> Result<(), Error>;
    async fn rollback_to(&mut self) -> Result<(), Error>;
    async fn release(&mut self) -> Result<(), Error>;

    /// Called by `core::commit` alone.
    async fn commit(&mut self) -> Result<(), CommitError>;

    /// Ends the transaction without effect. A connection that cannot say so is closed, which does the same.
    async fn rollback(&mut self);
}

#[derive(Clone, Debug)]
pub struct Claim {
    pub key: DedupKey,
    pub label: String,
    pub body_hash: i64,
    pub writer: Writer,
    /// The state that the row gets where it is new.
    pub state: State,
    /// This message was parked to run again: its inbox row is there in state `waiting` and is taken over where
    /// the lease is still ours.
    pub retry: Option<parked::Lease>,
}

/// State of an inbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i16)]
pub enum State {
    /// Its effects are committed.
    Done = 0,
    /// It can never succeed; its parked copy says why.
    Failed = 1,
    /// Its parked copy runs again later.
    Waiting = 2,
}

impl State {
    pub fn from_code(code: i16) -> Option<Self> {
        [State::Done, State::Failed, State::Waiting].into_iter().find(|s| *s as i16 == code)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The row is ours: run the message.
    New,
    /// Somebody was first.
    Duplicate { state: State, same_body: bool },
    /// The retry lease was lost, or an operator took the message: leave it alone.
    Gone,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

/// What `apply` and `execute` found wrong with the effects themselves, or with the database.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A constraint or a guard refused a row. The transaction can only be rolled back.
    #[error("{}: {}", .0.code, .0.reason)]
    Refused(Refusal),
    #[error(transparent)]
    System(#[from] Error),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `constraint:coupons_order_id_key`, `guard:insufficient-funds`, `data:22003`.
    pub code: String,
    pub reason: String,
    /// A row that this one refers to is not there (yet): run again later.
    pub retry: bool,
    /// The guard of the refused row's effect, where it was one.
    pub guard: Option<Box<effect::Guard>>,
    /// Messages of the batch that can be to blame; empty where the database does not tell.
    pub suspects: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The plugin asked for something that cannot be answered exactly.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    System(#[from] Error),
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Known not to be committed.
    #[error("the transaction was rolled back")]
    RolledBack(#[source] Error),
    /// A deferred constraint refused a row; nothing was committed.
    #[error("{}: {}", .0.code, .0.reason)]
    Refused(Refusal),
    /// The connection was lost after COMMIT was sent: only the inbox can tell.
    #[error("the outcome of the commit is not known")]
    InDoubt(#[source] Error),
}
