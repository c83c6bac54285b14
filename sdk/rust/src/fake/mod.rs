//! A host in memory, so that a plugin's unit tests run under plain `cargo test`.
//!
//! It keeps the rules that a handler can run into: grants, columns and their types, unique keys, guards and floors,
//! all or nothing, one effect for each identity, nothing but the message in `identify`. It parses no SQL:
//! [`Host::answer_query`] and [`Host::answer_execute`] script that.

mod decimal;
pub(crate) mod import;
mod table;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bindings::ackwright::handler::context::DeliveryContext;
use crate::log::Level;
use crate::outbox::Outgoing;
use crate::row::Row;
use crate::{Delay, Failure, Field, Handler, Identity, Message, Rejection, Timestamp, Uuid, Value, store};

pub use table::{Found, Table, Type};

/// What became of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All of its effects are in the tables, all of its emits in the outbox.
    Done,
    /// A message with this identity was done or rejected before; nothing ran.
    Duplicate,
    /// By the handler, by a guard, or by a constraint.
    Rejected(Rejection),
    Retry(Delay),
    /// A grant is missing.
    Denied(String),
    /// No such table or column, a value that its column cannot hold, or an import that `identify` may not call.
    Invalid(String),
    /// The handler panicked: a trap in the real host.
    Panicked(String),
}

/// A message in the outbox, with the id that the host gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Emitted {
    pub id: String,
    pub message: Outgoing,
}

/// A line that the handler logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub level: Level,
    pub message: String,
    pub fields: Vec<(String, String)>,
}

type Query = Box<dyn Fn(&[Value]) -> Vec<Vec<Field>>>;
type Execute = Box<dyn Fn(&[Value]) -> u64>;

/// The fake host; see [the crate's example](crate).
pub struct Host {
    tables: BTreeMap<String, Table>,
    emit_grants: Vec<String>,
    settings: serde_json::Value,
    context: DeliveryContext,
    queries: BTreeMap<String, Query>,
    executes: BTreeMap<String, Execute>,
    seen: Vec<(String, Vec<String>)>,
    emitted: Vec<Emitted>,
    lines: Vec<Line>,
    run: Run,
}

/// What the message at hand has done so far.
#[derive(Default)]
struct Run {
    stage: Stage,
    seed: u64,
    /// The tables as the message sees them, with its own effects.
    tables: BTreeMap<String, Table>,
    emitted: Vec<Emitted>,
    /// The first host call that failed: it dooms the message whatever `handle` returns.
    doomed: Option<Outcome>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Stage {
    #[default]
    Identify,
    Handle,
}

thread_local! {
    static CURRENT: RefCell<Option<Host>> = const { RefCell::new(None) };
}

impl Default for Host {
    fn default() -> Self {
        Host {
            tables: BTreeMap::new(),
            emit_grants: Vec::new(),
            settings: serde_json::json!({}),
            context: DeliveryContext {
                consumer_group: "test-group".into(),
                now: 1_700_000_000_000_000,
                plugin_digest: "0".repeat(64),
            },
            queries: BTreeMap::new(),
            executes: BTreeMap::new(),
            seen: Vec::new(),
            emitted: Vec::new(),
            lines: Vec::new(),
            run: Run::default(),
        }
    }
}

impl Host {
    pub fn new() -> Self {
        Host::default()
    }

    /// Adds a table that the plugin may read and write; see [`Table::read_only`] and [`Table::write_only`].
    pub fn table(mut self, table: Table) -> Self {
        self.tables.insert(table.name().into(), table);
        self
    }

    /// Puts a row into a table.
    ///
    /// # Panics
    /// Where the table would not take it: a test that starts from rows which cannot exist proves nothing.
    pub fn seed(mut self, table: &str, row: impl Row) -> Self {
        let found = self.tables.get_mut(table).unwrap_or_else(|| panic!("seed: no such table {table}"));
        if let Err(why) = found.insert(&row.fields()) {
            panic!("seed table {table}: {why:?}");
        }
        self
    }

    /// Grants emits to `broker:destination`, where `*` stands for any run of characters.
    pub fn allow_emit(mut self, pattern: &str) -> Self {
        self.emit_grants.push(pattern.into());
        self
    }

    /// The plugin's settings: a JSON object.
    pub fn settings(mut self, settings: serde_json::Value) -> Self {
        self.settings = settings;
        self
    }

    /// The clock of the messages that follow.
    pub fn at(mut self, now: Timestamp) -> Self {
        self.context.now = now.micros();
        self
    }

    /// Answers [`store::query`](crate::store::query) with exactly this SQL.
    pub fn answer_query(mut self, sql: &str, answer: impl Fn(&[Value]) -> Vec<Vec<Field>> + 'static) -> Self {
        self.queries.insert(sql.into(), Box::new(answer));
        self
    }

