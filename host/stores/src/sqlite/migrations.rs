//! The host's own tables in SQLite, brought up to date under one write lock.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Executor, Row};

use super::connect::{File, NOW};
use crate::migrate::{Error, Step, TABLE, migrator, missing, unreadable};

const STEPS: &[Step] = &[Step {
    version: 1,
    name: "inbox_outbox_parked",
    sql: include_str!("../../../../migrations/sqlite/0001_inbox_outbox_parked.sql"),
}];

pub(super) async fn pending(file: &File) -> Result<Vec<String>, Error> {
    let mut connection = file.connect().await.map_err(unreachable)?;
    missing(&migrator(STEPS), &applied(&mut connection).await.map_err(unreadable)?)
}

/// All missing steps in one transaction: SQLite rolls back DDL too, so the schema is never half-way.
pub(super) async fn apply(file: &File) -> Result<Vec<String>, Error> {
    let mut open = file.begin(None).await.map_err(unreachable)?;
    let connection = &mut open.connection;
    let migrator = migrator(STEPS);
    let done = applied(connection).await.map_err(unreadable)?;
    let missing = missing(&migrator, &done)?;
    let failed = |error: sqlx::Error| Error::Failed(error.into());
    if !missing.is_empty() {
        let table = format!(
            "CREATE TABLE IF NOT EXISTS {TABLE} (version INTEGER PRIMARY KEY, description TEXT NOT NULL, \
             checksum BLOB NOT NULL, applied_at INTEGER NOT NULL)"
        );
        connection.execute(sqlx::AssertSqlSafe(table)).await.map_err(failed)?;
    }
    for step in migrator.iter().filter(|step| done.iter().all(|(version, _)| *version != step.version)) {
        sqlx::raw_sql(step.sql.clone()).execute(&mut *connection).await.map_err(failed)?;
        let record =
            format!("INSERT INTO {TABLE} (version, description, checksum, applied_at) VALUES (?, ?, ?, {NOW})");
        sqlx::query(sqlx::AssertSqlSafe(record))
            .bind(step.version)
            .bind(step.description.to_string())
            .bind(step.checksum.to_vec())
            .execute(&mut *connection)
            .await
            .map_err(failed)?;
    }
    open.end("the migrations").await.map_err(unreachable)?;
    Ok(missing)
}

async fn applied(connection: &mut SqliteConnection) -> Result<Vec<(i64, Vec<u8>)>, sqlx::Error> {
    let there = sqlx::query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?").bind(TABLE);
    if there.fetch_optional(&mut *connection).await?.is_none() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT version, checksum FROM {TABLE} ORDER BY version")));
    rows.fetch_all(connection).await?.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

fn unreachable(error: ackwright_core::store::Error) -> Error {
    Error::Connect(error)
}
