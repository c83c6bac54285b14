//! The plan: effects of a batch, folded and grouped so that few statements write them, in one canonical order.

use std::collections::{HashMap, HashSet};

use crate::catalog::{Catalog, ColumnId, TableId};
use crate::effect::{Cells, Change, Effect, Guard};
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

impl Verb {
    fn makes_rows(self) -> bool {
        match self {
            Verb::Insert | Verb::InsertIfAbsent | Verb::Upsert | Verb::UpsertIfNewer { .. } => true,
            Verb::Update | Verb::Add | Verb::Delete => false,
        }
    }
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

/// How freely a plan may rearrange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Many messages: fold changes of one row, group by table and kind, run in canonical order.
    Coalesced,
    /// One message, or tables that are observed: exactly as declared. Only a run in this order can condemn a
    /// message, since rearranging may break a constraint that the declared order keeps.
    Declared,
}

/// Plans effects, each with the index of the message that declared it.
///
/// **Invariant:** the rows end as if the effects had run one by one, in the order given. Changes are folded only
/// where no constraint or trigger could see the difference; later changes of a row that cannot be folded go to a
/// later round.
///
/// Round by round, tables run in canonical order and rows in key order, so that lanes lock alike. Tables of which a
/// batch changes rows without making any come last, since hot rows are among them. Batches that differ in that can
/// meet in a deadlock; the database then makes one give way, and it runs again.
pub fn build<'a>(effects: impl IntoIterator<Item = (u32, &'a Effect)>, catalog: &Catalog, order: Order) -> Plan {
    let effects: Vec<_> = effects.into_iter().collect();
    // A delete that cascades, or a trigger, ties tables together in ways that no plan can see.
    let observed = effects.iter().any(|(_, effect)| catalog.table(effect.table).observed);
    let mut draft = Draft { catalog, drafts: Vec::new(), rows: HashMap::new(), tables: HashMap::new() };
    if order == Order::Declared || observed {
        for (origin, effect) in effects {
            draft.append(origin, effect);
        }
    } else {
        for (origin, effect) in effects {
            draft.place(origin, effect);
        }
        // Tables of which rows are only changed, not made, are where lanes meet: their locks come last.
        let made: HashSet<TableId> =
            draft.drafts.iter().filter(|d| d.group.verb.makes_rows()).map(|d| d.group.table).collect();
        draft.drafts.sort_by_key(|d| d.position(catalog, &made));
    }
    draft.finish()
}

struct Draft<'c> {
    catalog: &'c Catalog,
    drafts: Vec<Drafted>,
    /// Where the latest change of a row stands.
    rows: HashMap<(TableId, Vec<u8>), Latest>,
    tables: HashMap<TableId, Rounds>,
}

struct Drafted {
    round: u32,
    group: Group,
    /// Encoded keys, parallel to the group's rows.
    keys: Vec<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Latest {
    round: u32,
    draft: usize,
    row: usize,
}

/// Rows named by different unique keys may be the same row, so a change of key columns starts a new round.
struct Rounds {
    key: Vec<ColumnId>,
    first: u32,
    last: u32,
}

impl Draft<'_> {
    fn append(&mut self, origin: u32, effect: &Effect) {
        let encoded = encoded(effect);
        let fits = self
            .drafts
            .last()
            .is_some_and(|d| fits(&d.group, effect) && !effect.key.is_empty() && !d.keys.contains(&encoded));
        if !fits {
            let round = self.drafts.len() as u32;
            self.drafts.push(Drafted { round, group: group_for(effect), keys: Vec::new() });
        }
        let last = self.drafts.len() - 1;
        self.drafts[last].push(origin, effect, encoded);
    }

