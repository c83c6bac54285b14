//! One lane's connection and its transaction.
//!
//! **Invariant:** every call takes the transaction out of the session and puts it back at its end. A call that is
//! dropped half-way drops the connection with it: SQLite rolls back, the write lock is free, and the next `begin`
//! opens another connection.

use std::sync::Arc;

use ackwright_core::catalog::{Catalog, ColumnId, TableId};
use ackwright_core::effect::Cells;
use ackwright_core::key::DedupKey;
use ackwright_core::plan::Plan;
use ackwright_core::store::{self, ApplyError, Claim, Claimed, CommitError, Error, ReadError, Rows, State, Statement};
use ackwright_core::value::Value;
use ackwright_core::{outbox, parked};
use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;

use super::connect::{File, Open};
use super::fault::{Fault, Lost, classify, commit_refused, no_transaction, system};
use super::reads::Arity;
use super::{apply, inbox, reads, schema};
use crate::fault;

pub(super) struct Session {
    file: Arc<File>,
    catalog: Option<Arc<Catalog>>,
    idle: Option<SqliteConnection>,
    open: Option<Open>,
    /// A call that writes failed: until the savepoint is rolled back to, the transaction cannot commit. SQLite
    /// itself would commit what the call had written before it failed.
    failed: bool,
    arity: Arity,
}

impl Session {
    pub(super) fn new(file: Arc<File>, catalog: Option<Arc<Catalog>>) -> Self {
        Session { file, catalog, idle: None, open: None, failed: false, arity: Arity::default() }
    }

    fn take(&mut self, attempted: &str) -> Result<Open, Error> {
        self.open.take().ok_or_else(|| no_transaction(attempted))
    }

    fn take_with_catalog(&mut self, attempted: &str) -> Result<(Open, Arc<Catalog>), Error> {
        let catalog = self.catalog.clone().ok_or_else(|| no_transaction(attempted))?;
        Ok((self.take(attempted)?, catalog))
    }

    /// Puts the transaction back, unless the connection was lost: then it ends here.
    fn keep<T, E: Lost>(&mut self, open: Open, result: Result<T, E>) -> Result<T, E> {
        if !result.as_ref().is_err_and(Lost::lost) {
            self.open = Some(open);
        }
        result
    }

    /// As `keep`, for a call that writes.
    fn wrote<T, E: Lost>(&mut self, open: Open, result: Result<T, E>) -> Result<T, E> {
        self.failed |= result.is_err();
        self.keep(open, result)
    }

    async fn plain(&mut self, attempted: &str, sql: &'static str) -> Result<(), Error> {
        let mut open = self.take(attempted)?;
        let done = sqlx::query(sql).execute(&mut open.connection).await;
        let done = done.map(|_| ()).map_err(|error| system(error, attempted));
        self.wrote(open, done)
    }
}

#[async_trait]
impl store::Session for Session {
    async fn begin(&mut self) -> Result<(), Error> {
        // A transaction that nobody ended goes with its connection, before this one waits for the write lock.
        drop(self.open.take());
        self.failed = false;
        let mut open = self.file.begin(self.idle.take()).await?;
        if self.catalog.is_none() {
            self.catalog = Some(Arc::new(schema::read(&mut open.connection).await?));
        }
        self.open = Some(open);
        Ok(())
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Error> {
        let mut open = self.take("claim messages")?;
        let done = inbox::claim(&mut open, claims).await;
        self.wrote(open, done)
    }

    async fn record(&mut self, states: &[(DedupKey, State)]) -> Result<(), Error> {
        let mut open = self.take("record the states of messages")?;
        let done = inbox::record(&mut open, states).await;
        self.wrote(open, done)
    }

    async fn apply(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        let (mut open, catalog) = self.take_with_catalog("apply effects")?;
        let done = apply::apply(&mut open.connection, &catalog, plan).await;
        self.wrote(open, done)
    }

    async fn emit(&mut self, rows: &[outbox::NewRow]) -> Result<(), Error> {
        let mut open = self.take("write outbox rows")?;
        let done = inbox::emit(&mut open, rows).await;
        self.wrote(open, done)
    }

    async fn park(&mut self, rows: &[parked::NewRow]) -> Result<(), Error> {
        let mut open = self.take("park messages")?;
        let done = inbox::park(&mut open, rows).await;
        self.wrote(open, done)
    }

    async fn unpark(&mut self, keys: &[DedupKey]) -> Result<(), Error> {
        let mut open = self.take("remove parked copies")?;
        let done = inbox::unpark(&mut open, keys).await;
        self.wrote(open, done)
    }

    /// The transaction holds the write lock of the whole database already, so `_lock` has nothing to add.
    async fn get(
        &mut self,
        table: TableId,
        key: &Cells,
        columns: &[ColumnId],
        _lock: bool,
    ) -> Result<Option<Vec<Value>>, ReadError> {
        let (mut open, catalog) = self.take_with_catalog("read a row")?;
        let done = reads::get(&mut open.connection, &catalog, table, key, columns).await;
        self.keep(open, done)
    }

    async fn query(&mut self, statement: &Statement, parameters: &[Value], most: usize) -> Result<Rows, ReadError> {
        let (mut open, catalog) = self.take_with_catalog("run a query")?;
        let connection = &mut open.connection;
        let done = reads::query(connection, &catalog, &mut self.arity, statement, parameters, most).await;
        self.keep(open, done)
    }

    async fn execute(&mut self, statement: &Statement, parameters: &[Value]) -> Result<u64, ApplyError> {
        let mut open = self.take("run a statement")?;
        let done = reads::run(&mut open.connection, &mut self.arity, statement, parameters).await;
        self.wrote(open, done)
    }

    async fn savepoint(&mut self) -> Result<(), Error> {
        self.plain("set a savepoint", "SAVEPOINT ackwright_message").await
    }

    async fn rollback_to(&mut self) -> Result<(), Error> {
        self.plain("roll back to the savepoint", "ROLLBACK TO ackwright_message").await?;
        self.failed = false;
        self.release().await
    }

    async fn release(&mut self) -> Result<(), Error> {
        self.plain("release the savepoint", "RELEASE ackwright_message").await
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        if self.failed && self.open.is_some() {
            self.rollback().await;
            return Err(CommitError::RolledBack(fault::system("commit", fault::Broken::Failed)));
        }
        let mut open = self.take("commit").map_err(CommitError::RolledBack)?;
        match sqlx::query("COMMIT").execute(&mut open.connection).await {
            Ok(_) => {
                self.idle = Some(open.connection);
                Ok(())
            }
            Err(error) => {
                if commit_refused(&error) {
                    self.open = Some(open);
                    self.rollback().await;
                    // A deferred constraint: the effects are to blame, and the same transaction would fail again.
                    return Err(match classify(error, || "commit".into()) {
                        Fault::Refused(refusal) => CommitError::Refused(refusal),
                        Fault::Sql { error, .. } => CommitError::RolledBack(system(error, "commit")),
                        Fault::System(error) => CommitError::RolledBack(error),
                    });
                }
                let error = system(error, "commit");
                // The write-ahead log may hold the whole transaction or not; the next reader of the file decides.
                Err(CommitError::InDoubt(error))
            }
        }
    }

    async fn rollback(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        match sqlx::query("ROLLBACK").execute(&mut open.connection).await {
            Ok(_) => self.idle = Some(open.connection),
            // Closing the connection, by dropping it here, rolls back as well.
            Err(error) => tracing::debug!(%error, "rollback failed, closing the connection"),
        }
    }
}
