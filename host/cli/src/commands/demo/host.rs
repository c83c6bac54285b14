//! The host under demonstration: a child process of this executable, with a folder of its own.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::process::{Child, Command};

use super::stream::Expected;

pub struct Host {
    pub folder: PathBuf,
    pub webhook: SocketAddr,
    child: Option<Child>,
}

impl Host {
    /// Writes the configuration and makes the shop's own tables.
    pub async fn prepare(folder: &Path, plugins: &Path, expected: &Expected) -> anyhow::Result<Self> {
        let [webhook, admin] = free_addresses()?;
        let toml = configuration(plugins, webhook, admin);
        std::fs::write(folder.join("ackwright.toml"), toml).context("the configuration cannot be written")?;
        std::fs::write(folder.join("transfers.ndjson"), "").context("the file of transfers cannot be written")?;
        let host = Host { folder: folder.to_owned(), webhook, child: None };
        host.make_tables(expected).await.context("the tables of the shop cannot be made")?;
        Ok(host)
    }

    pub fn start(&mut self) -> anyhow::Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        let executable = std::env::current_exe().context("this executable cannot be found")?;
        let child = Command::new(executable)
            .args(["run", "--config", "ackwright.toml"])
            .current_dir(&self.folder)
            .env_remove("ACKWRIGHT_CRASH")
            .env_remove("ACKWRIGHT_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("the host cannot be started")?;
        self.child = Some(child);
        Ok(())
    }

    /// As a power cut would: nothing of the process runs on.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await.context("the host cannot be killed")?;
        }
        Ok(())
    }

    /// SIGTERM; whether the host drained and ended with 0 in time.
    pub async fn terminate(&mut self) -> anyhow::Result<bool> {
        let Some(mut child) = self.child.take() else { return Ok(false) };
        let id = child.id().and_then(|id| i32::try_from(id).ok()).context("the host has ended")?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::SIGTERM)?;
        match tokio::time::timeout(Duration::from_secs(15), child.wait()).await {
            Ok(status) => Ok(status?.success()),
            Err(_) => {
                child.kill().await?;
                Ok(false)
            }
        }
    }

    /// An error where the host has ended by itself.
    pub fn lives(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait()?
        {
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(5).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            anyhow::bail!("the host ended by itself with {status}; its log ends:\n{}", tail.join("\n"));
        }
        Ok(())
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("ackwright.log")
    }

    pub fn published(&self) -> PathBuf {
        self.folder.join("events.ndjson")
    }

    pub fn transfers(&self) -> PathBuf {
        self.folder.join("transfers.ndjson")
    }

    /// A connection of the demo's own, to look at what the host did.
    pub async fn database(&self) -> anyhow::Result<SqliteConnection> {
        let options = SqliteConnectOptions::new()
            .filename(self.folder.join("shop.db"))
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(5))
            .disable_statement_logging();
        options.connect().await.context("the demo's database cannot be opened")
    }

    async fn make_tables(&self, expected: &Expected) -> anyhow::Result<()> {
        let mut database = self.database().await?;
        let tables = "
            CREATE TABLE coupons (order_id TEXT NOT NULL, campaign TEXT NOT NULL, customer_id TEXT NOT NULL,
                                  amount BIGINT NOT NULL, PRIMARY KEY (order_id, campaign));
            CREATE TABLE accounts (id TEXT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL);
            CREATE TABLE transfers (id TEXT NOT NULL PRIMARY KEY, from_account TEXT NOT NULL,
                                    to_account TEXT NOT NULL, amount BIGINT NOT NULL);";
        sqlx::raw_sql(tables).execute(&mut database).await?;
        let mut transaction = database.begin().await?;
        for id in expected.balances.keys() {
            let opening = if id == super::stream::BROKE { 0 } else { super::stream::OPENING };
            sqlx::query("INSERT INTO accounts (id, balance) VALUES (?, ?)")
                .bind(id)
                .bind(opening)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

/// Two addresses that were free a moment ago; both are held until both are known.
fn free_addresses() -> anyhow::Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind("127.0.0.1:0").context("no port is free on loopback");
    let held = [bind()?, bind()?];
    Ok([held[0].local_addr()?, held[1].local_addr()?])
}

fn configuration(plugins: &Path, webhook: SocketAddr, admin: SocketAddr) -> String {
    let plugin = |name: &str| toml_text(&plugins.join(format!("{name}.wasm")).display().to_string());
    let (coupon, ledger) = (plugin("coupon"), plugin("ledger"));
    format!(
        r#"# Written by `ackwright demo`; `ackwright run` in this folder goes on where the demo ended.
[host]
admin = "{admin}"
drain_timeout = "10s"

[database.shop]
url = "sqlite:shop.db"
migrate = true

[broker.orders]
kind = "webhook"
listen = "{webhook}"

[broker.files]
kind = "file"
format = "body"
path = "events.ndjson"

[plugin.coupon]
path = {coupon}
grants = {{ write = ["coupons"], emit = ["files:coupon.*"] }}
settings = {{ campaign = "winter", emit_to = "files:coupon.issued" }}

[plugin.ledger]
path = {ledger}
grants = {{ write = ["accounts", "transfers"] }}

[route.coupons]
broker = "orders"
path = "/orders"
database = "shop"
plugins = [{{ when = {{ header.eventtype = "ORDER_PAID" }}, use = "coupon" }}]

[route.transfers]
broker = "files"
file = "transfers.ndjson"
database = "shop"
plugins = [{{ use = "ledger" }}]
"#
    )
}

/// A TOML string of any text: JSON's escapes are a part of TOML's.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
