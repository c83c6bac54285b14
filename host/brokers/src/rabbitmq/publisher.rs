//! Publishing with confirms: a row is sent when the broker has said so, and not before.
//!
//! Rows of a batch are pipelined: all frames first, then the confirms. A returned message is told by its id, since
//! the client library may attach a return to the confirm of another message.

mod keeper;
mod sending;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackwright_core::health::Reporter;
use ackwright_core::outbox::Row;
use ackwright_core::publisher::{self, Error as PublishError};
use async_trait::async_trait;
use lapin::Channel;
use lapin::options::ConfirmSelectOptions;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::keeper::{Lane, Signal};
use self::sending::{Fate, Stopped};
use super::destination::Destination;
use super::link::{self, Link, PATIENCE};
use super::outgoing::Outgoing;
use super::settings::{Error, PublisherSettings};
use super::stats::{PublisherCounters, PublisherCounts};
use super::wave::{self, Candidate, Width};

/// How long a batch waits for a connection, or for a blocked one to go on, before it gives up for now.
const OPENING: Duration = Duration::from_secs(2);

/// AMQP's code for a name that does not exist.
const NOT_FOUND: u16 = 404;

pub struct Publisher {
    settings: PublisherSettings,
    lane: watch::Receiver<Lane>,
    signals: mpsc::UnboundedSender<Signal>,
    counts: Arc<PublisherCounters>,
    /// One batch at a time: a return is told by its id among the rows of its batch.
    turn: tokio::sync::Mutex<Turn>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What a batch inherits from the one before.
#[derive(Default)]
struct Turn {
    channel: Option<Open>,
    /// Destinations where something was confirmed and not returned on this connection.
    proven: HashSet<Destination>,
}

struct Open {
    generation: u64,
    channel: Channel,
}

/// A batch on its way: the answers so far, and what is to be sent.
struct Batch<'a> {
    rows: &'a [Row],
    outgoing: Vec<Option<Outgoing>>,
    answers: Vec<Option<Result<(), PublishError>>>,
}

impl Publisher {
    /// Connects in the background; a broker that is away is waited for, and health says so. Must be called within
    /// a Tokio runtime.
    ///
    /// # Errors
    /// Settings that no broker would accept.
    pub fn open(settings: PublisherSettings, health: Reporter) -> Result<Self, Error> {
        settings.check()?;
        let counts = Arc::new(PublisherCounters::default());
        let (signals, received) = mpsc::unbounded_channel();
        let (offer, lane) = watch::channel(Lane::Down("not connected yet".into()));
        let keeper = tokio::spawn(keeper::keep(settings.clone(), health, Arc::clone(&counts), offer, received));
        Ok(Publisher { settings, lane, signals, counts, turn: Default::default(), keeper: Mutex::new(Some(keeper)) })
    }

    pub fn counts(&self) -> PublisherCounts {
        self.counts.snapshot()
    }

    async fn run(&self, turn: &mut Turn, batch: &mut Batch<'_>) {
        let until = Instant::now() + self.settings.confirm_timeout;
        let mut width = Width::All;
        loop {
            batch.answer_followers();
            let pending: Vec<Candidate<'_>> = batch.pending();
            if pending.is_empty() {
                return;
            }
            if Instant::now() >= until {
                return batch.answer_rest(&PublishError::Unavailable("the batch has taken too long".into()));
            }
            let (generation, link) = match self.link().await {
                Ok(up) => up,
                Err(why) => return batch.answer_rest(&PublishError::Unavailable(why)),
            };
            let channel = match self.channel(turn, generation, &link).await {
                Ok(channel) => channel,
                Err(why) => {
                    let _ = self.signals.send(Signal::Broken { generation, why: why.clone() });
                    return batch.answer_rest(&PublishError::Unavailable(why));
                }
            };
            let wave = wave::next(&pending, &turn.proven, width);
            drop(pending);
            let wave = batch.fitting(wave, link.frame_max());
            let sent = sending::send(&channel, batch.rows, &batch.outgoing, &wave, self.settings.confirm_timeout).await;
            let mut unresolved = Vec::new();
            for (index, fate) in sent.fates {
                match fate {
                    Fate::Confirmed => batch.confirm(index, &mut turn.proven),
                    Fate::Refused(why) => batch.refuse(index, why, &mut turn.proven),
                    Fate::Unresolved => unresolved.push(index),
                }
            }
            match sent.stopped {
                None => {}
                Some(Stopped::Closed { code, why }) => {
                    turn.channel = None;
                    width = batch.blame(&unresolved, code, &why, width, &mut turn.proven);
                }
                Some(Stopped::Lost(why)) => {
                    turn.channel = None;
                    let _ = self.signals.send(Signal::Broken { generation, why: why.clone() });
                    return batch.answer_rest(&PublishError::Unavailable(why));
                }
                Some(Stopped::Silent) if link.blocked() => {
                    // The frames stay queued and are sent once the broker reads again, under the same ids.
                    let why = self.lane.borrow().blocked().unwrap_or("blocked").to_owned();
                    return batch.answer_rest(&PublishError::Unavailable(why));
                }
                Some(Stopped::Silent) => {
                    turn.channel = None;
                    let why = format!("no confirm within {:?}", self.settings.confirm_timeout);
                    let _ = self.signals.send(Signal::Broken { generation, why: why.clone() });
                    return batch.answer_rest(&PublishError::Unavailable(why));
                }
            }
        }
    }

