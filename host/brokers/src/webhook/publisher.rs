//! Outbox rows leave as POSTs.
//!
//! | answer | row |
//! |---|---|
//! | 2xx | sent |
//! | no connection, connection lost, 408, 425, 429, 502, 503, 504 | unavailable: no attempt is spent |
//! | no answer in time, other 5xx, 3xx, other 4xx | refused: backs off, other keys go on |
//! | 405, 410, 413, 414, 415, 422, 431, malformed destination or header | permanent |
//!
//! **Invariant:** a row is not sent while an earlier row of its order key failed and may be tried again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ackwright_core::message::{Header, HeaderValue};
use ackwright_core::outbox::Row;
use ackwright_core::publisher::{self, Error as Failure};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue as Wire};
use reqwest::{Client, StatusCode, Url};

use super::signature::Signature;
use crate::secret::Secret;

pub const MESSAGE_ID: HeaderName = HeaderName::from_static("ackwright-message-id");
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Headers that belong to one connection and are made anew for each (RFC 9110, 7.6.1), so that a plugin may pass
/// on what it received.
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Bytes of an answer's body that are read, so that its connection can be used again.
const ANSWER_LIMIT: usize = 16 * 1024;

#[derive(Clone, Debug)]
pub struct Config {
    /// `http://` or `https://`; a row's destination is appended to its path.
    pub url: Secret,
    /// Sent with every message; their values may be credentials.
    pub headers: Vec<(String, Secret)>,
    pub signature: Option<Signature>,
    /// For the whole exchange.
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// Order keys that are sent at the same time.
    pub concurrency: usize,
}

impl Config {
    pub fn new(url: impl Into<String>) -> Self {
        Config {
            url: Secret::new(url),
            headers: Vec::new(),
            signature: None,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            concurrency: 16,
        }
    }
}

/// None of them shows the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the webhook broker's url is not a URL: {0}")]
    Url(String),
    #[error("the webhook broker's url must be http:// or https://, with a host, without `?` and `#`")]
    Kind,
    #[error("the webhook broker's header `{0}` is not an HTTP header, or its value has characters that none can hold")]
    Header(String),
    #[error("cannot set up an HTTP client")]
    Client(#[source] reqwest::Error),
}

pub struct Publisher {
    client: Client,
    base: Url,
    headers: HeaderMap,
    signature: Option<Signature>,
    concurrency: usize,
}

impl Publisher {
    pub fn new(config: Config) -> Result<Self, Error> {
        let base = Url::parse(config.url.expose()).map_err(|e| Error::Url(e.to_string()))?;
        let plain = base.query().is_none() && base.fragment().is_none() && base.has_host();
        if !["http", "https"].contains(&base.scheme()) || !plain {
            return Err(Error::Kind);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let bad = || Error::Header(name.clone());
            let name = HeaderName::try_from(name).map_err(|_| bad())?;
            let mut value = Wire::from_str(value.expose()).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        // The process has one TLS provider; whoever set it first has set the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .connect_timeout(config.connect_timeout)
            .timeout(config.timeout)
            // A redirect would turn the POST into a GET, or carry credentials elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("ackwright/", env!("CARGO_PKG_VERSION")));
        if loopback(&base) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|e| Error::Client(e.without_url()))?;
        let concurrency = config.concurrency.max(1);
        Ok(Publisher { client, base, headers, signature: config.signature, concurrency })
    }

