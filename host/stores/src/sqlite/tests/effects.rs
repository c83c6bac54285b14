//! Planned effects: what is written, and whom a refusal blames.

use super::*;

const ACCOUNTS: &str = "CREATE TABLE accounts (id TEXT PRIMARY KEY NOT NULL, balance INTEGER NOT NULL,
    note TEXT UNIQUE, price DECIMAL(10,2), exact DECIMAL_TEXT, ratio REAL)";

fn account(id: &'static str, balance: i64) -> impl Fn(&mut Buffer, &Access) + Sync {
    move |b, a| b.insert(a, "accounts", row(&[("id", text(id)), ("balance", int(balance))])).unwrap()
}

fn add(
    id: &'static str,
    column: &'static str,
    amount: Value,
    floor: Option<Value>,
) -> impl Fn(&mut Buffer, &Access) + Sync {
    move |b, a| {
        let key = row(&[("id", text(id))]);
        b.add(a, "accounts", key, row(&[(column, amount.clone())]), floor.clone(), guard("funds")).unwrap();
    }
}

#[tokio::test]
async fn a_floor_refuses_with_the_guard_and_the_message() {
    let db = Db::new(ACCOUNTS).await;
    db.written(&[&account("a", 10), &account("b", 5), &account("c", 0)]).await;
    let sub = |id, n: i64| add(id, "balance", int(-n), Some(int(0)));
    db.written(&[&sub("a", 10), &sub("b", 5)]).await;
    assert_eq!(db.number("SELECT sum(balance) FROM accounts").await, 0);
    let refusal = db.refused(&[&add("a", "balance", int(3), None), &sub("c", 1)]).await;
    assert_eq!((refusal.code.as_str(), refusal.suspects.as_slice()), ("guard:funds", &[1][..]));
    assert_eq!(refusal.guard.as_deref(), Some(&guard("funds")));
    assert_eq!(db.number("SELECT sum(balance) FROM accounts").await, 0, "nothing of the refused batch stays");
}

#[tokio::test]
async fn adding_to_or_updating_an_absent_row_blames_its_message() {
    let db = Db::new(ACCOUNTS).await;
    db.written(&[&account("a", 10)]).await;
    let refusal = db.refused(&[&add("a", "balance", int(1), None), &add("zz", "balance", int(1), None)]).await;
    assert_eq!((refusal.code.as_str(), refusal.suspects.as_slice()), ("guard:funds", &[1][..]));
    let update = |id: &'static str| {
        move |b: &mut Buffer, a: &Access| {
            let set = row(&[("balance", int(1))]);
            b.update(a, "accounts", row(&[("id", text(id))]), set, guard("gone")).unwrap();
        }
    };
    let refusal = db.refused(&[&update("zz"), &update("a")]).await;
    assert_eq!((refusal.code.as_str(), refusal.suspects.as_slice()), ("guard:gone", &[0][..]));
}

#[tokio::test]
async fn t11_an_integer_sum_that_overflows_is_refused_and_never_a_float() {
    let db = Db::new(ACCOUNTS).await;
    db.written(&[&account("a", i64::MAX - 1), &account("b", 0)]).await;
    let plus = |id, n| add(id, "balance", int(n), None);
    let refusal = db.refused(&[&plus("b", 1), &plus("a", 2)]).await;
    assert_eq!((refusal.code.as_str(), refusal.suspects.as_slice()), ("data:out-of-range", &[1][..]));
    db.written(&[&plus("a", 1)]).await;
    assert_eq!(
        db.text("SELECT typeof(balance) || balance FROM accounts WHERE id = 'a'").await,
        format!("integer{}", i64::MAX)
    );
}

