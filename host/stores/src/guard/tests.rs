//! What gets through and what does not.

use std::sync::Arc;

use ackwright_core::access::Grants;
use ackwright_core::catalog::{Catalog, Column, Kind, Table, UniqueKey};

use super::*;

fn access() -> Access {
    let column = |name: &str| Column {
        name: name.into(),
        kind: Kind::Text { most: None },
        native: "text".into(),
        nullable: true,
        defaulted: false,
        generated: false,
        foldable: true,
    };
    let table = |name: &str| {
        let key = UniqueKey { name: "pk".into(), columns: vec![0] };
        Table::new(name, vec![column("id"), column("status")], vec![key])
    };
    let names = ["orders", "coupons", "secret", "billing.bills", "Odd", "narrow"];
    let catalog = Arc::new(Catalog::new(names.into_iter().map(table).collect()));
    let grants = Grants {
        read: ["orders", "billing.bills", "Odd", "narrow(id)"].map(Into::into).into(),
        write: ["coupons", "narrow(id)"].map(Into::into).into(),
        emit: Vec::new(),
    };
    Access::resolve(&grants, catalog).unwrap()
}

fn admit(sql: &str, purpose: Purpose) -> Result<Statement, effect::Error> {
    Guard::new(Dialect::Postgres).admit(sql, &access(), purpose)
}

