//! Reading a message, building one in a test, and naming it.

use serde::de::DeserializeOwned;

use crate::{Header, HeaderValue, Identity, Message, Rejection, reject};

impl Message {
    /// A message with nothing but a source: for tests.
    pub fn new(source: impl Into<String>) -> Self {
        Message {
            id: None,
            source: source.into(),
            subject: None,
            key: None,
            content_type: None,
            headers: Vec::new(),
            published_at: None,
            body: None,
        }
    }

    /// Sets the body: for tests.
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Adds a header: for tests.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<HeaderValue>) -> Self {
        self.headers.push(Header { name: name.into(), value: value.into() });
        self
    }

    /// The body as a type of your own. A tombstone is rejected as `no-body`, anything else that does not fit as
    /// `bad-json`, with the place of the mistake.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Rejection> {
        serde_json::from_slice(self.bytes()?).map_err(|e| reject("bad-json", format!("read the body as JSON: {e}")))
    }

    /// The body; a tombstone is rejected as `no-body`.
    pub fn bytes(&self) -> Result<&[u8], Rejection> {
        self.body.as_deref().ok_or_else(|| reject("no-body", "the message has no body"))
    }

    /// The body as text; anything that is not UTF-8 is rejected as `bad-text`.
    pub fn text(&self) -> Result<&str, Rejection> {
        std::str::from_utf8(self.bytes()?).map_err(|e| reject("bad-text", format!("read the body as UTF-8: {e}")))
    }

    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&HeaderValue> {
        self.headers.iter().find(|h| h.name == name).map(|h| &h.value)
    }

    /// The first header of that name, if it is text.
    pub fn header_text(&self, name: &str) -> Option<&str> {
        match self.header(name) {
            Some(HeaderValue::Text(text)) => Some(text),
            _ => None,
        }
    }
}

impl Identity {
    /// Of which kind the message is; the business key follows with [`Identity::key`].
    ///
    /// ```
    /// # use ackwright_sdk::Identity;
    /// let identity = Identity::new("transfer").key("bank-7").key(42).ordered_by("account-1");
    /// assert_eq!(identity.business_key, ["bank-7", "42"]);
    /// ```
    pub fn new(event_type: impl Into<String>) -> Self {
        Identity { event_type: event_type.into(), business_key: Vec::new(), order_key: None }
    }

    /// Adds a part of the business key. Parts are framed by the host, so no separators are needed.
    pub fn key(mut self, part: impl ToString) -> Self {
        self.business_key.push(part.to_string());
        self
    }

    /// Messages that share this are handled in order; without it, those that share the business key.
    pub fn ordered_by(mut self, key: impl Into<String>) -> Self {
        self.order_key = Some(key.into());
        self
    }
}

impl From<&str> for HeaderValue {
    fn from(text: &str) -> Self {
        HeaderValue::Text(text.into())
    }
}

impl From<String> for HeaderValue {
    fn from(text: String) -> Self {
        HeaderValue::Text(text)
    }
}

impl From<i64> for HeaderValue {
    fn from(number: i64) -> Self {
        HeaderValue::Integer(number)
    }
}

impl From<f64> for HeaderValue {
    fn from(number: f64) -> Self {
        HeaderValue::Float(number)
    }
}

impl From<bool> for HeaderValue {
    fn from(truth: bool) -> Self {
        HeaderValue::Boolean(truth)
    }
}

impl From<Vec<u8>> for HeaderValue {
    fn from(bytes: Vec<u8>) -> Self {
        HeaderValue::Bytes(bytes)
    }
}
