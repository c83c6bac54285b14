//! What belongs to one run of one guest: it is made for a message and dropped with the guest.

use std::sync::Arc;

use ackwright_core::effect::{self, Buffer};
use ackwright_core::handler::Reads;
use ackwright_core::key::DedupKey;
use ackwright_core::message::Message;
use wasmtime::ResourceLimiter;

use crate::log::Budget;
use crate::plugin::Version;
use crate::wasi::Wasi;

pub(crate) struct State {
    pub version: Arc<Version>,
    pub message: Arc<Message>,
    pub phase: Phase,
    pub buffer: Buffer,
    /// The first host call that failed. It decides the message, whatever the guest makes of it.
    pub doomed: Option<effect::Error>,
    pub log: Budget,
    /// Ticks of CPU time that are left.
    pub ticks: u32,
    /// Memory of all instances and tables of the guest together, in bytes.
    pub memory: usize,
    /// Only guests that use WASI have it.
    pub wasi: Option<Box<Wasi>>,
}

pub(crate) enum Phase {
    /// Sees the message alone.
    Identify,
    /// Runs `handle` before a transaction is open.
    Speculate(DedupKey),
    /// Runs `handle` inside the transaction.
    Invoke(DedupKey, Arc<dyn Reads>),
}

/// Why the host ended a run; none of these is the guest's own trap.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error("the handler reads: it has to run inside the transaction")]
    NeedsReads,
    #[error("identify called {0}, but it may only look at the message: a dedup key must follow from that alone")]
    Impure(&'static str),
    #[error("the guest wanted {wanted} bytes of memory, and its limit is {limit} (limits.memory of this plugin)")]
    Memory { wanted: usize, limit: usize },
    #[error("the guest used more than {limit:?} of CPU time (limits.time of this plugin)")]
    Time { limit: std::time::Duration },
}

impl ResourceLimiter for State {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.grow(desired.saturating_sub(current))
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.grow(desired.saturating_sub(current).saturating_mul(size_of::<usize>()))
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        // The pool's slot or the system refused what the limit allowed; a guest that only sees -1 would go on
        // differently from host to host.
        Err(error.context("growing the memory of the guest"))
    }
}

impl State {
    fn grow(&mut self, more: usize) -> wasmtime::Result<bool> {
        let limit = self.version.limits.memory;
        let wanted = self.memory.saturating_add(more);
        if wanted > limit {
            return Err(Stop::Memory { wanted, limit }.into());
        }
        self.memory = wanted;
        Ok(true)
    }
}
