//! A request becomes a message.

use ackwright_core::message::{Header, HeaderValue, Message};
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, PROXY_AUTHORIZATION};

/// Headers that name the message, in order of preference.
const ID_HEADERS: [&str; 3] = ["idempotency-key", "ce-id", "x-message-id"];

/// What the message takes from a request.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Header whose value becomes the message's key.
    pub key_header: Option<HeaderName>,
    /// Credentials of the sender beside `authorization`, `proxy-authorization` and `cookie`.
    pub secret_headers: Vec<HeaderName>,
}

impl Rules {
    fn withholds(&self, name: &HeaderName) -> bool {
        [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name) || self.secret_headers.contains(name)
    }

    /// Headers keep their order, repeated ones stand together. Credentials stay out of the message, which is stored
    /// and shown; the property `withheld` names them. The query string stays out too, since it often holds a token.
    pub fn message(&self, path: &str, rest: &str, headers: &HeaderMap, body: Bytes) -> Message {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let mut withheld = Vec::new();
        let mut kept = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            if self.withholds(name) {
                withheld.push(HeaderValue::Text(name.as_str().to_owned()));
                continue;
            }
            let value = match std::str::from_utf8(value.as_bytes()) {
                Ok(text) => HeaderValue::Text(text.to_owned()),
                Err(_) => HeaderValue::Bytes(Bytes::copy_from_slice(value.as_bytes())),
            };
            kept.push(Header { name: name.as_str().to_owned(), value });
        }
        let mut properties = Vec::new();
        if !withheld.is_empty() {
            properties.push(Header { name: "withheld".into(), value: HeaderValue::Array(withheld) });
        }
        Message {
            id: ID_HEADERS.into_iter().find_map(text),
            source: path.to_owned(),
            subject: (!rest.is_empty()).then(|| rest.to_owned()),
            key: self.key_header.as_ref().and_then(|n| headers.get(n)).map(|v| Bytes::copy_from_slice(v.as_bytes())),
            content_type: text(CONTENT_TYPE.as_str()),
            headers: kept,
            published_at: text("ce-time").and_then(|t| t.parse::<jiff::Timestamp>().ok()).map(|t| t.as_microsecond()),
            body: Some(body),
            properties,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, hyper::header::HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn headers_keep_order_repeats_and_bytes() {
        let headers = headers(&[
            ("content-type", b"text/plain"),
            ("x-a", b"1"),
            ("x-b", b"\xff"),
            ("x-a", b"2"),
            ("ce-time", b"2026-01-02T03:04:05.000006Z"),
        ]);
        let message = Rules::default().message("/orders", "paid/eu", &headers, Bytes::new());
        let kept: Vec<_> = message.headers.iter().map(|h| (h.name.as_str(), h.value.clone())).collect();
        let text = |t: &str| HeaderValue::Text(t.into());
        assert_eq!(
            kept,
            [
                ("content-type", text("text/plain")),
                ("x-a", text("1")),
                ("x-a", text("2")),
                ("x-b", HeaderValue::Bytes(Bytes::from_static(b"\xff"))),
                ("ce-time", text("2026-01-02T03:04:05.000006Z")),
            ]
        );
        assert_eq!(message.content_type.as_deref(), Some("text/plain"));
        assert_eq!(message.subject.as_deref(), Some("paid/eu"));
        assert_eq!(message.published_at, Some(1_767_323_045_000_006));
        assert_eq!(message.body, Some(Bytes::new()), "an empty body is not a tombstone");
    }

    #[test]
    fn c02_credentials_stay_out_of_the_message() {
        let rules = Rules { secret_headers: vec![HeaderName::from_static("x-sig")], ..Rules::default() };
        let headers = headers(&[
            ("authorization", b"Bearer hunter2"),
            ("cookie", b"session=hunter2"),
            ("x-sig", b"hunter2"),
            ("x-kept", b"yes"),
        ]);
        let message = rules.message("/orders", "", &headers, Bytes::from_static(b"{}"));
        assert!(!format!("{message:?}").contains("hunter2"));
        assert_eq!(message.header("x-kept"), Some("yes"));
        let names = ["authorization", "cookie", "x-sig"].map(|n| HeaderValue::Text(n.into())).to_vec();
        assert_eq!(message.properties, [Header { name: "withheld".into(), value: HeaderValue::Array(names) }]);
    }

    #[test]
    fn the_first_known_header_names_the_message() {
        let rules = Rules { key_header: Some(HeaderName::from_static("x-key")), ..Rules::default() };
        let headers = headers(&[("x-message-id", b"c"), ("ce-id", b"b"), ("x-key", b"k")]);
        let message = rules.message("/orders", "", &headers, Bytes::new());
        assert_eq!(message.id.as_deref(), Some("b"));
        assert_eq!(message.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(message.subject, None);
    }
}
