//! Statements over many rows: `VALUES (?,?),(?,?)` in chunks whose sizes are powers of two, so that any number of
//! rows takes few statements, and each of them is found in the connection's statement cache.

use std::ops::Range;

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteQueryResult, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Encode, Sqlite, Type};

const MOST_ROWS: usize = 512;
/// `SQLITE_MAX_VARIABLE_NUMBER` as SQLite is built by default.
pub(super) const MOST_PARAMETERS: usize = 32_766;

/// Splits `rows` rows of `width` parameters each: the largest chunks first.
pub(super) fn chunks(rows: usize, width: usize) -> impl Iterator<Item = Range<usize>> {
    let mut most = MOST_ROWS;
    while most > 1 && most.saturating_mul(width) > MOST_PARAMETERS {
        most /= 2;
    }
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = rows - at;
        if left == 0 {
            return None;
        }
        let size = most.min(1 << left.ilog2());
        at += size;
        Some(at - size..at)
    })
}

/// `VALUES (?,?),(?,?)`.
pub(super) fn values(rows: usize, width: usize) -> String {
    let mut row = String::with_capacity(2 * width + 1);
    for i in 0..width {
        row.push_str(if i == 0 { "(?" } else { ",?" });
    }
    row.push(')');
    let mut text = String::with_capacity(7 + rows * (row.len() + 1));
    text.push_str("VALUES ");
    for i in 0..rows {
        if i > 0 {
            text.push(',');
        }
        text.push_str(&row);
    }
    text
}

/// Parameters of one statement, in order.
#[derive(Default)]
pub(super) struct Parameters(SqliteArguments);

impl Parameters {
    pub(super) fn push<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) {
        // Encoding for SQLite moves the value into the list; none of the types used here can fail.
        self.0.add(value).unwrap_or_else(|error| unreachable!("a plain value cannot fail to encode: {error}"));
    }

    pub(super) fn into_inner(self) -> SqliteArguments {
        self.0
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.push(bytes.to_vec());
    }
}

pub(super) async fn execute(
    connection: &mut SqliteConnection,
    sql: String,
    parameters: Parameters,
) -> Result<SqliteQueryResult, sqlx::Error> {
    sqlx::query_with(AssertSqlSafe(sql), parameters.0).execute(connection).await
}

pub(super) async fn fetch(
    connection: &mut SqliteConnection,
    sql: String,
    parameters: Parameters,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    sqlx::query_with(AssertSqlSafe(sql), parameters.0).fetch_all(connection).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_rows_in_order_with_few_statements() {
        for rows in [0, 1, 2, 3, 300, 511, 512, 513, 1024, 5000] {
            let all: Vec<_> = chunks(rows, 6).collect();
            assert_eq!(all.iter().flat_map(|c| c.clone()).collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
            assert!(all.len() <= rows / MOST_ROWS + 9, "{rows} rows took {} statements", all.len());
            assert!(all.iter().all(|c| c.len().is_power_of_two()));
        }
    }

    #[test]
    fn chunks_stay_below_the_limit_of_parameters() {
        assert!(chunks(5000, 200).all(|c| c.len() * 200 <= MOST_PARAMETERS));
        assert_eq!(values(2, 3), "VALUES (?,?,?),(?,?,?)");
    }
}
