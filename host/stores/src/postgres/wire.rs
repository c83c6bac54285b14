//! One connection to PostgreSQL, and what an error on it means.
//!
//! **Invariant:** errors are told apart by SQLSTATE and severity, never by the words of a message, which the
//! server translates.

use std::time::Duration;

use ackwright_core::store;
use futures::TryStreamExt;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgDatabaseError, PgRow, PgSeverity};
use sqlx::{Arguments, AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, SqlSafeStr, Statement};

use super::native::Param;
use crate::Settings;
use crate::fault::{self, Late};

/// Time beyond the server's own limit after which the host stops believing in an answer.
const GRACE: Duration = Duration::from_secs(5);

pub(super) struct Wire {
    connection: PgConnection,
    limit: Duration,
    pooled: bool,
    /// Opens a transaction with what has to be set in it.
    begin: String,
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum Fault {
    /// The database refused the data or the SQL; the connection is fine, the transaction is not.
    Refused(Box<sqlx::Error>),
    System(store::Error),
}

impl Wire {
    pub(super) async fn open(options: &PgConnectOptions, settings: &Settings) -> Result<Self, store::Error> {
        let attempted = || format!("connect to PostgreSQL at {}", address(options));
        let connecting = tokio::time::timeout(settings.connect, options.connect());
        let connection = match connecting.await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(fault::lost(attempted(), error)),
            Err(_) => return Err(fault::lost(attempted(), Late(settings.connect))),
        };
        let limits = |local: &str| {
            format!(
                "SET {local} lock_timeout = {}; SET {local} statement_timeout = {}; \
                 SET {local} idle_in_transaction_session_timeout = {}; SET {local} standard_conforming_strings = on",
                settings.lock.as_millis(),
                settings.statement.as_millis(),
                settings.idle.as_millis(),
            )
        };
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
        let begin = if settings.pooled { format!("{begin}; {}", limits("LOCAL")) } else { begin.to_owned() };
        let limit = settings.statement + GRACE;
        let mut wire = Wire { connection, limit, pooled: settings.pooled, begin };
        if !settings.pooled {
            let mut set = limits("");
            // Lets the server notice during a long statement that the host is gone.
            if wire.connection.server_version_num().is_some_and(|version| version >= 140_000) {
                set.push_str("; SET client_connection_check_interval = 2000");
            }
            if let Err(error) = wire.simple(set).await {
                return Err(into_system(attempted(), error));
            }
        }
        Ok(wire)
    }

    pub(super) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.simple(self.begin.clone()).await
    }

    /// Statements without parameters, in one round trip.
    pub(super) async fn simple(&mut self, sql: impl Into<String>) -> Result<(), sqlx::Error> {
        let run = sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(&mut self.connection);
        within(self.limit, run).await.map(drop)
    }

    pub(super) async fn rows(&mut self, sql: &str, params: Vec<Param>) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(AssertSqlSafe(sql), arguments(params)?).persistent(!self.pooled);
        within(self.limit, query.fetch_all(&mut self.connection)).await
    }

    /// At most `most` rows and one more, which says that there were too many.
    pub(super) async fn some_rows(
        &mut self,
        sql: &str,
        params: Vec<Param>,
        most: usize,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(AssertSqlSafe(sql), arguments(params)?).persistent(!self.pooled);
        let mut found = Vec::new();
        within(self.limit, async {
            let mut rows = query.fetch(&mut self.connection);
            while let Some(row) = rows.try_next().await? {
                // The rest is read to the end, so that the next statement finds a quiet line.
                if found.len() <= most {
                    found.push(row);
                }
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    pub(super) async fn affected(&mut self, sql: &str, params: Vec<Param>) -> Result<u64, sqlx::Error> {
        let query = sqlx::query_with(AssertSqlSafe(sql), arguments(params)?).persistent(!self.pooled);
        Ok(within(self.limit, query.execute(&mut self.connection)).await?.rows_affected())
    }

    /// The types that the server takes the parameters for.
    pub(super) async fn describe(&mut self, sql: &str) -> Result<Described, sqlx::Error> {
        let sql = AssertSqlSafe(sql).into_sql_str();
        let statement = within(self.limit, (&mut self.connection).prepare(sql)).await?;
        let parameters = match statement.parameters() {
            Some(sqlx::Either::Left(types)) => {
                types.iter().map(|t| (t.oid().map_or(0, |oid| oid.0), t.to_string())).collect()
            }
            Some(sqlx::Either::Right(_)) | None => Vec::new(),
        };
        let columns = statement.columns().iter().map(|c| sqlx::Column::name(c).to_owned()).collect();
        Ok(Described { parameters, columns })
    }

    pub(super) async fn migrate(
        &mut self,
        migrator: &sqlx::migrate::Migrator,
    ) -> Result<(), sqlx::migrate::MigrateError> {
        migrator.run(&mut self.connection).await
    }

    pub(super) async fn close(self) {
        // Best effort: a closed socket says the same.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.connection.close()).await;
    }
}

pub(super) struct Described {
    /// Object id and name of each parameter's type.
    pub parameters: Vec<(u32, String)>,
    pub columns: Vec<String>,
}

/// Where the server is, without user and password.
fn address(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(path) => path.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

fn arguments(params: Vec<Param>) -> Result<PgArguments, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for param in params {
        arguments.add(param).map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, Late(limit)))),
    }
}

/// Whether the connection is of no further use.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error.as_database_error().map(|e| e.downcast_ref::<PgDatabaseError>()) {
        Some(database) => matches!(database.severity(), PgSeverity::Fatal | PgSeverity::Panic),
        // Whatever is no answer of the database leaves the line in a state that nobody knows.
        None => true,
    }
}

/// Sorts an error by its SQLSTATE.
pub(super) fn classify(attempted: impl Into<String>, error: sqlx::Error) -> Fault {
    if is_lost(&error) {
        return Fault::System(fault::lost(attempted, error));
    }
    let code = error.as_database_error().and_then(|e| e.code()).map(|c| c.into_owned()).unwrap_or_default();
    match (code.get(..2).unwrap_or_default(), code.as_str()) {
        // Deadlock, serialization failure, lock timeout.
        ("40", _) | (_, "55P03") => Fault::System(fault::conflict(attempted, error)),
        // Data, cardinality, integrity, WITH CHECK OPTION, RAISE in a trigger; and what is wrong with SQL itself.
        ("21" | "22" | "23" | "44" | "P0" | "42" | "0A" | "2F" | "38" | "39", _) => Fault::Refused(Box::new(error)),
        // Everything else is between the host and the server: resources, operators, limits, states.
        _ => Fault::System(fault::system(attempted, error)),
    }
}

/// For the host's own statements, where a refusal is no message's fault.
pub(super) fn into_system(attempted: impl Into<String>, error: sqlx::Error) -> store::Error {
    let attempted = attempted.into();
    match classify(attempted.clone(), error) {
        Fault::System(error) => error,
        Fault::Refused(error) => fault::system(attempted, *error),
    }
}
