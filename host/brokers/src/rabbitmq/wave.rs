//! Which rows of a batch may be sent now.
//!
//! **Invariant:** a row is sent only after every earlier row of its order key was confirmed, or together with
//! earlier rows whose destinations are proven: something sent there was confirmed on this channel and not returned.

use std::collections::HashSet;

use super::destination::Destination;

/// How much is sent at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Width {
    All,
    /// The broker has closed the channel over one of several exchanges: one exchange at a time finds it.
    Exchange,
    /// It has closed the channel over something else: one row at a time finds the row.
    Row,
}

pub(super) struct Candidate<'a> {
    pub(super) index: usize,
    pub(super) order_key: &'a str,
    pub(super) destination: &'a Destination,
}

/// The indexes of the next rows to send, in order. The first candidate is always among them.
pub(super) fn next(candidates: &[Candidate<'_>], proven: &HashSet<Destination>, width: Width) -> Vec<usize> {
    let Some(first) = candidates.first() else { return Vec::new() };
    let mut waiting: HashSet<&str> = HashSet::new();
    let mut wave = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        if width == Width::Row && !wave.is_empty() {
            break;
        }
        let elsewhere = width == Width::Exchange && candidate.destination.exchange != first.destination.exchange;
        if elsewhere {
            waiting.insert(candidate.order_key);
        } else if !waiting.contains(candidate.order_key) {
            wave.push(candidate.index);
            if !proven.contains(candidate.destination) {
                waiting.insert(candidate.order_key);
            }
        }
    }
    wave
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(rows: &[(&str, &str)], proven: &[&str], width: Width) -> Vec<usize> {
        let parse = |text: &str| Destination::parse(text, "").unwrap();
        let destinations: Vec<Destination> = rows.iter().map(|(_, to)| parse(to)).collect();
        let candidates: Vec<Candidate<'_>> = rows
            .iter()
            .zip(&destinations)
            .enumerate()
            .map(|(index, ((order_key, _), destination))| Candidate { index, order_key, destination })
            .collect();
        next(&candidates, &proven.iter().map(|to| parse(to)).collect(), width)
    }

    #[test]
    fn proven_destinations_are_sent_all_at_once() {
        let rows = [("a", "x/1"), ("a", "x/1"), ("b", "x/1"), ("a", "x/1")];
        assert_eq!(wave(&rows, &["x/1"], Width::All), [0, 1, 2, 3]);
    }

    #[test]
    fn behind_an_unproven_destination_a_key_waits_and_others_go() {
        let rows = [("a", "x/1"), ("a", "x/2"), ("b", "x/2"), ("b", "x/2"), ("c", "x/1")];
        assert_eq!(wave(&rows, &["x/2"], Width::All), [0, 2, 3, 4]);
        assert_eq!(wave(&rows, &[], Width::All), [0, 2, 4]);
    }

    #[test]
    fn one_exchange_at_a_time_does_not_reorder_a_key() {
        let rows = [("a", "x/1"), ("a", "y/1"), ("a", "x/1"), ("b", "x/1")];
        assert_eq!(wave(&rows, &["x/1", "y/1"], Width::Exchange), [0, 3]);
    }

    #[test]
    fn one_row_at_a_time() {
        assert_eq!(wave(&[("a", "x/1"), ("b", "x/1")], &["x/1"], Width::Row), [0]);
        assert_eq!(wave(&[], &[], Width::All), Vec::<usize>::new());
    }
}
