//! What a plugin may touch: its grants, resolved against a catalog. Everything else is denied.

use std::sync::Arc;

use crate::catalog::{Catalog, ColumnId, TableId};

/// The grants of one plugin as the TOML writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// `orders` or `orders(id, status)`.
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// `broker:destination`, where `*` stands for any run of characters.
    pub emit: Vec<String>,
}

/// Grants with names looked up.
#[derive(Clone, Debug)]
pub struct Access {
    catalog: Arc<Catalog>,
    read: Vec<Columns>,
    write: Vec<Columns>,
    emit: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Columns {
    None,
    All,
    Some(Vec<ColumnId>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Read,
    Write,
}

impl Right {
    fn verb(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
        }
    }
}

/// A grant is missing. `Display` names the line to add to the TOML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("no grant to {verb} {what}; add {what:?} to grants.{verb} of this plugin")]
    Grant { verb: &'static str, what: String },
    #[error("no such table {name} in this database{hint}")]
    NoTable { name: String, hint: String },
    #[error("no such column {column} in table {table}; it has {known}")]
    NoColumn { table: String, column: String, known: String },
}

impl Denied {
    /// Stable, for grouping.
    pub fn code(&self) -> String {
        match self {
            Denied::Grant { verb, what } => format!("denied:{verb}:{what}"),
            Denied::NoTable { name, .. } => format!("invalid:table:{name}"),
            Denied::NoColumn { table, column, .. } => format!("invalid:column:{table}.{column}"),
        }
    }
}

impl Access {
    /// Resolves grants; every mistake in them is reported at once.
    pub fn resolve(grants: &Grants, catalog: Arc<Catalog>) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut side = |list: &[String], verb: &str| {
            let mut columns = vec![Columns::None; catalog.tables().count()];
            for grant in list {
                match parse(grant, &catalog) {
                    Ok((table, granted)) => columns[usize::from(table)] = granted,
                    Err(why) => mistakes.push(format!("grants.{verb} {grant:?}: {why}")),
                }
            }
            columns
        };
        let read = side(&grants.read, "read");
        let write = side(&grants.write, "write");
        for pattern in &grants.emit {
            if !pattern.contains(':') {
                mistakes.push(format!("grants.emit {pattern:?}: write it as broker:destination"));
            }
        }
        if mistakes.is_empty() { Ok(Access { catalog, read, write, emit: grants.emit.clone() }) } else { Err(mistakes) }
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub fn table(&self, right: Right, name: &str) -> Result<TableId, Denied> {
        let Some(id) = self.catalog.find(name) else {
            let known = nearest(name, self.catalog.tables().map(|(_, t)| t.name.as_str()));
            let hint = known.map_or_else(String::new, |k| format!("; did you mean {k}?"));
            return Err(Denied::NoTable { name: name.into(), hint });
        };
        match self.columns(right, id) {
            Columns::None => Err(Denied::Grant { verb: right.verb(), what: name.into() }),
            _ => Ok(id),
        }
    }

    pub fn column(&self, right: Right, table: TableId, name: &str) -> Result<ColumnId, Denied> {
        let known = self.catalog.table(table);
        let Some(id) = known.find(name) else {
            let columns: Vec<_> = known.columns.iter().map(|c| c.name.as_str()).collect();
            return Err(Denied::NoColumn { table: known.name.clone(), column: name.into(), known: columns.join(", ") });
        };
        match self.columns(right, table) {
            Columns::All => Ok(id),
            Columns::Some(granted) if granted.contains(&id) => Ok(id),
            _ => Err(Denied::Grant { verb: right.verb(), what: format!("{}({name})", known.name) }),
        }
    }

    /// The columns that a read of the table returns.
    pub fn readable(&self, table: TableId) -> Vec<ColumnId> {
        match self.columns(Right::Read, table) {
            Columns::None => Vec::new(),
            Columns::All => (0..self.catalog.table(table).columns.len() as ColumnId).collect(),
            Columns::Some(columns) => columns.clone(),
        }
    }

    /// Whether the whole table is granted: what free SQL over it needs.
    pub fn whole(&self, right: Right, table: TableId) -> bool {
        *self.columns(right, table) == Columns::All
    }

    pub fn emit(&self, destination: &str) -> Result<(), Denied> {
        if self.emit.iter().any(|pattern| wildcard(pattern, destination)) {
            Ok(())
        } else {
            Err(Denied::Grant { verb: "emit", what: destination.into() })
        }
    }

    fn columns(&self, right: Right, table: TableId) -> &Columns {
        match right {
            Right::Read => &self.read[usize::from(table)],
            Right::Write => &self.write[usize::from(table)],
        }
    }
}

fn parse(grant: &str, catalog: &Catalog) -> Result<(TableId, Columns), String> {
    let (name, list) = match grant.split_once('(') {
        None => (grant.trim(), None),
        Some((name, rest)) => {
            let list = rest.trim_end().strip_suffix(')').ok_or("the list of columns is not closed")?;
            (name.trim(), Some(list))
        }
    };
    let Some(id) = catalog.find(name) else {
        let known = nearest(name, catalog.tables().map(|(_, t)| t.name.as_str()));
        return Err(format!("no such table{}", known.map_or_else(String::new, |k| format!("; did you mean {k}?"))));
    };
    let Some(list) = list else { return Ok((id, Columns::All)) };
    let table = catalog.table(id);
    let columns: Result<Vec<_>, String> = list
        .split(',')
        .map(|c| table.find(c.trim()).ok_or_else(|| format!("table {name} has no column {}", c.trim())))
        .collect();
    Ok((id, Columns::Some(columns?)))
}

/// A known name that differs by little, for "did you mean".
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    known
        .filter(|k| {
            let k = k.to_lowercase();
            k == folded || k.ends_with(&format!(".{folded}")) || k.starts_with(&folded) || folded.starts_with(&k)
        })
        .min_by_key(|k| k.len().abs_diff(name.len()))
}

/// `*` stands for any run of characters; everything else stands for itself.
pub fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}
