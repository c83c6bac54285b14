//! A connection for single statements outside of sessions, opened when it is first needed and again when it was lost.

use ackwright_core::store::Error;
use sqlx::postgres::{PgConnectOptions, PgRow};
use tokio::sync::Mutex;

use super::native::Param;
use super::wire::{Wire, into_system, is_lost};
use crate::Settings;

pub(super) struct Link {
    options: PgConnectOptions,
    settings: Settings,
    wire: Mutex<Option<Wire>>,
}

impl Link {
    pub(super) fn new(options: PgConnectOptions, settings: Settings) -> Self {
        Link { options, settings, wire: Mutex::new(None) }
    }

    pub(super) async fn rows(&self, attempted: &str, sql: &str, params: Vec<Param>) -> Result<Vec<PgRow>, Error> {
        let mut held = self.wire.lock().await;
        let mut wire = self.open(held.take()).await?;
        let result = match self.before(&mut wire).await {
            Ok(()) => wire.rows(sql, params).await,
            Err(error) => Err(error),
        };
        let result = self.after(&mut wire, result).await;
        self.keep(&mut held, wire, &result);
        result.map_err(|error| into_system(attempted, error))
    }

    pub(super) async fn affected(&self, attempted: &str, sql: &str, params: Vec<Param>) -> Result<u64, Error> {
        let mut held = self.wire.lock().await;
        let mut wire = self.open(held.take()).await?;
        let result = match self.before(&mut wire).await {
            Ok(()) => wire.affected(sql, params).await,
            Err(error) => Err(error),
        };
        let result = self.after(&mut wire, result).await;
        self.keep(&mut held, wire, &result);
        result.map_err(|error| into_system(attempted, error))
    }

    /// A connection that may have died while it lay idle is tried before a statement goes out whose outcome would
    /// otherwise be unknown.
    async fn open(&self, idle: Option<Wire>) -> Result<Wire, Error> {
        if let Some(mut wire) = idle
            && wire.simple("").await.is_ok()
        {
            return Ok(wire);
        }
        Wire::open(&self.options, &self.settings).await
    }

    /// Behind a pooler, only a transaction keeps a prepared statement and its execution on one server session.
    async fn before(&self, wire: &mut Wire) -> Result<(), sqlx::Error> {
        if self.settings.pooled { wire.begin().await } else { Ok(()) }
    }

    async fn after<T>(&self, wire: &mut Wire, result: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        if !self.settings.pooled {
            return result;
        }
        match result {
            Ok(value) => wire.simple("COMMIT").await.map(|()| value),
            Err(error) => {
                if !is_lost(&error) {
                    wire.simple("ROLLBACK").await?;
                }
                Err(error)
            }
        }
    }

    fn keep<T>(&self, held: &mut Option<Wire>, wire: Wire, result: &Result<T, sqlx::Error>) {
        match result {
            Err(error) if is_lost(error) => {}
            _ => *held = Some(wire),
        }
    }
}
