//! Identify: from a delivery to a message with a dedup key, ready for a lane.
//!
//! **Invariant:** a message that cannot be routed or identified gets a key made of its content and is parked
//! whole; nothing is dropped here and nothing loops.

use std::sync::Arc;

use crate::delivery::{Delivery, Receipt};
use crate::handler::{Class, Failure, Outcome, Ran, Run};
use crate::key::{DedupKey, Identity};
use crate::message::Message;
use crate::parked;
use crate::route::{Bound, Route, Unmatched};
use crate::store::Writer;

/// A waiting message that a host has leased to run again.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub lease: parked::Lease,
    /// Attempts spent before this one.
    pub attempts: i32,
}

/// A message on its way into a lane.
pub struct Identified {
    pub receipt: Receipt,
    pub message: Arc<Message>,
    pub key: DedupKey,
    pub label: String,
    /// Absent where no plugin could identify the message.
    pub identity: Option<Identity>,
    /// Absent where no rule matched.
    pub plugin: Option<Arc<Bound>>,
    pub writer: Writer,
    pub order: u64,
    /// The run before the transaction, where the handler reads nothing.
    pub ran: Ran,
    pub retry: Option<Retry>,
    /// Runs that the sandbox had to stop.
    pub traps: u32,
}

pub async fn identify(route: &Route, delivery: Delivery, retry: Option<Retry>) -> Identified {
    fail::fail_point!("route:before");
    let Delivery { message, receipt, .. } = delivery;
    let group = &route.settings.group;
    let Some(plugin) = route.choose(&message).cloned() else {
        let key = DedupKey::of_content(group, &message);
        let outcome = match route.settings.unmatched {
            Unmatched::Skip => Outcome::Done,
            Unmatched::Park => Outcome::Failed(Failure {
                class: Class::Rejected,
                code: "unroutable".into(),
                reason: format!(
                    "no rule of route {} matches; add one, or set unmatched = \"skip\"",
                    route.settings.name
                ),
                detail: None,
            }),
        };
        return Identified {
            receipt,
            key,
            label: unidentified(&message),
            identity: None,
            plugin: None,
            writer: route.settings.writer,
            order: key.seed() as u64,
            ran: Ran::Finished(Run { outcome, effects: Default::default() }),
            retry,
            traps: 0,
            message,
        };
    };
    fail::fail_point!("identify:before");
    let mut prepared = plugin.handler.prepare(&message).await;
    let mut traps = 0;
    if stopped(&prepared.identity, &prepared.run) {
        // Once more in a fresh guest: only what happens twice is the message's own doing.
        traps = 1;
        prepared = plugin.handler.prepare(&message).await;
        traps += u32::from(stopped(&prepared.identity, &prepared.run));
    }
    fail::fail_point!("identify:after");
    let writer = plugin.writer;
    match prepared.identity {
        Ok(identity) => Identified {
            receipt,
            key: DedupKey::compose(group, &identity),
            label: identity.label(),
            order: identity.order_hash(),
            identity: Some(identity),
            plugin: Some(plugin),
            writer,
            ran: prepared.run,
            retry,
            traps,
            message,
        },
        Err(failure) => {
            let key = DedupKey::of_content(group, &message);
            // Without a key nothing could tell the retries of the message apart, so it is never retried.
            let failure = Failure { code: format!("unidentified:{}", failure.code), class: Class::Rejected, ..failure };
            Identified {
                receipt,
                key,
                label: unidentified(&message),
                identity: None,
                plugin: Some(plugin),
                writer,
                order: key.seed() as u64,
                ran: Ran::Finished(Run { outcome: Outcome::Failed(failure), effects: Default::default() }),
                retry,
                traps,
                message,
            }
        }
    }
}

fn stopped(identity: &Result<Identity, Failure>, ran: &Ran) -> bool {
    let trapped = |failure: &Failure| failure.class == Class::Trapped;
    match (identity, ran) {
        (Err(failure), _) => trapped(failure),
        (Ok(_), Ran::Finished(Run { outcome: Outcome::Failed(failure), .. })) => trapped(failure),
        (Ok(_), Ran::Finished(_) | Ran::NeedsReads) => false,
    }
}

fn unidentified(message: &Message) -> String {
    let id = message.id.as_deref().unwrap_or("without id");
    let mut label = format!("unidentified {} {}", message.source, id);
    label.truncate(label.floor_char_boundary(crate::key::LABEL_LIMIT));
    label
}
