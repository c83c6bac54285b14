//! The plan: effects of a batch, folded and grouped so that few statements write them, in one canonical order.

use crate::catalog::{ColumnId, TableId};
use crate::effect::Guard;
use crate::value::Value;

/// Statements to run one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub groups: Vec<Group>,
}

/// Changes of one kind to rows of one table, for one statement. Rows are sorted by key and no key occurs twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub table: TableId,
    pub verb: Verb,
    /// Columns that name the row, sorted; empty for inserts whose key the database makes.
    pub key: Vec<ColumnId>,
    /// Columns beside the key that are written, sorted.
    pub columns: Vec<ColumnId>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// The row must not exist: a unique violation is a refusal.
    Insert,
    InsertIfAbsent,
    Upsert,
    /// Writes where the row is absent or its version column is smaller than the new one.
    UpsertIfNewer {
        version: ColumnId,
    },
    /// Sets columns of a row that must exist; one that does not is a refusal with the row's guard.
    Update,
    /// Adds `values` to `columns` of a row that must exist, where each sum is at least its floor; otherwise a
    /// refusal with the row's guard.
    Add,
    /// No effect where the row is absent.
    Delete,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Values of the group's key columns.
    pub key: Vec<Value>,
    /// Values of the group's other columns.
    pub values: Vec<Value>,
    /// For `Add`: the least allowed result of each column; empty where no column has one.
    pub floors: Vec<Option<Value>>,
    /// For `Update` and `Add`: how a missing row or a broken floor is reported.
    pub guard: Option<Guard>,
    /// Messages of the batch, by index, whose effects this row carries.
    pub origins: Vec<u32>,
}
