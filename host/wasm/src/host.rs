//! The functions that guests import.

use std::sync::Arc;

use ackwright_core::effect::{self, Buffer};
use ackwright_core::handler::Reads;
use tracing::Level;

use crate::bindings::ackwright::handler::{context, log, outbox, settings, store, types};
use crate::convert;
use crate::plugin::Version;
use crate::state::{Phase, State, Stop};
use crate::wasi;

/// The outer error ends the guest; the inner one is the guest's to see.
type Answer<T> = wasmtime::Result<Result<T, store::Error>>;

impl State {
    /// One effect, or the reason why it dooms the message.
    fn declare<T>(
        &mut self,
        call: &'static str,
        effect: impl FnOnce(&mut Buffer, &Version) -> Result<T, effect::Error>,
    ) -> wasmtime::Result<Result<T, effect::Error>> {
        if let Phase::Identify = self.phase {
            return Err(Stop::Impure(call).into());
        }
        if let Some(doomed) = &self.doomed {
            return Ok(Err(doomed.clone()));
        }
        let result = effect(&mut self.buffer, &self.version);
        Ok(self.noted(result))
    }

    /// The reads of the open transaction; ends the run where there is none.
    fn reads(&self, call: &'static str) -> wasmtime::Result<Arc<dyn Reads>> {
        match &self.phase {
            Phase::Identify => Err(Stop::Impure(call).into()),
            Phase::Speculate(_) => Err(Stop::NeedsReads.into()),
            Phase::Invoke(_, reads) => Ok(Arc::clone(reads)),
        }
    }

    /// **Invariant:** the first failed host call decides the message.
    fn noted<T>(&mut self, result: Result<T, effect::Error>) -> Result<T, effect::Error> {
        if let Err(error) = &result
            && self.doomed.is_none()
        {
            self.doomed = Some(error.clone());
        }
        result
    }

    async fn row(
        &mut self,
        call: &'static str,
        table: String,
        key: Vec<types::Field>,
        lock: bool,
    ) -> Answer<Option<Vec<types::Field>>> {
        let reads = self.reads(call)?;
        if let Some(doomed) = &self.doomed {
            return Ok(Err(told(doomed.clone())));
        }
        let version = Arc::clone(&self.version);
        let found = match convert::row_in(key) {
            Ok(key) => reads.get(&mut self.buffer, &version.access, &table, key, lock).await,
            Err(error) => Err(error),
        };
        Ok(self.noted(found).map(|row| row.map(convert::row_out)).map_err(told))
    }
}

/// The host's error in the guest's terms.
fn told(error: effect::Error) -> store::Error {
    let text = error.to_string();
    match error {
        effect::Error::Denied(_) => store::Error::Denied(text),
        effect::Error::Invalid { .. } => store::Error::Invalid(text),
        effect::Error::Unavailable(_) => store::Error::Unavailable(text),
    }
}

fn values(parameters: Vec<types::Value>) -> Result<Vec<ackwright_core::value::Value>, effect::Error> {
    parameters.into_iter().map(convert::value_in).collect()
}

impl types::Host for State {}

impl store::Host for State {
    async fn get(&mut self, table: String, key: Vec<types::Field>) -> Answer<Option<Vec<types::Field>>> {
        self.row("store.get", table, key, false).await
    }

    async fn get_for_update(&mut self, table: String, key: Vec<types::Field>) -> Answer<Option<Vec<types::Field>>> {
        self.row("store.get-for-update", table, key, true).await
    }

    async fn query(&mut self, sql: String, parameters: Vec<types::Value>) -> Answer<Vec<Vec<types::Field>>> {
        let reads = self.reads("store.query")?;
        if let Some(doomed) = &self.doomed {
            return Ok(Err(told(doomed.clone())));
        }
        let version = Arc::clone(&self.version);
        let found = match values(parameters) {
            Ok(parameters) => reads.query(&mut self.buffer, &version.access, &sql, parameters).await,
            Err(error) => Err(error),
        };
        let most = version.limits.rows;
        let found = found.and_then(|rows| {
            if rows.len() > most {
                let why = format!("the query found {} rows, and a message reads at most {most} at once", rows.len());
                return Err(effect::Error::invalid("limit:rows", why));
            }
            Ok(rows)
        });
        Ok(self.noted(found).map(|rows| rows.into_iter().map(convert::row_out).collect()).map_err(told))
    }

    async fn execute(&mut self, sql: String, parameters: Vec<types::Value>) -> Answer<u64> {
        let reads = self.reads("store.execute")?;
        if let Some(doomed) = &self.doomed {
            return Ok(Err(told(doomed.clone())));
        }
        let version = Arc::clone(&self.version);
        let done = match values(parameters) {
            Ok(parameters) => reads.execute(&mut self.buffer, &version.access, &sql, parameters).await,
            Err(error) => Err(error),
        };
        Ok(self.noted(done).map_err(told))
    }

