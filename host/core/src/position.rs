//! How far an ordered source is finished.
//!
//! **Invariant:** the commit position never passes a delivery that is not finished, whatever the order in which
//! lanes finish.

use std::collections::VecDeque;

/// Tracks the deliveries of one ordered stream (a Kafka partition, a file) from hand-over to finish.
///
/// Its owner bounds how many deliveries are open; `held` says how many entries it keeps for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Ascending by position; the first one is never finished.
    entries: VecDeque<Entry>,
    end: u64,
    open: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    position: u64,
    next: u64,
    finished: bool,
}

/// What finishing one delivery did to the commit position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Never registered, or finished before: nothing changed.
    Unknown,
    /// An earlier delivery is still open.
    Behind,
    /// Everything before this position is finished.
    Advanced(u64),
}

/// A stream handed over a position that does not lie behind the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("position {position} (next {next}) does not follow {last}, which the stream had reached")]
pub struct OutOfOrder {
    pub position: u64,
    pub next: u64,
    pub last: u64,
}

impl Prefix {
    /// Everything before `end` is finished.
    pub fn new(end: u64) -> Self {
        Prefix { entries: VecDeque::new(), end, open: 0 }
    }

    /// A delivery is handed over. `next` is where its stream goes on behind it: the offset plus one in Kafka, the
    /// start of the next line in a file. Positions may leave gaps.
    pub fn register(&mut self, position: u64, next: u64) -> Result<(), OutOfOrder> {
        let last = self.entries.back().map_or(self.end, |entry| entry.next);
        if position < last || next <= position {
            return Err(OutOfOrder { position, next, last });
        }
        self.entries.push_back(Entry { position, next, finished: false });
        self.open += 1;
        Ok(())
    }

    pub fn finish(&mut self, position: u64) -> Progress {
        let Ok(index) = self.entries.binary_search_by_key(&position, |entry| entry.position) else {
            return Progress::Unknown;
        };
        if std::mem::replace(&mut self.entries[index].finished, true) {
            return Progress::Unknown;
        }
        self.open -= 1;
        if index > 0 {
            return Progress::Behind;
        }
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.finished) {
            self.end = entry.next;
        }
        Progress::Advanced(self.end)
    }

    /// The commit position: everything before it is finished.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Deliveries that are not finished.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Entries kept, finished ones behind an open one included: what a bound must limit, since one slow delivery
    /// holds all later ones.
    pub fn held(&self) -> usize {
        self.entries.len()
    }

    pub fn is_open(&self, position: u64) -> bool {
        self.entries
            .binary_search_by_key(&position, |entry| entry.position)
            .is_ok_and(|index| !self.entries[index].finished)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_open_delivery_holds_the_position_of_later_ones() {
        let mut prefix = Prefix::new(0);
        for position in [0, 10, 20] {
            prefix.register(position, position + 10).unwrap();
        }
        assert_eq!(prefix.finish(10), Progress::Behind);
        assert_eq!(prefix.finish(20), Progress::Behind);
        assert_eq!((prefix.end(), prefix.open(), prefix.held()), (0, 1, 3));
        assert_eq!(prefix.finish(0), Progress::Advanced(30));
        assert_eq!((prefix.open(), prefix.held()), (0, 0));
    }

    #[test]
    fn a_second_finish_and_a_strange_position_change_nothing() {
        let mut prefix = Prefix::new(5);
        prefix.register(5, 6).unwrap();
        prefix.register(6, 7).unwrap();
        assert_eq!(prefix.finish(6), Progress::Behind);
        let before = prefix.clone();
        assert_eq!(prefix.finish(6), Progress::Unknown);
        assert_eq!(prefix.finish(4), Progress::Unknown);
        assert_eq!(prefix.finish(99), Progress::Unknown);
        assert_eq!(prefix, before);
    }

    #[test]
    fn a_position_that_goes_back_is_refused() {
        let mut prefix = Prefix::new(5);
        assert_eq!(prefix.register(4, 6), Err(OutOfOrder { position: 4, next: 6, last: 5 }));
        prefix.register(7, 9).unwrap();
        assert_eq!(prefix.register(8, 10), Err(OutOfOrder { position: 8, next: 10, last: 9 }));
        assert_eq!(prefix.register(9, 9), Err(OutOfOrder { position: 9, next: 9, last: 9 }));
    }

    proptest! {
        /// Against the plain definition: the end is the start of the first open delivery's predecessor's `next`.
        #[test]
        fn the_position_is_the_end_of_the_finished_prefix(
            lengths in prop::collection::vec((0u64..4, 1u64..9), 1..40),
            order in any::<prop::sample::Index>(),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
        ) {
            let start = order.index(1000) as u64;
            let mut prefix = Prefix::new(start);
            let mut places = Vec::new();
            let mut at = start;
            for (gap, length) in lengths {
                let position = at + gap;
                at = position + length;
                prefix.register(position, at).unwrap();
                places.push((position, at));
            }
            let mut finished = BTreeSet::new();
            for pick in picks {
                let index = pick.index(places.len());
                let before = prefix.end();
                let progress = prefix.finish(places[index].0);
                let fresh = finished.insert(index);
                let contiguous = (0..places.len()).take_while(|i| finished.contains(i)).last();
                let expected = contiguous.map_or(start, |i| places[i].1);
                prop_assert_eq!(prefix.end(), expected);
                prop_assert_eq!(prefix.open(), places.len() - finished.len());
                let wanted = match (fresh, expected > before) {
                    (false, _) => Progress::Unknown,
                    (true, false) => Progress::Behind,
                    (true, true) => Progress::Advanced(expected),
                };
                prop_assert_eq!(progress, wanted);
                for (i, (position, _)) in places.iter().enumerate() {
                    prop_assert_eq!(prefix.is_open(*position), !finished.contains(&i));
                }
            }
        }
    }
}