    fn place(&mut self, origin: u32, effect: &Effect) {
        let rounds =
            self.tables.entry(effect.table).or_insert_with(|| Rounds { key: key_columns(effect), first: 0, last: 0 });
        if !effect.key.iter().map(|(c, _)| c).eq(&rounds.key) {
            *rounds = Rounds { key: key_columns(effect), first: rounds.last + 1, last: rounds.last + 1 };
        }
        let encoded = encoded(effect);
        let mut round = rounds.first;
        let latest =
            if effect.key.is_empty() { None } else { self.rows.get(&(effect.table, encoded.clone())).copied() };
        if let Some(latest) = latest.filter(|l| l.round >= rounds.first) {
            let drafted = &mut self.drafts[latest.draft];
            if fits(&drafted.group, effect)
                && foldable(&drafted.group, self.catalog)
                && fold(&mut drafted.group, latest.row, origin, effect)
            {
                return;
            }
            round = latest.round + 1;
        }
        rounds.last = rounds.last.max(round);
        let draft = match self.drafts.iter().position(|d| d.round == round && fits(&d.group, effect)) {
            Some(at) => at,
            None => {
                self.drafts.push(Drafted { round, group: group_for(effect), keys: Vec::new() });
                self.drafts.len() - 1
            }
        };
        if !effect.key.is_empty() {
            let row = self.drafts[draft].group.rows.len();
            self.rows.insert((effect.table, encoded.clone()), Latest { round, draft, row });
        }
        self.drafts[draft].push(origin, effect, encoded);
    }

    fn finish(self) -> Plan {
        let groups = self.drafts.into_iter().map(|drafted| {
            let mut group = drafted.group;
            let mut order: Vec<usize> = (0..group.rows.len()).collect();
            if !group.key.is_empty() {
                order.sort_by(|a, b| drafted.keys[*a].cmp(&drafted.keys[*b]));
            }
            let mut rows: Vec<Option<Row>> = group.rows.into_iter().map(Some).collect();
            group.rows = order.into_iter().filter_map(|at| rows[at].take()).collect();
            group
        });
        Plan { groups: groups.collect() }
    }
}

impl Drafted {
    fn push(&mut self, origin: u32, effect: &Effect, encoded: Vec<u8>) {
        let values = |cells: &Cells| cells.iter().map(|(_, v)| v.clone()).collect::<Vec<_>>();
        let (values, floors, guard) = match &effect.change {
            Change::Insert(cells) | Change::InsertIfAbsent(cells) | Change::Upsert(cells) => {
                (values(cells), Vec::new(), None)
            }
            Change::UpsertIfNewer { cells, .. } => (values(cells), Vec::new(), None),
            Change::Update { set, otherwise } => (values(set), Vec::new(), Some(otherwise.clone())),
            Change::Add { amounts, floor, otherwise } => {
                let floors = floor.as_ref().map_or_else(Vec::new, |f| vec![Some(f.clone()); amounts.len()]);
                (values(amounts), floors, Some(otherwise.clone()))
            }
            Change::Delete => (Vec::new(), Vec::new(), None),
        };
        self.keys.push(encoded);
        self.group.rows.push(Row { key: values_of(&effect.key), values, floors, guard, origins: vec![origin] });
    }

    /// Deletes run after everything else of their round, children before parents.
    fn position(&self, catalog: &Catalog, made: &HashSet<TableId>) -> (u32, bool, bool, u32, Verb, Vec<ColumnId>) {
        let delete = self.group.verb == Verb::Delete;
        let rank = catalog.table(self.group.table).rank;
        let place = if delete { u32::MAX - rank } else { rank };
        let changed = !made.contains(&self.group.table);
        (self.round, delete, changed, place, self.group.verb, self.group.columns.clone())
    }
}

fn encoded(effect: &Effect) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 * effect.key.len());
    for (_, value) in &effect.key {
        value.encode(&mut bytes);
    }
    bytes
}

fn key_columns(effect: &Effect) -> Vec<ColumnId> {
    effect.key.iter().map(|(c, _)| *c).collect()
}

fn values_of(cells: &Cells) -> Vec<Value> {
    cells.iter().map(|(_, v)| v.clone()).collect()
}

fn verb_of(effect: &Effect) -> Verb {
    match &effect.change {
        Change::Insert(_) => Verb::Insert,
        Change::InsertIfAbsent(_) => Verb::InsertIfAbsent,
        Change::Upsert(_) => Verb::Upsert,
        Change::UpsertIfNewer { version, .. } => Verb::UpsertIfNewer { version: *version },
        Change::Update { .. } => Verb::Update,
        Change::Add { .. } => Verb::Add,
        Change::Delete => Verb::Delete,
    }
}