#[tokio::test]
async fn t11_decimals_add_exactly_and_null_takes_no_sum() {
    let db = Db::new(ACCOUNTS).await;
    let decimal = |t: &str| Value::Decimal(t.into());
    let insert = |b: &mut Buffer, a: &Access| {
        let cells = [
            ("id", text("a")),
            ("balance", int(0)),
            ("price", decimal("0.1")),
            ("exact", decimal("12345678901234567890.1")),
        ];
        b.insert(a, "accounts", row(&cells)).unwrap();
    };
    db.written(&[&insert]).await;
    db.written(&[&add("a", "price", decimal("0.2"), None)]).await;
    db.written(&[&add("a", "exact", decimal("0.2"), Some(decimal("9")))]).await;
    assert_eq!(db.text("SELECT price || ' ' || exact FROM accounts").await, "0.3 12345678901234567890.3");
    let refusal = db.refused(&[&add("a", "exact", decimal("-12345678901234567890"), Some(decimal("9")))]).await;
    assert_eq!(refusal.code, "guard:funds");
    let refusal = db.refused(&[&add("a", "ratio", Value::Float(0.5), None)]).await;
    assert_eq!(refusal.code, "data:null");
}

#[tokio::test]
async fn d08_constraints_are_named_and_the_row_to_blame_is_found() {
    let db = Db::new(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY);
         CREATE TABLE t (id INTEGER PRIMARY KEY, code TEXT UNIQUE, n INTEGER CONSTRAINT positive CHECK (n > 0),
            must TEXT NOT NULL DEFAULT 'x', p INTEGER REFERENCES parents (id))",
    )
    .await;
    // A CHECK keeps columns from folding, so each message is a row of its own.
    let insert = |id: i64, column: &'static str, value: Value| {
        move |b: &mut Buffer, a: &Access| b.insert(a, "t", row(&[("id", int(id)), (column, value.clone())])).unwrap()
    };
    db.written(&[&insert(1, "code", text("a"))]).await;
    for (column, good, bad, code, retry) in [
        ("code", text("fresh"), text("a"), "constraint:t.code", false),
        ("n", int(1), int(0), "constraint:positive", false),
        ("p", Value::Null, int(7), "constraint:foreign-key", true),
    ] {
        let rows: Vec<_> = (0..100)
            .map(|i| {
                insert(
                    100 + i,
                    column,
                    if i == 63 {
                        bad.clone()
                    } else if column == "code" {
                        text(&format!("c{i}"))
                    } else {
                        good.clone()
                    },
                )
            })
            .collect();
        let declares: Vec<&Declare<'_>> = rows.iter().map(|d| d as &Declare<'_>).collect();
        let refusal = db.refused(&declares).await;
        assert_eq!((refusal.code.as_str(), refusal.retry, refusal.suspects.as_slice()), (code, retry, &[63][..]));
    }
    let refusal = db.refused(&[&insert(1, "n", int(5))]).await;
    assert_eq!(refusal.code, "constraint:t.id");
}

#[tokio::test]
async fn upserts_write_and_only_newer_versions_win() {
    let db = Db::new("CREATE TABLE p (id INTEGER PRIMARY KEY, v DECIMAL_TEXT NOT NULL, n INTEGER NOT NULL, name TEXT)")
        .await;
    let newer = |id: i64, n: i64, name: &'static str| {
        move |b: &mut Buffer, a: &Access| {
            let cells = [("id", int(id)), ("v", Value::Decimal(n.to_string())), ("n", int(n)), ("name", text(name))];
            b.upsert_if_newer(a, "p", &["id".into()], "n", row(&cells)).unwrap();
        }
    };
    let exact = |id: i64, v: &'static str, name: &'static str| {
        move |b: &mut Buffer, a: &Access| {
            let cells = [("id", int(id)), ("v", Value::Decimal(v.into())), ("n", int(1)), ("name", text(name))];
            b.upsert_if_newer(a, "p", &["id".into()], "v", row(&cells)).unwrap();
        }
    };
    db.written(&[&newer(1, 5, "five"), &exact(2, "9", "nine")]).await;
    db.written(&[&newer(1, 4, "four"), &exact(2, "8.9", "less")]).await;
    assert_eq!(db.text("SELECT group_concat(name) FROM (SELECT name FROM p ORDER BY id)").await, "five,nine");
    db.written(&[&newer(1, 6, "six"), &exact(2, "10", "ten")]).await;
    assert_eq!(db.text("SELECT group_concat(name) FROM (SELECT name FROM p ORDER BY id)").await, "six,ten");
    let absent = |b: &mut Buffer, a: &Access| {
        let cells = [("id", int(1)), ("v", Value::Decimal("0".into())), ("n", int(0)), ("name", text("lost"))];
        b.insert_if_absent(a, "p", &["id".into()], row(&cells)).unwrap();
    };
    let delete = |b: &mut Buffer, a: &Access| b.delete(a, "p", row(&[("id", int(2))])).unwrap();
    db.written(&[&absent, &delete]).await;
    assert_eq!(db.text("SELECT group_concat(name) FROM p").await, "six");
}

