//! PostgreSQL.

mod inbox;
mod link;
mod native;
mod numeric;
mod outbox;
mod parked;
mod refusal;
mod schema;
mod session;
mod wire;
mod write;

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use ackwright_core::access::Access;
use ackwright_core::catalog::Catalog;
use ackwright_core::store::{Capabilities, Error, Purpose, Statement, Writer};
use ackwright_core::{effect, store};
use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, Row};
use tokio::sync::OnceCell;
use uuid::Uuid;

use self::link::Link;
use self::native::Param;
use self::schema::{Schema, Shape};
use self::wire::Wire;
use self::write::Form;
use crate::guard::{Dialect, Guard};
use crate::migrate::{self, Step};
use crate::{OpenError, Settings, fault};

const STEPS: &[Step] =
    &[Step { version: 1, name: "tables", sql: include_str!("../../../../migrations/postgres/0001_tables.sql") }];

/// Statement texts that are kept; tables times verbs times sets of columns are few.
const TEXTS: usize = 4096;

pub struct Store {
    shared: Arc<Shared>,
    outbox: Arc<outbox::Outbox>,
    parked: Arc<parked::Parked>,
}

struct Shared {
    options: PgConnectOptions,
    settings: Settings,
    /// **Invariant:** ids of tables mean the same to all sessions of a store, so it reads its catalog once; a
    /// changed schema takes a new store.
    schema: OnceCell<Arc<Schema>>,
    guard: Guard,
    texts: Mutex<HashMap<Form, Arc<str>>>,
    writers: Mutex<HashMap<(String, String, String), Writer>>,
    link: Link,
}

impl Store {
    /// Checks the URL and connects when something is first asked.
    pub fn connect_lazy(url: &str, settings: Settings) -> Result<Arc<dyn store::Store>, OpenError> {
        let options = options(url)?;
        let link = || Link::new(options.clone(), settings.clone());
        let outbox = Arc::new(outbox::Outbox { link: Arc::new(link()) });
        let parked = Arc::new(parked::Parked { link: Arc::new(link()) });
        let link = link();
        let shared = Shared {
            options,
            settings,
            schema: OnceCell::new(),
            guard: Guard::new(Dialect::Postgres),
            texts: Mutex::default(),
            writers: Mutex::default(),
            link,
        };
        Ok(Arc::new(Store { shared: Arc::new(shared), outbox, parked }))
    }
}

impl Shared {
    async fn schema(&self, wire: &mut Wire) -> Result<Arc<Schema>, Error> {
        let read = async || Ok(Arc::new(schema::introspect(wire).await?));
        self.schema.get_or_try_init(read).await.cloned()
    }

    fn sql(&self, form: &Form, shape: &Shape) -> Arc<str> {
        let mut texts = self.texts.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(sql) = texts.get(form) {
            return Arc::clone(sql);
        }
        if texts.len() >= TEXTS {
            texts.clear();
        }
        let sql: Arc<str> = form.sql(shape).into();
        texts.insert(form.clone(), Arc::clone(&sql));
        sql
    }
}

