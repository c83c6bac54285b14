//! How long to wait before the next attempt to reach a broker.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
/// Low enough that consuming goes on well within 30 seconds of the broker's return.
const LONGEST: Duration = Duration::from_secs(10);

/// Doubles from `FIRST` to `LONGEST`. Each wait is between half and all of its step, so that many hosts do not come
/// back in one moment.
#[derive(Debug)]
pub(super) struct Backoff {
    step: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff { step: FIRST }
    }

    pub(super) fn next(&mut self) -> Duration {
        let step = self.step;
        self.step = (step * 2).min(LONGEST);
        step.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }

    pub(super) fn reset(&mut self) {
        self.step = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_start_over() {
        let mut backoff = Backoff::new();
        let first = backoff.next();
        assert!(first >= FIRST / 2 && first <= FIRST);
        for _ in 0..20 {
            assert!(backoff.next() <= LONGEST);
        }
        assert!(backoff.next() >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
