//! SQLite: the embedded default. One file, write-ahead log, every commit synced.
//!
//! # Types
//!
//! SQLite types values, not columns, and converts what it stores by the column's affinity. What a column holds is
//! told by its declared type:
//!
//! | declared | value | stored as |
//! |---|---|---|
//! | BOOLEAN, BOOL | boolean | INTEGER 0 or 1 |
//! | INTEGER, INT, BIGINT, SMALLINT, TINYINT, ... | integer of 64 bits | INTEGER |
//! | REAL, DOUBLE, DOUBLE PRECISION, FLOAT | float; no NaN, no -0.0 | REAL |
//! | DECIMAL(p,s), NUMERIC(p,s) | decimal of at most 15 digits | INTEGER or REAL |
//! | DECIMAL_TEXT(p,s), NUMERIC_TEXT(p,s) | decimal; sums of up to 38 digits | TEXT |
//! | TEXT, VARCHAR(n), CHAR(n), CLOB, ... | text of at most n characters | TEXT |
//! | BLOB, BYTEA, BINARY(n), VARBINARY(n) | bytes | BLOB |
//! | TIMESTAMP, TIMESTAMPTZ, DATETIME | timestamp | INTEGER microseconds since 1970, UTC |
//! | UUID, GUID, UNIQUEIDENTIFIER | uuid | TEXT, lower case with hyphens |
//! | UUID_BLOB | uuid | BLOB of 16 bytes |
//! | JSON, JSON_TEXT | json; a bare fraction only in JSON_TEXT | TEXT |
//! | anything else (DATE, TIME, ...) | text | TEXT |
//!
//! A timestamp column whose rows hold the text of CURRENT_TIMESTAMP can be read, not compared. What a column cannot
//! keep exactly is refused when it is written; a row that holds something else than its column declares is an error
//! when it is read.

mod apply;
mod connect;
mod decimal;
mod fault;
mod inbox;
mod migrations;
mod outbox;
mod parked;
mod reads;
mod schema;
mod session;
#[cfg(test)]
mod tests;
mod types;
mod values;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ackwright_core::access::Access;
use ackwright_core::catalog::Catalog;
use ackwright_core::store::{self, Capabilities, Error, Purpose, Session, Statement, Writer};
use ackwright_core::{effect, outbox as core_outbox, parked as core_parked};
use async_trait::async_trait;
use sqlx::Row;

use self::connect::{File, Spare};
use self::fault::system;
use crate::guard::{Dialect, Guard};
use crate::{OpenError, Settings, migrate};

/// A SQLite database file.
pub struct Sqlite {
    file: Arc<File>,
    own: Spare,
    guard: Guard,
    /// The tables as they were last read; sessions made from then on use them.
    catalog: Mutex<Option<Arc<Catalog>>>,
    writers: Mutex<HashMap<[String; 3], Writer>>,
}

impl Sqlite {
    /// `sqlite://path/to/file.db`; opens nothing yet.
    pub fn open(url: &str, settings: &Settings) -> Result<Self, OpenError> {
        let file = Arc::new(File::new(url, settings)?);
        Ok(Sqlite {
            own: Spare::new(Arc::clone(&file)),
            file,
            guard: Guard::new(Dialect::Sqlite),
            catalog: Mutex::default(),
            writers: Mutex::default(),
        })
    }

    /// Brings the host's own tables up to date; returns the names of the migrations that it applied.
    pub async fn migrate(&self) -> Result<Vec<String>, migrate::Error> {
        migrations::apply(&self.file).await
    }

    /// Names of the migrations that are not applied yet.
    pub async fn pending(&self) -> Result<Vec<String>, migrate::Error> {
        migrations::pending(&self.file).await
    }
}

#[async_trait]
impl store::Store for Sqlite {
    fn capabilities(&self) -> Capabilities {
        Capabilities { concurrent_writers: false, savepoints: true }
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, Error> {
        let mut connection = self.own.read().await?;
        let catalog = Arc::new(schema::read(&mut connection).await?);
        self.own.keep(connection).await;
        *self.catalog.lock().unwrap_or_else(|e| e.into_inner()) = Some(Arc::clone(&catalog));
        Ok(catalog)
    }

    async fn writer(&self, group: &str, plugin: &str, digest: &str) -> Result<Writer, Error> {
        let key = [group.to_owned(), plugin.to_owned(), digest.to_owned()];
        if let Some(known) = self.writers.lock().unwrap_or_else(|e| e.into_inner()).get(&key) {
            return Ok(*known);
        }
        let attempted = "name the writer of inbox rows";
        let mut open = self.own.write().await?;
        // A second insert of the same names changes nothing but makes RETURNING answer.
        let row = sqlx::query(
            "INSERT INTO ackwright_writer (consumer_group, plugin, digest) VALUES (?, ?, ?) \
             ON CONFLICT (consumer_group, plugin, digest) DO UPDATE SET digest = excluded.digest RETURNING id",
        )
        .bind(group.to_owned())
        .bind(plugin.to_owned())
        .bind(digest.to_owned())
        .fetch_one(&mut open.connection)
        .await
        .and_then(|row| row.try_get::<i32, _>(0));
        let id = row.map_err(|error| system(error, attempted))?;
        self.own.keep(open.end(attempted).await?).await;
        self.writers.lock().unwrap_or_else(|e| e.into_inner()).insert(key, Writer(id));
        Ok(Writer(id))
    }

    fn session(&self) -> Box<dyn Session> {
        let catalog = self.catalog.lock().unwrap_or_else(|e| e.into_inner()).clone();
        Box::new(session::Session::new(Arc::clone(&self.file), catalog))
    }

    fn admit(&self, sql: &str, access: &Access, purpose: Purpose) -> Result<Statement, effect::Error> {
        self.guard.admit(sql, access, purpose)
    }

    fn outbox(&self) -> Arc<dyn core_outbox::Store> {
        Arc::new(outbox::Outbox::new(Arc::clone(&self.file)))
    }

    fn parked(&self) -> Arc<dyn core_parked::Store> {
        Arc::new(parked::Parked::new(Arc::clone(&self.file)))
    }
}