    fn insert(&mut self, table: String, row: Vec<types::Field>) -> Answer<()> {
        let done = self
            .declare("store.insert", |buffer, version| buffer.insert(&version.access, &table, convert::row_in(row)?))?;
        Ok(done.map_err(told))
    }

    fn insert_if_absent(&mut self, table: String, key: Vec<String>, row: Vec<types::Field>) -> Answer<()> {
        let done = self.declare("store.insert-if-absent", |buffer, version| {
            buffer.insert_if_absent(&version.access, &table, &key, convert::row_in(row)?)
        })?;
        Ok(done.map_err(told))
    }

    fn upsert(&mut self, table: String, key: Vec<String>, row: Vec<types::Field>) -> Answer<()> {
        let done = self.declare("store.upsert", |buffer, version| {
            buffer.upsert(&version.access, &table, &key, convert::row_in(row)?)
        })?;
        Ok(done.map_err(told))
    }

    fn upsert_if_newer(
        &mut self,
        table: String,
        key: Vec<String>,
        version_column: String,
        row: Vec<types::Field>,
    ) -> Answer<()> {
        let done = self.declare("store.upsert-if-newer", |buffer, version| {
            buffer.upsert_if_newer(&version.access, &table, &key, &version_column, convert::row_in(row)?)
        })?;
        Ok(done.map_err(told))
    }

    fn update(
        &mut self,
        table: String,
        key: Vec<types::Field>,
        set: Vec<types::Field>,
        otherwise: store::GuardFailure,
    ) -> Answer<()> {
        let done = self.declare("store.update", |buffer, version| {
            let (key, set) = (convert::row_in(key)?, convert::row_in(set)?);
            buffer.update(&version.access, &table, key, set, convert::guard(otherwise))
        })?;
        Ok(done.map_err(told))
    }

    fn add(
        &mut self,
        table: String,
        key: Vec<types::Field>,
        amounts: Vec<types::Field>,
        floor: Option<types::Value>,
        otherwise: store::GuardFailure,
    ) -> Answer<()> {
        let done = self.declare("store.add", |buffer, version| {
            let (key, amounts) = (convert::row_in(key)?, convert::row_in(amounts)?);
            let floor = floor.map(convert::value_in).transpose()?;
            buffer.add(&version.access, &table, key, amounts, floor, convert::guard(otherwise))
        })?;
        Ok(done.map_err(told))
    }

    fn delete(&mut self, table: String, key: Vec<types::Field>) -> Answer<()> {
        let done = self
            .declare("store.delete", |buffer, version| buffer.delete(&version.access, &table, convert::row_in(key)?))?;
        Ok(done.map_err(told))
    }
}

impl outbox::Host for State {
    fn emit(&mut self, message: outbox::Outgoing) -> wasmtime::Result<Result<String, outbox::Error>> {
        let emitted =
            self.declare("outbox.emit", |buffer, version| buffer.emit(&version.access, convert::emit(message)?))?;
        Ok(match (emitted, &self.phase) {
            (Ok(ordinal), Phase::Speculate(key) | Phase::Invoke(key, _)) => Ok(key.emit_id(ordinal).to_string()),
            // `declare` ended the run already.
            (Ok(_), Phase::Identify) => return Err(Stop::Impure("outbox.emit").into()),
            (Err(error), _) => {
                let text = error.to_string();
                Err(match error {
                    effect::Error::Denied(_) => outbox::Error::Denied(text),
                    effect::Error::Invalid { .. } | effect::Error::Unavailable(_) => outbox::Error::Invalid(text),
                })
            }
        })
    }
}

impl context::Host for State {
    fn current(&mut self) -> wasmtime::Result<context::DeliveryContext> {
        match self.phase {
            Phase::Identify => Err(Stop::Impure("context.current").into()),
            Phase::Speculate(_) | Phase::Invoke(..) => Ok(context::DeliveryContext {
                consumer_group: self.version.group.clone(),
                now: wasi::now(&self.message),
                plugin_digest: self.version.plugin.digest().to_owned(),
            }),
        }
    }
}

impl settings::Host for State {
    fn get(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        Ok(self.version.settings.get(&name).map(|value| match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }))
    }

    fn json(&mut self) -> wasmtime::Result<String> {
        Ok(self.version.settings_json.clone())
    }
}

impl log::Host for State {
    fn log(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Trace => Level::TRACE,
            log::Level::Debug => Level::DEBUG,
            log::Level::Info => Level::INFO,
            log::Level::Warn => Level::WARN,
            log::Level::Error => Level::ERROR,
        };
        let State { log, version, message: delivered, .. } = self;
        log.line(version.speaker(delivered), level, &message, &fields);
        Ok(())
    }
}
