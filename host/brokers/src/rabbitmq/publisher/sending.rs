//! Sends one wave and collects what the broker says to each row.

use std::collections::HashMap;
use std::time::Duration;

use ackwright_core::outbox::Row;
use futures::FutureExt;
use futures::future::join_all;
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::{Channel, Confirmation, ErrorKind, PublisherConfirm};
use tokio::time::{Instant, timeout_at};

use crate::rabbitmq::link;
use crate::rabbitmq::outgoing::Outgoing;

pub(super) enum Fate {
    Confirmed,
    Refused(String),
    /// Neither confirmed nor refused; it may or may not have reached a queue.
    Unresolved,
}

/// Why a wave ended early.
pub(super) enum Stopped {
    /// The broker closed the channel: one of the unresolved rows is to blame.
    Closed { code: u16, why: String },
    /// The connection is gone.
    Lost(String),
    /// The broker said nothing in time.
    Silent,
}

pub(super) struct Sent {
    pub(super) fates: Vec<(usize, Fate)>,
    pub(super) stopped: Option<Stopped>,
}

type Answer = Option<lapin::Result<Confirmation>>;

pub(super) async fn send(
    channel: &Channel,
    rows: &[Row],
    outgoing: &[Option<Outgoing>],
    wave: &[usize],
    time: Duration,
) -> Sent {
    let until = Instant::now() + time;
    let ready = wave.iter().filter_map(|index| Some((*index, outgoing[*index].as_ref()?)));
    // All frames are queued before the first is awaited: one by one costs four times the processor time.
    let publishes = join_all(ready.map(|(index, outgoing)| async move {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let destination = &outgoing.destination;
        let publish = channel.basic_publish(
            destination.exchange.clone(),
            destination.routing_key.clone(),
            options,
            &rows[index].body,
            outgoing.properties.clone(),
        );
        match timeout_at(until, publish).await {
            Ok(published) => (index, Some(published)),
            Err(_) => (index, None),
        }
    }))
    .await;
    let mut answers: Vec<(usize, Answer)> = Vec::with_capacity(publishes.len());
    for (index, published) in publishes {
        let answer = match published {
            Some(Ok(confirm)) => confirmation(confirm, until).await,
            Some(Err(error)) => Some(Err(error)),
            None => None,
        };
        answers.push((index, answer));
    }
    conclude(rows, answers)
}

async fn confirmation(mut confirm: PublisherConfirm, until: Instant) -> Answer {
    match timeout_at(until, &mut confirm).await {
        Ok(answer) => Some(answer),
        // Rows behind a slow one may have been answered meanwhile.
        Err(_) => confirm.now_or_never(),
    }
}

fn conclude(rows: &[Row], answers: Vec<(usize, Answer)>) -> Sent {
    let mut returned: HashMap<String, String> = HashMap::new();
    let mut stopped = None;
    let mut fates = Vec::with_capacity(answers.len());
    for (index, answer) in answers {
        let fate = match answer {
            Some(Ok(Confirmation::Ack(message))) => {
                note(message, &mut returned);
                Fate::Confirmed
            }
            Some(Ok(Confirmation::Nack(message))) => {
                note(message, &mut returned);
                Fate::Refused("the broker could not take the message (negative confirm)".into())
            }
            // The channel is in confirm mode, so this says as little as no answer.
            Some(Ok(Confirmation::NotRequested)) | None => {
                stopped.get_or_insert(Stopped::Silent);
                Fate::Unresolved
            }
            Some(Err(error)) => {
                let why = stop(&error);
                // A reason from the broker says more than silence, or than what fails because of it.
                if matches!(why, Stopped::Closed { .. }) || !matches!(stopped, Some(Stopped::Closed { .. })) {
                    stopped = Some(why);
                }
                Fate::Unresolved
            }
        };
        fates.push((index, fate));
    }
    for (index, fate) in &mut fates {
        if let Some(why) = returned.remove(&rows[*index].id.to_string()) {
            *fate = Fate::Refused(why);
        }
    }
    Sent { fates, stopped }
}

fn note(message: Option<BasicReturnMessage>, returned: &mut HashMap<String, String>) {
    let Some(message) = message else { return };
    if let Some(id) = message.properties.message_id() {
        let why = format!(
            "no queue takes it: exchange {:?} returned routing key {:?} ({} {})",
            message.exchange.as_str(),
            message.routing_key.as_str(),
            message.reply_code,
            message.reply_text
        );
        returned.insert(id.to_string(), why);
    }
}

fn stop(error: &lapin::Error) -> Stopped {
    match error.kind() {
        ErrorKind::ProtocolError(broker) if error.is_amqp_soft_error() => {
            Stopped::Closed { code: broker.get_id(), why: format!("the broker says: {}", broker.get_message()) }
        }
        _ => Stopped::Lost(link::words(error)),
    }
}
