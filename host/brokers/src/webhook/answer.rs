//! What a sender is told.

use std::time::Duration;

use ackwright_core::settle::{Disposal, Finish};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

/// Every answer that a POST can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Settled(Disposal),
    /// Too many deliveries of this path are open.
    Full,
    /// The route takes no more deliveries: it drains, or has ended.
    Closed,
    /// The delivery goes on, but the sender has waited long enough.
    StillRunning,
    TooLarge,
    TooSlow,
    /// The body ended early or was framed wrongly.
    Broken,
    BadSignature,
    UnknownPath,
    NotPost,
}

impl Answer {
    pub fn status(self) -> StatusCode {
        match self {
            Answer::Settled(Disposal::Done(Finish::Applied | Finish::Duplicate)) => StatusCode::OK,
            Answer::Settled(Disposal::Done(Finish::Waiting)) => StatusCode::ACCEPTED,
            Answer::Settled(Disposal::Done(Finish::Rejected)) => StatusCode::UNPROCESSABLE_ENTITY,
            Answer::Settled(Disposal::Requeue) | Answer::Full | Answer::Closed | Answer::StillRunning => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Answer::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Answer::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Answer::Broken => StatusCode::BAD_REQUEST,
            Answer::BadSignature => StatusCode::UNAUTHORIZED,
            Answer::UnknownPath => StatusCode::NOT_FOUND,
            Answer::NotPost => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    fn body(self) -> &'static str {
        match self {
            Answer::Settled(Disposal::Done(Finish::Applied)) => r#"{"status":"applied"}"#,
            Answer::Settled(Disposal::Done(Finish::Duplicate)) => r#"{"status":"duplicate"}"#,
            Answer::Settled(Disposal::Done(Finish::Waiting)) => {
                r#"{"status":"waiting","detail":"kept, and tried again by the host: do not send it again"}"#
            }
            Answer::Settled(Disposal::Done(Finish::Rejected)) => {
                r#"{"status":"rejected","detail":"recorded as failed; the operator sees why"}"#
            }
            Answer::Settled(Disposal::Requeue) => r#"{"status":"retry","detail":"not applied: send it again"}"#,
            Answer::Full => r#"{"status":"retry","detail":"too many deliveries are open: send it again"}"#,
            Answer::Closed => r#"{"status":"retry","detail":"the host takes no deliveries now: send it again"}"#,
            Answer::StillRunning => {
                r#"{"status":"retry","detail":"still running: send it again, it is applied once however often"}"#
            }
            Answer::TooLarge => r#"{"status":"refused","detail":"the body is larger than this host takes"}"#,
            Answer::TooSlow => r#"{"status":"refused","detail":"the body did not arrive in time"}"#,
            Answer::Broken => r#"{"status":"refused","detail":"the body ended early"}"#,
            Answer::BadSignature => r#"{"status":"refused","detail":"the signature is missing or wrong"}"#,
            Answer::UnknownPath => r#"{"status":"refused","detail":"no route takes this path"}"#,
            Answer::NotPost => r#"{"status":"refused","detail":"a delivery is a POST to this path"}"#,
        }
    }

    pub fn respond(self, retry_after: Duration) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.body()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from(retry_after.as_secs().max(1)));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_json_and_only_committed_ones_say_success() {
        let settled = [Finish::Applied, Finish::Duplicate, Finish::Waiting, Finish::Rejected]
            .map(|finish| Answer::Settled(Disposal::Done(finish)));
        let others = [
            Answer::Settled(Disposal::Requeue),
            Answer::Full,
            Answer::Closed,
            Answer::StillRunning,
            Answer::TooLarge,
            Answer::TooSlow,
            Answer::Broken,
            Answer::BadSignature,
            Answer::UnknownPath,
            Answer::NotPost,
        ];
        for answer in settled.into_iter().chain(others) {
            let body: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
            assert!(body["status"].is_string());
            let success = matches!(
                answer,
                Answer::Settled(Disposal::Done(Finish::Applied | Finish::Duplicate | Finish::Waiting))
            );
            assert_eq!(answer.status().is_success(), success, "{answer:?}");
            let repeatable = answer.status() == StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(answer.respond(Duration::ZERO).headers().contains_key(RETRY_AFTER), repeatable, "{answer:?}");
        }
    }
}
