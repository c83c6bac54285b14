//! A compiled plugin, and a version of it: the plugin with its grants, limits and settings, ready to run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ackwright_core::access::Access;
use ackwright_core::effect;
use ackwright_core::handler::{Handler, Prepared, Reads, Run};
use ackwright_core::key::Identity;
use ackwright_core::message::Message;
use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::bindings::HandlerPre;
use crate::engine::{Shared, TICK};
use crate::inspect::Inspection;
use crate::log::Speaker;
use crate::run;
use crate::state::State;

/// What one run of a plugin may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory of the whole guest, in bytes: all of its memories and tables together.
    pub memory: usize,
    /// CPU time of `identify` and `handle` together. Waiting for others does not count.
    pub time: Duration,
    /// Time by the clock from the start of the guest to its end, host calls included. Keep it above the
    /// database's own limits on lock waits and statements, which end a slow read as the database's fault.
    pub wall: Duration,
    pub effects: effect::Limits,
    /// Rows that one query returns.
    pub rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: 64 << 20,
            time: Duration::from_millis(250),
            wall: Duration::from_secs(15),
            effects: effect::Limits::default(),
            rows: 10_000,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "plugin {plugin}: limits.memory is {asked} bytes, and the host grants at most {most} to any plugin; lower it, \
         or raise the host's own limit"
    )]
    MemoryAboveHost { plugin: String, asked: usize, most: usize },
    #[error("plugin {plugin}: it starts with {needed} bytes of memory, and its limits.memory is {limit}")]
    MemoryTooSmall { plugin: String, needed: u64, limit: usize },
    #[error("plugin {plugin}: limits.{limit} is {asked:?}, and the least is {least:?}")]
    TimeTooShort { plugin: String, limit: &'static str, asked: Duration, least: Duration },
    #[error("plugin {plugin}: its settings are a JSON {found}; an object was expected")]
    Settings { plugin: String, found: &'static str },
}

/// A verified and compiled component.
pub struct Plugin {
    engine: Shared,
    name: String,
    inspection: Inspection,
    pre: HandlerPre<State>,
}

impl Plugin {
    pub(crate) fn new(engine: Shared, name: String, inspection: Inspection, pre: HandlerPre<State>) -> Self {
        Plugin { engine, name, inspection, pre }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// BLAKE3 of the file that it was loaded from, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.inspection.digest
    }

    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// Makes a version that the pipeline can run. `settings` is a JSON object, or null for none.
    pub fn bind(
        self: &Arc<Self>,
        access: Access,
        limits: Limits,
        settings: Value,
        group: impl Into<String>,
    ) -> Result<Arc<dyn Handler>, BindError> {
        let plugin = || self.name.clone();
        let most = self.engine.settings.memory;
        if limits.memory > most {
            return Err(BindError::MemoryAboveHost { plugin: plugin(), asked: limits.memory, most });
        }
        for (limit, asked) in [("time", limits.time), ("wall", limits.wall)] {
            if asked < TICK {
                return Err(BindError::TimeTooShort { plugin: plugin(), limit, asked, least: TICK });
            }
        }
        let required = self.pre.instance_pre().component().resources_required();
        if let Some(needed) = required.and_then(|r| r.max_initial_memory_size)
            && needed > limits.memory as u64
        {
            return Err(BindError::MemoryTooSmall { plugin: plugin(), needed, limit: limits.memory });
        }
        let settings = match settings {
            Value::Null => Map::new(),
            Value::Object(settings) => settings,
            Value::Bool(_) => return Err(BindError::Settings { plugin: plugin(), found: "boolean" }),
            Value::Number(_) => return Err(BindError::Settings { plugin: plugin(), found: "number" }),
            Value::String(_) => return Err(BindError::Settings { plugin: plugin(), found: "string" }),
            Value::Array(_) => return Err(BindError::Settings { plugin: plugin(), found: "array" }),
        };
        Ok(Arc::new(Bound(Arc::new(Version {
            plugin: Arc::clone(self),
            access,
            limits,
            settings_json: Value::Object(settings.clone()).to_string(),
            settings,
            group: group.into(),
            reads: AtomicBool::new(false),
        }))))
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("name", &self.name).field("inspection", &self.inspection).finish()
    }
}

/// A plugin with everything that its runs share.
pub(crate) struct Version {
    pub plugin: Arc<Plugin>,
    pub access: Access,
    pub limits: Limits,
    pub settings: Map<String, Value>,
    pub settings_json: String,
    pub group: String,
    /// It was seen to read, so running `handle` before the transaction is a waste.
    reads: AtomicBool,
}

impl Version {
    pub fn engine(&self) -> &Shared {
        &self.plugin.engine
    }

    pub fn pre(&self) -> &HandlerPre<State> {
        &self.plugin.pre
    }

    pub fn speaker<'a>(&'a self, message: &'a Message) -> Speaker<'a> {
        Speaker { plugin: &self.plugin.name, digest: self.plugin.digest(), group: &self.group, message }
    }

    pub fn is_known_to_read(&self) -> bool {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn remember_that_it_reads(&self) {
        self.reads.store(true, Ordering::Relaxed);
    }
}

struct Bound(Arc<Version>);

#[async_trait]
impl Handler for Bound {
    fn name(&self) -> &str {
        &self.0.plugin.name
    }

    fn digest(&self) -> &str {
        self.0.plugin.digest()
    }

    async fn prepare(&self, message: &Arc<Message>) -> Prepared {
        run::prepare(&self.0, message).await
    }

    async fn invoke(&self, message: &Arc<Message>, identity: &Identity, reads: Arc<dyn Reads>) -> Run {
        run::invoke(&self.0, message, identity, reads).await
    }
}
