//! The type matrix: each value comes back exactly as it was written, or an error says why not.

use ackwright_core::store::ReadError;

use super::*;

const MATRIX: &str =
    "CREATE TABLE m (id INTEGER PRIMARY KEY, b BOOLEAN, i BIGINT, r DOUBLE, d DECIMAL(15,4), n NUMERIC,
    x DECIMAL_TEXT, s TEXT, v VARCHAR(3), y BLOB, ts TIMESTAMP, u UUID, ub UUID_BLOB, j JSON, jt JSON_TEXT, day DATE)";

async fn back(db: &Db, column: &'static str, value: Value) -> Value {
    let table = db.catalog.find("m").unwrap();
    let known = db.catalog.table(table);
    let cells = value.clone();
    db.written(&[&|b: &mut Buffer, a: &Access| {
        b.upsert(a, "m", &["id".into()], row(&[("id", int(1)), (column, cells.clone())])).unwrap()
    }])
    .await;
    let mut session = db.begun().await;
    let key = vec![(known.find("id").unwrap(), int(1))];
    session.get(table, &key, &[known.find(column).unwrap()], false).await.unwrap().unwrap().remove(0)
}

#[tokio::test]
async fn t11_every_type_makes_the_round_trip() {
    let db = Db::new(MATRIX).await;
    let decimal = |t: &str| Value::Decimal(t.into());
    let json = |t: &str| Value::Json(t.into());
    let uuid = Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
    let values = [
        ("b", Value::Boolean(true)),
        ("b", Value::Boolean(false)),
        ("b", Value::Null),
        ("i", int(i64::MIN)),
        ("i", int(i64::MAX)),
        ("r", Value::Float(0.1 + 0.2)),
        ("r", Value::Float(1e300)),
        ("r", Value::Float(5.0)),
        ("r", Value::Float(f64::MIN_POSITIVE / 8.0)),
        ("r", Value::Float(f64::INFINITY)),
        ("d", decimal("12345678901.2345")),
        ("d", decimal("-0.0001")),
        ("d", decimal("0")),
        ("n", decimal("9223372036854775807")),
        ("n", decimal("0.000001")),
        ("x", decimal("123456789012345678901234567890.123456789")),
        ("s", text("")),
        ("s", text("1.50")),
        ("s", text("a\0b \u{1F600}")),
        ("v", text("\u{e9}\u{e9}\u{e9}")),
        ("y", Value::Bytes(bytes::Bytes::new())),
        ("y", Value::Bytes((0..=255).collect::<Vec<u8>>().into())),
        ("ts", Value::Timestamp(-1)),
        ("ts", Value::Timestamp(1_764_543_801_123_456)),
        ("u", Value::Uuid(uuid)),
        ("ub", Value::Uuid(uuid)),
        ("j", json("{\"a\": [1, 1.50]}")),
        ("j", json("7")),
        ("jt", json("1.50")),
        ("day", text("2026-01-31")),
    ];
    for (column, value) in values {
        let found = back(&db, column, value.clone()).await;
        assert_eq!(found, value, "column {column}");
        if let (Value::Float(a), Value::Float(b)) = (&found, &value) {
            assert_eq!(a.to_bits(), b.to_bits());
        }
    }
}

#[tokio::test]
async fn t11_what_sqlite_would_change_is_refused() {
    let db = Db::new(MATRIX).await;
    for (column, value) in [
        ("r", Value::Float(f64::NAN)),
        ("r", Value::Float(-0.0)),
        ("n", Value::Decimal("0.1234567890123456".into())),
        ("n", Value::Decimal("9223372036854775808".into())),
        ("j", Value::Json("1.50".into())),
        ("day", text("2026")),
    ] {
        let refusal =
            db.refused(&[&|b, a| b.insert(a, "m", row(&[("id", int(1)), (column, value.clone())])).unwrap()]).await;
        assert_eq!((refusal.code.as_str(), refusal.suspects.as_slice()), ("data:not-exact", &[0][..]), "{column}");
    }
}

