//! The tables of the file, as core's catalog. Tables of SQLite and of the host itself are not offered to plugins.

use std::collections::{HashMap, HashSet};

use ackwright_core::catalog::{Catalog, Column, ColumnId, Table, UniqueKey};
use ackwright_core::store::Error;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::fault::system;
use super::types::describe;

const TABLES: &str = "SELECT l.name, l.wr, l.strict, s.sql, \
    EXISTS (SELECT 1 FROM sqlite_schema g WHERE g.type = 'trigger' AND lower(g.tbl_name) = lower(l.name)) \
    FROM pragma_table_list l JOIN sqlite_schema s ON s.type = 'table' AND s.name = l.name \
    WHERE l.schema = 'main' AND l.type = 'table' \
    AND lower(substr(l.name, 1, 7)) <> 'sqlite_' AND lower(substr(l.name, 1, 10)) <> 'ackwright_'";

const COLUMNS: &str = "SELECT x.name, x.type, x.\"notnull\", x.dflt_value IS NOT NULL, x.pk, x.hidden \
    FROM pragma_table_xinfo(?, 'main') x WHERE x.hidden <> 1 ORDER BY x.cid";

const INDEXES: &str = "SELECT i.name, i.origin = 'pk', i.\"unique\" AND NOT i.partial, i.\"unique\", x.name, x.coll \
    FROM pragma_index_list(?, 'main') i JOIN pragma_index_xinfo(i.name, 'main') x \
    WHERE x.key = 1 ORDER BY i.origin <> 'pk', i.seq DESC, x.seqno";

const FOREIGN_KEYS: &str = "SELECT f.\"table\", f.\"from\", f.\"to\", \
    f.on_update NOT IN ('NO ACTION', 'RESTRICT') OR f.on_delete NOT IN ('NO ACTION', 'RESTRICT') \
    FROM pragma_foreign_key_list(?, 'main') f ORDER BY f.id, f.seq";

struct ForeignKey {
    child: String,
    parent: String,
    from: String,
    /// Absent where it refers to the parent's primary key without naming it.
    to: Option<String>,
    cascades: bool,
}

struct Found {
    table: Table,
    /// A check or a generated column can look at any column.
    checked: bool,
    primary: Vec<String>,
}

pub(super) async fn read(connection: &mut SqliteConnection) -> Result<Catalog, Error> {
    load(connection).await.map_err(|error| system(error, "read the tables of the database"))
}

async fn load(connection: &mut SqliteConnection) -> Result<Catalog, sqlx::Error> {
    let mut found = Vec::new();
    let mut foreign = Vec::new();
    for row in sqlx::query(TABLES).fetch_all(&mut *connection).await? {
        let name: String = row.try_get(0)?;
        let sql: String = row.try_get(3)?;
        let indexes = sqlx::query(INDEXES).bind(name.clone()).fetch_all(&mut *connection).await?;
        let columns = sqlx::query(COLUMNS).bind(name.clone()).fetch_all(&mut *connection).await?;
        let mut table = table(&name, row.try_get(1)?, row.try_get(2)?, &columns, &indexes)?;
        table.checked |= has_word(&sql, "check");
        table.table.observed = row.try_get(4)?;
        found.push(table);
        for row in sqlx::query(FOREIGN_KEYS).bind(name.clone()).fetch_all(&mut *connection).await? {
            foreign.push(ForeignKey {
                child: name.clone(),
                parent: row.try_get(0)?,
                from: row.try_get(1)?,
                to: row.try_get(2)?,
                cascades: row.try_get(3)?,
            });
        }
    }
    refer(&mut found, foreign);
    Ok(Catalog::new(found.into_iter().map(finish).collect()))
}

