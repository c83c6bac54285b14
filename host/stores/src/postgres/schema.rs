//! Introspection: the tables as the host sees them, and what statements need to know about them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ackwright_core::catalog::{Catalog, Column, ColumnId, Kind, Table, TableId, UniqueKey};
use ackwright_core::store;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::native::Native;
use super::wire::{Wire, into_system};
use crate::fault::{self, Broken};
use crate::sql::quoted;

/// The catalog, with the database's side of it.
#[derive(Debug)]
pub(super) struct Schema {
    pub catalog: Arc<Catalog>,
    shapes: HashMap<String, Shape>,
    /// `SET CONSTRAINTS` list of what is otherwise only checked at commit.
    pub deferred: Option<String>,
}

#[derive(Debug)]
pub(super) struct Shape {
    /// Schema and name, quoted.
    pub table: String,
    pub columns: Vec<ColumnShape>,
}

#[derive(Debug)]
pub(super) struct ColumnShape {
    pub quoted: String,
    /// How its values travel.
    pub native: Native,
    /// The type to cast to on the way in, and from on the way out, where values travel as text.
    pub cast: Option<String>,
    /// Microseconds that a timestamp of this column is a multiple of.
    pub step: i64,
}

impl Schema {
    pub(super) fn shape(&self, table: TableId) -> &Shape {
        &self.shapes[&self.catalog.table(table).name]
    }
}

const COLUMNS: &str = "
    SELECT n.nspname::text AS schema, c.relname::text AS relation, c.oid::int8 AS oid, c.relkind::text AS relkind,
           n.nspname = current_schema() AS bare, a.attname::text AS name, a.attnum::int4 AS number,
           a.attnotnull OR coalesce(t.typnotnull, false) AS required,
           a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL AS defaulted,
           a.attgenerated <> '' OR a.attidentity = 'a' AS generated,
           CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END::int8 AS base,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
           t.typtype = 'd' AS domain, format_type(a.atttypid, a.atttypmod) AS native,
           quote_ident(tn.nspname) || '.' || quote_ident(t.typname) AS cast_type
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_namespace tn ON tn.oid = t.typnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_toast%' AND n.nspname NOT LIKE 'pg\\_temp%' AND c.relname NOT LIKE 'ackwright\\_%'
    ORDER BY n.nspname, c.relname, a.attnum";

const KEYS: &str = "
    SELECT i.indrelid::int8 AS oid, ic.relname::text AS name, i.indisprimary AS primary_key,
           i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AND i.indisvalid AND i.indisunique AS plain,
           (i.indkey::int2[])[0:] AS columns, i.indnkeyatts::int4 AS count, i.indisunique OR i.indisexclusion AS watches,
           i.indexprs IS NOT NULL OR i.indpred IS NOT NULL AS computed
    FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid
    ORDER BY i.indrelid, i.indisprimary DESC, ic.relname";

const CONSTRAINTS: &str = "
    SELECT k.conrelid::int8 AS oid, k.confrelid::int8 AS parent, k.contype::text AS type,
           coalesce(k.conkey, '{}') AS columns, coalesce(k.confkey, '{}') AS parent_columns,
           k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd') AS cascades,
           k.condeferred AS deferred, quote_ident(n.nspname) || '.' || quote_ident(k.conname) AS name
    FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace
    WHERE k.conrelid <> 0";

const OBSERVED: &str = "
    SELECT tgrelid::int8 AS oid FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'
    UNION SELECT ev_class::int8 FROM pg_rewrite WHERE rulename <> '_RETURN'
    UNION SELECT oid::int8 FROM pg_class WHERE relkind IN ('v', 'f') OR relrowsecurity";

