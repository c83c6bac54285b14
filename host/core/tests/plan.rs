//! The plan against a model: rows end as if the effects had run one by one, and a refusal is never hidden.

use std::collections::{BTreeMap, HashMap};

use ackwright_core::catalog::{Catalog, Column, Kind, Table, UniqueKey};
use ackwright_core::effect::{Change, Effect, Guard};
use ackwright_core::plan::{self, Group, Order, Plan, Verb};
use ackwright_core::value::Value;
use proptest::prelude::*;

fn column(name: &str, foldable: bool) -> Column {
    Column {
        name: name.into(),
        kind: Kind::Integer { min: i64::MIN, max: i64::MAX },
        native: "bigint".into(),
        nullable: false,
        defaulted: false,
        generated: false,
        foldable,
    }
}

fn catalog() -> Catalog {
    let table = |name: &str, foldable| {
        let columns = vec![column("id", true), column("version", foldable), column("amount", foldable)];
        Table::new(name, columns, vec![UniqueKey { name: format!("{name}_pkey"), columns: vec![0] }])
    };
    let mut watched = table("watched", true);
    watched.observed = true;
    Catalog::new(vec![table("folded", true), table("strict", false), watched])
}

type Rows = BTreeMap<(u16, i64), (i64, i64)>;

/// Runs one change as a database would; `Err` is a refusal.
fn step(
    rows: &mut Rows,
    table: u16,
    verb: Verb,
    key: i64,
    values: &BTreeMap<u16, i64>,
    floor: Option<i64>,
) -> Result<(), ()> {
    let at = (table, key);
    let set = |row: &mut (i64, i64)| {
        for (column, value) in values {
            match column {
                1 => row.0 = *value,
                _ => row.1 = *value,
            }
        }
    };
    let known = rows.get(&at).copied();
    match verb {
        Verb::Insert if known.is_some() => return Err(()),
        Verb::InsertIfAbsent if known.is_some() => {}
        Verb::Insert | Verb::InsertIfAbsent | Verb::Upsert => set(rows.entry(at).or_default()),
        Verb::UpsertIfNewer { .. } => {
            if known.is_none_or(|row| row.0 < values[&1]) {
                set(rows.entry(at).or_default());
            }
        }
        Verb::Update => set(rows.get_mut(&at).ok_or(())?),
        Verb::Add => {
            let row = rows.get_mut(&at).ok_or(())?;
            let sum = row.1 + values[&2];
            if floor.is_some_and(|floor| sum < floor) {
                return Err(());
            }
            row.1 = sum;
        }
        Verb::Delete => {
            rows.remove(&at);
        }
    }
    Ok(())
}

fn whole(value: &Value) -> i64 {
    match value {
        Value::Integer(i) => *i,
        other => panic!("the model holds whole numbers, not {}", other.case()),
    }
}

fn run(rows: &mut Rows, group: &Group) -> Result<(), ()> {
    for row in &group.rows {
        let values = group.columns.iter().copied().zip(row.values.iter().map(whole)).collect();
        let floor = row.floors.first().and_then(Option::as_ref).map(whole);
        step(rows, group.table, group.verb, whole(&row.key[0]), &values, floor)?;
    }
    Ok(())
}

fn run_plan(rows: &mut Rows, plan: &Plan) -> Result<(), ()> {
    plan.groups.iter().try_for_each(|group| run(rows, group))
}

fn run_declared(rows: &mut Rows, effects: &[Effect]) -> Result<(), ()> {
    for effect in effects {
        let plan = plan::build([(0, effect)], &catalog(), Order::Declared);
        run_plan(rows, &plan)?;
    }
    Ok(())
}

