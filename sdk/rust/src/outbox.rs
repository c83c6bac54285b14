//! Messages that leave with the transaction and are published after it commits.

use serde::Serialize;

use crate::{Failure, Header, HeaderValue, reject};

pub use crate::bindings::ackwright::handler::outbox::{Error, Outgoing};

/// Starts a message to `broker:destination`.
pub fn to(destination: impl Into<String>) -> Draft {
    Draft(Outgoing {
        destination: destination.into(),
        key: None,
        content_type: None,
        headers: Vec::new(),
        body: Vec::new(),
    })
}

/// A message that is not in the outbox yet: end with [`Draft::emit`] or [`Draft::emit_json`].
#[must_use = "nothing is emitted before emit or emit_json"]
pub struct Draft(Outgoing);

impl Draft {
    /// Order is kept within a key; without it, within the order key of the message at hand.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.key = Some(key.into());
        self
    }

    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.0.content_type = Some(content_type.into());
        self
    }

    /// Adds a header; names may repeat.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<HeaderValue>) -> Self {
        self.0.headers.push(Header { name: name.into(), value: value.into() });
        self
    }

    /// Puts the message into the outbox; returns its id, which is the same on every run.
    pub fn emit(mut self, body: impl Into<Vec<u8>>) -> Result<String, Error> {
        self.0.body = body.into();
        crate::import::outbox::emit(&self.0)
    }

    /// The same with a JSON body; the content type is `application/json` unless another was set.
    pub fn emit_json(mut self, body: &impl Serialize) -> Result<String, Failure> {
        let body = serde_json::to_vec(body)
            .map_err(|e| reject("bad-json", format!("write the body of an emit as JSON: {e}")))?;
        self.0.content_type.get_or_insert_with(|| "application/json".into());
        Ok(self.emit(body)?)
    }
}
