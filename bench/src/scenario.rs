//! One run: fill or pace, consume, measure from the database's commit times, and check what is left behind.

use std::path::Path;
use std::time::Duration;

use ackwright_testkit::Host;
use anyhow::{Context, Result, ensure};
use sqlx::{Connection, Executor, PgConnection, Row, SqliteConnection};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::load::{Expected, Load, Mix};
use crate::peers::{self, Peer};
use crate::sample::{Cpu, Sampler, now, peak_memory};
use crate::servers::{Ground, Servers, Setting, TABLES_SQLITE, host};

const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    Ackwright(Setting),
    Peer { peer: Peer, workers: usize },
}

/// Messages a second and CPU seconds a message, between a tenth and nineteen twentieths of the messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throughput {
    pub rate: f64,
    pub cpu: Cpu,
    pub memory: u64,
    pub deadlocks: i64,
}

/// From publish to commit, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

enum Running {
    Host(Box<Host>),
    Peer(Child),
}

impl Running {
    async fn start(consumer: Consumer, servers: &Servers, ground: &Ground) -> Result<Self> {
        match consumer {
            Consumer::Ackwright(setting) => {
                let (mut host, toml) = host(servers, ground, setting).await?;
                host.start(&toml, &[])?;
                Ok(Running::Host(Box::new(host)))
            }
            Consumer::Peer { peer, workers } => Ok(Running::Peer(peer_process(peer, workers, ground, 0)?.spawn()?)),
        }
    }

    fn id(&self) -> Result<u32> {
        match self {
            Running::Host(host) => host.id().context("the host has ended"),
            Running::Peer(child) => child.id().context("the peer has ended"),
        }
    }

    async fn stop(self) -> Result<()> {
        match self {
            Running::Host(mut host) => {
                let status = host.terminate(Duration::from_secs(30)).await?;
                ensure!(status.success(), "ackwright ended with {status}:\n{}", host.logs());
            }
            Running::Peer(mut child) => child.kill().await?,
        }
        Ok(())
    }
}

fn peer_process(peer: Peer, workers: usize, ground: &Ground, messages: usize) -> Result<Command> {
    let name = match peer {
        Peer::Usual => "usual",
        Peer::Best => "best",
        Peer::Drain => "drain",
        Peer::UsualSqlite => "usual-sqlite",
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["peer", name, "--amqp", &ground.amqp, "--database", &ground.database]);
    command.args(["--workers", &workers.to_string(), "--messages", &messages.to_string()]);
    command.kill_on_drop(true);
    Ok(command)
}

/// How fast a full queue is worked off.
pub async fn throughput(servers: &Servers, consumer: Consumer, mix: Mix) -> Result<Throughput> {
    let ground = servers.ground().await?;
    let load = Load::connect(&ground.amqp).await?;
    let expected = load.fill(mix).await?;
    load.close().await?;
    let mut database = PgConnection::connect(&ground.database).await?;
    database.execute("CHECKPOINT").await?;

    let running = Running::start(consumer, servers, &ground).await?;
    let sampler = Sampler::start(running.id()?);
    until_booked(&mut database, expected).await?;
    // One sample after the last commit.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let memory = peak_memory(running.id()?).unwrap_or_default();

    let row = sqlx::query(
        "WITH times AS (SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 AS at FROM orders),
              cuts AS (SELECT percentile_disc(0.1) WITHIN GROUP (ORDER BY at) AS first,
                              percentile_disc(0.95) WITHIN GROUP (ORDER BY at) AS last FROM times)
         SELECT first, last, (SELECT count(*) FROM times WHERE at > first AND at <= last) AS booked FROM cuts",
    )
    .fetch_one(&mut database)
    .await?;
    let (first, last, booked): (f64, f64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    // Messages that leave no order cost as well: count them in their share.
    let messages = booked as f64 * mix.messages as f64 / expected.orders as f64;
    let cpu = match (sampler.at(first), sampler.at(last)) {
        (Some(from), Some(to)) => to.since(from).per(messages),
        _ => Cpu::default(),
    };
    drop(sampler);
    check(&mut database, expected).await?;
    let deadlocks: i64 = sqlx::query("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        .fetch_one(&mut database)
        .await?
        .try_get(0)?;
    running.stop().await?;
    Ok(Throughput { rate: messages / (last - first), cpu, memory, deadlocks })
}

/// How long a message takes at a steady pace.
pub async fn latency(servers: &Servers, consumer: Consumer, rate: usize, time: Duration) -> Result<Latency> {
    let ground = servers.ground().await?;
    let load = Load::connect(&ground.amqp).await?;
    let running = Running::start(consumer, servers, &ground).await?;
    // A few orders first, so that caches are warm and the consumer is known to run.
    let mut database = PgConnection::connect(&ground.database).await?;
    let warm = load.fill(Mix { messages: 200, ..Mix::default() }).await?;
    until_booked(&mut database, warm).await?;
    database.execute("TRUNCATE orders").await?;
    database.execute("UPDATE accounts SET balance = 0").await?;
    for table in ["peer_inbox", "ackwright_inbox"] {
        let known = sqlx::query("SELECT 1 FROM pg_tables WHERE tablename = $1").bind(table);
        if known.fetch_optional(&mut database).await?.is_some() {
            database.execute(sqlx::AssertSqlSafe(format!("TRUNCATE {table}"))).await?;
        }
    }
    let expected = load.pace(rate, time).await?;
    until_booked(&mut database, expected).await?;
    let row = sqlx::query(
        "WITH ages AS (SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 - at / 1e6::float8 AS age
                       FROM orders WHERE at > (SELECT min(at) + 2000000 FROM orders))
         SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age), percentile_cont(0.99) WITHIN GROUP (ORDER BY age) FROM ages",
    )
    .fetch_one(&mut database)
    .await?;
    check(&mut database, expected).await?;
    load.close().await?;
    running.stop().await?;
    Ok(Latency { p50: row.try_get(0)?, p99: row.try_get(1)? })
}

