//! Which message of a batch the database refused, and how that is told.

use ackwright_core::catalog::Table;
use ackwright_core::plan::{Group, Row, Verb};
use ackwright_core::store::{ApplyError, Refusal};
use ackwright_core::value::Value;
use sqlx::postgres::PgDatabaseError;

use crate::fault;
use crate::sql::origins;

/// An error of `apply` or `execute` that is about the data; `group` is what the statement wrote.
pub(super) fn refused(attempted: &str, error: sqlx::Error, group: Option<(&Group, &Table)>) -> ApplyError {
    let Some(database) = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>()) else {
        return fault::system(attempted, error).into();
    };
    let code = database.code();
    // A statement of ours, a missing right of our role and our own tables are never a message's fault.
    let ours = database.table().is_some_and(|t| t.starts_with("ackwright_"))
        || code == "42501"
        || (code.starts_with("42") && group.is_some());
    if ours {
        return fault::system(attempted, error).into();
    }
    let name = match (database.constraint(), database.table(), database.column()) {
        (Some(constraint), _, _) => Some(constraint.to_owned()),
        (None, Some(table), Some(column)) => Some(format!("{table}_{column}_not_null")),
        _ => None,
    };
    let code_of = |name: Option<String>| match (code.get(..2), name) {
        (Some("23"), Some(name)) => format!("constraint:{name}"),
        (Some("42" | "0A"), _) => format!("sql:{code}"),
        _ => format!("data:{code}"),
    };
    let reason = match database.detail() {
        Some(detail) => format!("{}: {detail}", database.message()),
        None => database.message().to_owned(),
    };
    let suspects = group.map_or_else(Vec::new, |(group, table)| suspects(database, group, table));
    ApplyError::Refused(Refusal { code: code_of(name), reason, retry: code == "23503", guard: None, suspects })
}

/// A row that the statement did not change: missing, or below its floor.
pub(super) fn unmet(row: &Row, table: &Table, verb: Verb) -> ApplyError {
    let (code, reason) = match &row.guard {
        Some(guard) => (format!("guard:{}", guard.code), guard.reason.clone()),
        None => {
            let did = if verb == Verb::Add { "added to" } else { "updated" };
            ("guard:missing".to_owned(), format!("the row of {} to be {did} is not there", table.name))
        }
    };
    let refusal =
        Refusal { code, reason, retry: false, guard: row.guard.clone().map(Box::new), suspects: row.origins.clone() };
    ApplyError::Refused(refusal)
}

/// A value that never left the host.
pub(super) fn unsendable(row: &Row, table: &Table, why: &str) -> ApplyError {
    ApplyError::Refused(Refusal {
        code: "data:value".into(),
        reason: format!("table {}: {why}", table.name),
        retry: false,
        guard: None,
        suspects: row.origins.clone(),
    })
}

/// Messages whose rows the error's detail can be about; all of the group where the detail does not tell.
///
/// A detail is only matched against what the batch holds, in the database's own spelling, so that values which
/// look like punctuation can at worst make an innocent row a suspect.
fn suspects(error: &PgDatabaseError, group: &Group, table: &Table) -> Vec<u32> {
    let all = || origins(&group.rows);
    let Some(detail) = error.detail() else { return all() };
    let matching: Vec<&Row> = match error.code() {
        "23505" | "23503" | "23P01" => {
            let Some((columns, rest)) = key_detail(detail) else { return all() };
            group.rows.iter().filter(|row| key_matches(row, group, table, &columns, rest).unwrap_or(true)).collect()
        }
        "23514" | "23502" => group.rows.iter().filter(|row| row_matches(row, group, detail)).collect(),
        _ => return all(),
    };
    if matching.is_empty() { all() } else { origins(matching) }
}

/// `Key (a, b)=(1, x) ..` in any language: the names, and what follows `)=(`.
fn key_detail(detail: &str) -> Option<(Vec<&str>, &str)> {
    let (before, rest) = detail.split_once(")=(")?;
    let (_, names) = before.split_once('(')?;
    Some((names.split(", ").map(|n| n.trim_matches('"')).collect(), rest))
}

/// `None` where the row does not tell.
fn key_matches(row: &Row, group: &Group, table: &Table, columns: &[&str], rest: &str) -> Option<bool> {
    let mut expected = String::new();
    for (at, name) in columns.iter().enumerate() {
        let column = table.find(name)?;
        let value = match group.key.iter().position(|c| *c == column) {
            Some(at) => &row.key[at],
            None => &row.values[group.columns.iter().position(|c| *c == column)?],
        };
        if at > 0 {
            expected.push_str(", ");
        }
        expected.push_str(&spelling(value)?);
    }
    expected.push(')');
    Some(rest.starts_with(&expected))
}

/// `Failing row contains (1, x, null).` in any language: whether all that is known of the row is in there.
fn row_matches(row: &Row, group: &Group, detail: &str) -> bool {
    let sums = matches!(group.verb, Verb::Add | Verb::Update);
    let values = if sums { &[][..] } else { &row.values[..] };
    row.key.iter().chain(values).all(|value| match spelling(value) {
        None => true,
        Some(text) => detail.match_indices(&text).any(|(at, _)| {
            let (before, after) = (&detail[..at], &detail[at + text.len()..]);
            (before.ends_with('(') || before.ends_with(", ")) && (after.starts_with(')') || after.starts_with(", "))
        }),
    })
}

/// How PostgreSQL writes the value in a detail, where that is certain.
fn spelling(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("null".into()),
        Value::Boolean(b) => Some(if *b { "t" } else { "f" }.into()),
        Value::Integer(i) => Some(i.to_string()),
        Value::Uuid(uuid) => Some(uuid.to_string()),
        // Longer values are cut in a detail.
        Value::Text(text) if text.len() <= 60 => Some(text.clone()),
        Value::Text(_)
        | Value::Float(_)
        | Value::Decimal(_)
        | Value::Bytes(_)
        | Value::Timestamp(_)
        | Value::Json(_) => None,
    }
}
