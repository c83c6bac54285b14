//! The engine: one a process. It owns the pool of guest memory, the permits, the clock of CPU time and the linkers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::Duration;

use tokio::sync::Semaphore;
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

use crate::bindings::Handler as Contract;
use crate::cache::Cache;
use crate::load;
use crate::plugin::Plugin;
use crate::state::State;

/// How often a running guest is asked to let others run; the unit of its CPU budget.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// Core modules, memories and tables that one component may have. Python links about thirty modules.
const MODULES: u32 = 64;
const MEMORIES: u32 = 4;
const TABLES: u32 = 8;
const TABLE_ELEMENTS: usize = 100_000;

/// What one process grants to all of its plugins together.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Guests that may be alive at the same time; further messages wait for one to end. Choose more than the
    /// number of lanes: a guest that waits for a row lock keeps its place.
    pub guests: u32,
    /// The most memory that the limits of any plugin may name, in bytes.
    pub memory: usize,
    /// Stack of a guest, in bytes. It is a constant of the host, so that a recursion ends at the same depth on
    /// every run.
    pub stack: usize,
    /// Memory is taken from a pool that is reserved (not used) at start. Where the system refuses the
    /// reservation, or where this is false, each guest's memory is mapped when it starts, which costs a few times
    /// as much.
    pub pool: bool,
    /// Folder for compiled code; it is created with mode 0700. Without one, plugins are compiled at every start.
    pub cache: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { guests: 64, memory: 1 << 30, stack: 512 << 10, pool: true, cache: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("starting the WebAssembly engine")]
    Engine(#[source] wasmtime::Error),
    #[error("starting the thread that measures the CPU time of guests")]
    Ticker(#[source] std::io::Error),
}

/// Compiles plugins and runs them. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

pub(crate) type Shared = Arc<Inner>;

pub(crate) struct Inner {
    pub engine: wasmtime::Engine,
    pub permits: Arc<Semaphore>,
    pub plain: Linker<State>,
    pub wasi: Linker<State>,
    pub cache: Option<Cache>,
    pub settings: Settings,
    pub pooled: bool,
    /// The ticker ends when this is dropped.
    _ticker: SyncSender<()>,
}

impl Engine {
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let (engine, pooled) = match settings.pool.then(|| wasmtime::Engine::new(&config(&settings, true))) {
            Some(Ok(engine)) => (engine, true),
            Some(Err(error)) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "no pool for guest memory, each guest maps its own: messages cost more CPU time"
                );
                (wasmtime::Engine::new(&config(&settings, false)).map_err(Error::Engine)?, false)
            }
            None => (wasmtime::Engine::new(&config(&settings, false)).map_err(Error::Engine)?, false),
        };
        let mut plain = Linker::new(&engine);
        Contract::add_to_linker::<_, HasSelf<_>>(&mut plain, |state: &mut State| state).map_err(Error::Engine)?;
        let mut wasi = plain.clone();
        wasmtime_wasi::p2::add_to_linker_async(&mut wasi).map_err(Error::Engine)?;
        let cache = settings.cache.as_deref().and_then(|folder| Cache::open(folder, &engine));
        let ticker = tick(&engine)?;
        Ok(Engine(Arc::new(Inner {
            permits: Arc::new(Semaphore::new(settings.guests.max(1) as usize)),
            plain,
            wasi,
            cache,
            pooled,
            engine,
            settings,
            _ticker: ticker,
        })))
    }

    /// Checks and compiles a plugin on a thread of its own. `bytes` is a component, or a core module that carries
    /// component metadata. Compiled code comes from the cache where it is there and sound.
    pub async fn load(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Arc<Plugin>, load::Error> {
        load::load(Arc::clone(&self.0), name, bytes.into()).await
    }

    /// Whether guest memory comes from a pool.
    pub fn pooled(&self) -> bool {
        self.0.pooled
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("settings", &self.0.settings).field("pooled", &self.0.pooled).finish()
    }
}

fn config(settings: &Settings, pool: bool) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(settings.stack)
        .async_stack_size(settings.stack + (1 << 20))
        .wasm_backtrace_details(WasmBacktraceDetails::Enable)
        .parallel_compilation(true)
        .memory_init_cow(true)
        // One message on one host must give the same effects as on any other.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    if pool {
        let guests = settings.guests.max(1);
        let mut pool = PoolingAllocationConfig::new();
        // Scanning for dirty pages makes a reset cheap however much stays resident; without it every resident
        // byte is cleared by hand.
        let keep = if PoolingAllocationConfig::is_pagemap_scan_available() { 4 << 20 } else { 512 << 10 };
        pool.total_component_instances(guests)
            .total_core_instances(guests * MODULES)
            .total_memories(guests * MEMORIES)
            .total_tables(guests * TABLES)
            .total_stacks(guests)
            .max_core_instances_per_component(MODULES)
            .max_memories_per_component(MEMORIES)
            .max_tables_per_component(TABLES)
            .table_elements(TABLE_ELEMENTS)
            .max_memory_size(settings.memory)
            .max_unused_warm_slots(guests)
            .linear_memory_keep_resident(keep)
            .table_keep_resident(keep)
            .async_stack_keep_resident(256 << 10)
            .pagemap_scan(Enabled::Auto);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    config
}

/// Counts CPU time for all guests at once: a running guest notices each tick.
fn tick(engine: &wasmtime::Engine) -> Result<SyncSender<()>, Error> {
    let (alive, ended) = mpsc::sync_channel::<()>(0);
    let engine = engine.weak();
    std::thread::Builder::new()
        .name("ackwright-ticks".into())
        .spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
                match engine.upgrade() {
                    Some(engine) => engine.increment_epoch(),
                    None => return,
                }
            }
        })
        .map_err(Error::Ticker)?;
    Ok(alive)
}
