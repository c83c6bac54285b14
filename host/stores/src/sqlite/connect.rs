//! Connections: how they are opened, who may write, and how a cut-off call ends one.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ackwright_core::store::Error;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Row};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::fault::{failed, system};
use crate::{OpenError, Settings};

/// The database's clock in microseconds; SQLite's own resolution is milliseconds.
pub(super) const NOW: &str = "(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000)";

/// Statements kept prepared on a connection: each shape of group takes up to ten sizes of chunk.
const STATEMENTS: usize = 1000;

/// One database file.
#[derive(Debug)]
pub(super) struct File {
    options: SqliteConnectOptions,
    path: PathBuf,
    /// How long to wait for the turn to write, and for a writer in another process.
    lock: Duration,
    /// SQLite has one writer at a time. Within this process writers queue here in order of arrival; its own busy
    /// handler, which polls and is not fair, only has to wait for other processes.
    turn: Arc<Mutex<()>>,
}

/// A transaction that holds the write lock. Dropping it closes the connection, which rolls back.
pub(super) struct Open {
    pub connection: SqliteConnection,
    /// When the transaction began, by the database's clock.
    pub now: i64,
    _turn: OwnedMutexGuard<()>,
}

impl File {
    pub(super) fn new(url: &str, settings: &Settings) -> Result<Self, OpenError> {
        const EXPECTED: &str = "sqlite://path/to/file.db, with ?mode=rw not to create it and ?synchronous=normal (or \
                                full, the default, or extra); a database in memory is lost with its connection, so it \
                                has to be a file";
        let bad = || OpenError::Url { expected: EXPECTED };
        let rest = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).ok_or_else(bad)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == ":memory:" {
            return Err(bad());
        }
        let mut create = true;
        let mut synchronous = SqliteSynchronous::Full;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair {
                "mode=rwc" => create = true,
                "mode=rw" => create = false,
                "synchronous=normal" => synchronous = SqliteSynchronous::Normal,
                "synchronous=full" => synchronous = SqliteSynchronous::Full,
                "synchronous=extra" => synchronous = SqliteSynchronous::Extra,
                _ => return Err(bad()),
            }
        }
        let options = SqliteConnectOptions::from_str(&format!("sqlite://{path}"))
            .map_err(|_| bad())?
            .create_if_missing(create)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .busy_timeout(settings.lock)
            .foreign_keys(true)
            .pragma("cache_size", "-65536")
            .statement_cache_capacity(STATEMENTS)
            .row_buffer_size(1024)
            .disable_statement_logging();
        let path = options.get_filename().to_owned();
        Ok(File { options, path, lock: settings.lock, turn: Arc::default() })
    }

    pub(super) async fn connect(&self) -> Result<SqliteConnection, Error> {
        self.options
            .connect()
            .await
            .map_err(|error| system(error, format!("open the database {}", self.path.display())))
    }

    /// Waits for the turn to write and opens a transaction on `idle`, or on a new connection.
    ///
    /// **Invariant:** a transaction starts with BEGIN IMMEDIATE. One that reads first and writes later fails at
    /// once when another writer was faster, whatever the busy timeout.
    pub(super) async fn begin(&self, idle: Option<SqliteConnection>) -> Result<Open, Error> {
        let turn = tokio::time::timeout(self.lock, Arc::clone(&self.turn).lock_owned()).await;
        let turn = turn.map_err(|late| failed("wait for the turn to write to the database", false, true, late))?;
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let begun = sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await;
        begun.map_err(|error| system(error, "begin a transaction"))?;
        let now = format!("SELECT {NOW}");
        let now = sqlx::query(sqlx::AssertSqlSafe(now)).fetch_one(&mut connection).await.and_then(|row| row.try_get(0));
        let now = now.map_err(|error| system(error, "read the database's clock"))?;
        Ok(Open { connection, now, _turn: turn })
    }
}

impl Open {
    /// For the host's own short transactions, whose loss in doubt harms nothing: they are repeated.
    pub(super) async fn end(mut self, attempted: &str) -> Result<SqliteConnection, Error> {
        match sqlx::query("COMMIT").execute(&mut self.connection).await {
            Ok(_) => Ok(self.connection),
            Err(error) => Err(system(error, format!("commit: {attempted}"))),
        }
    }
}

/// A connection of the host's own, opened when it is first needed and kept for the next call.
///
/// **Invariant:** a call takes the connection out and puts it back at its end, so a call that is dropped half-way
/// takes its connection, and the transaction on it, with it.
#[derive(Debug)]
pub(super) struct Spare {
    file: Arc<File>,
    idle: Mutex<Option<SqliteConnection>>,
}

impl Spare {
    pub(super) fn new(file: Arc<File>) -> Self {
        Spare { file, idle: Mutex::default() }
    }

    pub(super) async fn read(&self) -> Result<SqliteConnection, Error> {
        match self.idle.lock().await.take() {
            Some(connection) => Ok(connection),
            None => self.file.connect().await,
        }
    }

    pub(super) async fn write(&self) -> Result<Open, Error> {
        let idle = self.idle.lock().await.take();
        self.file.begin(idle).await
    }

    pub(super) async fn keep(&self, connection: SqliteConnection) {
        *self.idle.lock().await = Some(connection);
    }
}
