//! Databases: opened as configured, waited for while they are away, migrated where the configuration says so.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::catalog::Catalog;
use ackwright_core::health::Reporter;
use ackwright_core::store::Store;
use ackwright_stores::sqlite::Sqlite;
use ackwright_stores::{Settings, migrate as stores_migrate, postgres};
use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::config::model::{Database, DatabaseKind};

/// Between two attempts to reach a database that is away.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A database that was reached and whose tables are as this host needs them.
pub struct Reached {
    pub store: Arc<dyn Store>,
    pub catalog: Arc<Catalog>,
}

/// Makes a store; it connects when it is first asked.
pub fn open(database: &Database) -> Result<Arc<dyn Store>, ackwright_stores::OpenError> {
    let (url, settings) = (database.url.expose(), settings(database));
    match database.kind {
        DatabaseKind::Postgres => postgres::Store::connect_lazy(url, settings),
        DatabaseKind::Sqlite => Ok(Arc::new(Sqlite::open(url, &settings)?)),
    }
}

pub async fn migrate(database: &Database) -> Result<Vec<String>, stores_migrate::Error> {
    let url = database.url.expose();
    match database.kind {
        DatabaseKind::Postgres => postgres::migrate(url).await,
        DatabaseKind::Sqlite => Sqlite::open(url, &settings(database))?.migrate().await,
    }
}

/// What `migrate` would apply.
pub async fn pending(database: &Database) -> Result<Vec<String>, stores_migrate::Error> {
    let url = database.url.expose();
    match database.kind {
        DatabaseKind::Postgres => postgres::pending(url).await,
        DatabaseKind::Sqlite => Sqlite::open(url, &settings(database))?.pending().await,
    }
}

fn settings(database: &Database) -> Settings {
    let own = Settings::default();
    Settings {
        pooled: database.pooled,
        lock: database.lock_timeout.unwrap_or(own.lock),
        statement: database.statement_timeout.unwrap_or(own.statement),
        ..own
    }
}

/// Waits until the database answers, or until `stop` (`None`). Fails only where waiting cannot help.
///
/// It runs on a thread of its own, so that the drivers' migrations need not be movable between threads.
pub async fn reach(
    name: String,
    database: Database,
    store: Arc<dyn Store>,
    health: Reporter,
    stop: CancellationToken,
) -> anyhow::Result<Option<Reached>> {
    let runtime = tokio::runtime::Handle::current();
    let waiting = move || runtime.block_on(wait_for(&name, &database, store, &health, &stop));
    tokio::task::spawn_blocking(waiting).await.context("the wait for a database ended badly")?
}

async fn wait_for(
    name: &str,
    database: &Database,
    store: Arc<dyn Store>,
    health: &Reporter,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Reached>> {
    let mut pause = FIRST_PAUSE;
    loop {
        let why = match prepare(name, database, &store).await {
            Ok(catalog) => {
                health.ready();
                return Ok(Some(Reached { store, catalog }));
            }
            Err(Unready::Fatal(error)) => return Err(error),
            Err(Unready::Away(error)) => crate::output::chain(&error),
        };
        tracing::warn!(database = name, error = %why, retry_in = ?pause, "database cannot be used yet, waiting for it");
        health.down(why);
        if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
            return Ok(None);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

enum Unready {
    Away(anyhow::Error),
    Fatal(anyhow::Error),
}

async fn prepare(name: &str, database: &Database, store: &Arc<dyn Store>) -> Result<Arc<Catalog>, Unready> {
    let fault = |error: stores_migrate::Error| match error {
        stores_migrate::Error::Connect(_) | stores_migrate::Error::Unreadable(_) => Unready::Away(error.into()),
        stores_migrate::Error::Open(_) | stores_migrate::Error::Failed(_) | stores_migrate::Error::Differs(_) => {
            Unready::Fatal(anyhow::Error::new(error).context(format!("database {name:?} cannot be migrated")))
        }
    };
    if database.migrate {
        for migration in migrate(database).await.map_err(fault)? {
            tracing::info!(database = name, migration, "migration applied");
        }
    } else {
        let missing = pending(database).await.map_err(fault)?;
        if !missing.is_empty() {
            return Err(Unready::Fatal(anyhow::anyhow!(
                "database {name:?} lacks the tables of this host ({}); run `ackwright migrate`, or set \
                 `migrate = true` in [database.{name}]",
                missing.join(", ")
            )));
        }
    }
    store.catalog().await.map_err(|error| Unready::Away(error.into()))
}