fn written(effect: &Effect) -> &[(ColumnId, Value)] {
    match &effect.change {
        Change::Insert(cells) | Change::InsertIfAbsent(cells) | Change::Upsert(cells) => cells,
        Change::UpsertIfNewer { cells, .. } => cells,
        Change::Update { set, .. } => set,
        Change::Add { amounts, .. } => amounts,
        Change::Delete => &[],
    }
}

fn group_for(effect: &Effect) -> Group {
    Group {
        table: effect.table,
        verb: verb_of(effect),
        key: key_columns(effect),
        columns: written(effect).iter().map(|(c, _)| *c).collect(),
        rows: Vec::new(),
    }
}

fn fits(group: &Group, effect: &Effect) -> bool {
    group.table == effect.table
        && group.verb == verb_of(effect)
        && effect.key.iter().map(|(c, _)| c).eq(&group.key)
        && written(effect).iter().map(|(c, _)| c).eq(&group.columns)
}

fn foldable(group: &Group, catalog: &Catalog) -> bool {
    let table = catalog.table(group.table);
    group.columns.iter().all(|c| table.column(*c).foldable)
}

/// Folds a later change of the same row into the row, or leaves everything as it is and says no.
fn fold(group: &mut Group, row: usize, origin: u32, effect: &Effect) -> bool {
    let row = &mut group.rows[row];
    let folded = match &effect.change {
        // The second of two inserts must be refused.
        Change::Insert(_) => false,
        // The row is there after the first, so the second has no effect.
        Change::InsertIfAbsent(_) | Change::Delete => true,
        // Where the row of an update is missing, it is missing for both.
        Change::Upsert(cells) | Change::Update { set: cells, .. } => {
            row.values = values_of(cells);
            true
        }
        Change::UpsertIfNewer { version, cells } => {
            let at = group.columns.iter().position(|c| c == version);
            match at.map(|at| newer(&cells[at].1, &row.values[at])) {
                Some(Some(true)) => {
                    row.values = values_of(cells);
                    true
                }
                Some(Some(false)) => true,
                _ => false,
            }
        }
        Change::Add { amounts, floor, .. } => match add(row, amounts, floor.as_ref()) {
            Some((values, floors)) => {
                row.values = values;
                row.floors = floors;
                true
            }
            None => false,
        },
    };
    if folded {
        row.origins.push(origin);
    }
    folded
}

/// Whether a version is newer than another, for the kinds whose order is the same in every database.
fn newer(new: &Value, old: &Value) -> Option<bool> {
    match (new, old) {
        (Value::Integer(new), Value::Integer(old)) | (Value::Timestamp(new), Value::Timestamp(old)) => Some(new > old),
        _ => None,
    }
}

/// Sums two additions. A floor holds for the balance after its own addition; written as the least final result it
/// moves with every later amount. Whole numbers only: other sums depend on their order or lose digits.
fn add(row: &Row, amounts: &Cells, floor: Option<&Value>) -> Option<(Vec<Value>, Vec<Option<Value>>)> {
    let whole = |value: &Value| match value {
        Value::Integer(i) => Some(*i),
        _ => None,
    };
    let floor = floor.map(whole).map_or(Some(None), |f| f.map(Some))?;
    let mut values = Vec::with_capacity(amounts.len());
    let mut floors = Vec::with_capacity(amounts.len());
    for (at, (_, amount)) in amounts.iter().enumerate() {
        let amount = whole(amount)?;
        let before = whole(&row.values[at])?;
        // Amounts of both signs could hide an overflow in between from the database.
        if (before < 0) != (amount < 0) && before.unsigned_abs().max(amount.unsigned_abs()) > 1 << 52 {
            return None;
        }
        values.push(Value::Integer(before.checked_add(amount)?));
        let earlier = match row.floors.get(at).and_then(Option::as_ref) {
            Some(earlier) => Some(whole(earlier)?.checked_add(amount)?),
            None => None,
        };
        floors.push(earlier.max(floor).map(Value::Integer));
    }
    if floors.iter().all(Option::is_none) {
        floors.clear();
    }
    Some((values, floors))
}
