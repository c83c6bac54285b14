//! Upserts that only a newer version may win. A row without a version is older than any.

use std::cmp::Ordering;
use std::collections::HashSet;

use ackwright_core::catalog::ColumnId;
use ackwright_core::plan::Row;
use ackwright_core::store::ApplyError;
use ackwright_core::value::Value;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::Target;
use super::add::compare;
use crate::sqlite::fault::system;
use crate::sqlite::types::{self, Storage};
use crate::sqlite::values::{Parameters, chunks, fetch, values};

pub(super) async fn apply(
    target: &Target<'_>,
    connection: &mut SqliteConnection,
    version: ColumnId,
) -> Result<(), ApplyError> {
    let at = target.group.columns.iter().position(|c| *c == version);
    let rows = &target.group.rows;
    match at.map(|at| (at, &target.columns[at])) {
        // SQLite would compare decimals that are text digit by digit.
        Some((at, cell)) if cell.storage == Storage::DecimalText => {
            let stale = stale(target, connection, at).await?;
            let newer: Vec<Row> =
                rows.iter().enumerate().filter(|(i, _)| !stale.contains(i)).map(|(_, row)| row.clone()).collect();
            target.write(connection, &newer, None).await
        }
        Some((_, cell)) => {
            let condition = format!("t.{0} IS NULL OR t.{0} < excluded.{0}", cell.name);
            target.write(connection, rows, Some(&condition)).await
        }
        // The version is part of the key: a row with this key has this version, so none is older.
        None => target.write(connection, rows, Some("0")).await,
    }
}

/// Rows whose stored version is not smaller than the new one, by index.
async fn stale(
    target: &Target<'_>,
    connection: &mut SqliteConnection,
    version: usize,
) -> Result<HashSet<usize>, ApplyError> {
    let failed = |error| system(error, format!("read the versions of rows of {}", target.table.name));
    let cell = &target.columns[version];
    let rows = &target.group.rows;
    let mut stale = HashSet::new();
    for chunk in chunks(rows.len(), 1 + target.key.len()) {
        let mut parameters = Parameters::default();
        for at in chunk.clone() {
            parameters.push(at as i64);
            target.bind_key(&mut parameters, &rows[at])?;
        }
        let sql = format!(
            "SELECT v.column1, t.{} FROM ({}) AS v JOIN {} AS t ON {}",
            cell.name,
            values(chunk.len(), 1 + target.key.len()),
            target.name,
            target.matches(2)
        );
        for found in fetch(connection, sql, parameters).await.map_err(failed)? {
            let at = found.try_get::<i64, _>(0).map_err(failed)? as usize;
            let row = &rows[at];
            let inexact = |why| target.inexact(&cell.column.name, why, row);
            let old = types::decode(&found, 1, cell.column, cell.storage).map_err(inexact)?;
            let older = old == Value::Null || compare(&old, &row.values[version]) == Some(Ordering::Less);
            if !older {
                stale.insert(at);
            }
        }
    }
    Ok(stale)
}