fn table(
    name: &str,
    without_row_id: bool,
    strict: bool,
    columns: &[SqliteRow],
    indexes: &[SqliteRow],
) -> Result<Found, sqlx::Error> {
    let mut primary: Vec<(i64, String)> = Vec::new();
    for row in columns {
        let place: i64 = row.try_get(4)?;
        if place > 0 {
            primary.push((place, row.try_get(0)?));
        }
    }
    primary.sort();
    let primary: Vec<String> = primary.into_iter().map(|(_, name)| name).collect();
    let mut known: Vec<Index> = Vec::new();
    for row in indexes {
        let index: String = row.try_get(0)?;
        if known.last().is_none_or(|last| last.name != index) {
            known.push(Index {
                name: index,
                primary: row.try_get(1)?,
                whole: row.try_get(2)?,
                unique: row.try_get(3)?,
                columns: Vec::new(),
            });
        }
        if let Some(last) = known.last_mut() {
            last.columns.push((row.try_get(4)?, row.try_get::<Option<String>, _>(5)?));
        }
    }
    // A primary key without an index of its own is the row id.
    let row_id = !without_row_id && primary.len() == 1 && !known.iter().any(|index| index.primary);
    let watched: HashSet<&str> =
        known.iter().filter(|i| i.unique).flat_map(|i| &i.columns).filter_map(|(c, _)| c.as_deref()).collect();
    let mut generated_any = false;
    let mut list = Vec::with_capacity(columns.len());
    for row in columns {
        let name: String = row.try_get(0)?;
        let in_primary = primary.contains(&name);
        let generated = row.try_get::<i64, _>(5)? >= 2;
        generated_any |= generated;
        let (kind, native) = describe(&row.try_get::<String, _>(1)?);
        let not_null: bool = row.try_get(2)?;
        list.push(Column {
            kind,
            native,
            // Outside STRICT and WITHOUT ROWID tables SQLite lets a primary key be NULL.
            nullable: !(not_null || in_primary && (row_id || without_row_id || strict)),
            defaulted: row.try_get(3)? || in_primary && row_id,
            generated,
            foldable: !in_primary && !watched.contains(name.as_str()),
            name,
        });
    }
    let place = |name: &str| list.iter().position(|c| c.name == name).map(|at| at as ColumnId);
    let mut keys = Vec::new();
    if row_id && let Some(at) = place(&primary[0]) {
        keys.push(UniqueKey { name: format!("{name}.{}", primary[0]), columns: vec![at] });
    }
    let mut expression = false;
    for index in &known {
        // A key that folds case or drops trailing spaces would take two keys of core for one.
        let exact = index.columns.iter().all(|(_, collation)| collation.as_deref() == Some("BINARY"));
        let columns: Option<Vec<ColumnId>> =
            index.columns.iter().map(|(column, _)| column.as_deref().and_then(place)).collect();
        expression |= index.unique && columns.is_none();
        if let Some(columns) = columns.filter(|_| index.whole && exact) {
            let names: Vec<_> = index.columns.iter().filter_map(|(c, _)| c.as_deref()).collect();
            let names: Vec<_> = names.iter().map(|column| format!("{name}.{column}")).collect();
            keys.push(UniqueKey { name: names.join(","), columns });
        }
    }
    let table = Table::new(name, list, keys);
    Ok(Found { table, checked: generated_any || expression, primary })
}

struct Index {
    name: String,
    primary: bool,
    unique: bool,
    /// Unique over all rows: not partial.
    whole: bool,
    /// Name (absent for an expression) and collation.
    columns: Vec<(Option<String>, Option<String>)>,
}

/// Writes down what foreign keys mean for both of their tables. SQLite spells names in any case.
fn refer(found: &mut [Found], foreign: Vec<ForeignKey>) {
    let by_name: HashMap<String, usize> =
        found.iter().enumerate().map(|(i, f)| (f.table.name.to_lowercase(), i)).collect();
    for key in foreign {
        let child = by_name.get(&key.child.to_lowercase()).copied();
        let parent = by_name.get(&key.parent.to_lowercase()).copied();
        if let Some(child) = child {
            unfold(&mut found[child].table, &key.from);
            found[child].table.observed |= key.cascades;
            if let Some(parent) = parent
                && parent != child
            {
                let parent = found[parent].table.name.clone();
                found[child].table.parents.push(parent);
            }
        }
        if let Some(parent) = parent {
            found[parent].table.observed |= key.cascades;
            let to = key.to.map_or_else(|| found[parent].primary.clone(), |to| vec![to]);
            for column in to {
                unfold(&mut found[parent].table, &column);
            }
        }
    }
}

fn unfold(table: &mut Table, name: &str) {
    for column in table.columns.iter_mut().filter(|c| c.name.eq_ignore_ascii_case(name)) {
        column.foldable = false;
    }
}

fn finish(found: Found) -> Table {
    let mut table = found.table;
    if found.checked {
        for column in &mut table.columns {
            column.foldable = false;
        }
    }
    table
}

/// Whether the text holds the word, in any case; a comment or a name may hold it too, which only costs folding.
fn has_word(text: &str, word: &str) -> bool {
    text.to_ascii_lowercase().split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|part| part == word)
}
