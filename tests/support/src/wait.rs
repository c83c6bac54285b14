//! Waiting for facts.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Pauses grow from one to the other: a question that opens a connection shall not take the processor from what it
/// waits for.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Asks `fact` again and again until it answers `Some`. After `deadline` the test fails and says what it waited for.
#[track_caller]
pub fn until<T, F>(what: &str, deadline: Duration, fact: F) -> impl Future<Output = T>
where
    F: AsyncFnMut() -> Option<T>,
{
    let caller = std::panic::Location::caller();
    let waiting = try_until(what, deadline, fact);
    async move {
        match waiting.await {
            Ok(value) => value,
            Err(why) => panic!("{why}, at {caller}"),
        }
    }
}

/// The same, for callers that have something to add to the failure.
pub fn try_until<T, F>(what: &str, deadline: Duration, mut fact: F) -> impl Future<Output = Result<T>>
where
    F: AsyncFnMut() -> Option<T>,
{
    let what = what.to_owned();
    async move {
        let end = Instant::now() + deadline;
        let (mut pause, longest) = PAUSES;
        loop {
            // A question that hangs is as much a failure as one that is answered "no" too often.
            match tokio::time::timeout_at(end, fact()).await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) if Instant::now() < end => {
                    sleep(pause).await;
                    pause = (pause * 3 / 2).min(longest);
                }
                Ok(None) | Err(_) => bail!("waited {deadline:?} in vain until {what}"),
            }
        }
    }
}
