//! Keeps the publisher's connection open and says what it is good for.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::health::Reporter;
use futures::StreamExt;
use lapin::Event;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::rabbitmq::backoff::Backoff;
use crate::rabbitmq::link::{self, Link};
use crate::rabbitmq::settings::PublisherSettings;
use crate::rabbitmq::stats::PublisherCounters;

/// How often the connection is looked at: the client library does not tell of every end.
const INSPECTION: Duration = Duration::from_millis(250);

/// The publisher's way to the broker.
pub(super) enum Lane {
    Down(String),
    Up { generation: u64, link: Arc<Link>, blocked: Option<String> },
    Closed,
}

impl Lane {
    /// Why the broker reads no publishes, where it has said so.
    pub(super) fn blocked(&self) -> Option<&str> {
        match self {
            Lane::Up { blocked, .. } => blocked.as_deref(),
            Lane::Down(_) | Lane::Closed => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Signal {
    Broken { generation: u64, why: String },
    Close,
}

pub(super) async fn keep(
    settings: PublisherSettings,
    health: Reporter,
    counts: Arc<PublisherCounters>,
    lane: watch::Sender<Lane>,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) {
    let mut backoff = Backoff::new();
    let mut last_reason = String::new();
    let mut generation = 0;
    loop {
        let opened = tokio::select! {
            biased;
            () = told_to_close(&mut signals) => break,
            opened = Link::open(&settings.address, settings.heartbeat, &settings.connection_name, settings.tls_ca.as_deref()) => opened,
        };
        let why = match opened {
            Ok(link) => {
                backoff.reset();
                last_reason.clear();
                generation += 1;
                counts.opened.one();
                match watch(link, generation, &health, &counts, &lane, &mut signals).await {
                    Some(why) => why,
                    None => break,
                }
            }
            Err(error) => link::chain(&error),
        };
        health.down(why.clone());
        lane.send_replace(Lane::Down(why.clone()));
        let wait = backoff.next();
        if why != last_reason {
            tracing::error!(reason = why, ?wait, "not publishing, will try again");
            last_reason = why;
        }
        tokio::select! {
            () = told_to_close(&mut signals) => break,
            () = sleep(wait) => {}
        }
    }
    health.down("closed");
    lane.send_replace(Lane::Closed);
}

/// Watches an open connection until it is lost, which returns the reason, or closed.
async fn watch(
    link: Link,
    generation: u64,
    health: &Reporter,
    counts: &PublisherCounters,
    lane: &watch::Sender<Lane>,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
) -> Option<String> {
    let link = Arc::new(link);
    let mut events = link.events();
    let mut inspection = tokio::time::interval(INSPECTION);
    lane.send_replace(Lane::Up { generation, link: Arc::clone(&link), blocked: None });
    health.ready();
    tracing::info!(generation, "publisher connected");
    let why = loop {
        tokio::select! {
            signal = signals.recv() => match signal {
                None | Some(Signal::Close) => {
                    link.goodbye().await;
                    return None;
                }
                Some(Signal::Broken { generation: which, why }) if which == generation => break why,
                Some(Signal::Broken { .. }) => {}
            },
            event = events.next() => match event {
                Some(Event::ConnectionBlocked(reason)) => {
                    counts.blocked.one();
                    let why = format!("blocked: the broker takes no messages now ({reason})");
                    tracing::error!(reason, "broker blocks publishing");
                    // Consuming goes on, so this does not make the host unfit.
                    health.ready_but(why.clone());
                    lane.send_replace(Lane::Up { generation, link: Arc::clone(&link), blocked: Some(why) });
                }
                Some(Event::ConnectionUnblocked) => {
                    tracing::info!("broker takes messages again");
                    health.ready();
                    lane.send_replace(Lane::Up { generation, link: Arc::clone(&link), blocked: None });
                }
                // A closed channel is the batch's affair; a lost connection is ours.
                Some(Event::Error(error)) if !link.connected() => break link::words(&error),
                Some(_) => {}
                None => break "the connection has ended".into(),
            },
            _ = inspection.tick() => {
                if !link.connected() {
                    break "the connection has ended".into();
                }
            }
        }
    };
    counts.lost.one();
    link.cut();
    Some(why)
}

async fn told_to_close(signals: &mut mpsc::UnboundedReceiver<Signal>) {
    loop {
        match signals.recv().await {
            None | Some(Signal::Close) => return,
            // It speaks of a connection that is gone already.
            Some(Signal::Broken { .. }) => {}
        }
    }
}
