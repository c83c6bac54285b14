//! Settling deliveries on the channel that handed them over.
//!
//! **Invariant:** a receipt of another generation than the open channel's is void: nothing is sent for it.
//!
//! Frames are queued under the lock that guards the tracker, so the broker sees them in the order in which the
//! tracker made them: a requeue comes before any multiple ack that would swallow it. Nobody waits for a frame to be
//! written; the keeper looks after writes that do not end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ackwright_core::delivery::Place;
use ackwright_core::settle::{Disposal, Settler, Tally};
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::sync::{Notify, mpsc};

use super::link;
use super::stats::SourceCounters;
use super::tracker::{Frame, Tracker};

/// Lanes finish out of turn all the time, a few milliseconds apart, and then one frame acks all. Only when a gap
/// stays open for longer while so much is held that the broker runs out of prefetch are acks sent one by one.
pub(super) const STARVING: Duration = Duration::from_millis(25);
/// However little is held, its ack waits no longer for a slow delivery before it.
pub(super) const OVERDUE: Duration = Duration::from_millis(250);

/// What the source and the settler tell the keeper.
#[derive(Debug)]
pub(super) enum Signal {
    Broken {
        generation: u64,
        loss: Loss,
    },
    /// Cancel the consumer; answered when the broker hands over nothing more.
    Stop(tokio::sync::oneshot::Sender<()>),
    Close(tokio::sync::oneshot::Sender<()>),
}

/// How a consumer was lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The broker has cancelled it.
    Cancelled,
    Failed(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Cancelled => f.write_str("the broker has cancelled the consumer; most often the queue was deleted"),
            Loss::Failed(why) => f.write_str(why),
        }
    }
}

/// The open channel, shared by the source, its settler and its keeper.
pub(super) struct Desk {
    open: Mutex<Option<Open>>,
    pub(super) counts: SourceCounters,
    signals: mpsc::UnboundedSender<Signal>,
    /// Acks are held back: the keeper watches the clock.
    pub(super) holding: Notify,
}

struct Open {
    generation: u64,
    channel: Channel,
    tracker: Tracker,
    prefetch: usize,
    held_since: Option<Instant>,
    /// The oldest write that is not known to have ended.
    writing: Option<Writing>,
}

struct Writing {
    since: Instant,
    end: BoxFuture<'static, lapin::Result<()>>,
}

impl Desk {
    pub(super) fn new(signals: mpsc::UnboundedSender<Signal>) -> Self {
        Desk { open: Mutex::new(None), counts: SourceCounters::default(), signals, holding: Notify::new() }
    }

    pub(super) fn open(&self, generation: u64, channel: Channel, prefetch: u16) {
        self.counts.opened.one();
        *self.lock() = Some(Open {
            generation,
            channel,
            tracker: Tracker::default(),
            prefetch: prefetch.into(),
            held_since: None,
            writing: None,
        });
    }

    /// The channel is gone: all its receipts are void from here on. Returns how many were out, and the oldest.
    pub(super) fn shut(&self) -> (usize, Option<u64>) {
        let open = self.lock().take();
        open.map_or((0, None), |o| (o.tracker.outstanding(), o.tracker.oldest()))
    }

    /// Deliveries go to the pipeline. False where their channel is gone, and they with it.
    pub(super) fn deliver(&self, generation: u64, tags: impl Iterator<Item = u64>) -> bool {
        let mut slot = self.lock();
        let Some(open) = slot.as_mut().filter(|o| o.generation == generation) else { return false };
        tags.for_each(|tag| open.tracker.deliver(tag));
        true
    }

    pub(super) fn signal(&self, signal: Signal) {
        // A keeper that has ended has closed everything already.
        let _ = self.signals.send(signal);
    }

    fn broken(&self, generation: u64, why: String) {
        self.signal(Signal::Broken { generation, loss: Loss::Failed(why) });
    }

    /// When held acks are to be looked at again; none while nothing is held.
    pub(super) fn look_again(&self) -> Option<Instant> {
        let slot = self.lock();
        let open = slot.as_ref()?;
        open.held_since.map(|since| since + if open.starving() { STARVING } else { OVERDUE })
    }

    /// Sends held acks that have waited long enough.
    pub(super) fn release_overdue(&self, now: Instant) {
        let mut slot = self.lock();
        let Some(open) = slot.as_mut() else { return };
        let limit = if open.starving() { STARVING } else { OVERDUE };
        if open.held_since.is_some_and(|since| now.saturating_duration_since(since) >= limit) {
            let mut frames = Vec::new();
            open.tracker.release(&mut frames);
            open.held_since = None;
            self.counts.acked.add(frames.len());
            self.counts.ack_frames.add(frames.len());
            self.send(open, &frames);
        }
    }

