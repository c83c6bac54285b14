//! Planned effects as statements.
//!
//! A statement that SQLite refuses changes nothing and leaves the transaction usable, so the row to blame is found
//! by trying halves of the refused chunk: what was written on the way is lost with the rollback that must follow.

use ackwright_core::catalog::{Catalog, Column, Table};
use ackwright_core::plan::{Group, Plan, Row, Verb};
use ackwright_core::store::{ApplyError, Error, Refusal};
use ackwright_core::value::Value;
use sqlx::sqlite::SqliteConnection;

use super::fault::{Fault, classify, data, system};
use super::types::{self, Storage};
use super::values::{MOST_PARAMETERS, Parameters, chunks, execute, fetch, values};
use crate::sql::{origins, quoted};

mod add;
mod newer;

pub(super) async fn apply(connection: &mut SqliteConnection, catalog: &Catalog, plan: &Plan) -> Result<(), ApplyError> {
    for group in &plan.groups {
        let target = Target::new(catalog, group);
        match group.verb {
            Verb::Add => add::apply(&target, connection).await?,
            Verb::UpsertIfNewer { version } => newer::apply(&target, connection, version).await?,
            Verb::Insert | Verb::InsertIfAbsent | Verb::Upsert | Verb::Update | Verb::Delete => {
                target.write(connection, &group.rows, None).await?;
            }
        }
    }
    Ok(())
}

/// A group together with what is known of its columns.
pub(super) struct Target<'a> {
    group: &'a Group,
    table: &'a Table,
    name: String,
    key: Vec<Cell<'a>>,
    columns: Vec<Cell<'a>>,
}

struct Cell<'a> {
    column: &'a Column,
    name: String,
    storage: Storage,
}

impl<'a> Target<'a> {
    fn new(catalog: &'a Catalog, group: &'a Group) -> Self {
        let table = catalog.table(group.table);
        let cell = |id: &u16| {
            let column = table.column(*id);
            Cell { column, name: quoted(&column.name), storage: types::storage(column) }
        };
        Target {
            group,
            table,
            name: quoted(&table.name),
            key: group.key.iter().map(cell).collect(),
            columns: group.columns.iter().map(cell).collect(),
        }
    }

    /// Writes rows with the group's verb; `newer` is a further condition of an upsert.
    async fn write(
        &self,
        connection: &mut SqliteConnection,
        rows: &[Row],
        newer: Option<&str>,
    ) -> Result<(), ApplyError> {
        // A row without a value for any column takes a statement of its own.
        let width = match self.key.len() + self.columns.len() {
            0 => usize::MAX,
            // An expression may nest at most 1000 deep.
            _ if self.group.verb == Verb::Delete && self.key.len() > 1 => MOST_PARAMETERS / 64,
            width => width,
        };
        for chunk in chunks(rows.len(), width) {
            let rows = &rows[chunk];
            let affected = self.write_chunk(connection, rows, newer).await?;
            if self.group.verb == Verb::Update && affected != rows.len() as u64 {
                return Err(self.absent(connection, rows).await?.into_apply());
            }
        }
        Ok(())
    }

    async fn write_chunk(
        &self,
        connection: &mut SqliteConnection,
        rows: &[Row],
        newer: Option<&str>,
    ) -> Result<u64, ApplyError> {
        let error = match self.try_write(connection, rows, newer).await? {
            Ok(affected) => return Ok(affected),
            Err(error) => error,
        };
        let mut refusal = self.refused(connection, error).await?;
        let mut suspects = rows;
        while suspects.len() > 1 {
            let (first, second) = suspects.split_at(suspects.len() / 2);
            match self.try_write(connection, first, newer).await? {
                Ok(_) => suspects = second,
                Err(error) => {
                    refusal = self.refused(connection, error).await?;
                    suspects = first;
                }
            }
        }
        // The last one standing is tried alone, unless its refusal is the one at hand already.
        if rows.len() > 1
            && let Err(error) = self.try_write(connection, suspects, newer).await?
        {
            refusal = self.refused(connection, error).await?;
        }
        refusal.suspects = origins(suspects);
        Err(ApplyError::Refused(refusal))
    }