    /// Rows of one order key, one after the other.
    async fn send_key(&self, rows: &[Row], indexes: Vec<usize>, away: &AtomicBool) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(indexes.len());
        let mut blocked = None;
        for index in indexes {
            let answer = if let Some(id) = blocked {
                Err(Failure::Unavailable(format!("waits behind message {id} of the same order key")))
            } else if away.load(Ordering::Relaxed) {
                Err(Failure::Unavailable("waits until the receiver can be connected to".into()))
            } else {
                self.send(&rows[index], away).await
            };
            if matches!(answer, Err(Failure::Unavailable(_) | Failure::Refused(_))) {
                blocked.get_or_insert(rows[index].id);
            }
            answers.push((index, answer));
        }
        answers
    }

    async fn send(&self, row: &Row, away: &AtomicBool) -> Result<(), Failure> {
        let url = self.url(&row.destination).map_err(Failure::Permanent)?;
        let headers = self.headers(row).map_err(Failure::Permanent)?;
        let sent = self.client.post(url).headers(headers).body(row.body.clone()).send().await;
        let mut response = sent.map_err(|error| {
            let error = error.without_url();
            if error.is_connect() {
                away.store(true, Ordering::Relaxed);
                Failure::Unavailable(format!("cannot connect: {}", chain(&error)))
            } else if error.is_timeout() {
                Failure::Refused("the receiver did not answer in time".into())
            } else if error.is_builder() {
                Failure::Permanent(format!("not an HTTP request: {}", chain(&error)))
            } else {
                Failure::Unavailable(format!("the connection was lost before the answer: {}", chain(&error)))
            }
        })?;
        let status = response.status();
        let mut read = 0;
        // The verdict stands with the status; the rest is read for the connection's sake only.
        while read < ANSWER_LIMIT
            && let Ok(Some(chunk)) = response.chunk().await
        {
            read += chunk.len();
        }
        verdict(status)
    }

    /// Each segment of the destination is escaped, so that it cannot leave the base path.
    fn url(&self, destination: &str) -> Result<Url, String> {
        let mut url = self.base.clone();
        let path = destination.strip_prefix('/').unwrap_or(destination);
        if path.is_empty() {
            return Ok(url);
        }
        for part in path.split('/') {
            // A percent sign is escaped, so encoded dots cannot come back as dots.
            if part.is_empty() || part == "." || part == ".." {
                return Err(format!("destination {destination:?} is not a path: it has an empty, `.` or `..` part"));
            }
        }
        url.path_segments_mut()
            .map_err(|()| "the base URL cannot have a path".to_owned())?
            .pop_if_empty()
            .extend(path.split('/'));
        Ok(url)
    }

    /// The row's headers, then the host's own, which win: message id, content type, signature, and those of the
    /// configuration. An idempotency key that the plugin chose stays.
    fn headers(&self, row: &Row) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for Header { name, value } in &row.headers {
            let wire_name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is not an HTTP header name"))?;
            if HOP_BY_HOP.contains(&wire_name.as_str()) {
                continue;
            }
            let value = Wire::from_bytes(text(value)?.as_bytes())
                .map_err(|_| format!("the value of header {name:?} has characters that HTTP cannot carry"))?;
            headers.append(wire_name, value);
        }
        let id = Wire::from_str(&row.id.to_string()).map_err(|e| e.to_string())?;
        if !headers.contains_key(IDEMPOTENCY_KEY) {
            headers.insert(IDEMPOTENCY_KEY, id.clone());
        }
        headers.insert(MESSAGE_ID, id);
        if let Some(kind) = &row.content_type {
            let kind = Wire::from_str(kind).map_err(|_| format!("content type {kind:?} cannot be sent over HTTP"))?;
            headers.insert(CONTENT_TYPE, kind);
        }
        if let Some(signature) = &self.signature {
            let signed = signature.sign(&row.body).map_err(|e| e.to_string())?;
            headers.insert(signature.header.clone(), Wire::from_str(&signed).map_err(|e| e.to_string())?);
        }
        for name in self.headers.keys() {
            headers.remove(name);
        }
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
        Ok(headers)
    }
}

type Answer = (usize, Result<(), Failure>);

#[async_trait]
impl publisher::Publisher for Publisher {
    async fn publish(&self, rows: &[Row]) -> Vec<Result<(), Failure>> {
        let mut keys: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, row) in rows.iter().enumerate() {
            keys.entry(&row.order_key).or_default().push(index);
        }
        // Keys in the order of their first rows, so that the oldest go first.
        let mut keys: Vec<_> = keys.into_values().collect();
        keys.sort_unstable();
        let away = AtomicBool::new(false);
        let sends: Vec<_> = keys.into_iter().map(|indexes| self.send_key(rows, indexes, &away)).collect();
        let mut answers: Vec<Answer> = futures::stream::iter(sends).buffer_unordered(self.concurrency).concat().await;
        answers.sort_unstable_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn close(&self) {
        // Connections of the pool end with the client, and none holds work between calls.
    }
}

fn verdict(status: StatusCode) -> Result<(), Failure> {
    let answer = || format!("the receiver answered {status}");
    match status.as_u16() {
        200..=299 => Ok(()),
        408 | 425 | 429 | 502..=504 => Err(Failure::Unavailable(answer())),
        405 | 410 | 413..=415 | 422 | 431 => Err(Failure::Permanent(answer())),
        300..=399 => Err(Failure::Refused(format!("{}, which is not followed: configure its target", answer()))),
        _ => Err(Failure::Refused(answer())),
    }
}

