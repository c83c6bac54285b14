//! One run: a fresh guest, `identify`, then `handle`.
//!
//! **Invariant:** a guest serves one message. Whatever it ends with, its store is dropped, so nothing that it did
//! can be seen by the next, and a trapped instance is never entered again.

use std::future::Future;
use std::sync::Arc;

use ackwright_core::effect::{self, Buffer};
use ackwright_core::handler::{Failure, Outcome, Prepared, Ran, Reads, Run};
use ackwright_core::key::{DedupKey, Identity};
use ackwright_core::message::Message;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use wasmtime::{Store, UpdateDeadline};

use crate::bindings::Handler;
use crate::bindings::ackwright::handler::types::Message as GuestMessage;
use crate::convert::{self, Rendered};
use crate::engine::TICK;
use crate::failure;
use crate::log::Budget;
use crate::plugin::Version;
use crate::state::{Phase, State, Stop};

/// Runs `identify`, and `handle` too unless the version is known to read.
pub(crate) async fn prepare(version: &Arc<Version>, message: &Arc<Message>) -> Prepared {
    let mut guest = Guest::admit(version, message).await;
    let rendered = Rendered::of(message);
    let headers = convert::headers(message, &rendered);
    let message = convert::message(message, &headers);
    let identity = guest.identify(message.clone()).await;
    let run = match &identity {
        // The pipeline looks at the identity alone.
        Err(_) => Ran::NeedsReads,
        Ok(_) if version.is_known_to_read() => Ran::NeedsReads,
        Ok(identity) => {
            let key = DedupKey::compose(&version.group, identity);
            guest.enter(Phase::Speculate(key), key);
            match guest.handle(message).await {
                Some(outcome) => Ran::Finished(Run { outcome, effects: guest.take_effects() }),
                None => {
                    version.remember_that_it_reads();
                    Ran::NeedsReads
                }
            }
        }
    };
    Prepared { identity, run }
}

/// Runs `identify` and `handle` with the reads of an open transaction.
pub(crate) async fn invoke(
    version: &Arc<Version>,
    message: &Arc<Message>,
    identity: &Identity,
    reads: Arc<dyn Reads>,
) -> Run {
    let mut guest = Guest::admit(version, message).await;
    let rendered = Rendered::of(message);
    let headers = convert::headers(message, &rendered);
    let message = convert::message(message, &headers);
    let outcome = match guest.identify(message.clone()).await {
        Ok(again) if again == *identity => {
            let key = DedupKey::compose(&version.group, identity);
            guest.enter(Phase::Invoke(key, reads), key);
            // Only a speculative run ends for want of reads.
            guest.handle(message).await.unwrap_or_else(|| Outcome::Failed(failure::no_reads()))
        }
        again => Outcome::Failed(failure::unstable(identity, again)),
    };
    Run { outcome, effects: guest.take_effects() }
}

struct Guest {
    store: Store<State>,
    handler: Option<Handler>,
    deadline: Instant,
    /// Given back after the store is gone: fields are dropped in order.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Guest {
    /// Waits for a place in the pool, so that a burst queues up here instead of failing there.
    async fn admit(version: &Arc<Version>, message: &Arc<Message>) -> Self {
        let engine = version.engine();
        // The semaphore is never closed.
        let permit = Arc::clone(&engine.permits).acquire_owned().await.ok();
        let limits = &version.limits;
        let state = State {
            version: Arc::clone(version),
            message: Arc::clone(message),
            phase: Phase::Identify,
            buffer: Buffer::new(limits.effects),
            doomed: None,
            log: Budget::default(),
            // A guest may start just before a tick.
            ticks: u32::try_from(limits.time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u32::MAX),
            memory: 0,
            wasi: None,
        };
        let mut store = Store::new(&engine.engine, state);
        store.limiter(|state| state);
        store.set_hostcall_fuel(limits.effects.bytes.saturating_add(1 << 20));
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            let state = store.data_mut();
            match state.ticks.checked_sub(1) {
                // Tokio's own yield lets timers and sockets have their turn, too.
                Some(left) => {
                    state.ticks = left;
                    Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
                }
                None => Err(Stop::Time { limit: state.version.limits.time }.into()),
            }
        });
        Guest { store, handler: None, deadline: Instant::now() + limits.wall, _permit: permit }
    }

    fn enter(&mut self, phase: Phase, key: DedupKey) {
        let state = self.store.data_mut();
        state.phase = phase;
        if let Some(wasi) = &state.wasi {
            wasi.reseed(key);
        }
    }

    async fn identify(&mut self, message: GuestMessage<'_>) -> Result<Identity, Failure> {
        let Guest { store, handler, deadline, .. } = self;
        let pre = store.data().version.pre().clone();
        let called = within(*deadline, async {
            let started = pre.instantiate_async(&mut *store).await?;
            let consumer = started.ackwright_handler_consumer();
            let identity = consumer.call_identify(&mut *store, message).await?;
            *handler = Some(started);
            Ok(identity)
        })
        .await;
        match called {
            Called::Returned(Ok(identity)) => failure::bounded(convert::identity(identity)),
            Called::Returned(Err(rejection)) => Err(failure::rejected(rejection)),
            Called::Trapped(error) => Err(failure::trapped(&error, self.store.data())),
            Called::Late => Err(failure::late(self.store.data())),
        }
    }

    /// Nothing where a speculative run came to its first read.
    async fn handle(&mut self, message: GuestMessage<'_>) -> Option<Outcome> {
        let Guest { store, handler, deadline, .. } = self;
        let called = match handler {
            Some(handler) => {
                let consumer = handler.ackwright_handler_consumer();
                within(*deadline, consumer.call_handle(&mut *store, message)).await
            }
            None => return Some(Outcome::Failed(failure::late(store.data()))),
        };
        let state = self.store.data();
        if let Called::Trapped(error) = &called
            && let Some(Stop::NeedsReads) = error.downcast_ref()
        {
            return None;
        }
        if let Some(doomed) = &state.doomed {
            return Some(match doomed {
                effect::Error::Unavailable(why) => Outcome::Unavailable(why.clone()),
                effect::Error::Denied(_) | effect::Error::Invalid { .. } => Outcome::Failed(failure::doomed(doomed)),
            });
        }
        Some(match called {
            Called::Returned(Ok(())) => Outcome::Done,
            Called::Returned(Err(failure)) => Outcome::Failed(failure::declared(failure)),
            Called::Trapped(error) => Outcome::Failed(failure::trapped(&error, state)),
            Called::Late => Outcome::Failed(failure::late(state)),
        })
    }

    fn take_effects(&mut self) -> Buffer {
        std::mem::take(&mut self.store.data_mut().buffer)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let State { version, message, log, wasi, .. } = self.store.data_mut();
        let speaker = version.speaker(message);
        if let Some(wasi) = wasi {
            wasi.log(speaker, log);
        }
        log.close(speaker);
    }
}

enum Called<T> {
    Returned(T),
    Trapped(wasmtime::Error),
    /// The clock ran out; the call was dropped where it stood.
    Late,
}

async fn within<T>(deadline: Instant, call: impl Future<Output = wasmtime::Result<T>>) -> Called<T> {
    match timeout_at(deadline, call).await {
        Ok(Ok(value)) => Called::Returned(value),
        Ok(Err(error)) => Called::Trapped(error),
        Err(_) => Called::Late,
    }
}
