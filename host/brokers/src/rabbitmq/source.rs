//! A queue as source: takes what has arrived from the channel that the keeper holds open.

mod keeper;

use std::sync::{Arc, Mutex};

use ackwright_core::delivery::{Delivery, Place, Receipt};
use ackwright_core::health::Reporter;
use ackwright_core::settle::Settler;
use ackwright_core::source::{self, Capabilities};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use lapin::Consumer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::incoming;
use super::link;
use super::settings::{Error, SourceSettings};
use super::settler::{Clerk, Desk, Loss, Signal};
use super::stats::SourceCounts;

/// A batch ends at so many bytes, whatever the number of its deliveries.
const BATCH_BYTES: usize = 32 << 20;

pub struct Source {
    queue: String,
    desk: Arc<Desk>,
    settler: Arc<dyn Settler>,
    sessions: watch::Receiver<Offer>,
    session: Option<Session>,
    keeper: JoinHandle<()>,
    stopped: bool,
}

/// A consumer on an open channel.
struct Session {
    generation: u64,
    consumer: Consumer,
}

/// The newest session, until the source takes it.
type Offer = Arc<Mutex<Option<Session>>>;

/// What the consumer had to say when asked without waiting.
enum Arrived {
    Delivery(Box<lapin::message::Delivery>),
    Nothing,
    End(Loss),
}

impl Source {
    /// Starts to consume, in the background: a broker that is away is waited for, and health says so. Must be
    /// called within a Tokio runtime.
    ///
    /// # Errors
    /// Settings that no broker would accept.
    pub fn open(settings: SourceSettings, health: Reporter) -> Result<Self, Error> {
        settings.check()?;
        let (signal, signals) = mpsc::unbounded_channel();
        let (ready, sessions) = watch::channel(Offer::default());
        let desk = Arc::new(Desk::new(signal));
        let queue = settings.queue.clone();
        let keeper = tokio::spawn(keeper::Keeper::new(settings, Arc::clone(&desk), health, ready, signals).keep());
        let settler = Arc::new(Clerk(Arc::clone(&desk)));
        Ok(Source { queue, desk, settler, sessions, session: None, keeper, stopped: false })
    }

    pub fn counts(&self) -> SourceCounts {
        self.desk.counts.snapshot()
    }

    /// The current consumer; waits while there is none.
    async fn session(&mut self) -> Result<&mut Session, source::Error> {
        loop {
            if let Some(newer) = self.offered() {
                self.session = Some(newer);
            }
            if self.session.is_some() {
                break;
            }
            self.sessions.changed().await.map_err(|_| {
                source::Error::Fatal(format!("the task that keeps the connection for queue {:?} has ended", self.queue))
            })?;
        }
        Ok(self.session.as_mut().expect("the loop ends with one"))
    }

    fn offered(&mut self) -> Option<Session> {
        self.sessions.borrow_and_update().lock().unwrap_or_else(|e| e.into_inner()).take()
    }

    /// The consumer has ended; the keeper opens another.
    fn lost(&mut self, loss: Loss) {
        if let Some(Session { generation, .. }) = self.session.take() {
            self.desk.signal(Signal::Broken { generation, loss });
        }
    }

    fn hand_over(&self, generation: u64, arrived: Vec<lapin::message::Delivery>) -> Option<Vec<Delivery>> {
        if !self.desk.deliver(generation, arrived.iter().map(|d| d.delivery_tag)) {
            return None;
        }
        self.desk.counts.delivered.add(arrived.len());
        let deliveries = arrived.into_iter().map(|delivery| {
            let place = Place { generation, stream: 0, position: delivery.delivery_tag };
            let redelivered = delivery.redelivered;
            // The receipt comes first: should anything below fail, dropping it asks for a requeue.
            let receipt = Receipt::new(place, Arc::clone(&self.settler));
            Delivery { receipt, redelivered, message: Arc::new(incoming::message(&self.queue, delivery)) }
        });
        Some(deliveries.collect())
    }
}

impl Session {
    fn take(&mut self) -> Arrived {
        self.consumer.next().now_or_never().map_or(Arrived::Nothing, Arrived::from)
    }
}

impl From<Option<lapin::Result<lapin::message::Delivery>>> for Arrived {
    fn from(item: Option<lapin::Result<lapin::message::Delivery>>) -> Self {
        match item {
            Some(Ok(delivery)) => Arrived::Delivery(Box::new(delivery)),
            Some(Err(error)) => Arrived::End(Loss::Failed(link::words(&error))),
            None => Arrived::End(Loss::Cancelled),
        }
    }
}

#[async_trait]
impl source::Source for Source {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, shared: true, requeues: true }
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::clone(&self.settler)
    }

    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, source::Error> {
        loop {
            if self.stopped {
                return Err(source::Error::Ended);
            }
            let session = self.session().await?;
            let generation = session.generation;
            // The one wait of a batch. Dropped here, it has taken nothing.
            let mut arrived = Arrived::from(session.consumer.next().await);
            let mut batch = Vec::new();
            let mut bytes = 0;
            let end = loop {
                match arrived {
                    Arrived::Delivery(delivery) => {
                        bytes += delivery.data.len();
                        batch.push(*delivery);
                    }
                    Arrived::Nothing => break None,
                    Arrived::End(loss) => break Some(loss),
                }
                if batch.len() >= most || bytes >= BATCH_BYTES {
                    break None;
                }
                arrived = session.take();
            };
            match end {
                // What arrived before the end belongs to a dead channel and comes again.
                Some(loss) => self.lost(loss),
                None => match self.hand_over(generation, batch) {
                    Some(deliveries) => return Ok(deliveries),
                    None => self.session = None,
                },
            }
        }
    }

    async fn stop(&mut self) {
        self.stopped = true;
        let (answer, stopped) = oneshot::channel();
        self.desk.signal(Signal::Stop(answer));
        // The keeper bounds its own waits; one that has ended has nothing to stop.
        let _ = stopped.await;
        let Some(mut session) = self.offered().or_else(|| self.session.take()) else { return };
        let mut buffered = Vec::new();
        while let Arrived::Delivery(delivery) = session.take() {
            buffered.push(delivery.delivery_tag);
        }
        self.desk.give_back(session.generation, buffered.into_iter());
    }

    async fn close(&mut self) {
        self.stopped = true;
        let (answer, closed) = oneshot::channel();
        self.desk.signal(Signal::Close(answer));
        let _ = closed.await;
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