fn loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The cause that the HTTP client hides behind its own words.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// HTTP has text only: numbers in decimal, times in RFC 3339, bytes in Base64, arrays and tables as JSON.
fn text(value: &HeaderValue) -> Result<String, String> {
    Ok(match value {
        HeaderValue::Null => String::new(),
        HeaderValue::Boolean(v) => v.to_string(),
        HeaderValue::I8(v) => v.to_string(),
        HeaderValue::U8(v) => v.to_string(),
        HeaderValue::I16(v) => v.to_string(),
        HeaderValue::U16(v) => v.to_string(),
        HeaderValue::I32(v) => v.to_string(),
        HeaderValue::U32(v) => v.to_string(),
        HeaderValue::I64(v) => v.to_string(),
        HeaderValue::F32(v) => v.to_string(),
        HeaderValue::F64(v) => v.to_string(),
        HeaderValue::Decimal { scale, unscaled } => {
            let digits = format!("{unscaled:0>width$}", width = usize::from(*scale) + 1);
            let (whole, fraction) = digits.split_at(digits.len() - usize::from(*scale));
            if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
        }
        HeaderValue::Text(v) => v.clone(),
        HeaderValue::Bytes(v) => STANDARD.encode(v),
        HeaderValue::Timestamp(v) => {
            jiff::Timestamp::from_microsecond(*v).map_err(|e| format!("a header's timestamp: {e}"))?.to_string()
        }
        HeaderValue::Array(_) | HeaderValue::Table(_) => serde_json::to_string(value).map_err(|e| e.to_string())?,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn publisher(url: &str) -> Publisher {
        Publisher::new(Config::new(url)).unwrap()
    }

    fn row(headers: Vec<Header>) -> Row {
        Row {
            position: 1,
            id: Uuid::from_u128(7),
            broker: "out".into(),
            destination: "x".into(),
            order_key: "k".into(),
            content_type: Some("application/json".into()),
            headers,
            body: Bytes::from_static(b"{}"),
            attempts: 0,
        }
    }

    fn header(name: &str, value: &str) -> Header {
        Header { name: name.into(), value: HeaderValue::Text(value.into()) }
    }

    #[test]
    fn a_destination_is_appended_and_escaped() {
        let publisher = publisher("https://example.org/in/");
        let url = |d: &str| publisher.url(d).map(|u| u.to_string());
        assert_eq!(url("coupon.issued").unwrap(), "https://example.org/in/coupon.issued");
        assert_eq!(url("/a/b c?d#e").unwrap(), "https://example.org/in/a/b%20c%3Fd%23e");
        assert_eq!(url("").unwrap(), "https://example.org/in/");
        for bad in ["..", "a/../b", "a//b", "./a", "a/"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn c02_a_bad_url_is_not_repeated_in_the_error() {
        for url in ["https://user:hunter2@exa mple/", "ftp://user:hunter2@example.org/", "https://h/?token=hunter2"] {
            let error = Publisher::new(Config::new(url)).err().expect(url);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        assert!(!format!("{:?}", Config::new("https://user:hunter2@h/")).contains("hunter2"));
    }

    #[test]
    fn the_hosts_headers_win_and_connection_headers_stay_behind() {
        let mut config = Config::new("http://127.0.0.1/");
        config.headers = vec![("authorization".into(), Secret::new("Bearer host"))];
        let publisher = Publisher::new(config).unwrap();
        let sent = publisher.headers(&row(vec![
            header("Authorization", "Bearer plugin"),
            header("Ackwright-Message-Id", "forged"),
            header("Content-Length", "999"),
            header("x-a", "1"),
            header("x-a", "2"),
            header("content-type", "text/plain"),
        ]));
        let sent = sent.unwrap();
        let all = |name: &str| sent.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
        let id = Uuid::from_u128(7).to_string();
        assert_eq!(all("authorization"), ["Bearer host"]);
        assert_eq!(all("ackwright-message-id"), [id.as_str()]);
        assert_eq!(all("idempotency-key"), [id.as_str()]);
        assert_eq!(all("content-type"), ["application/json"]);
        assert_eq!(all("x-a"), ["1", "2"]);
        assert!(all("content-length").is_empty());
        let own = publisher.headers(&row(vec![header("Idempotency-Key", "order-7")])).unwrap();
        assert_eq!(own["idempotency-key"], "order-7");
    }

    #[test]
    fn a_header_that_http_cannot_carry_is_named() {
        let publisher = publisher("http://127.0.0.1/");
        let error = publisher.headers(&row(vec![header("x a", "1")])).unwrap_err();
        assert!(error.contains("\"x a\""), "{error}");
        let error = publisher.headers(&row(vec![header("x-a", "1\r\nevil: 1")])).unwrap_err();
        assert!(error.contains("\"x-a\""), "{error}");
    }

    #[test]
    fn decimals_keep_their_places() {
        let decimal = |scale, unscaled| text(&HeaderValue::Decimal { scale, unscaled }).unwrap();
        assert_eq!([decimal(0, 5), decimal(2, 5), decimal(2, 1234), decimal(2, 0)], ["5", "0.05", "12.34", "0.00"]);
    }

    #[test]
    fn every_status_has_a_verdict() {
        let class = |code: u16| match verdict(StatusCode::from_u16(code).unwrap()) {
            Ok(()) => "sent",
            Err(Failure::Unavailable(_)) => "unavailable",
            Err(Failure::Refused(_)) => "refused",
            Err(Failure::Permanent(_)) => "permanent",
        };
        for (codes, wanted) in [
            (&[200, 201, 202, 204][..], "sent"),
            (&[408, 425, 429, 502, 503, 504][..], "unavailable"),
            (&[301, 302, 307, 400, 401, 403, 404, 409, 500, 501][..], "refused"),
            (&[405, 410, 413, 414, 415, 422][..], "permanent"),
        ] {
            for code in codes {
                assert_eq!(class(*code), wanted, "{code}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_destination_leaves_the_base_path(destination in "\\PC{0,24}") {
            let publisher = publisher("https://user:pw@example.org/base");
            if let Ok(url) = publisher.url(&destination) {
                prop_assert_eq!(url.host_str(), Some("example.org"));
                let path = url.path();
                prop_assert!(path == "/base" || path.starts_with("/base/"), "{}", path);
                prop_assert_eq!((url.query(), url.fragment()), (None, None));
                prop_assert!(!path.split('/').any(|p| p == "." || p == ".."));
            }
        }
    }
}
