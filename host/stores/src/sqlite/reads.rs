//! What plugins read, and the SQL that they write themselves.

use std::collections::HashMap;
use std::sync::Arc;

use ackwright_core::catalog::{Catalog, ColumnId, TableId};
use ackwright_core::effect::Cells;
use ackwright_core::store::{ApplyError, ReadError, Rows, Statement};
use ackwright_core::value::Value;
use futures::TryStreamExt;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Column, Either, Executor, Row, Statement as _};

use super::fault::{Fault, classify, data, system};
use super::types::{self, Storage};
use super::values::{Parameters, execute, fetch};
use crate::sql::quoted;

/// How many parameters each statement of a plugin takes. SQLite reads a missing one as NULL without a word.
#[derive(Debug, Default)]
pub(super) struct Arity(HashMap<Arc<str>, usize>);

const ARITIES: usize = 1024;

pub(super) async fn get(
    connection: &mut SqliteConnection,
    catalog: &Catalog,
    table: TableId,
    key: &Cells,
    columns: &[ColumnId],
) -> Result<Option<Vec<Value>>, ReadError> {
    let table = catalog.table(table);
    let mut parameters = Parameters::default();
    let mut conditions = Vec::with_capacity(key.len());
    for (id, value) in key {
        let column = table.column(*id);
        types::bind(&mut parameters, types::storage(column), value)
            .map_err(|why| ReadError::Invalid(format!("table {}, column {}: {why}", table.name, column.name)))?;
        conditions.push(format!("{} = ?", quoted(&column.name)));
    }
    let names: Vec<_> = columns.iter().map(|id| quoted(&table.column(*id).name)).collect();
    let names = if names.is_empty() { "1".into() } else { names.join(", ") };
    let sql = format!("SELECT {names} FROM {} WHERE {}", quoted(&table.name), conditions.join(" AND "));
    let found = fetch(connection, sql, parameters).await;
    let found = found.map_err(|error| ReadError::System(system(error, format!("read a row of {}", table.name))))?;
    let Some(row) = found.first() else { return Ok(None) };
    let mut values = Vec::with_capacity(columns.len());
    for (at, id) in columns.iter().enumerate() {
        let column = table.column(*id);
        let value = types::decode(row, at, column, types::storage(column));
        values.push(value.map_err(|why| ReadError::Invalid(format!("table {}: {why}", table.name)))?);
    }
    Ok(Some(values))
}

pub(super) async fn query(
    connection: &mut SqliteConnection,
    catalog: &Catalog,
    arity: &mut Arity,
    statement: &Statement,
    parameters: &[Value],
    most: usize,
) -> Result<Rows, ReadError> {
    let takes = arity.of(connection, statement).await.map_err(read_error)?;
    let bound = bound(takes, parameters).map_err(ReadError::Invalid)?;
    let sql = AssertSqlSafe(Arc::clone(&statement.sql));
    let mut answer = Rows { columns: Vec::new(), rows: Vec::new() };
    let mut origins = None;
    {
        let mut rows = sqlx::query_with(sql, bound.into_inner()).fetch(&mut *connection);
        while let Some(row) = rows.try_next().await.map_err(read_error)? {
            if answer.rows.len() == most {
                return Err(ReadError::Invalid(format!("the query returns more than {most} rows; add a LIMIT")));
            }
            let origins = origins.get_or_insert_with(|| {
                answer.columns = row.columns().iter().map(|c| c.name().to_owned()).collect();
                origins_of(&row, catalog)
            });
            answer.rows.push(decoded(&row, origins, catalog)?);
        }
    }
    if origins.is_none() {
        // No row told the names of the columns.
        let prepared = connection.prepare(sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(Arc::clone(&statement.sql))));
        let prepared = prepared.await.map_err(read_error)?;
        answer.columns = prepared.columns().iter().map(|c| c.name().to_owned()).collect();
    }
    Ok(answer)
}

pub(super) async fn run(
    connection: &mut SqliteConnection,
    arity: &mut Arity,
    statement: &Statement,
    parameters: &[Value],
) -> Result<u64, ApplyError> {
    let takes = arity.of(connection, statement).await.map_err(apply_error)?;
    let bound = bound(takes, parameters).map_err(|why| ApplyError::Refused(data("data:parameter", why)))?;
    let done = execute(connection, statement.sql.to_string(), bound).await.map_err(apply_error)?;
    Ok(done.rows_affected())
}

impl Arity {
    async fn of(&mut self, connection: &mut SqliteConnection, statement: &Statement) -> Result<usize, sqlx::Error> {
        if let Some(known) = self.0.get(&statement.sql) {
            return Ok(*known);
        }
        let sql = sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(Arc::clone(&statement.sql)));
        let prepared = connection.prepare(sql).await?;
        let takes = match prepared.parameters() {
            Some(Either::Left(types)) => types.len(),
            Some(Either::Right(count)) => count,
            None => 0,
        };
        if self.0.len() >= ARITIES {
            self.0.clear();
        }
        self.0.insert(Arc::clone(&statement.sql), takes);
        Ok(takes)
    }
}

fn bound(takes: usize, values: &[Value]) -> Result<Parameters, String> {
    if takes != values.len() {
        return Err(format!("the SQL takes {takes} parameters, but {} were given", values.len()));
    }
    let mut parameters = Parameters::default();
    for (at, value) in values.iter().enumerate() {
        types::bind_free(&mut parameters, value).map_err(|why| format!("parameter {}: {why}", at + 1))?;
    }
    Ok(parameters)
}

type Origin = Option<(TableId, ColumnId, Storage)>;

/// The table's column behind each column of the answer, where it is one; an expression has none.
fn origins_of(row: &SqliteRow, catalog: &Catalog) -> Vec<Origin> {
    let origin = |column: &sqlx::sqlite::SqliteColumn| {
        let origin = column.origin();
        let origin = origin.table_column()?;
        // SQLite qualifies the table with the name of the file's schema.
        let table = origin.table.strip_prefix("main.").unwrap_or(&origin.table);
        let table = catalog.find(table)?;
        let known = catalog.table(table);
        let column = known.find(&origin.name)?;
        Some((table, column, types::storage(known.column(column))))
    };
    row.columns().iter().map(origin).collect()
}

fn decoded(row: &SqliteRow, origins: &[Origin], catalog: &Catalog) -> Result<Vec<Value>, ReadError> {
    let decode = |(at, origin): (usize, &Origin)| match origin {
        Some((table, column, storage)) => {
            let table = catalog.table(*table);
            types::decode(row, at, table.column(*column), *storage)
                .map_err(|why| format!("table {}: {why}", table.name))
        }
        None => types::decode_free(row, at),
    };
    origins.iter().enumerate().map(decode).collect::<Result<_, _>>().map_err(ReadError::Invalid)
}

fn read_error(error: sqlx::Error) -> ReadError {
    match classify(error, || "run a query of the plugin".into()) {
        Fault::Refused(refusal) => ReadError::Invalid(refusal.reason),
        Fault::Sql { reason, .. } => ReadError::Invalid(format!("SQLite refuses the query: {reason}")),
        Fault::System(error) => ReadError::System(error),
    }
}

fn apply_error(error: sqlx::Error) -> ApplyError {
    match classify(error, || "run a statement of the plugin".into()) {
        Fault::Refused(refusal) => ApplyError::Refused(refusal),
        Fault::Sql { code, reason, .. } => ApplyError::Refused(data(&format!("data:{code}"), reason)),
        Fault::System(error) => ApplyError::System(error),
    }
}
