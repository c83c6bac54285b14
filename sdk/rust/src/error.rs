//! Why a message has no effects: rejected for good, or to be tried again.

use std::time::Duration;

use crate::{Delay, Failure, Rejection};

/// The message can never succeed as it is: the host parks it with this code and reason. `code` is short and stable,
/// for grouping; `reason` is for people.
///
/// ```
/// # use ackwright_sdk::prelude::*;
/// fn amount(text: &str) -> Result<i64, Rejection> {
///     text.parse().map_err(|e| reject("bad-amount", format!("amount {text:?}: {e}")))
/// }
/// assert_eq!(amount("7"), Ok(7));
/// assert_eq!(amount("x").unwrap_err().code, "bad-amount");
/// ```
pub fn reject(code: impl Into<String>, reason: impl Into<String>) -> Rejection {
    Rejection { code: code.into(), reason: reason.into() }
}

/// The condition should pass: the host runs the message again, after the route's backoff or [`Delay::after`].
pub fn retry(code: impl Into<String>, reason: impl Into<String>) -> Delay {
    Delay { code: code.into(), reason: reason.into(), after_ms: None }
}

impl Delay {
    /// When to try again, instead of the route's backoff. Longer than `u32::MAX` milliseconds counts as that.
    pub fn after(mut self, time: Duration) -> Self {
        self.after_ms = Some(u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
        self
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Failure::Rejected(rejection)
    }
}

impl From<Delay> for Failure {
    fn from(delay: Delay) -> Self {
        Failure::Retry(delay)
    }
}

/// A host call that failed has doomed the message already; this only ends the handler early.
impl From<crate::store::Error> for Failure {
    fn from(error: crate::store::Error) -> Self {
        use crate::store::Error;
        match error {
            Error::Denied(reason) => reject("denied", reason).into(),
            Error::Invalid(reason) => reject("invalid", reason).into(),
            Error::Unavailable(reason) => retry("unavailable", reason).into(),
        }
    }
}

impl From<crate::outbox::Error> for Failure {
    fn from(error: crate::outbox::Error) -> Self {
        use crate::outbox::Error;
        match error {
            Error::Denied(reason) => reject("denied", reason).into(),
            Error::Invalid(reason) => reject("invalid", reason).into(),
        }
    }
}
