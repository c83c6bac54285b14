//! Route: which plugin handles a message. Rules are tried in order; the first match wins.

use std::sync::Arc;
use std::time::Duration;

use crate::access::wildcard;
use crate::handler::Handler;
use crate::key::DedupKey;
use crate::message::Message;
use crate::store::Writer;

/// One consumer of one queue or topic.
pub struct Route {
    pub settings: Settings,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub name: Arc<str>,
    /// Scope of the dedup keys: two groups that see the same message both handle it.
    pub group: Arc<str>,
    pub lanes: usize,
    /// Most messages in one transaction.
    pub batch: usize,
    /// Most bytes of messages in one transaction.
    pub batch_bytes: usize,
    pub unmatched: Unmatched,
    pub retry: Backoff,
    /// Who parks what no plugin saw.
    pub writer: Writer,
}

pub struct Rule {
    /// All must hold; none means always.
    pub when: Vec<Condition>,
    pub plugin: Arc<Bound>,
}

/// A plugin version as one route uses it.
pub struct Bound {
    pub handler: Arc<dyn Handler>,
    pub writer: Writer,
}

/// Patterns are literal but for `*`, which stands for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Header { name: String, pattern: String },
    Subject(String),
    Source(String),
    ContentType(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    Park,
    /// Recorded as done, without effect.
    Skip,
}

/// Exponential, from `initial` to `max`, with jitter; then the message is parked for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub attempts: i32,
    pub initial: Duration,
    pub max: Duration,
}

impl Route {
    pub fn choose(&self, message: &Message) -> Option<&Arc<Bound>> {
        self.rules.iter().find(|rule| rule.when.iter().all(|c| c.holds(message))).map(|rule| &rule.plugin)
    }
}

impl Condition {
    fn holds(&self, message: &Message) -> bool {
        match self {
            // A repeated header matches where any of its values does.
            Condition::Header { name, pattern } => message
                .headers
                .iter()
                .any(|header| header.name == *name && header.value.text().is_some_and(|text| wildcard(pattern, &text))),
            Condition::Subject(pattern) => message.subject.as_deref().is_some_and(|s| wildcard(pattern, s)),
            Condition::Source(pattern) => wildcard(pattern, &message.source),
            Condition::ContentType(pattern) => message.content_type.as_deref().is_some_and(|t| wildcard(pattern, t)),
        }
    }
}

impl Backoff {
    /// How long to wait after this many attempts. The jitter derives from the key, so that a run can be repeated;
    /// it takes away up to half, which spreads a herd.
    pub fn after(&self, attempts: i32, key: &DedupKey) -> Duration {
        let doubled =
            self.initial.saturating_mul(1_u32.checked_shl(attempts.clamp(1, 31) as u32 - 1).unwrap_or(u32::MAX));
        let full = doubled.min(self.max);
        let noise = (key.seed() as u64 ^ (attempts as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)) % 1000;
        full - full.mul_f64(noise as f64 / 2000.0)
    }
}
