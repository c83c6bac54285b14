//! Databases that the pipeline writes to: each implements `ackwright_core::store::Store`.
//!
//! `open` picks the adapter by the scheme of the URL; `migrate` and `pending` keep the host's own tables
//! (prefix `ackwright_`) up to date. No error of this crate holds a URL, since a URL holds a password.

use std::time::Duration;

mod fault;
pub mod guard;
pub mod migrate;
pub mod postgres;
mod sql;
pub mod sqlite;

pub use fault::OpenError;

/// Limits of a session, enforced by the database where it can and by the host where it cannot.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long opening a connection may take.
    pub connect: Duration,
    /// How long one statement may wait for a lock of another transaction.
    pub lock: Duration,
    /// How long one statement may run.
    pub statement: Duration,
    /// How long a transaction may sit between two statements before the database ends it, so that a lost
    /// host holds no locks.
    pub idle: Duration,
    /// The connection goes through a pooler that hands out a server session a transaction (PgBouncer):
    /// no prepared statement and no setting outlives a transaction.
    pub pooled: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connect: Duration::from_secs(10),
            lock: Duration::from_secs(5),
            statement: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            pooled: false,
        }
    }
}
