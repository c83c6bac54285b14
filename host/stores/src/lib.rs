//! Databases that the pipeline writes to: each implements `ackwright_core::store::Store`.
//!
//! `open` picks the adapter by the scheme of the URL; `migrate` and `pending` keep the host's own tables
//! (prefix `ackwright_`) up to date. No error of this crate holds a URL, since a URL holds a password.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::store::Store;

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

/// The store behind a URL; it connects when something is first asked of it.
pub fn open(url: &str, settings: &Settings) -> Result<Arc<dyn Store>, OpenError> {
    match Scheme::of(url)? {
        Scheme::Postgres => postgres::Store::connect_lazy(url, settings.clone()),
        Scheme::Sqlite => Ok(Arc::new(sqlite::Sqlite::open(url, settings)?)),
    }
}

/// Brings the host's own tables up to date, one host at a time; running it again does nothing. Returns the names
/// of what was applied.
pub async fn migrate(url: &str) -> Result<Vec<String>, migrate::Error> {
    match Scheme::of(url)? {
        Scheme::Postgres => postgres::migrate(url).await,
        Scheme::Sqlite => sqlite::Sqlite::open(url, &Settings::default())?.migrate().await,
    }
}

/// Names of the migrations that the database lacks.
pub async fn pending(url: &str) -> Result<Vec<String>, migrate::Error> {
    match Scheme::of(url)? {
        Scheme::Postgres => postgres::pending(url).await,
        Scheme::Sqlite => sqlite::Sqlite::open(url, &Settings::default())?.pending().await,
    }
}

enum Scheme {
    Postgres,
    Sqlite,
}

impl Scheme {
    fn of(url: &str) -> Result<Self, OpenError> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => Ok(Scheme::Postgres),
            Some("sqlite") => Ok(Scheme::Sqlite),
            // What stands before the first colon of a text that is no URL could be anything, a secret included.
            Some(other) if url.contains("://") && other.bytes().all(|b| b.is_ascii_lowercase()) => {
                Err(OpenError::Scheme(other.to_owned()))
            }
            _ => Err(OpenError::Scheme(String::new())),
        }
    }
}
