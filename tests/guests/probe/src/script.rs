//! The script language of the probe.

use ackwright_sdk::row::Fields;
use ackwright_sdk::store::{self, otherwise};
use ackwright_sdk::{log, prelude::*};
use serde::Deserialize;
use serde_json::Map;

use crate::literal::{self, Literal};
use crate::{echo, hostile};

/// A column name with its value; see [`Literal`] for how values are written.
pub type Cells = Map<String, serde_json::Value>;

/// What a message body says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The business key: one text, or a list of texts.
    key: Key,
    /// The event type; `probe` where absent.
    #[serde(rename = "type", default = "probe")]
    event_type: String,
    /// The order key.
    #[serde(default)]
    order: Option<String>,
    /// Steps of `handle`.
    #[serde(rename = "do", default)]
    steps: Vec<Step>,
    /// Steps that `identify` takes before it answers.
    #[serde(rename = "identify", default)]
    in_identify: Vec<Step>,
    /// Bytes to make the body bigger; nobody reads them.
    #[serde(rename = "padding", default)]
    _padding: String,
}

fn probe() -> String {
    "probe".into()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Key {
    One(String),
    Parts(Vec<String>),
}

/// One step. Each is an object with one member: `{"insert": {"table": "t", "row": {"id": 1}}}`. Steps without
/// arguments take `{}`: `{"loop": {}}`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    Insert {
        table: String,
        row: Cells,
    },
    InsertIfAbsent {
        table: String,
        key: Vec<String>,
        row: Cells,
    },
    Upsert {
        table: String,
        key: Vec<String>,
        row: Cells,
    },
    UpsertIfNewer {
        table: String,
        key: Vec<String>,
        version: String,
        row: Cells,
    },
    Update {
        table: String,
        key: Cells,
        set: Cells,
    },
    Add {
        table: String,
        key: Cells,
        amounts: Cells,
        #[serde(default)]
        floor: Option<serde_json::Value>,
    },
    Delete {
        table: String,
        key: Cells,
    },
    /// Reads a row; with `store`, upserts it as JSON into table `probe_reads(name TEXT PRIMARY KEY, row JSON)`.
    Get {
        table: String,
        key: Cells,
        #[serde(default)]
        lock: bool,
        #[serde(default)]
        store: Option<String>,
    },
    /// The same for a SELECT: an array of rows.
    Query {
        sql: String,
        #[serde(default)]
        parameters: Vec<serde_json::Value>,
        #[serde(default)]
        store: Option<String>,
    },
    /// Rejects as `wrong-count` where `rows` is given and differs from the rows affected.
    Execute {
        sql: String,
        #[serde(default)]
        parameters: Vec<serde_json::Value>,
        #[serde(default)]
        rows: Option<u64>,
    },
    Emit {
        to: String,
        #[serde(default)]
        key: Option<String>,
        #[serde(default)]
        headers: Cells,
        #[serde(default)]
        body: String,
    },
    Log {
        level: Level,
        message: String,
        #[serde(default)]
        fields: Map<String, serde_json::Value>,
    },
    /// Writes what the message holds as JSON to a destination.
    Echo {
        to: String,
    },
    /// Upserts consumer group, clock and digest as JSON into `probe_reads`.
    Context {
        store: String,
    },
    /// Upserts the settings as JSON into `probe_reads`.
    Settings {
        store: String,
    },
    Reject {
        code: String,
        reason: String,
    },
    Retry {
        code: String,
        reason: String,
        #[serde(default)]
        after_ms: Option<u32>,
    },
    Panic(String),
    /// An endless loop of computing.
    Loop {},
    /// An endless loop of host calls, which never returns to the guest's own code for long.
    LoopLogging {},
    /// An endless loop of reads: it waits in the host, not in the guest.
    LoopReading {
        table: String,
        key: Cells,
    },
    /// Allocates until the host stops it.
    MemoryBomb {},
    /// Calls itself until the stack ends.
    Recurse {},
    /// Logs one message of this many bytes.
    GiantLog {
        bytes: usize,
    },
    /// Computes for this many rounds of an xorshift, and then goes on.
    Spin {
        rounds: u64,
    },
    /// Adds a part to the business key that differs between two runs of the same guest: only in `identify`.
    UnstableKey {},
    /// Declares this many inserts into `table` with ids counting from 0.
    Flood {
        table: String,
        effects: u64,
    },
    /// Goes on although a host call failed: takes one step and drops its error.
    Ignore(Box<Step>),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl From<Level> for log::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => log::Level::Trace,
            Level::Debug => log::Level::Debug,
            Level::Info => log::Level::Info,
            Level::Warn => log::Level::Warn,
            Level::Error => log::Level::Error,
        }
    }
}

impl Script {
    /// `None` where the body is no JSON object with a `key`; `Err` where it is one with a mistake.
    pub fn of(message: &Message) -> Option<Result<Self, String>> {
        let body: serde_json::Value = serde_json::from_slice(message.body.as_deref()?).ok()?;
        body.get("key")?;
        Some(serde_json::from_value(body).map_err(|e| e.to_string()))
    }