fn effect() -> impl Strategy<Value = Effect> {
    let cell = |column: u16, value: i64| (column, Value::Integer(value));
    (0..3_u16, 0..4_i64, 0..8_u8, -5..6_i64, 0..5_i64, proptest::option::of(-3..3_i64)).prop_map(
        move |(table, key, verb, amount, version, floor)| {
            let both = vec![cell(1, version), cell(2, amount)];
            let otherwise = Guard { code: "absent".into(), reason: "the row is absent or too low".into() };
            let change = match verb {
                0 => Change::Insert(both),
                1 => Change::InsertIfAbsent(both),
                2 => Change::Upsert(both),
                3 => Change::Upsert(vec![cell(2, amount)]),
                4 => Change::UpsertIfNewer { version: 1, cells: both },
                5 => Change::Update { set: vec![cell(2, amount)], otherwise },
                6 => Change::Add { amounts: vec![cell(2, amount)], floor: floor.map(Value::Integer), otherwise },
                _ => Change::Delete,
            };
            Effect { table, key: vec![cell(0, key)], change }
        },
    )
}

/// Few rows and many additions, so that sums and floors meet.
fn addition() -> impl Strategy<Value = Effect> {
    (0..2_i64, -5..6_i64, proptest::option::of(-3..3_i64)).prop_map(|(key, amount, floor)| Effect {
        table: 0,
        key: vec![(0, Value::Integer(key))],
        change: Change::Add {
            amounts: vec![(2, Value::Integer(amount))],
            floor: floor.map(Value::Integer),
            otherwise: Guard { code: "low".into(), reason: "too low".into() },
        },
    })
}

fn agree(start: Rows, effects: &[Effect]) -> Result<(), TestCaseError> {
    let mut declared = start.clone();
    let refused = run_declared(&mut declared, effects).is_err();
    let numbered = effects.iter().enumerate().map(|(at, e)| (at as u32, e));
    let plan = plan::build(numbered, &catalog(), Order::Coalesced);
    let mut planned = start;
    let plan_refused = run_plan(&mut planned, &plan).is_err();
    // A plan may be refused where the declared order is not: the batch then runs in smaller parts. The other
    // way round a refusal would be hidden.
    prop_assert!(!refused || plan_refused, "a refusal was hidden by {plan:?}");
    if !plan_refused {
        prop_assert_eq!(planned, declared, "plan {:?}", plan);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn sums_keep_their_floors(effects in proptest::collection::vec(addition(), 0..8), balance in 0..12_i64) {
        agree(Rows::from([((0, 0), (0, balance)), ((0, 1), (0, 3))]), &effects)?;
    }

    #[test]
    fn a_plan_ends_as_the_declared_order_does(
        effects in proptest::collection::vec(effect(), 0..12),
        start in proptest::collection::btree_map((0..3_u16, 0..4_i64), (0..5_i64, 0..8_i64), 0..8),
    ) {
        agree(start, &effects)?;
    }

    #[test]
    fn a_plan_carries_every_message_and_locks_in_key_order(effects in proptest::collection::vec(effect(), 1..40)) {
        let plan = plan::build(effects.iter().enumerate().map(|(at, e)| (at as u32, e)), &catalog(), Order::Coalesced);
        let mut carried: Vec<u32> = plan.groups.iter().flat_map(|g| &g.rows).flat_map(|r| r.origins.clone()).collect();
        carried.sort_unstable();
        prop_assert_eq!(carried, (0..effects.len() as u32).collect::<Vec<_>>());
        for group in &plan.groups {
            let keys: Vec<i64> = group.rows.iter().map(|row| whole(&row.key[0])).collect();
            prop_assert!(keys.is_sorted(), "{keys:?}");
            let mut distinct = keys.clone();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), keys.len(), "a key occurs twice in one statement");
        }
    }
}

#[test]
fn hot_rows_become_one_row() {
    let add = |amount| Effect {
        table: 0,
        key: vec![(0, Value::Integer(1))],
        change: Change::Add {
            amounts: vec![(2, Value::Integer(amount))],
            floor: Some(Value::Integer(0)),
            otherwise: Guard { code: "low".into(), reason: "too low".into() },
        },
    };
    let effects = [add(-5), add(3), add(-1)];
    let plan = plan::build(effects.iter().enumerate().map(|(at, e)| (at as u32, e)), &catalog(), Order::Coalesced);
    assert_eq!(plan.groups.len(), 1);
    let row = &plan.groups[0].rows[0];
    assert_eq!(row.values, [Value::Integer(-3)]);
    // The balance is lowest after the first: it must have been 5, so it is at least 2 in the end.
    assert_eq!(row.floors, [Some(Value::Integer(2))]);
    assert_eq!(row.origins, [0, 1, 2]);
}