#[test]
fn plain_reads_of_granted_tables_get_through() {
    for sql in [
        "SELECT id FROM orders WHERE id = $1",
        "select O.id from ORDERS as o join billing.bills b on b.id = o.id",
        "SELECT count(*), sum(length(status)) FROM orders GROUP BY status ORDER BY 1 LIMIT 5",
        "WITH x AS (SELECT id FROM orders) SELECT * FROM x",
        "WITH RECURSIVE x AS (SELECT id FROM orders UNION ALL SELECT id FROM x) SELECT * FROM x",
        "SELECT * FROM orders WHERE id IN (SELECT id FROM billing.bills)",
        "SELECT * FROM \"Odd\"",
        "SELECT 1 -- ; DROP TABLE orders",
        "SELECT ';COMMIT' FROM orders",
        "SELECT * FROM unnest($1::text[]) AS u(id) JOIN orders o ON o.id = u.id",
        "SELECT pg_catalog.lower(status) FROM orders;",
        "SELECT CAST(status AS int) FROM orders UNION SELECT 1",
    ] {
        admit(sql, Purpose::Query).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}

#[test]
fn plain_writes_of_granted_tables_get_through() {
    for sql in [
        "INSERT INTO coupons (id, status) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status",
        "INSERT INTO coupons SELECT id, status FROM orders WHERE id = $1",
        "UPDATE coupons SET status = 'x' WHERE id IN (SELECT id FROM orders)",
        "UPDATE coupons AS c SET status = o.status FROM orders o WHERE o.id = c.id",
        "DELETE FROM coupons USING orders WHERE orders.id = coupons.id",
    ] {
        let statement = admit(sql, Purpose::Execute).unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert!(!statement.tables.is_empty());
    }
}

#[test]
fn t09_transaction_control_ddl_and_sessions_are_refused() {
    for sql in [
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT a",
        "RELEASE SAVEPOINT a",
        "START TRANSACTION",
        "END",
        "SET search_path = x",
        "SET LOCAL statement_timeout = 0",
        "RESET ALL",
        "DISCARD ALL",
        "SHOW search_path",
        "CREATE TABLE x (a int)",
        "CREATE TABLE x AS SELECT * FROM orders",
        "DROP TABLE orders",
        "TRUNCATE orders",
        "ALTER TABLE orders ADD x int",
        "GRANT ALL ON orders TO public",
        "COPY orders TO '/tmp/x'",
        "CALL p()",
        "DO $$ BEGIN END $$",
        "LOCK TABLE orders",
        "LISTEN x",
        "NOTIFY x",
        "VACUUM",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "DECLARE c CURSOR FOR SELECT 1",
        "EXPLAIN ANALYZE SELECT 1",
        "MERGE INTO coupons USING orders ON true \
         WHEN MATCHED THEN DELETE",
        "",
        ";",
        "SELECT 1; COMMIT",
        "SELECT 1;SELECT 2",
        "/* x */ COMMIT /* y */",
        "cOmMiT",
        "TABLE orders",
        "SELECT * FROM (TABLE secret) x",
        "SELECT 1 UNION TABLE secret",
    ] {
        for purpose in [Purpose::Query, Purpose::Execute] {
            assert!(admit(sql, purpose).is_err(), "{sql:?} got through as {purpose:?}");
        }
    }
}

#[test]
fn what_leaves_the_transaction_is_refused() {
    for call in [
        "pg_sleep(10)",
        "pg_catalog.pg_sleep(10)",
        "\"pg_sleep\"(1)",
        "PG_SLEEP(1)",
        "pg_advisory_lock(1)",
        "pg_advisory_xact_lock(1)",
        "set_config('a', 'b', false)",
        "current_setting('a')",
        "dblink('x', 'y')",
        "dblink_exec('x', 'y')",
        "lo_import('/etc/passwd')",
        "lo_unlink(1)",
        "nextval('s')",
        "setval('s', 1)",
        "pg_read_file('x')",
        "pg_ls_dir('/')",
        "pg_terminate_backend(1)",
        "pg_cancel_backend(1)",
        "pg_notify('a', 'b')",
        "query_to_xml('SELECT 1', true, true, '')",
        "table_to_xml('secret', true, true, '')",
        "txid_current()",
        "pg_export_snapshot()",
        "now()",
        "random()",
        "gen_random_uuid()",
        "clock_timestamp()",
        "current_user",
        "current_timestamp",
        "public.lower('x')",
        "mine.f(1)",
        "version()",
        "load_extension('x')",
    ] {
        let sql = format!("SELECT {call} FROM orders");
        assert!(admit(&sql, Purpose::Query).is_err(), "{sql}");
        let sql = format!("UPDATE coupons SET status = 'x' WHERE id = (SELECT {call}::text)");
        assert!(admit(&sql, Purpose::Execute).is_err(), "{sql}");
        let sql = format!("SELECT * FROM orders ORDER BY (SELECT {call}) LIMIT 1");
        assert!(admit(&sql, Purpose::Query).is_err(), "{sql}");
    }
    assert!(admit("SELECT * FROM pg_ls_dir('/')", Purpose::Query).is_err());
    assert!(admit("SELECT * FROM orders, LATERAL pg_sleep(1)", Purpose::Query).is_err());
}

#[test]
fn ungranted_tables_are_denied_wherever_they_stand() {
    for sql in [
        "SELECT * FROM secret",
        "SELECT * FROM \"secret\"",
        "SELECT * FROM /**/secret",
        "SELECT (SELECT max(id) FROM secret) FROM orders",
        "SELECT * FROM orders WHERE EXISTS (SELECT 1 FROM secret)",
        "SELECT * FROM orders JOIN secret ON true",
        "SELECT * FROM orders UNION SELECT * FROM secret",
        "WITH a AS (SELECT * FROM secret) SELECT * FROM a",
        // The first use of the name is the table, whatever is called so later.
        "WITH a AS (SELECT * FROM secret), secret AS (SELECT 1) SELECT * FROM a",
        "WITH secret AS (SELECT * FROM secret) SELECT * FROM secret",
        "SELECT * FROM (WITH secret AS (SELECT 1) SELECT 1) x, secret",
        "SELECT * FROM public.secret",
        "SELECT * FROM odd",
        "SELECT * FROM narrow",
        "SELECT * FROM pg_class",
        "SELECT * FROM pg_catalog.pg_authid",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM ackwright_inbox",
        "WITH a AS (SELECT * FROM ackwright_inbox), ackwright_inbox AS (SELECT 1) SELECT * FROM a",
        "SELECT * FROM a.b.c",
        "SELECT * FROM orders FOR UPDATE",
        "SELECT * INTO x FROM orders",
        "SELECT * FROM orders TABLESAMPLE SYSTEM (10)",
        "WITH x AS (DELETE FROM coupons RETURNING *) SELECT * FROM x",
        "WITH x AS (INSERT INTO coupons VALUES ('a') RETURNING *) SELECT * FROM x",
        "INSERT INTO coupons VALUES ('a')",
    ] {
        assert!(admit(sql, Purpose::Query).is_err(), "{sql}");
    }
    for sql in [
        "INSERT INTO orders VALUES ('a')",
        "INSERT INTO coupons SELECT * FROM secret",
        "INSERT INTO coupons SELECT * FROM coupons",
        "UPDATE orders SET status = 'x'",
        "UPDATE narrow SET id = 'x'",
        "UPDATE coupons SET status = (SELECT max(status) FROM secret)",
        "UPDATE coupons SET status = secret.status FROM secret",
        "DELETE FROM orders",
        "DELETE FROM coupons USING secret",
        "DELETE FROM coupons RETURNING *",
        "INSERT INTO coupons VALUES ('a') ON CONFLICT (id) DO UPDATE SET status = (SELECT max(id) FROM secret)",
        "WITH x AS (SELECT 1) DELETE FROM coupons",
        "SELECT 1",
        "INSERT INTO ackwright_inbox VALUES (1)",
    ] {
        assert!(admit(sql, Purpose::Execute).is_err(), "{sql}");
    }
}

#[test]
fn sql_that_cannot_be_read_is_refused() {
    let long = format!("SELECT '{}'", "x".repeat(LENGTH_LIMIT));
    let deep = format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    let name = format!("SELECT * FROM {}", "o".repeat(70));
    for sql in [&long, &deep, &name, "SELEC 1", "SELECT 'a", "SELECT \0", "SELECT * FROM orders WHERE id = :x"] {
        assert!(admit(sql, Purpose::Query).is_err());
    }
}

#[test]
fn what_runs_is_what_was_checked() {
    let statement = admit("SELECT/*! secret */ id FROM orders -- FROM secret", Purpose::Query).unwrap();
    assert_eq!(&*statement.sql, "SELECT id FROM orders");
}

#[test]
fn sqlite_folds_names_its_own_way() {
    let guard = Guard::new(Dialect::Sqlite);
    assert!(guard.admit("SELECT * FROM \"ORDERS\" WHERE id = ?", &access(), Purpose::Query).is_ok());
    for sql in [
        "SELECT * FROM sqlite_master",
        "PRAGMA user_version",
        "ATTACH DATABASE 'x' AS y",
        "SELECT load_extension('x')",
        "INSERT OR IGNORE INTO coupons VALUES (1)",
        "REPLACE INTO coupons VALUES (1)",
    ] {
        assert!(guard.admit(sql, &access(), Purpose::Query).is_err(), "{sql}");
        assert!(guard.admit(sql, &access(), Purpose::Execute).is_err(), "{sql}");
    }
}