    /// The open connection; waits a little for one, or for a blocked one to go on.
    async fn link(&self) -> Result<(u64, Arc<Link>), String> {
        let mut lane = self.lane.clone();
        let usable = |lane: &Lane| matches!(lane, Lane::Up { blocked: None, .. } | Lane::Closed);
        let waited = timeout(OPENING, lane.wait_for(usable)).await;
        let lane = match waited {
            Ok(Ok(lane)) => lane,
            Ok(Err(_)) => return Err("the publisher is closed".into()),
            Err(_) => self.lane.borrow(),
        };
        match &*lane {
            Lane::Up { blocked: Some(why), .. } | Lane::Down(why) => Err(why.clone()),
            Lane::Up { generation, link, blocked: None } => Ok((*generation, Arc::clone(link))),
            Lane::Closed => Err("the publisher is closed".into()),
        }
    }

    /// A channel in confirm mode on this connection.
    async fn channel(&self, turn: &mut Turn, generation: u64, link: &Link) -> Result<Channel, String> {
        if let Some(open) = &turn.channel
            && open.generation == generation
            && open.channel.status().connected()
        {
            return Ok(open.channel.clone());
        }
        if turn.channel.take().is_none_or(|open| open.generation != generation) {
            turn.proven.clear();
        }
        let opening = async {
            let channel = link.connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, lapin::Error>(channel)
        };
        let channel = match timeout(PATIENCE, opening).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(format!("opening a channel failed: {}", link::words(&error))),
            Err(_) => return Err(format!("opening a channel: no answer within {PATIENCE:?}")),
        };
        turn.channel = Some(Open { generation, channel: channel.clone() });
        Ok(channel)
    }

    fn count(&self, answers: &[Result<(), PublishError>]) {
        for answer in answers {
            match answer {
                Ok(()) => self.counts.confirmed.one(),
                Err(PublishError::Unavailable(_)) => self.counts.unavailable.one(),
                Err(PublishError::Refused(_)) => self.counts.refused.one(),
                Err(PublishError::Permanent(_)) => self.counts.permanent.one(),
            }
        }
    }
}

impl<'a> Batch<'a> {
    fn new(rows: &'a [Row], own_exchange: &str) -> Self {
        let mut outgoing = Vec::with_capacity(rows.len());
        let mut answers = Vec::with_capacity(rows.len());
        for row in rows {
            match Outgoing::new(row, own_exchange) {
                Ok(prepared) => {
                    outgoing.push(Some(prepared));
                    answers.push(None);
                }
                Err(error) => {
                    outgoing.push(None);
                    answers.push(Some(Err(error)));
                }
            }
        }
        Batch { rows, outgoing, answers }
    }

