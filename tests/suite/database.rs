//! The business database of one test, asked in SQL that both kinds understand.

use std::path::PathBuf;
use std::time::Duration;

use ackwright_testkit::postgres;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row, SqliteConnection};

/// What the plugins need; `forbidden` is granted to none.
const TABLES: [&str; 6] = [
    "CREATE TABLE coupons (order_id TEXT NOT NULL, campaign TEXT NOT NULL, customer_id TEXT NOT NULL,
     amount BIGINT NOT NULL, PRIMARY KEY (order_id, campaign))",
    "CREATE TABLE accounts (id TEXT PRIMARY KEY, balance BIGINT NOT NULL)",
    "CREATE TABLE transfers (id TEXT PRIMARY KEY, from_account TEXT NOT NULL, to_account TEXT NOT NULL,
     amount BIGINT NOT NULL)",
    "CREATE TABLE probe_rows (id TEXT PRIMARY KEY, n BIGINT NOT NULL)",
    "CREATE TABLE probe_numbers (id BIGINT PRIMARY KEY)",
    "CREATE TABLE forbidden (id TEXT PRIMARY KEY)",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    Sqlite,
}

#[derive(Debug)]
pub enum Database {
    Postgres(String),
    Sqlite { path: PathBuf, _folder: tempfile::TempDir },
}

impl Database {
    /// A new database with the business tables in it.
    pub async fn new(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => Self::at(postgres().await.database().await).await,
            Kind::Sqlite => {
                let folder = tempfile::tempdir().expect("a folder");
                let database = Database::Sqlite { path: folder.path().join("business.db"), _folder: folder };
                database.execute("PRAGMA journal_mode = WAL").await;
                database.create_tables().await;
                database
            }
        }
    }

    /// The empty PostgreSQL database at this URL.
    pub async fn at(url: String) -> Self {
        let database = Database::Postgres(url);
        database.create_tables().await;
        database
    }

    async fn create_tables(&self) {
        for table in TABLES {
            self.execute(table).await;
        }
    }

    /// What belongs under `[database.main] url`.
    pub fn url(&self) -> String {
        match self {
            Database::Postgres(url) => url.clone(),
            Database::Sqlite { path, .. } => format!("sqlite://{}", path.display()),
        }
    }

    pub async fn execute(&self, sql: &str) {
        let done = match self {
            Database::Postgres(url) => run(PgConnection::connect(url).await, sql).await,
            Database::Sqlite { path, .. } => run(sqlite(path).await, sql).await,
        };
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Another database with the same in it. Of SQLite only.
    pub async fn copy(&self) -> Self {
        assert!(matches!(self, Database::Sqlite { .. }), "only files are copied");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("copy.db");
        self.execute(&format!("VACUUM INTO '{}'", path.display())).await;
        Database::Sqlite { path, _folder: folder }
    }

    /// The one text column that a SELECT returns.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = match self {
            Database::Postgres(url) => postgres_texts(url, sql).await,
            Database::Sqlite { path, .. } => sqlite_texts(path, sql).await,
        };
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The one whole number that a SELECT returns.
    pub async fn number(&self, select: &str) -> i64 {
        let texts = self.texts(&format!("SELECT CAST(({select}) AS TEXT)")).await;
        let [text] = &texts[..] else { panic!("{select}: {} rows", texts.len()) };
        text.parse().unwrap_or_else(|_| panic!("{select}: {text:?} is no number"))
    }

    /// SQL for bytes as lower-case hexadecimal text.
    pub fn hex(&self, column: &str) -> String {
        match self {
            Database::Postgres(_) => format!("encode({column}, 'hex')"),
            Database::Sqlite { .. } => format!("lower(hex({column}))"),
        }
    }
}

async fn run<C>(connection: Result<C, sqlx::Error>, sql: &str) -> Result<(), sqlx::Error>
where
    C: Connection,
    for<'a> &'a mut C: Executor<'a>,
{
    let mut connection = connection?;
    connection.execute(AssertSqlSafe(sql.to_owned())).await?;
    connection.close().await
}

async fn sqlite(path: &std::path::Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    options.busy_timeout(Duration::from_secs(30)).connect().await
}

async fn postgres_texts(url: &str, sql: &str) -> Result<Vec<String>, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await?;
    connection.close().await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn sqlite_texts(path: &std::path::Path, sql: &str) -> Result<Vec<String>, sqlx::Error> {
    let mut connection = sqlite(path).await?;
    let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await?;
    connection.close().await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}
