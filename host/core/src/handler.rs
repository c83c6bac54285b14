//! What the pipeline asks of a plugin version.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::access::Access;
use crate::effect::{self, Buffer, NamedRow};
use crate::key::Identity;
use crate::message::Message;
use crate::value::Value;

/// One version of a plugin with its grants and limits. Every call runs in a fresh guest: nothing that one
/// message did can be seen by the next.
#[async_trait]
pub trait Handler: Send + Sync {
    fn name(&self) -> &str;

    /// Hash of the component, in hexadecimal.
    fn digest(&self) -> &str;

    /// Runs `identify`, and then `handle` in the same guest, before any transaction is open. A handler that
    /// turns out to read stops at its first read and comes back as `NeedsReads`; the version remembers that and
    /// does not try again for later messages.
    async fn prepare(&self, message: &Arc<Message>) -> Prepared;

    /// Runs `identify` and `handle` in one guest inside the open transaction. An identity that differs from the
    /// given one is an `Unstable` outcome.
    async fn invoke(&self, message: &Arc<Message>, identity: &Identity, reads: Arc<dyn Reads>) -> Run;
}

#[derive(Debug)]
pub struct Prepared {
    pub identity: Result<Identity, Failure>,
    pub run: Ran,
}

#[derive(Debug)]
pub enum Ran {
    Finished(Run),
    /// The handler has to run inside the transaction.
    NeedsReads,
}

#[derive(Debug)]
pub struct Run {
    pub outcome: Outcome,
    /// What the handler declared; meaningful only where the outcome is `Done`.
    pub effects: Buffer,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done,
    Failed(Failure),
    /// A read could not be served: the database's fault, the message runs again.
    Unavailable(String),
}

/// What went wrong with one message, in terms that operators group by.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub class: Class,
    /// Stable: `rejected:insufficient-funds`, `trap:unreachable`, `limit:memory`, `denied:write:orders`.
    pub code: String,
    pub reason: String,
    /// Backtrace, stderr tail.
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The plugin said that it can never succeed, or a constraint did.
    Rejected,
    /// The plugin asked for a later attempt.
    Retry { after: Option<Duration> },
    /// The sandbox stopped it: trap, time, memory, or a key that is not the same on a second run. Tried once
    /// more in a fresh guest, then parked.
    Trapped,
    /// A grant is missing.
    Denied,
}

/// Reads from inside the transaction. They see what earlier messages of the batch and this message declared:
/// `own` is applied first where the read could see it.
#[async_trait]
pub trait Reads: Send + Sync {
    async fn get(
        &self,
        own: &mut Buffer,
        access: &Access,
        table: &str,
        key: NamedRow,
        lock: bool,
    ) -> Result<Option<NamedRow>, effect::Error>;

    async fn query(
        &self,
        own: &mut Buffer,
        access: &Access,
        sql: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<NamedRow>, effect::Error>;

    async fn execute(
        &self,
        own: &mut Buffer,
        access: &Access,
        sql: &str,
        parameters: Vec<Value>,
    ) -> Result<u64, effect::Error>;
}
