//! WASI with nothing granted: no files, no network, no environment. Clocks and random numbers follow from the
//! message, so that a second run sees what the first one saw.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ackwright_core::key::DedupKey;
use bytes::Bytes;
use rand::TryRng;
use tokio::io::AsyncWrite;
use tracing::Level;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};

use crate::log::{Budget, Speaker};
use crate::state::State;

/// Bytes of stdout and stderr that are kept of one run: the beginning is logged, the end goes into the report.
const KEPT: usize = 8 << 10;
/// Handles (streams, pollables, ...) that one guest may hold.
const HANDLES: usize = 256;

pub(crate) struct Wasi {
    ctx: WasiCtx,
    table: ResourceTable,
    dice: Dice,
    output: Output,
    errors: Output,
}

impl Wasi {
    /// `now` in microseconds since the Unix epoch.
    pub fn new(now: i64, seed: DedupKey) -> Self {
        let dice = Dice::new(seed);
        let (output, errors) = (Output::default(), Output::default());
        let clock = Frozen(Duration::from_micros(now.try_into().unwrap_or(0)));
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        let ctx = WasiCtx::builder()
            .wall_clock(clock)
            .monotonic_clock(clock)
            .secure_random(dice.clone())
            .insecure_random(dice.clone())
            // Read once at start, where no dedup key exists yet.
            .insecure_random_seed(seed.seed())
            .max_random_size(1 << 20)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .stdout(output.clone())
            .stderr(errors.clone())
            .build();
        Wasi { ctx, table, dice, output, errors }
    }

    /// From here on, random numbers follow from the dedup key.
    pub fn reseed(&self, key: DedupKey) {
        *self.dice.0.lock().unwrap_or_else(PoisonError::into_inner) = stream(key);
    }

    /// Logs what the guest printed.
    pub fn log(&self, speaker: Speaker<'_>, budget: &mut Budget) {
        for (output, level, name) in [(&self.output, Level::INFO, "stdout"), (&self.errors, Level::WARN, "stderr")] {
            let kept = output.0.lock().unwrap_or_else(PoisonError::into_inner);
            for line in String::from_utf8_lossy(&kept.bytes).lines().filter(|line| !line.is_empty()) {
                budget.line(speaker, level, line, &[("stream".into(), name.into())]);
            }
            if kept.dropped > 0 {
                let dropped = kept.dropped.to_string();
                budget.line(speaker, Level::WARN, "output is cut", &[("bytes".into(), dropped)]);
            }
        }
    }

    /// The end of what the guest printed to stderr.
    pub fn stderr_tail(&self) -> Option<String> {
        let kept = self.errors.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let State { wasi, message, version, phase, .. } = self;
        let wasi = wasi.get_or_insert_with(|| {
            // Before there is a key, the content stands for it: a redelivery has the same.
            let content = DedupKey::of_content(&version.group, message);
            let wasi = Wasi::new(now(message), content);
            match phase {
                crate::state::Phase::Identify => {}
                crate::state::Phase::Speculate(key) | crate::state::Phase::Invoke(key, _) => wasi.reseed(*key),
            }
            Box::new(wasi)
        });
        WasiCtxView { ctx: &mut wasi.ctx, table: &mut wasi.table }
    }
}

/// The guest's time: when the message was published, else the epoch. A delivery's own time would differ from run
/// to run.
pub(crate) fn now(message: &ackwright_core::message::Message) -> i64 {
    message.published_at.unwrap_or(0)
}

#[derive(Clone, Copy)]
struct Frozen(Duration);

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn now(&self) -> Duration {
        self.0
    }
}

impl HostMonotonicClock for Frozen {
    fn resolution(&self) -> u64 {
        1_000
    }

    fn now(&self) -> u64 {
        self.0.as_nanos().try_into().unwrap_or(u64::MAX)
    }
}

/// Random numbers out of a hash: the same on every version of every library.
#[derive(Clone)]
struct Dice(Arc<Mutex<blake3::OutputReader>>);

fn stream(seed: DedupKey) -> blake3::OutputReader {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"ackwright random 1").update(&seed.seed().to_be_bytes());
    hasher.finalize_xof()
}

impl Dice {
    fn new(seed: DedupKey) -> Self {
        Dice(Arc::new(Mutex::new(stream(seed))))
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }
}

impl TryRng for Dice {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.fill(bytes);
        Ok(())
    }
}

/// Keeps the end of what is written, counts the rest, and never refuses: a full log must not change what a guest does.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: usize,
}

impl Output {
    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes.extend_from_slice(bytes);
        if kept.bytes.len() > 2 * KEPT {
            let over = kept.bytes.len() - KEPT;
            kept.bytes.drain(..over);
            kept.dropped += over;
        }
    }
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // The p3 form; p2 guests never ask for it.
        Box::new(tokio::io::sink())
    }
}

impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.keep(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[async_trait::async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}