    /// Answers [`store::execute`](crate::store::execute) with exactly this SQL.
    pub fn answer_execute(mut self, sql: &str, answer: impl Fn(&[Value]) -> u64 + 'static) -> Self {
        self.executes.insert(sql.into(), Box::new(answer));
        self
    }

    /// Delivers a message as the real host does: identify, claim, handle, and all effects or none.
    pub fn deliver<H: Handler>(&mut self, message: &Message) -> Outcome {
        self.run = Run::default();
        let identity = match self.guarded(|| H::identify(message)) {
            Err(outcome) => return outcome,
            Ok(Err(rejection)) => return Outcome::Rejected(rejection),
            Ok(Ok(identity)) => identity,
        };
        let key = (identity.event_type.clone(), identity.business_key.clone());
        if self.seen.contains(&key) {
            return Outcome::Duplicate;
        }

        self.run = Run { stage: Stage::Handle, seed: seed(&identity), tables: self.tables.clone(), ..Run::default() };
        let outcome = match self.guarded(|| H::handle(message)) {
            Err(outcome) => outcome,
            Ok(Err(Failure::Rejected(rejection))) => Outcome::Rejected(rejection),
            Ok(Err(Failure::Retry(delay))) => Outcome::Retry(delay),
            Ok(Ok(())) => match self.run.tables.values_mut().find_map(Table::violation) {
                Some(rejection) => Outcome::Rejected(rejection),
                None => Outcome::Done,
            },
        };
        if outcome == Outcome::Done {
            self.tables = std::mem::take(&mut self.run.tables);
            self.emitted.append(&mut self.run.emitted);
        }
        if matches!(outcome, Outcome::Done | Outcome::Rejected(_)) {
            self.seen.push(key);
        }
        outcome
    }

    /// What the handler makes of a message's identity, without running `handle`.
    pub fn identify<H: Handler>(&mut self, message: &Message) -> Result<Identity, Outcome> {
        self.run = Run::default();
        self.guarded(|| H::identify(message))?.map_err(Outcome::Rejected)
    }

    /// Runs any code with this host behind the imports, for tests of parts of a handler. Its effects are dropped.
    pub fn enter<T>(mut self, body: impl FnOnce() -> T) -> T {
        self.run = Run { stage: Stage::Handle, tables: self.tables.clone(), ..Run::default() };
        self.with_current(body)
    }

    /// The row with this key.
    pub fn row(&self, table: &str, key: impl Row) -> Option<Found> {
        self.tables.get(table)?.find(&key.fields())
    }

    /// All rows of a table, in the order in which they were inserted.
    pub fn rows(&self, table: &str) -> Vec<Found> {
        self.tables.get(table).map(Table::rows).unwrap_or_default()
    }

    pub fn emitted(&self) -> &[Emitted] {
        &self.emitted
    }

    /// What was logged, by all messages so far, whatever became of them.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Runs the handler's code: a panic, or a host call that failed, is an outcome.
    fn guarded<T>(&mut self, body: impl FnOnce() -> T) -> Result<T, Outcome> {
        let result = self.with_current(|| catch_unwind(AssertUnwindSafe(body)));
        if let Some(doomed) = self.run.doomed.take() {
            return Err(doomed);
        }
        result.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
            Outcome::Panicked(text.into())
        })
    }

    fn with_current<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let outer = CURRENT.replace(Some(std::mem::take(self)));
        let result = body();
        if let Some(host) = CURRENT.replace(outer) {
            *self = host;
        }
        result
    }

    fn emit(&mut self, message: &Outgoing) -> Result<String, crate::outbox::Error> {
        use crate::outbox::Error;
        if !message.destination.contains(':') {
            return Err(Error::Invalid(format!(
                "destination {:?}: write it as broker:destination",
                message.destination
            )));
        }
        if !self.emit_grants.iter().any(|pattern| matches(pattern, &message.destination)) {
            return Err(Error::Denied(format!("no grant to emit {}", message.destination)));
        }
        let id = Uuid::from_u64_pair(self.run.seed, self.run.emitted.len() as u64).to_string();
        self.run.emitted.push(Emitted { id: id.clone(), message: message.clone() });
        Ok(id)
    }

    /// A table that the message may write, or read.
    fn open(&mut self, name: &str, write: bool) -> Result<&mut Table, store::Error> {
        let Some(table) = self.run.tables.get_mut(name) else {
            return Err(store::Error::Invalid(format!("no such table {name} in this database")));
        };
        if write && !table.writable() {
            return Err(store::Error::Denied(format!("no grant to write {name}")));
        }
        if !write && !table.readable() {
            return Err(store::Error::Denied(format!("no grant to read {name}")));
        }
        Ok(table)
    }
}

fn seed(identity: &Identity) -> u64 {
    let mut hasher = DefaultHasher::new();
    identity.event_type.hash(&mut hasher);
    identity.business_key.hash(&mut hasher);
    hasher.finish()
}

/// `*` stands for any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().map(|(i, _)| i).chain([tail.len()]).any(|i| matches(rest, &tail[i..]))
        }),
    }
}