#[tokio::test]
async fn a_table_that_went_missing_is_no_message_of_the_batch_to_blame() {
    let db = Db::new("CREATE TABLE t (id INTEGER PRIMARY KEY)").await;
    let mut connection = db.store.file.connect().await.unwrap();
    sqlx::raw_sql("DROP TABLE t").execute(&mut connection).await.unwrap();
    let mut session = db.begun().await;
    let insert = |b: &mut Buffer, a: &Access| b.insert(a, "t", row(&[("id", int(1))])).unwrap();
    assert!(matches!(db.apply(&mut *session, &[&insert]).await, Err(ApplyError::System(_))));
}

#[tokio::test]
async fn t09_plugin_sql_cannot_control_the_transaction() {
    use ackwright_core::store::Purpose;
    let db = Db::new("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)").await;
    let access = db.access();
    for sql in [
        "COMMIT",
        "BEGIN",
        "DROP TABLE t",
        "PRAGMA foreign_keys = OFF",
        "ATTACH 'x' AS y",
        "SELECT * FROM ackwright_inbox",
        "VACUUM",
    ] {
        assert!(db.store.admit(sql, &access, Purpose::Execute).is_err(), "{sql}");
        assert!(db.store.admit(sql, &access, Purpose::Query).is_err(), "{sql}");
    }
    let insert = db.store.admit("INSERT INTO t (id, name) VALUES (?, ?)", &access, Purpose::Execute).unwrap();
    let select =
        db.store.admit("SELECT id, name, id + 1 AS next FROM t WHERE id >= ?", &access, Purpose::Query).unwrap();
    let mut session = db.begun().await;
    assert_eq!(session.execute(&insert, &[int(1), text("one")]).await.unwrap(), 1);
    assert_eq!(session.execute(&insert, &[int(2), Value::Null]).await.unwrap(), 1);
    let rows = session.query(&select, &[int(1)], 10).await.unwrap();
    assert_eq!(rows.columns, ["id", "name", "next"]);
    assert_eq!(rows.rows, [[int(1), text("one"), int(2)], [int(2), Value::Null, int(3)]]);
    assert!(session.query(&select, &[int(1)], 1).await.is_err(), "more rows than asked for are an error");
    assert!(session.query(&select, &[], 10).await.is_err(), "a missing parameter is never NULL");
    assert_eq!(session.query(&select, &[int(9)], 10).await.unwrap().columns, ["id", "name", "next"]);
    match session.execute(&insert, &[int(1), text("again")]).await {
        Err(ApplyError::Refused(refusal)) => assert_eq!(refusal.code, "constraint:t.id"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn deletes_by_a_key_of_two_columns_take_those_rows_only() {
    let db = Db::new(
        "CREATE TABLE k (a INTEGER, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
         WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 299)
         INSERT INTO k SELECT i / 10, 'b' || (i % 10) FROM n",
    )
    .await;
    let deletes: Vec<_> = (0..299_i64)
        .map(|i| {
            move |b: &mut Buffer, a: &Access| {
                let key = row(&[("a", int(i / 10)), ("b", text(&format!("b{}", i % 10)))]);
                b.delete(a, "k", key).unwrap();
            }
        })
        .collect();
    let deletes: Vec<&Declare<'_>> = deletes.iter().map(|d| d as &Declare<'_>).collect();
    db.written(&deletes).await;
    assert_eq!(db.text("SELECT group_concat(a || b) FROM k").await, "29b9");
}