#[tokio::test]
async fn t11_rows_that_hold_something_else_than_declared_are_errors() {
    let db = Db::new(
        "CREATE TABLE m (id INTEGER PRIMARY KEY, i INTEGER, b BOOLEAN, s TEXT, u UUID, ts DATETIME, d NUMERIC);
         INSERT INTO m VALUES (1, 'x', 2, x'00', 'ABC', 'soon', 0.1 + 0.2);
         INSERT INTO m (id, ts) VALUES (2, '2026-01-31 12:00:00')",
    )
    .await;
    let table = db.catalog.find("m").unwrap();
    let known = db.catalog.table(table);
    let mut session = db.begun().await;
    for column in ["i", "b", "s", "u", "ts", "d"] {
        let key = vec![(known.find("id").unwrap(), int(1))];
        match session.get(table, &key, &[known.find(column).unwrap()], false).await {
            Err(ReadError::Invalid(why)) => assert!(why.contains(&format!("column {column} is declared")), "{why}"),
            other => panic!("column {column}: {other:?}"),
        }
    }
    let key = vec![(known.find("id").unwrap(), int(2))];
    let read = session.get(table, &key, &[known.find("ts").unwrap()], false).await.unwrap().unwrap();
    assert_eq!(read, [Value::Timestamp(1_769_860_800_000_000)]);
}

#[tokio::test]
async fn queries_decode_by_the_declared_type_of_the_column_behind() {
    use ackwright_core::store::Purpose;
    let db =
        Db::new("CREATE TABLE t (id INTEGER PRIMARY KEY, ok BOOLEAN, at TIMESTAMP); INSERT INTO t VALUES (1, 1, 5)")
            .await;
    let select = db.store.admit("SELECT ok, at AS seen FROM t", &db.access(), Purpose::Query).unwrap();
    let rows = db.begun().await.query(&select, &[], 10).await.unwrap();
    assert_eq!(rows.rows, [[Value::Boolean(true), Value::Timestamp(5)]]);
}

#[tokio::test]
async fn the_catalog_tells_keys_parents_and_what_may_be_folded() {
    let db = Db::new(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY, name TEXT);
         CREATE TABLE kids (a TEXT, b TEXT COLLATE NOCASE UNIQUE, p INTEGER REFERENCES Parents ON DELETE CASCADE,
            n INTEGER, twice INTEGER AS (n * 2), PRIMARY KEY (a, n)) WITHOUT ROWID;
         CREATE TABLE checked (id INTEGER PRIMARY KEY, n INTEGER CHECK (n > 0));
         CREATE TABLE plain (id INTEGER PRIMARY KEY, n INTEGER NOT NULL DEFAULT 1, m INTEGER UNIQUE);
         CREATE TABLE keyless (n INTEGER);
         CREATE TRIGGER watch AFTER INSERT ON keyless BEGIN SELECT 1; END",
    )
    .await;
    let names: Vec<_> = db.catalog.tables().map(|(_, t)| t.name.as_str()).collect();
    assert_eq!(names, ["checked", "keyless", "kids", "parents", "plain"]);
    let table = |name: &str| db.catalog.table(db.catalog.find(name).unwrap());
    let kids = table("kids");
    assert_eq!(kids.keys.len(), 1, "a key that folds case is not offered");
    assert_eq!(kids.keys[0].name, "kids.a,kids.n");
    assert_eq!(kids.parents, ["parents"]);
    assert!(kids.observed && table("parents").observed && table("keyless").observed && !table("plain").observed);
    assert!(table("parents").rank < kids.rank);
    assert!(kids.columns[4].generated && !kids.columns[0].nullable);
    assert!(table("keyless").keys.is_empty());
    let fold = |name: &str| table(name).columns.iter().map(|c| c.foldable).collect::<Vec<_>>();
    assert_eq!(fold("plain"), [false, true, false]);
    assert_eq!(fold("checked"), [false, false]);
    assert_eq!(fold("parents"), [false, true]);
    let plain = table("plain");
    assert!(plain.columns[0].defaulted && plain.columns[1].defaulted && !plain.columns[2].defaulted);
    assert!(!plain.columns[0].nullable && !plain.columns[1].nullable && plain.columns[2].nullable);
}
