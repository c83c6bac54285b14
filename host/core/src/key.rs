//! The dedup key: consumer group, event type and business key, each part length-prefixed and typed, hashed.
//!
//! **Invariant:** distinct tuples never meet: no concatenation, no folding of case, spaces or normal forms.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a plugin's `identify` returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub event_type: String,
    /// Stable business fields, in order.
    pub business_key: Vec<String>,
    /// Messages that share it are handled in order; the business key where absent.
    pub order_key: Option<String>,
}

/// What makes two deliveries the same message to one consumer group: 128 bits of BLAKE3 over the framed parts.
/// A database compares it as 16 bytes, whatever its collation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DedupKey(pub Uuid);

/// The longest readable form that is kept beside a key, in bytes; the key itself is never cut.
pub const LABEL_LIMIT: usize = 1024;

impl DedupKey {
    pub fn compose(group: &str, identity: &Identity) -> Self {
        let mut frame = Frame::new(b"message");
        frame.text(group);
        frame.text(&identity.event_type);
        for part in &identity.business_key {
            frame.text(part);
        }
        frame.finish()
    }

    /// The key of a message that no plugin could identify, made of its content, so that a redelivery of it is
    /// recognised.
    pub fn of_content(group: &str, message: &crate::message::Message) -> Self {
        let mut frame = Frame::new(b"content");
        frame.text(group);
        frame.text(&message.source);
        frame.optional(message.id.as_deref().map(str::as_bytes));
        frame.optional(message.subject.as_deref().map(str::as_bytes));
        frame.optional(message.key.as_deref());
        frame.optional(message.body.as_deref());
        frame.text(&message.published_at.map_or_else(String::new, |t| t.to_string()));
        // Headers have no canonical bytes of their own; their debug form is stable within a version, and a
        // change of it only means that one parked copy more is kept.
        frame.text(&format!("{:?}", message.headers));
        frame.finish()
    }

    /// The id of an emitted message: the same on every run of the same message.
    pub fn emit_id(&self, ordinal: u32) -> Uuid {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"ackwright emit 1").update(self.0.as_bytes()).update(&ordinal.to_be_bytes());
        uuid_of(&hasher)
    }

    /// Seeds the plugin's deterministic randomness.
    pub fn seed(&self) -> u128 {
        self.0.as_u128()
    }
}

impl Identity {
    /// The readable form beside the hash. Parts are quoted, so that it cannot mislead either.
    pub fn label(&self) -> String {
        let mut label = format!("{:?}", self.event_type);
        for part in &self.business_key {
            label.push(' ');
            label.push_str(&format!("{part:?}"));
        }
        if label.len() > LABEL_LIMIT {
            let end = label.floor_char_boundary(LABEL_LIMIT - '…'.len_utf8());
            label.truncate(end);
            label.push('…');
        }
        label
    }

    /// Which messages keep their order among each other.
    pub fn order_hash(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        match &self.order_key {
            Some(key) => {
                hasher.update(&[1]).update(key.as_bytes());
            }
            None => {
                for part in &self.business_key {
                    hasher.update(&(part.len() as u64).to_be_bytes()).update(part.as_bytes());
                }
            }
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_be_bytes(first)
    }

    /// The order key as text, for outbox rows that name none of their own.
    pub fn order_text(&self) -> String {
        self.order_key.clone().unwrap_or_else(|| self.business_key.join("\u{1f}"))
    }
}

struct Frame(blake3::Hasher);

impl Frame {
    fn new(domain: &[u8]) -> Self {
        let mut frame = Frame(blake3::Hasher::new());
        frame.part(0, b"ackwright key 1");
        frame.part(0, domain);
        frame
    }

    fn part(&mut self, kind: u8, bytes: &[u8]) {
        self.0.update(&[kind]).update(&(bytes.len() as u64).to_be_bytes()).update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.part(1, text.as_bytes());
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.part(2, b""),
            Some(bytes) => self.part(3, bytes),
        }
    }

    fn finish(self) -> DedupKey {
        DedupKey(uuid_of(&self.0))
    }
}

fn uuid_of(hasher: &blake3::Hasher) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Uuid::from_bytes(bytes)
}