    /// Looks after the oldest write: one that takes longer than the broker is given breaks the channel.
    pub(super) fn check_writes(&self, now: Instant) {
        let mut slot = self.lock();
        let Some(open) = slot.as_mut() else { return };
        let generation = open.generation;
        match open.poll_write() {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => self.broken(generation, link::words(&error)),
            Poll::Pending => {
                if open.writing.as_ref().is_some_and(|w| now.saturating_duration_since(w.since) >= link::PATIENCE) {
                    let why = format!("the broker has taken no acks for {:?}", link::PATIENCE);
                    self.broken(generation, why);
                }
            }
        }
    }

    /// Deliveries that never reached the pipeline go back to the broker.
    pub(super) fn give_back(&self, generation: u64, tags: impl Iterator<Item = u64>) {
        let mut slot = self.lock();
        let Some(open) = slot.as_mut().filter(|o| o.generation == generation) else { return };
        let frames: Vec<Frame> = tags.map(|tag| Frame::Requeue { tag }).collect();
        self.counts.requeued.add(frames.len());
        self.send(open, &frames);
    }

    fn settle_now(&self, places: &[(Place, Disposal)]) -> Tally {
        let mut tally = Tally::default();
        let mut frames = Vec::new();
        let mut slot = self.lock();
        let Some(open) = slot.as_mut() else {
            self.counts.void.add(places.len());
            return Tally { settled: 0, void: places.len() };
        };
        for (place, disposal) in places {
            let known = place.generation == open.generation
                && match disposal {
                    Disposal::Done(_) => open.tracker.done(place.position),
                    Disposal::Requeue => match open.tracker.requeue(place.position) {
                        Some(frame) => {
                            frames.push(frame);
                            true
                        }
                        None => false,
                    },
                };
            if known { tally.settled += 1 } else { tally.void += 1 }
        }
        self.counts.requeued.add(frames.len());
        self.counts.void.add(tally.void);
        let advanced = open.tracker.advance();
        if let Some((frame, count)) = advanced {
            frames.push(frame);
            self.counts.acked.add(count);
            self.counts.ack_frames.one();
        }
        self.send(open, &frames);
        if open.tracker.held() == 0 {
            open.held_since = None;
        } else if open.held_since.is_none() || advanced.is_some() {
            // A gap that moved is a new gap.
            open.held_since = Some(Instant::now());
            self.holding.notify_one();
        } else if open.starving() {
            self.holding.notify_one();
        }
        tally
    }

    fn send(&self, open: &mut Open, frames: &[Frame]) {
        let Some((last, first)) = frames.split_last() else { return };
        for frame in first {
            // Polling once queues the frame; that the channel is gone is learnt from the last.
            let _ = write(open.channel.clone(), *frame).now_or_never();
        }
        let mut end = write(open.channel.clone(), *last);
        match end.poll_unpin(&mut Context::from_waker(futures::task::noop_waker_ref())) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                self.broken(open.generation, link::words(&error));
            }
            Poll::Pending => {
                // An older write that has not ended says more about the connection than this one.
                if open.poll_write().is_ready() {
                    open.writing = Some(Writing { since: Instant::now(), end });
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        // Nothing that runs under the lock leaves the tracker half changed.
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Open {
    /// So much is held that the broker may have nothing left that it is allowed to hand over.
    fn starving(&self) -> bool {
        self.tracker.held() * 2 >= self.prefetch
    }

    fn poll_write(&mut self) -> Poll<lapin::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let polled = writing.end.poll_unpin(&mut Context::from_waker(futures::task::noop_waker_ref()));
        if polled.is_ready() {
            self.writing = None;
        }
        polled
    }
}

fn write(channel: Channel, frame: Frame) -> BoxFuture<'static, lapin::Result<()>> {
    Box::pin(async move {
        match frame {
            Frame::Ack { tag, multiple } => channel.basic_ack(tag, BasicAckOptions { multiple }).await,
            Frame::Requeue { tag } => {
                channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue: true }).await
            }
        }
    })
}

/// The settler of one source.
pub(super) struct Clerk(pub(super) Arc<Desk>);

#[async_trait]
impl Settler for Clerk {
    async fn settle(&self, places: Vec<(Place, Disposal)>) -> Tally {
        self.0.settle_now(&places)
    }

    fn forgotten(&self, place: Place) {
        self.0.counts.forgotten.one();
        tracing::error!(
            generation = place.generation,
            delivery_tag = place.position,
            "delivery dropped unsettled, asking for a requeue"
        );
        self.0.settle_now(&[(place, Disposal::Requeue)]);
    }
}