pub(super) async fn introspect(wire: &mut Wire) -> Result<Schema, store::Error> {
    const ATTEMPTED: &str = "read the catalog of PostgreSQL";
    let mut read = async |sql: &str| wire.rows(sql, Vec::new()).await.map_err(|e| into_system(ATTEMPTED, e));
    let columns = read(COLUMNS).await?;
    let keys = read(KEYS).await?;
    let constraints = read(CONSTRAINTS).await?;
    let observed = read(OBSERVED).await?;
    build(&columns, &keys, &constraints, &observed).map_err(|e| fault::system(ATTEMPTED, Broken::Answer(e.to_string())))
}

struct Draft {
    table: Table,
    shape: Shape,
    /// Attribute number to column.
    numbers: HashMap<i16, ColumnId>,
}

fn build(columns: &[PgRow], keys: &[PgRow], constraints: &[PgRow], observed: &[PgRow]) -> Result<Schema, sqlx::Error> {
    let mut drafts: BTreeMap<i64, Draft> = BTreeMap::new();
    for group in columns.chunk_by(|a, b| a.get::<i64, _>("oid") == b.get::<i64, _>("oid")) {
        let first = &group[0];
        let (schema, relation): (String, String) = (first.try_get("schema")?, first.try_get("relation")?);
        let name = if first.try_get("bare")? { relation.clone() } else { format!("{schema}.{relation}") };
        let mut known = Vec::with_capacity(group.len());
        let mut shapes = Vec::with_capacity(group.len());
        let mut numbers = HashMap::new();
        for row in group {
            numbers.insert(row.try_get::<i32, _>("number")? as i16, known.len() as ColumnId);
            let (column, shape) = column(row)?;
            known.push(column);
            shapes.push(shape);
        }
        let shape = Shape { table: format!("{}.{}", quoted(&schema), quoted(&relation)), columns: shapes };
        let table = Table::new(name, known, Vec::new());
        drafts.insert(first.try_get("oid")?, Draft { table, shape, numbers });
    }
    for row in keys {
        key(row, &mut drafts)?;
    }
    let deferred = constrain(constraints, &mut drafts)?;
    for row in observed {
        if let Some(draft) = drafts.get_mut(&row.try_get::<i64, _>("oid")?) {
            draft.table.observed = true;
        }
    }
    let (tables, shapes): (Vec<_>, HashMap<_, _>) =
        drafts.into_values().map(|d| (d.table.clone(), (d.table.name, d.shape))).unzip();
    Ok(Schema { catalog: Arc::new(Catalog::new(tables)), shapes, deferred })
}

fn column(row: &PgRow) -> Result<(Column, ColumnShape), sqlx::Error> {
    let name: String = row.try_get("name")?;
    let base = row.try_get::<i64, _>("base")? as u32;
    let modifier: i32 = row.try_get("modifier")?;
    let domain: bool = row.try_get("domain")?;
    // `char(n)` pads what it holds, so its values are text of the database's making.
    let native = Native::of(base).filter(|_| !matches!(base, 1042 | 19 | 705));
    let length = (modifier >= 4).then(|| (modifier - 4) as u32);
    let kind = match native {
        None => Kind::Opaque,
        Some(Native::Bool) => Kind::Boolean,
        Some(Native::Int2) => Kind::Integer { min: i16::MIN.into(), max: i16::MAX.into() },
        Some(Native::Int4) => Kind::Integer { min: i32::MIN.into(), max: i32::MAX.into() },
        Some(Native::Int8) => Kind::Integer { min: i64::MIN, max: i64::MAX },
        Some(Native::Float4) => Kind::Float { single: true },
        Some(Native::Float8) => Kind::Float { single: false },
        Some(Native::Numeric) => Kind::Decimal {
            precision: length.map(|l| l >> 16),
            // Eleven bits with a sign; a negative scale rounds before the point, which no value survives exactly.
            scale: length.map(|l| ((l & 0x7ff) ^ 0x400).wrapping_sub(0x400)).map(|s| if s > 1000 { 0 } else { s }),
        },
        Some(Native::Text) => Kind::Text { most: length },
        Some(Native::Bytea) => Kind::Bytes { most: None },
        Some(Native::Uuid) => Kind::Uuid,
        Some(Native::Timestamptz | Native::Timestamp) => Kind::Timestamp,
        Some(Native::Json | Native::Jsonb) => Kind::Json,
    };
    let step = match native {
        Some(Native::Timestamptz | Native::Timestamp) if (0..6).contains(&modifier) => 10i64.pow(6 - modifier as u32),
        _ => 1,
    };
    let shape = ColumnShape {
        quoted: quoted(&name),
        native: native.unwrap_or(Native::Text),
        cast: if native.is_none() { Some(row.try_get("cast_type")?) } else { None },
        step,
    };
    let column = Column {
        name,
        kind,
        native: row.try_get("native")?,
        nullable: !row.try_get::<bool, _>("required")?,
        defaulted: row.try_get("defaulted")?,
        generated: row.try_get("generated")?,
        // A domain may have checks of its own; values that travel as text have no one spelling.
        foldable: !domain && native.is_some(),
    };
    Ok((column, shape))
}