    async fn try_write(
        &self,
        connection: &mut SqliteConnection,
        rows: &[Row],
        newer: Option<&str>,
    ) -> Result<Result<u64, sqlx::Error>, ApplyError> {
        let mut parameters = Parameters::default();
        for row in rows {
            self.bind_key(&mut parameters, row)?;
            if self.group.verb != Verb::Delete {
                self.bind_columns(&mut parameters, row, &row.values)?;
            }
        }
        let sql = self.sql(rows.len(), newer);
        Ok(execute(connection, sql, parameters).await.map(|done| done.rows_affected()))
    }

    fn sql(&self, rows: usize, newer: Option<&str>) -> String {
        let table = &self.name;
        let all: Vec<&str> = self.key.iter().chain(&self.columns).map(|c| c.name.as_str()).collect();
        let into = |then: String| match all.as_slice() {
            // A row without a value for any column.
            [] => format!("INSERT INTO {table} DEFAULT VALUES"),
            all => format!("INSERT INTO {table} AS t ({}) {}{then}", all.join(", "), values(rows, all.len())),
        };
        let key: Vec<&str> = self.key.iter().map(|c| c.name.as_str()).collect();
        match self.group.verb {
            Verb::Insert => into(String::new()),
            Verb::InsertIfAbsent => into(format!(" ON CONFLICT ({}) DO NOTHING", key.join(", "))),
            Verb::Upsert | Verb::UpsertIfNewer { .. } if self.columns.is_empty() => {
                into(format!(" ON CONFLICT ({}) DO NOTHING", key.join(", ")))
            }
            Verb::Upsert | Verb::UpsertIfNewer { .. } => {
                let set: Vec<_> = self.columns.iter().map(|c| format!("{0} = excluded.{0}", c.name)).collect();
                let newer = newer.map_or_else(String::new, |condition| format!(" WHERE {condition}"));
                into(format!(" ON CONFLICT ({}) DO UPDATE SET {}{newer}", key.join(", "), set.join(", ")))
            }
            Verb::Update | Verb::Add => {
                let first = self.key.len() + 1;
                let set = self.columns.iter().enumerate().map(|(i, c)| format!("{} = v.column{}", c.name, first + i));
                format!(
                    "UPDATE {table} AS t SET {} FROM ({}) AS v WHERE {}",
                    set.collect::<Vec<_>>().join(", "),
                    values(rows, all.len()),
                    self.matches(1)
                )
            }
            Verb::Delete if key.len() == 1 => {
                format!("DELETE FROM {table} WHERE {} IN ({})", key[0], values(rows, 1))
            }
            // SQLite scans the table for a list of row values, but looks up each term of an OR.
            Verb::Delete => {
                let row: Vec<_> = key.iter().map(|name| format!("{name} = ?")).collect();
                let row = format!("({})", row.join(" AND "));
                format!("DELETE FROM {table} WHERE {}", vec![row; rows].join(" OR "))
            }
        }
    }

    /// The row's key equals the columns of `v` from `first` on.
    fn matches(&self, first: usize) -> String {
        let parts = self.key.iter().enumerate().map(|(i, c)| format!("t.{} = v.column{}", c.name, first + i));
        parts.collect::<Vec<_>>().join(" AND ")
    }

    fn bind_key(&self, parameters: &mut Parameters, row: &Row) -> Result<(), ApplyError> {
        self.bind(parameters, &self.key, &row.key, row)
    }

    fn bind_columns(&self, parameters: &mut Parameters, row: &Row, values: &[Value]) -> Result<(), ApplyError> {
        self.bind(parameters, &self.columns, values, row)
    }