/// The queue's own limit.
pub async fn drain(servers: &Servers, messages: usize) -> Result<Throughput> {
    let ground = servers.ground().await?;
    let load = Load::connect(&ground.amqp).await?;
    load.fill(Mix { messages, ..Mix::default() }).await?;
    load.close().await?;
    let mut command = peer_process(Peer::Drain, 1, &ground, messages)?;
    let child = command.stdout(std::process::Stdio::piped()).spawn()?;
    let sampler = Sampler::start(child.id().context("the drain has ended")?);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await??;
    ensure!(output.status.success(), "the drain ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [from, to, count] = numbers[..] else { anyhow::bail!("the drain printed {text:?}") };
    let cpu = match (sampler.at(from), sampler.at(to)) {
        (Some(a), Some(b)) => b.since(a).per(count),
        _ => Cpu::default(),
    };
    Ok(Throughput { rate: count / (to - from), cpu, ..Throughput::default() })
}

async fn until_booked(database: &mut PgConnection, expected: Expected) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A count of the index alone; seldom, since it takes time from what is measured.
        let booked: i64 = sqlx::query("SELECT count(*) FROM orders").fetch_one(&mut *database).await?.try_get(0)?;
        if booked >= expected.orders {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{booked} of {} orders were booked in {PATIENCE:?}", expected.orders);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn check(database: &mut PgConnection, expected: Expected) -> Result<()> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM orders), (SELECT sum(balance)::bigint FROM accounts), (SELECT sum(amount)::bigint FROM orders)",
    )
    .fetch_one(database)
    .await?;
    let (orders, balance, amount): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let found = Expected { orders, balance };
    ensure!(found == expected && amount == balance, "the database holds {found:?}, expected {expected:?}");
    Ok(())
}

/// The same job on SQLite: rate alone, by polling the file, which both sides bear alike.
pub async fn sqlite(servers: &Servers, consumer: Consumer, messages: usize) -> Result<f64> {
    let amqp = servers.rabbitmq.vhost().await;
    let load = Load::connect(&amqp).await?;
    let expected = load.fill(Mix { messages, ..Mix::default() }).await?;
    load.close().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.db");
    let ground = Ground { amqp, database: format!("sqlite://{}?mode=rwc", file.display()) };
    let mut database = prepare_sqlite(&ground, &file).await?;
    let running = Running::start(consumer, servers, &ground).await?;
    let deadline = Instant::now() + PATIENCE;
    let (first, last) = (expected.orders / 10, expected.orders * 19 / 20);
    let (mut from, mut to) = (None, None);
    while to.is_none() {
        ensure!(Instant::now() < deadline, "the orders were not booked in {PATIENCE:?}");
        let booked: i64 = sqlx::query("SELECT count(*) FROM orders").fetch_one(&mut database).await?.try_get(0)?;
        if booked >= first && from.is_none() {
            from = Some((now(), booked));
        }
        if booked >= last {
            to = Some((now(), booked));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (Some((from, a)), Some((to, b))) = (from, to) else { anyhow::bail!("no time was measured") };
    running.stop().await?;
    Ok((b - a) as f64 / (to - from))
}

async fn prepare_sqlite(ground: &Ground, file: &Path) -> Result<SqliteConnection> {
    let mut database = SqliteConnection::connect(&ground.database).await?;
    database.execute("PRAGMA journal_mode = WAL").await?;
    database.execute(TABLES_SQLITE).await?;
    database.execute(peers::TABLES_SQLITE).await?;
    let accounts = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
        INSERT INTO accounts SELECT i, 0 FROM n";
    database.execute(accounts).await?;
    ensure!(file.is_file(), "{} was not made", file.display());
    Ok(database)
}
