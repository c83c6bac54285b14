//! The servers of a benchmark, with settings that production has: commits reach the disk.

use std::path::PathBuf;

use ackwright_testkit::{Host, Options, Postgres, RabbitMq};
use anyhow::{Context, Result, ensure};
use sqlx::{Connection, Executor, PgConnection};

use crate::load::ACCOUNTS;
use crate::peers;

pub struct Servers {
    pub postgres: Postgres,
    pub rabbitmq: RabbitMq,
    /// The handler under measurement.
    pub plugin: PathBuf,
}

/// What a run's consumer works on: a queue and a database of its own.
#[derive(Clone, Debug)]
pub struct Ground {
    pub amqp: String,
    pub database: String,
}

const TABLES: &str = "
    CREATE TABLE orders (id uuid PRIMARY KEY, account bigint NOT NULL, amount bigint NOT NULL, at bigint NOT NULL);
    CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
";

pub const TABLES_SQLITE: &str = "
    CREATE TABLE orders (id UUID PRIMARY KEY, account INTEGER NOT NULL, amount INTEGER NOT NULL, at INTEGER NOT NULL);
    CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
";

impl Servers {
    pub async fn start() -> Result<Self> {
        let settings = [("track_commit_timestamp", "on"), ("shared_buffers", "512MB"), ("max_wal_size", "8GB")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let postgres = Postgres::start_private(Options { fsync: true, settings }).await?;
        let rabbitmq = RabbitMq::start_private().await?;
        let plugin =
            std::env::var_os("ACKWRIGHT_PLUGINS").map_or_else(|| PathBuf::from("target/plugins"), PathBuf::from);
        let plugin = plugin.join("bench.wasm");
        ensure!(plugin.is_file(), "{} is not there; run the benchmark by `cargo xtask bench`", plugin.display());
        Ok(Servers { postgres, rabbitmq, plugin: plugin.canonicalize()? })
    }

    pub async fn ground(&self) -> Result<Ground> {
        let ground = Ground { amqp: self.rabbitmq.vhost().await, database: self.postgres.database().await };
        let mut connection = PgConnection::connect(&ground.database).await?;
        connection.execute(TABLES).await?;
        connection.execute(peers::TABLES).await?;
        let accounts = format!("INSERT INTO accounts SELECT g, 0 FROM generate_series(0, {}) g", ACCOUNTS - 1);
        connection.execute(sqlx::AssertSqlSafe(accounts)).await?;
        connection.execute("VACUUM ANALYZE").await?;
        Ok(ground)
    }
}

/// How Ackwright runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub lanes: usize,
    pub batch: usize,
    /// The relay publishes while deliveries are consumed.
    pub relay: bool,
}

/// Prepares a host on the ground; it is not started yet.
pub async fn host(servers: &Servers, ground: &Ground, setting: Setting) -> Result<(Host, String)> {
    let host = Host::new()?;
    let Setting { lanes, batch, relay } = setting;
    let toml = format!(
        r#"
[host]
admin = "{admin}"
log = {{ level = "warn" }}

[database.main]
url = "{database}"
relay = {relay}

[broker.events]
kind = "rabbitmq"
url = "{amqp}"

[plugin.bench]
path = "{plugin}"
grants.write = ["orders", "accounts"]
grants.emit = ["events:order.*"]

[route.orders]
broker = "events"
queue = "orders"
group = "bench"
database = "main"
lanes = {lanes}
batch = {batch}
prefetch = {prefetch}
plugins = [{{ use = "bench" }}]
"#,
        admin = host.admin(),
        database = ground.database,
        amqp = ground.amqp,
        plugin = servers.plugin.display(),
        prefetch = batch * 4,
    );
    std::fs::write(host.folder().join("ackwright.toml"), &toml)?;
    let migrated = host.command(&["migrate"]).await.context("run ackwright migrate")?;
    ensure!(migrated.status.success(), "ackwright migrate failed: {}", String::from_utf8_lossy(&migrated.stderr));
    Ok((host, toml))
}