    fn bind(
        &self,
        parameters: &mut Parameters,
        cells: &[Cell<'_>],
        values: &[Value],
        row: &Row,
    ) -> Result<(), ApplyError> {
        for (cell, value) in cells.iter().zip(values) {
            types::bind(parameters, cell.storage, value).map_err(|why| self.inexact(&cell.column.name, why, row))?;
        }
        Ok(())
    }

    fn inexact(&self, column: &str, why: String, row: &Row) -> ApplyError {
        let mut refusal = data("data:not-exact", format!("table {}, column {column}: {why}", self.table.name));
        refusal.suspects = origins([row]);
        ApplyError::Refused(refusal)
    }

    fn out_of_range(&self, column: &str, row: &Row) -> ApplyError {
        let why = format!("table {}, column {column}: the sum is out of the column's range", self.table.name);
        let mut refusal = data("data:out-of-range", why);
        refusal.suspects = origins([row]);
        ApplyError::Refused(refusal)
    }

    /// A sum with NULL has no value.
    fn null_sum(&self, column: &str, row: &Row) -> ApplyError {
        let why =
            format!("table {}, column {column}: the row holds NULL, to which nothing can be added", self.table.name);
        let mut refusal = data("data:null", why);
        refusal.suspects = origins([row]);
        ApplyError::Refused(refusal)
    }

    fn guarded(&self, row: &Row) -> Guarded {
        Guarded(match &row.guard {
            Some(guard) => Refusal {
                code: format!("guard:{}", guard.code),
                reason: guard.reason.clone(),
                retry: false,
                guard: Some(Box::new(guard.clone())),
                suspects: origins([row]),
            },
            None => Refusal {
                code: "guard:absent".into(),
                reason: format!("table {}: the row to change is not there", self.table.name),
                retry: false,
                guard: None,
                suspects: origins([row]),
            },
        })
    }

    /// Of rows that an update missed, the first that is not there.
    async fn absent(&self, connection: &mut SqliteConnection, rows: &[Row]) -> Result<Guarded, ApplyError> {
        let mut parameters = Parameters::default();
        for (at, row) in rows.iter().enumerate() {
            parameters.push(at as i64);
            self.bind_key(&mut parameters, row)?;
        }
        let sql = format!(
            "SELECT v.column1 FROM ({}) AS v WHERE NOT EXISTS (SELECT 1 FROM {} AS t WHERE {}) ORDER BY 1",
            values(rows.len(), 1 + self.key.len()),
            self.name,
            self.matches(2)
        );
        let found = fetch(connection, sql, parameters).await.and_then(|found| indexes(&found));
        let found = found.map_err(|error| system(error, format!("look for absent rows of {}", self.table.name)))?;
        // Where all are there, an update of a row's own key moved one from under another.
        let at = found.first().copied().unwrap_or(0);
        Ok(self.guarded(&rows[at]))
    }

    /// Takes a statement's error as the fault of its rows, or as the database's.
    async fn refused(&self, connection: &mut SqliteConnection, error: sqlx::Error) -> Result<Refusal, Error> {
        let attempted = || format!("write to table {}", self.table.name);
        match classify(error, attempted) {
            Fault::Refused(refusal) => Ok(refusal),
            Fault::System(error) => Err(error),
            // An expression in a check or a trigger can fail for a row. A table or column that is gone fails for all,
            // which is no message's fault.
            Fault::Sql { code, reason, error } => {
                let names: Vec<_> = self.key.iter().chain(&self.columns).map(|c| format!("t.{}", c.name)).collect();
                let names = if names.is_empty() { "1".into() } else { names.join(", ") };
                let probe = format!("SELECT {names} FROM {} AS t LIMIT 0", self.name);
                match fetch(connection, probe, Parameters::default()).await {
                    Ok(_) => Ok(data(&format!("data:{code}"), reason)),
                    Err(_) => Err(super::fault::failed(attempted(), false, false, error)),
                }
            }
        }
    }
}

/// A refusal by the guard of a row.
struct Guarded(Refusal);

impl Guarded {
    fn into_apply(self) -> ApplyError {
        ApplyError::Refused(self.0)
    }
}

fn indexes(rows: &[sqlx::sqlite::SqliteRow]) -> Result<Vec<usize>, sqlx::Error> {
    use sqlx::Row as _;
    rows.iter().map(|row| row.try_get::<i64, _>(0).map(|at| at as usize)).collect()
}
