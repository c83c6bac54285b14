//! Invoke: runs the handlers that read, inside the batch's transaction, one after the other.
//!
//! **Invariant:** a read sees what earlier messages of the batch and this message declared. What a failed message
//! had written before it failed is undone to its savepoint; its neighbours' work stays.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::access::{Access, Right};
use crate::catalog::{Catalog, TableId};
use crate::effect::{self, Buffer, Cells, Effect, NamedRow};
use crate::handler::{Class, Failure, Outcome, Reads, Run};
use crate::identify::Identified;
use crate::plan::{self, Order};
use crate::store::{ApplyError, Error, Purpose, ReadError, Refusal, Session, Statement, Store};
use crate::value::Value;

/// Rows that one query may return.
const MOST_ROWS: usize = 1000;

/// The open transaction while handlers read from it.
pub struct Reading {
    pub session: Box<dyn Session>,
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    /// Effects of earlier messages of the batch that are not in the database yet.
    pub pending: Vec<(u32, Effect)>,
    /// The message that runs.
    origin: u32,
    /// The running message has written, so a failure has to undo it.
    saved: bool,
    refused: Option<Refusal>,
    fault: Option<Fault>,
}

/// Why the whole transaction has to be given up.
#[derive(Debug)]
pub enum Fault {
    System(Error),
    /// Effects of earlier messages were refused when a read needed them in the database.
    Refused(Refusal),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::System(error)
    }
}

impl From<ApplyError> for Fault {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Refused(refusal) => Fault::Refused(refusal),
            ApplyError::System(error) => Fault::System(error),
        }
    }
}

impl Reading {
    pub fn new(session: Box<dyn Session>, store: Arc<dyn Store>, catalog: Arc<Catalog>) -> Self {
        Reading { session, store, catalog, pending: Vec::new(), origin: 0, saved: false, refused: None, fault: None }
    }
}

/// Runs one handler that reads. Returns its run; its effects that are not written yet stay in the run.
pub async fn invoke(reading: Reading, at: u32, message: &Identified) -> (Option<Reading>, Result<Run, Fault>) {
    let (Some(plugin), Some(identity)) = (&message.plugin, &message.identity) else {
        // Only what a plugin identified can ask for reads.
        return (Some(reading), Ok(Run { outcome: Outcome::Done, effects: Buffer::default() }));
    };
    let shared = Arc::new(Shared(Mutex::new(Reading { origin: at, saved: false, refused: None, ..reading })));
    let reads: Arc<dyn Reads> = Arc::clone(&shared) as Arc<dyn Reads>;
    fail::fail_point!("invoke:before");
    let mut run = plugin.handler.invoke(&message.message, identity, reads).await;
    fail::fail_point!("invoke:after");
    let Some(Shared(inner)) = Arc::into_inner(shared) else {
        let attempted = "get the transaction back from a handler".to_owned();
        let source = "the sandbox still holds it".into();
        return (None, Err(Fault::System(Error { attempted, lost: true, conflict: false, source })));
    };
    let mut reading = inner.into_inner();
    if let Some(fault) = reading.fault.take() {
        return (Some(reading), Err(fault));
    }
    if let Some(refusal) = reading.refused.take() {
        run.outcome = Outcome::Failed(condemned(refusal));
    }
    let kept = match run.outcome {
        Outcome::Done => reading.keep().await,
        Outcome::Failed(_) | Outcome::Unavailable(_) => reading.undo().await,
    };
    match kept {
        Ok(()) => (Some(reading), Ok(run)),
        Err(error) => (Some(reading), Err(Fault::System(error))),
    }
}

/// The failure of a message that the database refused when it ran alone.
pub fn condemned(refusal: Refusal) -> Failure {
    let class = if refusal.retry { Class::Retry { after: None } } else { Class::Rejected };
    let (code, reason) = match refusal.guard {
        Some(guard) => (format!("rejected:{}", guard.code), guard.reason),
        None => (refusal.code, refusal.reason),
    };
    Failure { class, code, reason, detail: None }
}