fn key(row: &PgRow, drafts: &mut BTreeMap<i64, Draft>) -> Result<(), sqlx::Error> {
    let Some(draft) = drafts.get_mut(&row.try_get::<i64, _>("oid")?) else { return Ok(()) };
    let numbers: Vec<i16> = row.try_get("columns")?;
    let count = row.try_get::<i32, _>("count")? as usize;
    let columns: Option<Vec<ColumnId>> = numbers.iter().take(count).map(|n| draft.numbers.get(n).copied()).collect();
    let primary: bool = row.try_get("primary_key")?;
    if row.try_get::<bool, _>("watches")? && !primary {
        if row.try_get("computed")? {
            // Any column can be part of the expression.
            draft.table.columns.iter_mut().for_each(|c| c.foldable = false);
        }
        for number in &numbers {
            if let Some(column) = draft.numbers.get(number) {
                draft.table.columns[usize::from(*column)].foldable = false;
            }
        }
    }
    if let (true, Some(columns)) = (row.try_get("plain")?, columns) {
        draft.table.keys.push(UniqueKey { name: row.try_get("name")?, columns });
    }
    Ok(())
}

/// Applies checks and foreign keys; returns the list of deferred constraints.
fn constrain(rows: &[PgRow], drafts: &mut BTreeMap<i64, Draft>) -> Result<Option<String>, sqlx::Error> {
    let mut deferred = HashSet::new();
    for row in rows {
        let (oid, parent): (i64, i64) = (row.try_get("oid")?, row.try_get("parent")?);
        let kind: String = row.try_get("type")?;
        if !drafts.contains_key(&oid) {
            continue;
        }
        if row.try_get("deferred")? {
            deferred.insert(row.try_get::<String, _>("name")?);
        }
        if kind != "p" {
            unfold(drafts, oid, &row.try_get::<Vec<i16>, _>("columns")?);
        }
        if kind == "f" {
            unfold(drafts, parent, &row.try_get::<Vec<i16>, _>("parent_columns")?);
            let cascades: bool = row.try_get("cascades")?;
            let parent_name = drafts.get_mut(&parent).map(|draft| {
                draft.table.observed |= cascades;
                draft.table.name.clone()
            });
            if let (Some(name), Some(draft)) = (parent_name, drafts.get_mut(&oid))
                && !draft.table.parents.contains(&name)
            {
                draft.table.parents.push(name);
            }
        }
    }
    let mut deferred: Vec<_> = deferred.into_iter().collect();
    deferred.sort();
    Ok((!deferred.is_empty()).then(|| deferred.join(", ")))
}

fn unfold(drafts: &mut BTreeMap<i64, Draft>, oid: i64, numbers: &[i16]) {
    let Some(draft) = drafts.get_mut(&oid) else { return };
    if numbers.is_empty() {
        // A check that names no column looks at the whole row.
        draft.table.columns.iter_mut().for_each(|c| c.foldable = false);
    }
    for number in numbers {
        if let Some(column) = draft.numbers.get(number) {
            draft.table.columns[usize::from(*column)].foldable = false;
        }
    }
}