    fn pending(&self) -> Vec<Candidate<'_>> {
        let unanswered = self.rows.iter().enumerate().filter(|(index, _)| self.answers[*index].is_none());
        unanswered
            .filter_map(|(index, row)| {
                let destination = &self.outgoing[index].as_ref()?.destination;
                Some(Candidate { index, order_key: &row.order_key, destination })
            })
            .collect()
    }

    /// Rows behind a refused one of their key are not sent: they would overtake it.
    fn answer_followers(&mut self) {
        let mut refused = HashSet::new();
        for (row, answer) in self.rows.iter().zip(&mut self.answers) {
            match answer {
                Some(Err(PublishError::Refused(_) | PublishError::Unavailable(_))) => {
                    refused.insert(row.order_key.as_str());
                }
                // A row that can never be sent is parked, and the ones behind it go on.
                Some(Err(PublishError::Permanent(_)) | Ok(())) => {}
                None if refused.contains(row.order_key.as_str()) => {
                    *answer = Some(Err(PublishError::Unavailable("an earlier message of its key was refused".into())));
                }
                None => {}
            }
        }
    }

    fn answer_rest(&mut self, error: &PublishError) {
        self.answers.iter_mut().filter(|a| a.is_none()).for_each(|a| *a = Some(Err(error.clone())));
    }

    /// Answers the rows of the wave that no frame of this connection can carry, and returns the others.
    fn fitting(&mut self, wave: Vec<usize>, frame_max: u32) -> Vec<usize> {
        let mut fitting = wave;
        fitting.retain(|index| match self.outgoing[*index].as_ref().map(|o| o.fits(frame_max)) {
            Some(Err(error)) => {
                self.answers[*index] = Some(Err(error));
                false
            }
            Some(Ok(())) => true,
            None => false,
        });
        fitting
    }

    fn confirm(&mut self, index: usize, proven: &mut HashSet<Destination>) {
        self.answers[index] = Some(Ok(()));
        if let Some(outgoing) = &self.outgoing[index]
            && !proven.contains(&outgoing.destination)
        {
            proven.insert(outgoing.destination.clone());
        }
    }

    fn refuse(&mut self, index: usize, why: String, proven: &mut HashSet<Destination>) {
        if let Some(outgoing) = &self.outgoing[index] {
            proven.remove(&outgoing.destination);
        }
        self.answers[index] = Some(Err(PublishError::Refused(why)));
    }

    /// The broker has closed the channel over one of the unresolved rows and does not say which. Refuses those
    /// that are to blame, or says how much to send at a time to find them.
    fn blame(
        &mut self,
        unresolved: &[usize],
        code: u16,
        why: &str,
        width: Width,
        proven: &mut HashSet<Destination>,
    ) -> Width {
        let exchanges: HashSet<String> = unresolved
            .iter()
            .filter_map(|index| self.outgoing[*index].as_ref())
            .map(|outgoing| outgoing.destination.exchange.to_string())
            .collect();
        let guilty = match unresolved {
            [] => false,
            [_] => true,
            _ => code == NOT_FOUND && exchanges.len() == 1,
        };
        if !guilty {
            return if width < Width::Exchange && exchanges.len() > 1 { Width::Exchange } else { Width::Row };
        }
        for index in unresolved {
            self.refuse(*index, why.to_owned(), proven);
        }
        if code == NOT_FOUND {
            // What waits for the same exchange would only close the channel again.
            for index in 0..self.rows.len() {
                let same = self.outgoing[index]
                    .as_ref()
                    .is_some_and(|outgoing| exchanges.contains(outgoing.destination.exchange.as_str()));
                if same && self.answers[index].is_none() {
                    self.refuse(index, why.to_owned(), proven);
                }
            }
        }
        width
    }
}

#[async_trait]
impl publisher::Publisher for Publisher {
    async fn publish(&self, rows: &[Row]) -> Vec<Result<(), PublishError>> {
        let mut turn = self.turn.lock().await;
        let mut batch = Batch::new(rows, &self.settings.exchange);
        self.run(&mut turn, &mut batch).await;
        let unsent = || Err(PublishError::Unavailable("the message was not sent".into()));
        let answers: Vec<_> = batch.answers.into_iter().map(|answer| answer.unwrap_or_else(unsent)).collect();
        self.count(&answers);
        answers
    }

    async fn close(&self) {
        let keeper = self.keeper.lock().unwrap_or_else(|e| e.into_inner()).take();
        // One batch may still wait for its confirms.
        let mut turn = self.turn.lock().await;
        turn.channel = None;
        let _ = self.signals.send(Signal::Close);
        if let Some(keeper) = keeper {
            // It bounds its own waits; a panic in it was reported by the runtime.
            let _ = keeper.await;
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get_mut().unwrap_or_else(|e| e.into_inner()) {
            keeper.abort();
        }
    }
}
