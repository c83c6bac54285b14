//! Adding to columns of rows that must exist.
//!
//! **Invariant:** a sum is exact or refused. SQLite turns an integer sum that overflows into a float and adds
//! decimals as binary floats, so integer sums are checked by their type and decimals are added by the host, which
//! the write lock makes safe.

use std::cmp::Ordering;

use ackwright_core::plan::Row;
use ackwright_core::store::ApplyError;
use ackwright_core::value::Value;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::Target;
use crate::sqlite::decimal::Decimal;
use crate::sqlite::fault::system;
use crate::sqlite::types::{self, Storage};
use crate::sqlite::values::{Parameters, chunks, execute, fetch, values};

pub(super) async fn apply(target: &Target<'_>, connection: &mut SqliteConnection) -> Result<(), ApplyError> {
    let decimal = target.columns.iter().any(|c| matches!(c.storage, Storage::DecimalText | Storage::DecimalNumber));
    let width = 1 + target.key.len() + 2 * target.columns.len();
    for chunk in chunks(target.group.rows.len(), width) {
        let rows = &target.group.rows[chunk];
        if decimal {
            add_here(target, connection, rows).await?;
        } else {
            add_there(target, connection, rows).await?;
        }
    }
    Ok(())
}

/// SQLite adds; a savepoint keeps the old values for the diagnosis of a failure.
async fn add_there(target: &Target<'_>, connection: &mut SqliteConnection, rows: &[Row]) -> Result<(), ApplyError> {
    let failed = |error| system(error, format!("add to rows of {}", target.table.name));
    let floors = rows.iter().any(|row| row.floors.iter().any(Option::is_some));
    sqlx::query("SAVEPOINT ackwright_add").execute(&mut *connection).await.map_err(failed)?;
    let affected = match try_add(target, connection, rows, floors).await? {
        Ok(affected) => affected,
        // A check, a foreign key or a trigger refused a sum.
        Err(error) => {
            let refusal = target.refused(connection, error).await?;
            return Err(blame(target, connection, rows, floors, refusal).await?);
        }
    };
    if affected == rows.len() as u64 {
        sqlx::query("RELEASE ackwright_add").execute(connection).await.map_err(failed)?;
        return Ok(());
    }
    sqlx::query("ROLLBACK TO ackwright_add").execute(&mut *connection).await.map_err(failed)?;
    Err(diagnose(target, connection, rows, floors).await?)
}

async fn try_add(
    target: &Target<'_>,
    connection: &mut SqliteConnection,
    rows: &[Row],
    floors: bool,
) -> Result<Result<u64, sqlx::Error>, ApplyError> {
    let mut parameters = Parameters::default();
    for row in rows {
        target.bind_key(&mut parameters, row)?;
        bind_amounts(target, &mut parameters, row, floors)?;
    }
    let done = execute(connection, update(target, rows.len(), floors), parameters).await;
    Ok(done.map(|done| done.rows_affected()))
}

/// Finds the row whose sum is refused, as `Target::write_chunk` does.
async fn blame(
    target: &Target<'_>,
    connection: &mut SqliteConnection,
    rows: &[Row],
    floors: bool,
    mut refusal: ackwright_core::store::Refusal,
) -> Result<ApplyError, ApplyError> {
    let mut suspects = rows;
    while suspects.len() > 1 {
        let (first, second) = suspects.split_at(suspects.len() / 2);
        match try_add(target, connection, first, floors).await? {
            Ok(_) => suspects = second,
            Err(error) => {
                refusal = target.refused(connection, error).await?;
                suspects = first;
            }
        }
    }
    refusal.suspects = crate::sql::origins(suspects);
    Ok(ApplyError::Refused(refusal))
}

fn bind_amounts(target: &Target<'_>, parameters: &mut Parameters, row: &Row, floors: bool) -> Result<(), ApplyError> {
    target.bind_columns(parameters, row, &row.values)?;
    if floors {
        for (at, cell) in target.columns.iter().enumerate() {
            let floor = row.floors.get(at).and_then(Option::as_ref).unwrap_or(&Value::Null);
            types::bind(parameters, cell.storage, floor).map_err(|why| target.inexact(&cell.column.name, why, row))?;
        }
    }
    Ok(())
}

/// For each column: the sum, its condition, and whether it is at least its floor.
fn sums(target: &Target<'_>, key_at: usize, floors: bool) -> Vec<(String, String, String)> {
    let first = key_at + target.key.len();
    let count = target.columns.len();
    let sum = |(i, cell): (usize, &super::Cell<'_>)| {
        let sum = format!("t.{} + v.column{}", cell.name, first + i);
        let class = if cell.storage == Storage::Real { "real" } else { "integer" };
        let exact = format!("typeof({sum}) = '{class}'");
        let floor = format!("v.column{}", first + count + i);
        let floor = if floors { format!("({floor} IS NULL OR {sum} >= {floor})") } else { "1".into() };
        (sum, exact, floor)
    };
    target.columns.iter().enumerate().map(sum).collect()
}

fn update(target: &Target<'_>, rows: usize, floors: bool) -> String {
    let sums = sums(target, 1, floors);
    let set: Vec<_> = target.columns.iter().zip(&sums).map(|(c, (sum, ..))| format!("{} = {sum}", c.name)).collect();
    let mut conditions = vec![target.matches(1)];
    for (_, exact, floor) in &sums {
        conditions.push(exact.clone());
        if floors {
            conditions.push(floor.clone());
        }
    }
    let width = target.key.len() + target.columns.len() * if floors { 2 } else { 1 };
    format!(
        "UPDATE {} AS t SET {} FROM ({}) AS v WHERE {}",
        target.name,
        set.join(", "),
        values(rows, width),
        conditions.join(" AND ")
    )
}

