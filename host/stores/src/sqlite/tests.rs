//! The store against real files, each test with one of its own.
#![expect(clippy::disallowed_methods, reason = "the pipeline's commit site is not in play here")]

mod effects;
mod queues;
mod transactions;
mod types;

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::access::{Access, Grants};
use ackwright_core::catalog::Catalog;
use ackwright_core::effect::{Buffer, Effect, Guard, Limits, NamedRow};
use ackwright_core::key::DedupKey;
use ackwright_core::plan::{Order, build};
use ackwright_core::store::{ApplyError, Claim, Claimed, Refusal, Session, State, Store, Writer};
use ackwright_core::value::Value;
use sqlx::Row;
use uuid::Uuid;

use super::Sqlite;
use crate::Settings;

/// A migrated database with tables of the test's choice, removed at the end.
struct Db {
    store: Sqlite,
    catalog: Arc<Catalog>,
    url: String,
    _folder: tempfile::TempDir,
}

impl Db {
    async fn new(tables: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let store = Sqlite::open(&url, &Settings::default()).unwrap();
        store.migrate().await.unwrap();
        let mut connection = store.file.connect().await.unwrap();
        sqlx::raw_sql(tables).execute(&mut connection).await.unwrap();
        let catalog = store.catalog().await.unwrap();
        Db { store, catalog, url, _folder: folder }
    }

    async fn begun(&self) -> Box<dyn Session> {
        let mut session = self.store.session();
        session.begin().await.unwrap();
        session
    }

    fn access(&self) -> Access {
        let all: Vec<String> = self.catalog.tables().map(|(_, table)| table.name.clone()).collect();
        let grants = Grants { read: all.clone(), write: all, emit: vec!["*:*".into()] };
        Access::resolve(&grants, Arc::clone(&self.catalog)).unwrap()
    }

    /// Declares effects as messages 0, 1, 2, ... and applies them in one plan.
    async fn apply(&self, session: &mut dyn Session, declare: &[&Declare<'_>]) -> Result<(), ApplyError> {
        let mut effects: Vec<(u32, Effect)> = Vec::new();
        for (origin, declare) in declare.iter().enumerate() {
            let mut buffer = Buffer::new(Limits::default());
            declare(&mut buffer, &self.access());
            effects.extend(buffer.effects.into_iter().map(|effect| (origin as u32, effect)));
        }
        let plan = build(effects.iter().map(|(origin, effect)| (*origin, effect)), &self.catalog, Order::Coalesced);
        session.apply(&plan).await
    }

    async fn refused(&self, declare: &[&Declare<'_>]) -> Refusal {
        let mut session = self.begun().await;
        match self.apply(&mut *session, declare).await {
            Err(ApplyError::Refused(refusal)) => refusal,
            other => panic!("expected a refusal, not {other:?}"),
        }
    }

    async fn written(&self, declare: &[&Declare<'_>]) {
        let mut session = self.begun().await;
        self.apply(&mut *session, declare).await.unwrap();
        session.commit().await.unwrap();
    }

    /// The first column of the first row, over a connection of its own.
    async fn text(&self, sql: &'static str) -> String {
        let mut connection = self.store.file.connect().await.unwrap();
        sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get::<String, _>(0)
    }

    async fn number(&self, sql: &'static str) -> i64 {
        let mut connection = self.store.file.connect().await.unwrap();
        sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get::<i64, _>(0)
    }
}

type Declare<'a> = dyn Fn(&mut Buffer, &Access) + Sync + 'a;

fn row(cells: &[(&str, Value)]) -> NamedRow {
    cells.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn int(i: i64) -> Value {
    Value::Integer(i)
}

fn text(t: &str) -> Value {
    Value::Text(t.into())
}

fn guard(code: &str) -> Guard {
    Guard { code: code.into(), reason: "said the test".into() }
}

fn key(n: u128) -> DedupKey {
    DedupKey(Uuid::from_u128(n))
}

fn claim(n: u128) -> Claim {
    Claim {
        key: key(n),
        label: format!("message {n}"),
        body_hash: 7,
        writer: Writer(1),
        state: State::Done,
        retry: None,
    }
}

const SECOND: Duration = Duration::from_secs(1);
