//! Keeps a consumer open: opens the connection, checks the queue, watches, and starts over when anything is lost.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ackwright_core::health::Reporter;
use futures::{Stream, StreamExt};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer, Event};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::{Offer, Session};
use crate::rabbitmq::backoff::Backoff;
use crate::rabbitmq::fields;
use crate::rabbitmq::link::{self, Link, PATIENCE};
use crate::rabbitmq::settings::SourceSettings;
use crate::rabbitmq::settler::{Desk, Loss, Signal};

/// How often the connection is looked at: the client library does not tell of every end, nor of writes without end.
const INSPECTION: Duration = Duration::from_millis(250);

pub(super) struct Keeper {
    settings: SourceSettings,
    desk: Arc<Desk>,
    health: Reporter,
    sessions: watch::Sender<Offer>,
    signals: mpsc::UnboundedReceiver<Signal>,
    generation: u64,
    /// Intake was stopped: a lost channel is not replaced.
    stopped: bool,
}

struct Opened {
    link: Link,
    channel: Channel,
    tag: ShortString,
}

/// Why watching ended.
enum End {
    Lost(Loss),
    Closed(Option<oneshot::Sender<()>>),
}

impl Keeper {
    pub(super) fn new(
        settings: SourceSettings,
        desk: Arc<Desk>,
        health: Reporter,
        sessions: watch::Sender<Offer>,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Self {
        Keeper { settings, desk, health, sessions, signals, generation: 0, stopped: false }
    }

    pub(super) async fn keep(mut self) {
        let mut backoff = Backoff::new();
        let mut last_reason = String::new();
        while !self.stopped {
            let why = match self.open_or_end().await {
                Ok(Ok((opened, consumer))) => {
                    backoff.reset();
                    last_reason.clear();
                    match self.watch(opened, consumer).await {
                        End::Lost(loss) => loss.to_string(),
                        End::Closed(answer) => return reply(answer),
                    }
                }
                Ok(Err(why)) => why,
                Err(answer) => return reply(answer),
            };
            self.health.down(why.clone());
            let wait = backoff.next();
            if why != last_reason {
                let queue = &self.settings.queue;
                tracing::error!(queue, reason = why, ?wait, "not consuming, will try again");
                last_reason = why;
            }
            if let Err(answer) = self.pause(wait).await {
                return reply(answer);
            }
        }
        // Stopped and disconnected: nothing is left to close.
        while let Some(signal) = self.signals.recv().await {
            match signal {
                Signal::Stop(answer) => reply(Some(answer)),
                Signal::Close(answer) => return reply(Some(answer)),
                Signal::Broken { .. } => {}
            }
        }
    }

    /// Opens everything, unless told to end meanwhile.
    async fn open_or_end(&mut self) -> Result<Result<(Opened, Consumer), String>, Option<oneshot::Sender<()>>> {
        let Keeper { settings, signals, .. } = self;
        tokio::select! {
            biased;
            answer = told_to_end(signals) => Err(answer),
            opened = open(settings) => Ok(opened),
        }
    }

    async fn pause(&mut self, time: Duration) -> Result<(), Option<oneshot::Sender<()>>> {
        tokio::select! {
            answer = told_to_end(&mut self.signals) => Err(answer),
            () = sleep(time) => Ok(()),
        }
    }

    async fn watch(&mut self, opened: Opened, consumer: Consumer) -> End {
        let Opened { link, channel, tag } = opened;
        self.generation += 1;
        let generation = self.generation;
        let mut events = link.events();
        self.desk.open(generation, channel.clone(), self.settings.prefetch);
        self.sessions.send_replace(Arc::new(Mutex::new(Some(Session { generation, consumer }))));
        self.health.ready();
        tracing::info!(queue = self.settings.queue, generation, "consuming");
        let end = self.watch_channel(generation, &link, &channel, &tag, &mut events).await;
        match &end {
            End::Lost(loss) => {
                let (outstanding, oldest) = self.desk.shut();
                self.desk.counts.lost.one();
                if *loss == Loss::Cancelled {
                    self.desk.counts.cancelled.one();
                }
                self.health.down(loss.to_string());
                tracing::error!(
                    queue = self.settings.queue,
                    generation,
                    reason = %loss,
                    outstanding,
                    oldest_delivery_tag = oldest,
                    "channel lost, unsettled deliveries come again"
                );
            }
            End::Closed(_) => {
                link.goodbye().await;
                self.desk.shut();
                self.health.down("closed");
            }
        }
        end
    }

    async fn watch_channel(
        &mut self,
        generation: u64,
        link: &Link,
        channel: &Channel,
        tag: &ShortString,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> End {
        let mut inspection = tokio::time::interval(INSPECTION);
        loop {
            let look_again = self.desk.look_again();
            tokio::select! {
                signal = self.signals.recv() => match signal {
                    None => return End::Closed(None),
                    Some(Signal::Close(answer)) => return End::Closed(Some(answer)),
                    Some(Signal::Stop(answer)) => {
                        self.stopped = true;
                        let cancelled = channel.basic_cancel(tag.clone(), BasicCancelOptions::default());
                        // Where it cannot be cancelled, closing ends it.
                        let _ = timeout(PATIENCE, cancelled).await;
                        reply(Some(answer));
                    }
                    Some(Signal::Broken { generation: which, loss }) if which == generation => {
                        return End::Lost(loss);
                    }
                    Some(Signal::Broken { .. }) => {}
                },
                event = events.next() => match event {
                    Some(Event::Error(error)) => return End::Lost(Loss::Failed(link::words(&error))),
                    Some(_) => {}
                    None => return End::Lost(Loss::Failed("the connection has ended".into())),
                },
                _ = inspection.tick() => {
                    if !link.connected() {
                        return End::Lost(Loss::Failed("the connection has ended".into()));
                    }
                    self.desk.check_writes(Instant::now());
                }
                () = self.desk.holding.notified() => {}
                () = wait_until(look_again) => self.desk.release_overdue(Instant::now()),
            }
        }
    }
}

/// Completes when the keeper shall end: closed, stopped with nothing open, or forgotten by its source.
async fn told_to_end(signals: &mut mpsc::UnboundedReceiver<Signal>) -> Option<oneshot::Sender<()>> {
    loop {
        match signals.recv().await {
            None => return None,
            Some(Signal::Stop(answer) | Signal::Close(answer)) => return Some(answer),
            // It speaks of a channel that is gone already.
            Some(Signal::Broken { .. }) => {}
        }
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

fn reply(answer: Option<oneshot::Sender<()>>) {
    if let Some(answer) = answer {
        // The source may have stopped waiting.
        let _ = answer.send(());
    }
}

async fn open(settings: &SourceSettings) -> Result<(Opened, Consumer), String> {
    let link = Link::open(&settings.address, settings.heartbeat, &settings.connection_name, settings.tls_ca.as_deref())
        .await
        .map_err(|e| link::chain(&e))?;
    let channel = bounded("opening a channel", link.connection.create_channel()).await?;
    check_queue(settings, &channel).await?;
    bounded(
        "setting the prefetch",
        // Per consumer: quorum queues refuse a channel-wide one.
        channel.basic_qos(settings.prefetch, BasicQosOptions { global: false }),
    )
    .await?;
    let consumer = channel.basic_consume(
        settings.queue.as_str().into(),
        settings.consumer_tag.as_str().into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let consumer = bounded("starting to consume", consumer).await?;
    Ok((Opened { tag: consumer.tag(), link, channel }, consumer))
}

/// Finds out before consuming what is wrong with the queue, in the broker's words.
async fn check_queue(settings: &SourceSettings, channel: &Channel) -> Result<(), String> {
    let queue = || ShortString::from(settings.queue.as_str());
    if !settings.declare {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let looked = channel.queue_declare(queue(), passive, FieldTable::default());
        let looked = bounded("looking for the queue", looked).await;
        looked.map_err(|why| {
            // Reply code 404 in the broker's words: there is no such queue.
            let help =
                if why.contains("NOT_FOUND") { "; create it, or set `declare = true` for its broker" } else { "" };
            why + help
        })?;
    }
    let arguments = settings.queue_arguments();
    if arguments.is_empty() {
        return Ok(());
    }
    let arguments = fields::table(&arguments).map_err(|e| e.to_string())?;
    // A passive look does not compare arguments. Declaring a queue that is there changes nothing, and the broker
    // names the argument that differs.
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let what = if settings.declare { "declaring the queue" } else { "comparing the queue's arguments" };
    bounded(what, channel.queue_declare(queue(), durable, arguments)).await.map(|_| ())
}

async fn bounded<T>(what: &str, answer: impl Future<Output = lapin::Result<T>>) -> Result<T, String> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("{what} failed: {}", link::words(&error))),
        Err(_) => Err(format!("{what}: no answer within {PATIENCE:?}")),
    }
}