    pub fn identify(self) -> Result<Identity, Rejection> {
        let mut identity = Identity { event_type: self.event_type, business_key: Vec::new(), order_key: self.order };
        match self.key {
            Key::One(part) => identity.business_key.push(part),
            Key::Parts(parts) => identity.business_key = parts,
        }
        for step in self.in_identify {
            if matches!(step, Step::UnstableKey {}) {
                identity.business_key.push(hostile::unstable());
                continue;
            }
            match step.take(&Message::new("identify")) {
                Ok(()) => {}
                Err(Failure::Rejected(rejection)) => return Err(rejection),
                Err(Failure::Retry(delay)) => return Err(reject(delay.code, delay.reason)),
            }
        }
        Ok(identity)
    }

    pub fn run(self, message: &Message) -> Result<(), Failure> {
        self.steps.into_iter().try_for_each(|step| step.take(message))
    }
}

impl Step {
    fn take(self, message: &Message) -> Result<(), Failure> {
        match self {
            Step::Insert { table, row } => store::table(&table).insert(cells(row)?)?,
            Step::InsertIfAbsent { table, key, row } => {
                store::table(&table).insert_if_absent(&borrowed(&key), cells(row)?)?;
            }
            Step::Upsert { table, key, row } => store::table(&table).upsert(&borrowed(&key), cells(row)?)?,
            Step::UpsertIfNewer { table, key, version, row } => {
                store::table(&table).upsert_if_newer(&borrowed(&key), &version, cells(row)?)?;
            }
            Step::Update { table, key, set } => {
                store::table(&table).update(cells(key)?, cells(set)?, otherwise("no-such-row", "nothing to update"))?;
            }
            Step::Add { table, key, amounts, floor } => {
                let guard = otherwise("below-floor", "the row is absent, or the result would be below the floor");
                let (table, key, amounts) = (store::table(&table), cells(key)?, cells(amounts)?);
                match floor {
                    Some(floor) => table.add_above(Literal::value(floor)?, key, amounts, guard)?,
                    None => table.add(key, amounts, guard)?,
                }
            }
            Step::Delete { table, key } => store::table(&table).delete(cells(key)?)?,
            Step::Get { table, key, lock, store: name } => {
                let (table, key) = (store::table(&table), cells(key)?);
                let row: Option<Fields> = if lock { table.get_for_update(key)? } else { table.get(key)? };
                keep(name, row.map(literal::row))?;
            }
            Step::Query { sql, parameters, store: name } => {
                let rows: Vec<Fields> = store::query(&sql, &values(parameters)?)?;
                keep(name, rows.into_iter().map(literal::row).collect::<Vec<_>>())?;
            }
            Step::Execute { sql, parameters, rows } => {
                let affected = store::execute(&sql, &values(parameters)?)?;
                if let Some(rows) = rows
                    && rows != affected
                {
                    return Err(reject("wrong-count", format!("{affected} rows affected, not {rows}")).into());
                }
            }
            Step::Emit { to, key, headers, body } => {
                let mut draft = outbox::to(to);
                if let Some(key) = key {
                    draft = draft.key(key);
                }
                for (name, value) in headers {
                    draft = draft.header(name, Literal::header(value)?);
                }
                draft.emit(body)?;
            }
            Step::Log { level, message, fields } => {
                let fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, literal::plain(&value))).collect();
                log::write(level.into(), &message, &fields);
            }
            Step::Echo { to } => echo::emit(message, &to)?,
            Step::Context { store } => keep(
                Some(store),
                serde_json::json!({
                    "group": context::consumer_group(),
                    "now": context::now().micros(),
                    "digest": context::plugin_digest(),
                }),
            )?,
            Step::Settings { store } => keep(Some(store), settings::load::<serde_json::Value>()?)?,
            Step::Reject { code, reason } => return Err(reject(code, reason).into()),
            Step::Retry { code, reason, after_ms } => return Err(Delay { code, reason, after_ms }.into()),
            Step::Panic(why) => hostile::panic_with(&why),
            Step::Loop {} => hostile::endless(),
            Step::LoopLogging {} => hostile::endless_logging(),
            Step::LoopReading { table, key } => {
                let key = cells(key)?;
                loop {
                    store::table(&table).get::<Fields>(&key)?;
                }
            }
            Step::MemoryBomb {} => hostile::memory_bomb(),
            Step::Recurse {} => hostile::recurse_without_end(),
            Step::GiantLog { bytes } => log::write(log::Level::Info, &"x".repeat(bytes), &[]),
            Step::Spin { rounds } => hostile::spin(rounds),
            Step::UnstableKey {} => return Err(reject("bad-script", "unstable-key is a step of identify").into()),
            Step::Flood { table, effects } => {
                for id in 0..effects {
                    store::table(&table).insert(("id", id))?;
                }
            }
            // The host has doomed the message; what this guest makes of the error must not matter.
            Step::Ignore(step) => drop(step.take(message)),
        }
        Ok(())
    }
}

/// Puts what was read where a test can see it.
fn keep(name: Option<String>, read: impl serde::Serialize) -> Result<(), Failure> {
    let Some(name) = name else { return Ok(()) };
    let row = row! { "name": name, "row": Json::of(&read)? };
    Ok(store::table("probe_reads").upsert(&["name"], row)?)
}

fn cells(cells: Cells) -> Result<Vec<ackwright_sdk::Field>, Rejection> {
    cells.into_iter().map(|(name, value)| Ok(ackwright_sdk::Field { name, value: Literal::value(value)? })).collect()
}

fn values(parameters: Vec<serde_json::Value>) -> Result<Vec<Value>, Rejection> {
    parameters.into_iter().map(Literal::value).collect()
}

fn borrowed(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