impl Reading {
    async fn keep(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.saved) {
            self.session.release().await?;
        }
        Ok(())
    }

    async fn undo(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.saved) {
            self.session.rollback_to().await?;
        }
        Ok(())
    }

    /// Brings into the database what a read of these tables has to see.
    async fn flush(&mut self, own: &mut Buffer, tables: &[TableId]) -> Result<(), effect::Error> {
        let seen = |effect: &Effect| tables.contains(&effect.table) || self.catalog.table(effect.table).observed;
        let pending = self.pending.iter().any(|(_, effect)| seen(effect));
        let own_seen = own.effects.iter().any(seen);
        if (pending || own_seen) && !self.pending.is_empty() {
            let earlier = std::mem::take(&mut self.pending);
            let plan = plan::build(earlier.iter().map(|(at, e)| (*at, e)), &self.catalog, Order::Coalesced);
            if let Err(error) = self.session.apply(&plan).await {
                return Err(self.give_up(error.into()));
            }
        }
        if own_seen {
            self.save().await?;
            let declared = own.take_effects();
            let plan = plan::build(declared.iter().map(|e| (self.origin, e)), &self.catalog, Order::Declared);
            match self.session.apply(&plan).await {
                Ok(()) => {}
                Err(ApplyError::Refused(refusal)) => return Err(self.refuse(refusal)),
                Err(ApplyError::System(error)) => return Err(self.give_up(Fault::System(error))),
            }
        }
        Ok(())
    }

    async fn save(&mut self) -> Result<(), effect::Error> {
        if !self.saved {
            if let Err(error) = self.session.savepoint().await {
                return Err(self.give_up(Fault::System(error)));
            }
            self.saved = true;
        }
        Ok(())
    }

    fn refuse(&mut self, refusal: Refusal) -> effect::Error {
        let error = effect::Error::invalid(refusal.code.clone(), refusal.reason.clone());
        self.refused = Some(refusal);
        error
    }

    fn give_up(&mut self, fault: Fault) -> effect::Error {
        let why = match &fault {
            Fault::System(error) => error.attempted.clone(),
            Fault::Refused(refusal) => refusal.reason.clone(),
        };
        self.fault = Some(fault);
        effect::Error::Unavailable(format!("the batch runs again: {why}"))
    }

    fn read_error(&mut self, error: ReadError) -> effect::Error {
        match error {
            ReadError::Invalid(why) => effect::Error::invalid("invalid:read", why),
            ReadError::System(error) => self.give_up(Fault::System(error)),
        }
    }

    fn admit(&self, sql: &str, access: &Access, purpose: Purpose) -> Result<Statement, effect::Error> {
        self.store.admit(sql, access, purpose)
    }
}

/// Handlers run one at a time; the lock only lets the sandbox hold on to the transaction.
struct Shared(Mutex<Reading>);

#[async_trait]
impl Reads for Shared {
    async fn get(
        &self,
        own: &mut Buffer,
        access: &Access,
        table: &str,
        key: NamedRow,
        lock: bool,
    ) -> Result<Option<NamedRow>, effect::Error> {
        let id = access.table(Right::Read, table)?;
        let known = access.catalog().table(id);
        let mut cells: Cells = Vec::with_capacity(key.len());
        for (name, value) in key {
            let column = access.column(Right::Read, id, &name)?;
            let value = known.column(column).accept(value);
            cells.push((
                column,
                value.map_err(|why| effect::Error::invalid("invalid:key", format!("table {table}: {why}")))?,
            ));
        }
        cells.sort_by_key(|(c, _)| *c);
        effect::unique(access, id, &cells)?;
        let columns = access.readable(id);
        let mut reading = self.0.lock().await;
        reading.flush(own, &[id]).await?;
        match reading.session.get(id, &cells, &columns, lock).await {
            Ok(row) => {
                Ok(row.map(|values| {
                    columns.iter().zip(values).map(|(c, v)| (known.column(*c).name.clone(), v)).collect()
                }))
            }
            Err(error) => Err(reading.read_error(error)),
        }
    }

    async fn query(
        &self,
        own: &mut Buffer,
        access: &Access,
        sql: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<NamedRow>, effect::Error> {
        let mut reading = self.0.lock().await;
        let statement = reading.admit(sql, access, Purpose::Query)?;
        reading.flush(own, &statement.tables).await?;
        // A query that fails must not take the transaction with it.
        reading.save().await?;
        match reading.session.query(&statement, &parameters, MOST_ROWS).await {
            Ok(found) => {
                let named = |values: Vec<Value>| found.columns.iter().cloned().zip(values).collect();
                Ok(found.rows.into_iter().map(named).collect())
            }
            Err(error) => Err(reading.read_error(error)),
        }
    }

    async fn execute(
        &self,
        own: &mut Buffer,
        access: &Access,
        sql: &str,
        parameters: Vec<Value>,
    ) -> Result<u64, effect::Error> {
        let mut reading = self.0.lock().await;
        let statement = reading.admit(sql, access, Purpose::Execute)?;
        // What was declared before runs before, whatever tables the statement touches.
        let every: Vec<TableId> = access.catalog().tables().map(|(id, _)| id).collect();
        reading.flush(own, &every).await?;
        reading.save().await?;
        match reading.session.execute(&statement, &parameters).await {
            Ok(rows) => Ok(rows),
            Err(ApplyError::Refused(refusal)) => Err(reading.refuse(refusal)),
            Err(ApplyError::System(error)) => Err(reading.give_up(Fault::System(error))),
        }
    }
}
