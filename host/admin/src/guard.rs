//! Who may ask, and what browsers may do with the answer.
//!
//! A page of another site can make a browser send requests here under a name that it points at this address (DNS
//! rebinding). It cannot forge the `Host` header, so only addresses, `localhost` and configured names are served.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

const ALWAYS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
];

/// Probes and scrapers use whatever name they know the host by, and learn no message from it.
const OPEN: [&str; 3] = ["/livez", "/readyz", "/metrics"];

pub async fn check(State(names): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let mut response = if OPEN.contains(&request.uri().path()) || host.is_some_and(|host| trusted(host, &names)) {
        next.run(request).await
    } else {
        let why = "this name is not one of the host's: use its address, `localhost`, or add the name to admin hosts\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    };
    for (name, value) in ALWAYS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn trusted(host: &str, names: &[String]) -> bool {
    // A colon inside brackets belongs to an IPv6 address, any other one starts the port.
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_known_names_are_trusted() {
        let names = ["ops.example.org".to_owned()];
        for good in ["127.0.0.1", "10.0.0.7:8900", "[::1]:8900", "localhost:8900", "LOCALHOST", "Ops.Example.org:80"] {
            assert!(trusted(good, &names), "{good}");
        }
        for bad in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8900", "[evil]", ":8900"] {
            assert!(!trusted(bad, &names), "{bad}");
        }
    }
}
