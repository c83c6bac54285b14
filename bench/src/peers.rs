//! What Ackwright is measured against: the same job, written by hand in Rust, each in a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use futures::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use serde::Deserialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection as _, PgConnection, SqliteConnection};

use crate::load::{OUT, QUEUE};
use crate::sample::now;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// BEGIN, four statements, COMMIT, ack: what most teams write.
    Usual,
    /// One statement with CTEs, committed by itself: the best code there is for one message at a time.
    Best,
    /// Consume and ack, without a database: the most that the queue gives.
    Drain,
    /// The usual pattern on SQLite, with one worker, since SQLite has one writer.
    UsualSqlite,
}

#[derive(clap::Args, Debug)]
pub struct Arguments {
    pub peer: Peer,
    #[arg(long)]
    pub amqp: String,
    #[arg(long, default_value = "")]
    pub database: String,
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// For the drain: end after so many messages and print the rate.
    #[arg(long, default_value_t = 0)]
    pub messages: usize,
}

#[derive(Deserialize)]
struct Order {
    order: String,
    account: i64,
    amount: i64,
    at: i64,
}

/// Tables of the peers beside those that the handlers share.
pub const TABLES: &str = "
    CREATE TABLE peer_inbox (key text PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE peer_outbox (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, destination text NOT NULL, message_id uuid NOT NULL,
        body bytea NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
";

pub const TABLES_SQLITE: &str = "
    CREATE TABLE peer_inbox (key TEXT PRIMARY KEY, created_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE peer_outbox (
        id INTEGER PRIMARY KEY, destination TEXT NOT NULL, message_id TEXT NOT NULL, body BLOB NOT NULL,
        created_at INTEGER NOT NULL);
";

const CLAIM: &str = "INSERT INTO peer_inbox (key) VALUES ($1) ON CONFLICT DO NOTHING";
const ORDER: &str = "INSERT INTO orders (id, account, amount, at) VALUES ($1::uuid, $2, $3, $4)
    ON CONFLICT (id) DO UPDATE SET account = excluded.account, amount = excluded.amount, at = excluded.at";
const ORDER_SQLITE: &str = "INSERT INTO orders (id, account, amount, at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (id) DO UPDATE SET account = excluded.account, amount = excluded.amount, at = excluded.at";
const ACCOUNT: &str = "UPDATE accounts SET balance = balance + $2 WHERE id = $1";
const EMIT: &str = "INSERT INTO peer_outbox (destination, message_id, body) VALUES ($1, $2::uuid, $3)";
const ALL: &str = "
    WITH claimed AS (INSERT INTO peer_inbox (key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1),
    booked AS (
        INSERT INTO orders (id, account, amount, at) SELECT $2::uuid, $3, $4, $5 FROM claimed
        ON CONFLICT (id) DO UPDATE SET account = excluded.account, amount = excluded.amount, at = excluded.at),
    added AS (UPDATE accounts SET balance = balance + $4 WHERE id = $3 AND EXISTS (SELECT 1 FROM claimed))
    INSERT INTO peer_outbox (destination, message_id, body) SELECT $6, $2::uuid, $7 FROM claimed";

fn emitted(order: &Order) -> Vec<u8> {
    format!(r#"{{"order":"{}","amount":{}}}"#, order.order, order.amount).into_bytes()
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let connection = Arc::new(Connection::connect(&arguments.amqp, ConnectionProperties::default()).await?);
    if arguments.peer == Peer::Drain {
        return drain(&connection, arguments.messages).await;
    }
    let workers = (0..arguments.workers).map(|number| {
        let (connection, database) = (Arc::clone(&connection), arguments.database.clone());
        let peer = arguments.peer;
        tokio::spawn(async move { worker(peer, number, &connection, &database).await })
    });
    for ended in futures::future::join_all(workers).await {
        ended??;
    }
    bail!("the queue was closed")
}

enum Database {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

async fn worker(peer: Peer, number: usize, connection: &Connection, url: &str) -> Result<()> {
    let mut database = match peer {
        Peer::UsualSqlite => {
            let options = url.parse::<SqliteConnectOptions>()?;
            let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
            Database::Sqlite(options.connect().await?)
        }
        Peer::Usual | Peer::Best | Peer::Drain => Database::Postgres(PgConnection::connect(url).await?),
    };
    let channel = connection.create_channel().await?;
    // Enough in hand that the worker never waits for the broker.
    channel.basic_qos(32, BasicQosOptions::default()).await?;
    let tag = format!("worker-{number}");
    let mut consumer =
        channel.basic_consume(QUEUE.into(), tag.into(), BasicConsumeOptions::default(), FieldTable::default()).await?;
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        let order: Order = serde_json::from_slice(&delivery.data).context("decode an order")?;
        if order.amount < 0 {
            delivery.reject(BasicRejectOptions { requeue: false }).await?;
            continue;
        }
        let key = format!("bench:ORDER:{}", order.order);
        match &mut database {
            Database::Postgres(connection) if peer == Peer::Best => {
                let all = sqlx::query(ALL).bind(key).bind(&order.order).bind(order.account).bind(order.amount);
                all.bind(order.at).bind(OUT).bind(emitted(&order)).execute(connection).await?;
            }
            Database::Postgres(connection) => usual(connection, &key, &order).await?,
            Database::Sqlite(connection) => usual_sqlite(connection, &key, &order).await?,
        }
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

async fn usual(connection: &mut PgConnection, key: &str, order: &Order) -> Result<()> {
    let mut transaction = connection.begin().await?;
    let claimed = sqlx::query(CLAIM).bind(key).execute(&mut *transaction).await?.rows_affected() == 1;
    if claimed {
        let booked = sqlx::query(ORDER).bind(&order.order).bind(order.account).bind(order.amount).bind(order.at);
        booked.execute(&mut *transaction).await?;
        sqlx::query(ACCOUNT).bind(order.account).bind(order.amount).execute(&mut *transaction).await?;
        let emit = sqlx::query(EMIT).bind(OUT).bind(&order.order).bind(emitted(order));
        emit.execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
}

async fn usual_sqlite(connection: &mut SqliteConnection, key: &str, order: &Order) -> Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let claim = "INSERT INTO peer_inbox (key, created_at) VALUES (?1, unixepoch()) ON CONFLICT DO NOTHING";
    let claimed = sqlx::query(claim).bind(key).execute(&mut *transaction).await?.rows_affected() == 1;
    if claimed {
        let booked = sqlx::query(ORDER_SQLITE).bind(&order.order).bind(order.account).bind(order.amount);
        booked.bind(order.at).execute(&mut *transaction).await?;
        sqlx::query(ACCOUNT).bind(order.account).bind(order.amount).execute(&mut *transaction).await?;
        let emit =
            "INSERT INTO peer_outbox (destination, message_id, body, created_at) VALUES (?1, ?2, ?3, unixepoch())";
        let emit = sqlx::query(emit).bind(OUT).bind(&order.order).bind(emitted(order));
        emit.execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
}

/// Prints the rate between a tenth and nineteen twentieths of the messages.
async fn drain(connection: &Connection, messages: usize) -> Result<()> {
    const BATCH: usize = 1024;
    let channel = connection.create_channel().await?;
    channel.basic_qos(2 * BATCH as u16, BasicQosOptions::default()).await?;
    let mut consumer = channel
        .basic_consume(QUEUE.into(), "drain".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    let seen = AtomicUsize::new(0);
    let (first, last) = (messages / 10, messages * 19 / 20);
    let (mut from, mut to) = (0.0, 0.0);
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        let count = seen.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(BATCH) || count == messages {
            delivery.ack(BasicAckOptions { multiple: true }).await?;
        }
        if count == first {
            from = now();
        }
        if count == last {
            to = now();
        }
        if count == messages {
            println!("{from} {to} {}", last - first);
            return Ok(());
        }
    }
    bail!("the queue was closed")
}
