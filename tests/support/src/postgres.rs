//! A PostgreSQL server of the test's own.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use tokio::sync::OnceCell;

use crate::keeper::{Keeper, Kept};
use crate::ports::free_port;
use crate::wait::{try_until, until};

/// `initdb` and the first start share a busy machine with compilers.
const START: Duration = Duration::from_secs(60);

/// The server that all tests of this process share; started by the first that asks. Each takes a database of its own.
pub async fn postgres() -> &'static Postgres {
    static SERVER: OnceCell<Postgres> = OnceCell::const_new();
    SERVER
        .get_or_try_init(|| Postgres::start_private(Options::default()))
        .await
        .unwrap_or_else(|error| panic!("cannot start PostgreSQL: {error:#}"))
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Commits reach the disk. Needed only where a test measures, since a killed server loses nothing that the
    /// kernel has.
    pub fsync: bool,
    /// Server settings: `("idle_in_transaction_session_timeout", "1s")`.
    pub settings: Vec<(String, String)>,
}

/// How to stop the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended and everything is written: what a planned restart does.
    Fast,
    /// Sessions are cut without a word and the next start recovers from the log: what a crash does.
    Immediate,
}

#[derive(Debug)]
pub struct Postgres {
    keeper: Keeper,
    binaries: PathBuf,
    as_root: bool,
    port: u16,
    arguments: Vec<String>,
    process: Mutex<Option<Kept>>,
}

impl Postgres {
    /// A server that one test has for itself, to stop and start it.
    pub async fn start_private(options: Options) -> Result<Self> {
        let keeper = Keeper::new("postgres")?;
        let binaries = binaries()?;
        let folder = keeper.folder().display().to_string();
        let as_root = std::fs::metadata(keeper.folder())?.uid() == 0;
        if as_root {
            let status = Command::new("chown").args(["-R", "postgres:postgres", &folder]).status()?;
            ensure!(status.success(), "cannot give {folder} to user postgres, whom PostgreSQL runs as instead of root");
        }
        let port = free_port();
        let mut arguments: Vec<String> =
            ["-D", &format!("{folder}/data"), "-k", &folder, "-h", "127.0.0.1", "-p", &port.to_string()]
                .map(String::from)
                .into();
        let mut set = |name: &str, value: &str| arguments.extend(["-c".into(), format!("{name}={value}")]);
        set("max_connections", "200");
        set("fsync", if options.fsync { "on" } else { "off" });
        set("full_page_writes", if options.fsync { "on" } else { "off" });
        set("autovacuum_naptime", "5s");
        set("log_min_messages", "warning");
        for (name, value) in &options.settings {
            set(name, value);
        }
        let server = Postgres { keeper, binaries, as_root, port, arguments, process: Mutex::new(None) };
        server.initialise().await?;
        server.start().await?;
        Ok(server)
    }

    async fn initialise(&self) -> Result<()> {
        let data = format!("{}/data", self.keeper.folder().display());
        let arguments = ["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];
        let mut initdb = self.run("initdb", arguments.map(String::from).into(), Signal::SIGTERM)?;
        let status = initdb.wait("initdb", START).await?;
        ensure!(status.success(), "initdb failed:\n{}", self.keeper.tail("log"));
        Ok(())
    }

    /// Starts one of PostgreSQL's programs; as user postgres where we are root, whom they refuse to serve.
    fn run(&self, program: &str, arguments: Vec<String>, end: Signal) -> Result<Kept> {
        let program = self.binaries.join(program).display().to_string();
        if !self.as_root {
            return self.keeper.spawn(program, arguments, [], "log", end);
        }
        let become_postgres = ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];
        let whole = become_postgres.into_iter().map(String::from).chain([program]).chain(arguments);
        self.keeper.spawn("setpriv", whole, [], "log", end)
    }

    /// Starts the server again after [`Self::stop`], on the same port.
    pub async fn start(&self) -> Result<()> {
        ensure!(self.slot().is_none(), "the server is running already");
        *self.slot() = Some(self.run("postgres", self.arguments.clone(), Signal::SIGQUIT)?);
        let ready = try_until("PostgreSQL takes connections", START, async || {
            let ended = self.slot().as_mut().is_none_or(|process| process.ended().is_some());
            (ended || self.connect("postgres").await.is_ok()).then_some(ended)
        });
        match ready.await {
            Ok(false) => Ok(()),
            Ok(true) => {
                *self.slot() = None;
                bail!("PostgreSQL ended while it started:\n{}", self.keeper.tail("log"))
            }
            Err(why) => bail!("{why}\n{}", self.keeper.tail("log")),
        }
    }

    /// Returns when the server is gone.
    pub async fn stop(&self, how: Stop) -> Result<()> {
        let Some(mut process) = self.slot().take() else { bail!("the server is not running") };
        process.signal(match how {
            Stop::Fast => Signal::SIGINT,
            Stop::Immediate => Signal::SIGQUIT,
        });
        process.wait("PostgreSQL", Duration::from_secs(30)).await?;
        Ok(())
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Kept>> {
        self.process.lock().expect("nobody panics while holding it")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the unix socket is.
    pub fn folder(&self) -> &Path {
        self.keeper.folder()
    }

    /// The URL of a database on this server.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a new, empty database.
    pub async fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let create = async {
            let mut connection = self.connect("postgres").await?;
            connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
            connection.close().await
        };
        create.await.unwrap_or_else(|error| panic!("cannot create database {name}: {error}"));
        self.url(&name)
    }

    pub async fn connect(&self, database: &str) -> Result<PgConnection, sqlx::Error> {
        let options = PgConnectOptions::new()
            .host("127.0.0.1")
            .port(self.port)
            .username("postgres")
            .database(database)
            .ssl_mode(sqlx::postgres::PgSslMode::Disable);
        PgConnection::connect_with(&options).await
    }

    /// Cuts all sessions of the database at `url` from the server's side; returns how many there were.
    pub async fn terminate(&self, url: &str) -> Result<i64> {
        self.count("SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity", url).await
    }

    /// Sessions of the database at `url` that hold a transaction open without working in it.
    pub async fn idle_in_transaction(&self, url: &str) -> Result<i64> {
        self.count("SELECT count(*) FILTER (WHERE state LIKE 'idle in transaction%') FROM pg_stat_activity", url).await
    }

    /// Sessions of the database at `url`.
    pub async fn sessions(&self, url: &str) -> Result<i64> {
        self.count("SELECT count(*) FROM pg_stat_activity", url).await
    }

    /// Asks from another database, so that the session that asks is not counted.
    async fn count(&self, select: &'static str, url: &str) -> Result<i64> {
        let database = url.rsplit('/').next().unwrap_or_default();
        let mut connection = self.connect("postgres").await?;
        let sql = format!("{select} WHERE datname = $1 AND backend_type = 'client backend'");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(database).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(row.try_get(0)?)
    }

    /// Waits until no session of the database at `url` is left.
    pub async fn until_no_sessions(&self, url: &str, deadline: Duration) {
        until("no session is left", deadline, async || (self.sessions(url).await.ok()? == 0).then_some(())).await;
    }
}

/// PostgreSQL's folder of programs: Debian keeps one a version outside the search path.
fn binaries() -> Result<PathBuf> {
    let version = |path: &PathBuf| path.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        debian.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").exists()).max_by_key(version);
    if let Some(bin) = newest {
        return Ok(bin);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find(|folder| folder.join("initdb").exists());
    found.context("PostgreSQL is not installed; `cargo xtask test` installs it")
}