#[test]
fn parents_come_before_children_and_leave_after_them() {
    let table = |name: &str, parents: &[&str]| {
        let mut table = Table::new(
            name,
            vec![column("id", true)],
            vec![UniqueKey { name: format!("{name}_pkey"), columns: vec![0] }],
        );
        table.parents = parents.iter().map(|p| (*p).to_owned()).collect();
        table
    };
    let catalog = Catalog::new(vec![table("a_line", &["z_order"]), table("z_order", &[])]);
    let id = |name| catalog.find(name).expect("it is in the catalog");
    let key = |k| vec![(0, Value::Integer(k))];
    let effects = [
        Effect { table: id("z_order"), key: key(1), change: Change::Delete },
        Effect { table: id("a_line"), key: key(1), change: Change::Delete },
        Effect { table: id("a_line"), key: key(2), change: Change::Insert(vec![]) },
        Effect { table: id("z_order"), key: key(2), change: Change::Insert(vec![]) },
    ];
    let plan = plan::build(effects.iter().map(|e| (0, e)), &catalog, Order::Coalesced);
    let names: Vec<_> = plan.groups.iter().map(|g| (catalog.table(g.table).name.as_str(), g.verb)).collect();
    assert_eq!(
        names,
        [("z_order", Verb::Insert), ("a_line", Verb::Insert), ("a_line", Verb::Delete), ("z_order", Verb::Delete)]
    );
}

#[test]
fn hot_rows_are_locked_last() {
    let hot = Effect {
        table: 0,
        key: vec![(0, Value::Integer(1))],
        change: Change::Add {
            amounts: vec![(2, Value::Integer(1))],
            floor: None,
            otherwise: Guard { code: "absent".into(), reason: "no such row".into() },
        },
    };
    let made = Effect {
        table: 1,
        key: vec![(0, Value::Integer(1))],
        change: Change::Upsert(vec![(1, Value::Integer(1)), (2, Value::Integer(1))]),
    };
    let plan = plan::build([(0, &hot), (0, &made)], &catalog(), Order::Coalesced);
    assert_eq!(plan.groups.iter().map(|g| g.table).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn d02_distinct_tuples_never_meet() {
    use ackwright_core::key::{DedupKey, Identity};
    let mut seen = HashMap::new();
    let tuples: [&[&str]; 9] = [
        &["ab", "c"],
        &["a", "bc"],
        &["abc"],
        &["a", "b", "c"],
        &["", "abc"],
        &["abc", ""],
        &["NULL"],
        &["\u{0}"],
        &["a\u{1f}b", "c"],
    ];
    for group in ["one", "two"] {
        for event_type in ["A", "a"] {
            for parts in tuples {
                let business_key = parts.iter().map(|p| (*p).to_owned()).collect();
                let identity = Identity { event_type: event_type.into(), business_key, order_key: None };
                let other = seen.insert(DedupKey::compose(group, &identity), (group, event_type, parts));
                assert_eq!(other, None, "two tuples share a key");
            }
        }
    }
}

#[test]
fn d03_keys_are_compared_byte_by_byte() {
    use ackwright_core::key::{DedupKey, Identity};
    let key = |part: &str| {
        let identity = Identity { event_type: "A".into(), business_key: vec![part.into()], order_key: None };
        DedupKey::compose("group", &identity)
    };
    let spellings = ["order", "Order", "order ", " order", "caf\u{e9}", "cafe\u{301}"];
    for (at, one) in spellings.iter().enumerate() {
        for other in &spellings[at + 1..] {
            assert_ne!(key(one), key(other), "{one:?} and {other:?}");
        }
    }
}