/// Says of the first row that cannot be added to why: it is absent, a sum has no exact value, or a floor is broken.
async fn diagnose(
    target: &Target<'_>,
    connection: &mut SqliteConnection,
    rows: &[Row],
    floors: bool,
) -> Result<ApplyError, ApplyError> {
    let mut parameters = Parameters::default();
    for (at, row) in rows.iter().enumerate() {
        parameters.push(at as i64);
        target.bind_key(&mut parameters, row)?;
        bind_amounts(target, &mut parameters, row, floors)?;
    }
    let sums = sums(target, 2, floors);
    let mut answers = vec!["v.column1".to_owned(), format!("t.{} IS NULL", target.key[0].name)];
    for (cell, (_, exact, floor)) in target.columns.iter().zip(&sums) {
        answers.push(format!("t.{} IS NULL", cell.name));
        answers.push(format!("NOT ({exact})"));
        answers.push(format!("NOT ({floor})"));
    }
    let width = 1 + target.key.len() + target.columns.len() * if floors { 2 } else { 1 };
    let sql = format!(
        "SELECT {} FROM ({}) AS v LEFT JOIN {} AS t ON {} ORDER BY 1",
        answers.join(", "),
        values(rows.len(), width),
        target.name,
        target.matches(2)
    );
    let failed = |error| system(error, format!("see why rows of {} cannot be added to", target.table.name));
    for found in fetch(connection, sql, parameters).await.map_err(failed)? {
        let flag = |at: usize| found.try_get::<Option<bool>, _>(at).map(|flag| flag == Some(true)).map_err(failed);
        let row = &rows[found.try_get::<i64, _>(0).map_err(failed)? as usize];
        if flag(1)? {
            return Ok(target.guarded(row).into_apply());
        }
        for (at, cell) in target.columns.iter().enumerate() {
            if flag(2 + 3 * at)? {
                return Ok(target.null_sum(&cell.column.name, row));
            }
            if flag(3 + 3 * at)? {
                return Ok(target.out_of_range(&cell.column.name, row));
            }
            if flag(4 + 3 * at)? {
                return Ok(target.guarded(row).into_apply());
            }
        }
    }
    Ok(target.guarded(&rows[0]).into_apply())
}

/// The host adds: reads the old values, checks the sums, and writes them.
async fn add_here(target: &Target<'_>, connection: &mut SqliteConnection, rows: &[Row]) -> Result<(), ApplyError> {
    let failed = |error| system(error, format!("read the rows of {} to add to", target.table.name));
    let mut parameters = Parameters::default();
    for (at, row) in rows.iter().enumerate() {
        parameters.push(at as i64);
        target.bind_key(&mut parameters, row)?;
    }
    let columns: Vec<_> = target.columns.iter().map(|c| format!("t.{}", c.name)).collect();
    let sql = format!(
        "SELECT v.column1, {} FROM ({}) AS v JOIN {} AS t ON {} ORDER BY 1",
        columns.join(", "),
        values(rows.len(), 1 + target.key.len()),
        target.name,
        target.matches(2)
    );
    let found = fetch(connection, sql, parameters).await.map_err(failed)?;
    let mut sums = Vec::with_capacity(rows.len());
    let mut found = found.iter().peekable();
    for (at, row) in rows.iter().enumerate() {
        let old = match found.peek() {
            Some(old) if old.try_get::<i64, _>(0).map_err(failed)? == at as i64 => found.next(),
            _ => None,
        };
        let Some(old) = old else { return Err(target.guarded(row).into_apply()) };
        sums.push(Row { values: sum(target, old, row)?, ..row.clone() });
    }
    target.write(connection, &sums, None).await
}

fn sum(target: &Target<'_>, old: &SqliteRow, row: &Row) -> Result<Vec<Value>, ApplyError> {
    let mut sums = Vec::with_capacity(target.columns.len());
    for (at, cell) in target.columns.iter().enumerate() {
        let name = &cell.column.name;
        let old =
            types::decode(old, 1 + at, cell.column, cell.storage).map_err(|why| target.inexact(name, why, row))?;
        if old == Value::Null {
            return Err(target.null_sum(name, row));
        }
        let sum = plus(&old, &row.values[at]).and_then(|sum| cell.column.accept(sum).ok());
        let sum = sum.ok_or_else(|| target.out_of_range(name, row))?;
        if let Some(Some(floor)) = row.floors.get(at)
            && compare(&sum, floor).is_none_or(|order| order == Ordering::Less)
        {
            return Err(target.guarded(row).into_apply());
        }
        sums.push(sum);
    }
    Ok(sums)
}

fn plus(a: &Value, b: &Value) -> Option<Value> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.checked_add(*b).map(Value::Integer),
        (Value::Float(a), Value::Float(b)) => Some(a + b).filter(|sum| !sum.is_nan()).map(Value::Float),
        (Value::Decimal(a), Value::Decimal(b)) => {
            Some(Value::Decimal(Decimal::parse(a)?.add(Decimal::parse(b)?)?.text()))
        }
        _ => None,
    }
}

pub(super) fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Decimal(a), Value::Decimal(b)) => Decimal::parse(a)?.compare(Decimal::parse(b)?),
        _ => None,
    }
}
