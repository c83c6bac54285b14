//! Pulses: liveness follows progress. A task that is busy and makes none is wedged; an idle one is well.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

/// All tasks whose progress `/livez` watches.
#[derive(Clone, Default)]
pub struct Pulses {
    all: Arc<Mutex<Vec<Arc<Inner>>>>,
}

/// One task's handle.
#[derive(Clone)]
pub struct Pulse(Arc<Inner>);

struct Inner {
    name: String,
    start: Instant,
    /// Milliseconds from `start` to the last sign of progress, plus one; zero while idle.
    busy: AtomicU64,
}

impl Pulses {
    pub fn task(&self, name: impl Into<String>) -> Pulse {
        let inner = Arc::new(Inner { name: name.into(), start: Instant::now(), busy: AtomicU64::new(0) });
        self.all.lock().unwrap_or_else(|e| e.into_inner()).push(Arc::clone(&inner));
        Pulse(inner)
    }

    /// Tasks that have been busy without progress for longer than this, and for how long.
    pub fn wedged(&self, longer: Duration) -> Vec<(String, Duration)> {
        let mut all = self.all.lock().unwrap_or_else(|e| e.into_inner());
        // A task that ended took its handle with it.
        all.retain(|inner| Arc::strong_count(inner) > 1);
        all.iter()
            .filter_map(|inner| match inner.busy.load(Ordering::Relaxed) {
                0 => None,
                since => {
                    let since = inner.start + Duration::from_millis(since - 1);
                    let stuck = Instant::now().saturating_duration_since(since);
                    (stuck > longer).then(|| (inner.name.clone(), stuck))
                }
            })
            .collect()
    }
}

impl Pulse {
    /// Work has begun, or has got on.
    pub fn beat(&self) {
        let now = self.0.start.elapsed().as_millis() as u64 + 1;
        self.0.busy.store(now, Ordering::Relaxed);
    }

    pub fn idle(&self) {
        self.0.busy.store(0, Ordering::Relaxed);
    }
}