#[async_trait]
impl store::Store for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities { concurrent_writers: true, savepoints: true }
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, Error> {
        if let Some(schema) = self.shared.schema.get() {
            return Ok(Arc::clone(&schema.catalog));
        }
        let mut wire = Wire::open(&self.shared.options, &self.shared.settings).await?;
        let schema = self.shared.schema(&mut wire).await?;
        wire.close().await;
        Ok(Arc::clone(&schema.catalog))
    }

    async fn writer(&self, group: &str, plugin: &str, digest: &str) -> Result<Writer, Error> {
        const ATTEMPTED: &str = "name the writer of inbox rows";
        // The insert comes second, so that the usual case draws no number.
        const FIND: &str = "SELECT id FROM ackwright_writer WHERE consumer_group = $1 AND plugin = $2 AND digest = $3";
        const ADD: &str = "INSERT INTO ackwright_writer (consumer_group, plugin, digest) VALUES ($1, $2, $3)
            ON CONFLICT (consumer_group, plugin, digest) DO NOTHING";
        let who = (group.to_owned(), plugin.to_owned(), digest.to_owned());
        if let Some(known) = self.shared.writers.lock().unwrap_or_else(|e| e.into_inner()).get(&who) {
            return Ok(*known);
        }
        let params = || vec![Param::text(group), Param::text(plugin), Param::text(digest)];
        let mut rows = self.shared.link.rows(ATTEMPTED, FIND, params()).await?;
        if rows.is_empty() {
            self.shared.link.affected(ATTEMPTED, ADD, params()).await?;
            rows = self.shared.link.rows(ATTEMPTED, FIND, params()).await?;
        }
        let row = rows.first().ok_or_else(|| fault::system(ATTEMPTED, sqlx::Error::RowNotFound))?;
        let writer = Writer(row.try_get(0).map_err(|e| fault::system(ATTEMPTED, e))?);
        self.shared.writers.lock().unwrap_or_else(|e| e.into_inner()).insert(who, writer);
        Ok(writer)
    }

    fn session(&self) -> Box<dyn store::Session> {
        Box::new(session::Session::new(Arc::clone(&self.shared)))
    }

    fn admit(&self, sql: &str, access: &Access, purpose: Purpose) -> Result<Statement, effect::Error> {
        self.shared.guard.admit(sql, access, purpose)
    }

    fn outbox(&self) -> Arc<dyn ackwright_core::outbox::Store> {
        Arc::clone(&self.outbox) as _
    }

    fn parked(&self) -> Arc<dyn ackwright_core::parked::Store> {
        Arc::clone(&self.parked) as _
    }
}

/// Applies what is missing, one host at a time; running it again does nothing. Returns the names of what was applied.
pub async fn migrate(url: &str) -> Result<Vec<String>, migrate::Error> {
    let missing = pending(url).await?;
    if !missing.is_empty() {
        let mut wire = open(url).await?;
        wire.migrate(&migrate::migrator(STEPS)).await.map_err(migrate::Error::Failed)?;
        wire.close().await;
    }
    Ok(missing)
}

/// Names of the migrations that the database lacks.
pub async fn pending(url: &str) -> Result<Vec<String>, migrate::Error> {
    let mut wire = open(url).await?;
    let unreadable = migrate::unreadable;
    let there = wire
        .rows("SELECT to_regclass($1) IS NOT NULL", vec![Param::text(migrate::TABLE)])
        .await
        .and_then(|rows| rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get::<bool, _>(0))
        .map_err(unreadable)?;
    let mut applied = Vec::new();
    if there {
        let sql = format!("SELECT version, checksum FROM {} WHERE success", migrate::TABLE);
        for row in wire.rows(&sql, Vec::new()).await.map_err(unreadable)? {
            applied.push((row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?));
        }
    }
    wire.close().await;
    migrate::missing(&migrate::migrator(STEPS), &applied)
}

async fn open(url: &str) -> Result<Wire, migrate::Error> {
    // Another host may be migrating, and a new index may take long.
    let patient = std::time::Duration::from_secs(3600);
    let settings = Settings { lock: patient, statement: patient, idle: patient, ..Settings::default() };
    Wire::open(&options(url)?, &settings).await.map_err(migrate::Error::Connect)
}

fn options(url: &str) -> Result<PgConnectOptions, OpenError> {
    const EXPECTED: &str = "postgres://user:password@host:5432/database";
    // The parser's own error may repeat parts of the URL.
    let options = PgConnectOptions::from_str(url).map_err(|_| OpenError::Url { expected: EXPECTED })?;
    Ok(options.application_name("ackwright").statement_cache_capacity(512).disable_statement_logging())
}

/// A uuid column of one of the host's own tables.
fn uuid(row: &PgRow, column: &str) -> Result<Uuid, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    Uuid::from_slice(bytes).map_err(|e| sqlx::Error::Decode(e.into()))
}
