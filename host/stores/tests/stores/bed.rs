//! A fresh database with the tables that the suite writes, and short ways to ask a store for things.

use std::sync::Arc;

use ackwright_core::access::{Access, Grants};
use ackwright_core::catalog::{Catalog, ColumnId, TableId};
use ackwright_core::key::{DedupKey, Identity};
use ackwright_core::plan::{Group, Plan, Row, Verb};
use ackwright_core::store::{Claim, CommitError, Session, State, Store, Writer};
use ackwright_core::value::Value;
use ackwright_stores::Settings;
use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;

const TABLES: &str = "
    CREATE TABLE coupons (id text PRIMARY KEY, order_id bigint NOT NULL CONSTRAINT one_an_order UNIQUE,
                          amount bigint NOT NULL CONSTRAINT positive CHECK (amount > 0));
    CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE profiles (id text PRIMARY KEY, version bigint NOT NULL, name text);
    CREATE TABLE lines (id bigint PRIMARY KEY, coupon text NOT NULL REFERENCES coupons (id));";

pub struct Bed {
    pub url: String,
    pub store: Arc<dyn Store>,
    pub catalog: Arc<Catalog>,
    pub writer: Writer,
    pub _folder: Option<TempDir>,
}

pub async fn postgres() -> Bed {
    let url = ackwright_testkit::postgres().await.database().await;
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    connection.execute(TABLES).await.unwrap();
    Bed::over(url, None).await
}

pub async fn sqlite() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    ackwright_stores::migrate(&url).await.unwrap();
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    connection.execute(TABLES).await.unwrap();
    connection.close().await.unwrap();
    Bed::over(url, Some(folder)).await
}

impl Bed {
    async fn over(url: String, folder: Option<TempDir>) -> Bed {
        ackwright_stores::migrate(&url).await.unwrap();
        let store = ackwright_stores::open(&url, &Settings::default()).unwrap();
        let catalog = store.catalog().await.unwrap();
        let writer = store.writer("group", "plugin", "digest").await.unwrap();
        Bed { url, store, catalog, writer, _folder: folder }
    }

    pub fn table(&self, name: &str) -> TableId {
        self.catalog.find(name).unwrap()
    }

    pub fn columns(&self, table: &str, names: &[&str]) -> Vec<ColumnId> {
        let table = self.catalog.table(self.table(table));
        names.iter().map(|name| table.find(name).unwrap()).collect()
    }

    pub fn access(&self) -> Access {
        let grants = Grants { read: vec!["accounts".into()], write: vec!["accounts".into()], emit: Vec::new() };
        Access::resolve(&grants, Arc::clone(&self.catalog)).unwrap()
    }

    pub fn claim(&self, key: DedupKey, body_hash: i64) -> Claim {
        Claim { key, label: "label".into(), body_hash, writer: self.writer, state: State::Done, retry: None }
    }

    pub fn group(&self, table: &str, verb: Verb, key: &[&str], columns: &[&str], rows: Vec<Row>) -> Plan {
        let group = Group {
            table: self.table(table),
            verb,
            key: self.columns(table, key),
            columns: self.columns(table, columns),
            rows,
        };
        Plan { groups: vec![group] }
    }

    pub async fn open(&self) -> Box<dyn Session> {
        let mut session = self.store.session();
        session.begin().await.unwrap();
        session
    }

    /// The row as a transaction of its own sees it.
    pub async fn row(&self, table: &str, key: &str, columns: &[&str]) -> Option<Vec<Value>> {
        let mut session = self.open().await;
        let key = vec![(self.columns(table, &["id"])[0], Value::Text(key.into()))];
        let row = session.get(self.table(table), &key, &self.columns(table, columns), false).await.unwrap();
        session.rollback().await;
        row
    }

    pub async fn sql(&self, sql: &str) {
        let sql = AssertSqlSafe(sql);
        if self.url.starts_with("sqlite:") {
            let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
            connection.execute(sql).await.unwrap();
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
            connection.execute(sql).await.unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the suite tests the commit itself")]
pub async fn commit(session: &mut dyn Session) -> Result<(), CommitError> {
    session.commit().await
}

pub fn key(parts: &[&str]) -> DedupKey {
    let business_key = parts.iter().map(|p| (*p).to_owned()).collect();
    DedupKey::compose("group", &Identity { event_type: "EVENT".into(), business_key, order_key: None })
}

pub fn text(text: &str) -> Value {
    Value::Text(text.into())
}

pub fn row(key: Value, values: Vec<Value>, origin: u32) -> Row {
    Row { key: vec![key], values, floors: Vec::new(), guard: None, origins: vec![origin] }
}
