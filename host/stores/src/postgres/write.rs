//! Statements for groups of effects: one for a group, rows in the order of their keys.
//!
//! **Invariant:** rows are locked in the order in which the plan gives them. Inserts and upserts lock as they
//! read their input; the others lock in a step of their own first, since a join picks its own order.

use std::fmt::Write as _;

use ackwright_core::plan::{Group, Row, Verb};

use super::native::{Array, Native, Param};
use super::schema::{ColumnShape, Shape};

/// What a statement depends on besides values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    table: u16,
    verb: Verb,
    key: Vec<u16>,
    columns: Vec<u16>,
    floors: bool,
}

impl Form {
    pub(super) fn of(group: &Group) -> Self {
        let floors = group.verb == Verb::Add && group.rows.iter().any(|row| row.floors.iter().any(Option::is_some));
        Form { table: group.table, verb: group.verb, key: group.key.clone(), columns: group.columns.clone(), floors }
    }

    /// Whether the statement returns the positions of the rows that it changed.
    pub(super) fn counts(&self) -> bool {
        matches!(self.verb, Verb::Update | Verb::Add)
    }

    fn key<'a>(&self, shape: &'a Shape) -> Vec<&'a ColumnShape> {
        self.key.iter().map(|c| &shape.columns[usize::from(*c)]).collect()
    }

    fn columns<'a>(&self, shape: &'a Shape) -> Vec<&'a ColumnShape> {
        self.columns.iter().map(|c| &shape.columns[usize::from(*c)]).collect()
    }

    /// The columns of the input, in order: keys, values, floors.
    fn input<'a>(&self, shape: &'a Shape) -> Vec<(String, &'a ColumnShape)> {
        let named = |prefix: char, columns: Vec<&'a ColumnShape>| {
            columns.into_iter().enumerate().map(move |(i, c)| (format!("{prefix}{i}"), c)).collect::<Vec<_>>()
        };
        let mut input = named('k', self.key(shape));
        input.extend(named('v', self.columns(shape)));
        if self.floors {
            input.extend(named('f', self.columns(shape)));
        }
        input
    }

    pub(super) fn sql(&self, shape: &Shape) -> String {
        let table = &shape.table;
        let (key, columns) = (self.key(shape), self.columns(shape));
        let input = self.input(shape);
        if input.is_empty() {
            return format!("INSERT INTO {table} DEFAULT VALUES");
        }
        let arrays: Vec<_> =
            input.iter().enumerate().map(|(i, (_, c))| format!("${}::{}[]", i + 1, c.native.name())).collect();
        let names: Vec<_> = input.iter().map(|(name, _)| name.as_str()).collect();
        let (arrays, names) = (arrays.join(", "), names.join(", "));
        let cast = |name: &str, column: &ColumnShape| match &column.cast {
            None => format!("u.{name}"),
            Some(cast) => format!("u.{name}::{cast}"),
        };
        let quoted =
            |columns: &[&ColumnShape]| columns.iter().map(|c| c.quoted.as_str()).collect::<Vec<_>>().join(", ");
        match self.verb {
            Verb::Insert | Verb::InsertIfAbsent | Verb::Upsert | Verb::UpsertIfNewer { .. } => {
                let all: Vec<_> = key.iter().chain(&columns).copied().collect();
                let values: Vec<_> = input.iter().map(|(name, column)| cast(name, column)).collect();
                let mut sql = format!(
                    "INSERT INTO {table} AS t ({}) SELECT {} FROM unnest({arrays}) AS u({names})",
                    quoted(&all),
                    values.join(", ")
                );
                let set: Vec<_> = columns.iter().map(|c| format!("{0} = EXCLUDED.{0}", c.quoted)).collect();
                // Writing to a String cannot fail.
                let _ = match self.verb {
                    Verb::InsertIfAbsent => write!(sql, " ON CONFLICT ({}) DO NOTHING", quoted(&key)),
                    Verb::Upsert if set.is_empty() => write!(sql, " ON CONFLICT ({}) DO NOTHING", quoted(&key)),
                    Verb::Upsert => write!(sql, " ON CONFLICT ({}) DO UPDATE SET {}", quoted(&key), set.join(", ")),
                    Verb::UpsertIfNewer { version } => {
                        let version = &shape.columns[usize::from(version)].quoted;
                        write!(
                            sql,
                            " ON CONFLICT ({}) DO UPDATE SET {} WHERE t.{version} IS NULL OR t.{version} < EXCLUDED.{version}",
                            quoted(&key),
                            set.join(", ")
                        )
                    }
                    Verb::Insert | Verb::Update | Verb::Add | Verb::Delete => Ok(()),
                };
                sql
            }
            Verb::Update | Verb::Add | Verb::Delete => {
                let values: Vec<_> = input.iter().map(|(name, c)| format!("{} AS {name}", cast(name, c))).collect();
                let joined = |alias: &str| {
                    let on: Vec<_> =
                        key.iter().enumerate().map(|(i, c)| format!("t.{} = {alias}.k{i}", c.quoted)).collect();
                    on.join(" AND ")
                };
                // Computed columns of a subquery would hide that the key is one; the cast stays in the join.
                let on: Vec<_> = key
                    .iter()
                    .enumerate()
                    .map(|(i, c)| format!("t.{} = {}", c.quoted, cast(&format!("k{i}"), c)))
                    .collect();
                let locked = format!(
                    "WITH locked AS MATERIALIZED (SELECT {}, u.ord FROM unnest({arrays}) WITH ORDINALITY AS u({names}, ord) \
                     JOIN {table} AS t ON {} ORDER BY u.ord FOR UPDATE OF t)",
                    values.join(", "),
                    on.join(" AND ")
                );
                match self.verb {
                    Verb::Delete => {
                        format!("{locked} DELETE FROM {table} AS t USING locked AS u WHERE {}", joined("u"))
                    }
                    Verb::Update => {
                        let set: Vec<_> =
                            columns.iter().enumerate().map(|(i, c)| format!("{} = u.v{i}", c.quoted)).collect();
                        format!(
                            "{locked} UPDATE {table} AS t SET {} FROM locked AS u WHERE {} RETURNING u.ord",
                            set.join(", "),
                            joined("u")
                        )
                    }
                    _ => {
                        let sum = |i: usize, c: &ColumnShape| format!("t.{} + u.v{i}", c.quoted);
                        let set: Vec<_> =
                            columns.iter().enumerate().map(|(i, c)| format!("{} = {}", c.quoted, sum(i, c))).collect();
                        let mut sql = format!(
                            "{locked} UPDATE {table} AS t SET {} FROM locked AS u WHERE {}",
                            set.join(", "),
                            joined("u")
                        );
                        for (i, column) in columns.iter().enumerate() {
                            // NULL plus anything is NULL: no sum was made, so the row counts as missing.
                            let _ = write!(sql, " AND t.{} IS NOT NULL", column.quoted);
                            if self.floors {
                                let _ = write!(sql, " AND (u.f{i} IS NULL OR {} >= u.f{i})", sum(i, column));
                            }
                        }
                        sql.push_str(" RETURNING u.ord");
                        sql
                    }
                }
            }
        }
    }

    /// The rows as parameters, or the row that cannot be sent and why.
    pub(super) fn params<'a>(&self, shape: &Shape, rows: &'a [Row]) -> Result<Vec<Param>, (&'a Row, String)> {
        let input = self.input(shape);
        let mut arrays: Vec<Array> = input.iter().map(|(_, c)| Array::new(c.native, rows.len())).collect();
        for row in rows {
            let no_floor = self.columns.iter().map(|_| &None);
            let floors: Vec<_> = if row.floors.is_empty() { no_floor.collect() } else { row.floors.iter().collect() };
            let floors = if self.floors { floors } else { Vec::new() };
            let values = row.key.iter().chain(&row.values).map(Some).chain(floors.into_iter().map(Option::as_ref));
            for ((array, (_, column)), value) in arrays.iter_mut().zip(&input).zip(values) {
                let Some(value) = value else {
                    array.null();
                    continue;
                };
                column.check(value).and_then(|()| array.push(value)).map_err(|why| (row, why))?;
            }
        }
        Ok(arrays.into_iter().map(Array::param).collect())
    }
}

impl ColumnShape {
    /// A timestamp finer than its column would be rounded in silence.
    pub(super) fn check(&self, value: &ackwright_core::value::Value) -> Result<(), String> {
        match value {
            ackwright_core::value::Value::Timestamp(micros) if micros % self.step != 0 => {
                Err(format!("column {} keeps multiples of {} microseconds", self.quoted, self.step))
            }
            _ => Ok(()),
        }
    }

    /// The column as it is selected.
    pub(super) fn select(&self) -> String {
        if self.cast.is_some() { format!("t.{}::text", self.quoted) } else { format!("t.{}", self.quoted) }
    }

    /// Compares the column with the parameter of that number.
    pub(super) fn equals(&self, number: usize) -> String {
        let native = Native::name(self.native);
        match &self.cast {
            None => format!("t.{} = ${number}::{native}", self.quoted),
            Some(cast) => format!("t.{} = ${number}::{native}::{cast}", self.quoted),
        }
    }
}
