//! Which deliveries of one channel are out, and which frames finish them.
//!
//! **Invariant:** no tag is settled twice, a multiple ack names a tag that the broker still waits for, and it never
//! covers one that is still open. Either mistake makes the broker close the channel, or loses a message.

use std::collections::VecDeque;

/// Deliveries of one channel, in the order of their tags.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    /// Everything that is not settled yet, and some of what is: settled entries behind an open one leave in bulk.
    entries: VecDeque<Entry>,
    held: usize,
    gone: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The pipeline has it.
    Open,
    /// Finished; its ack waits for the ones before it.
    Held,
    /// Settled at the broker.
    Gone,
}

/// To be sent in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Ack { tag: u64, multiple: bool },
    Requeue { tag: u64 },
}

/// Entries that are settled but still stored before they are swept out.
const SWEEP: usize = 1024;

impl Tracker {
    /// A delivery goes to the pipeline. Tags grow on a channel.
    pub(super) fn deliver(&mut self, tag: u64) {
        debug_assert!(self.entries.back().is_none_or(|last| last.tag < tag));
        self.entries.push_back(Entry { tag, state: State::Open });
    }

    /// The delivery is finished. False where it is not out.
    pub(super) fn done(&mut self, tag: u64) -> bool {
        match self.open(tag) {
            Some(entry) => {
                entry.state = State::Held;
                self.held += 1;
                true
            }
            None => false,
        }
    }

    /// The delivery goes back to the broker. `None` where it is not out.
    pub(super) fn requeue(&mut self, tag: u64) -> Option<Frame> {
        self.open(tag)?.state = State::Gone;
        self.gone += 1;
        self.sweep();
        Some(Frame::Requeue { tag })
    }

    /// Acks the finished deliveries that have no open one before them, in one frame. Returns it with the number of
    /// deliveries that it finishes.
    pub(super) fn advance(&mut self) -> Option<(Frame, usize)> {
        let mut last = None;
        let mut count = 0;
        while let Some(entry) = self.entries.pop_front_if(|e| e.state != State::Open) {
            match entry.state {
                State::Held => {
                    last = Some(entry.tag);
                    count += 1;
                }
                State::Gone => self.gone -= 1,
                State::Open => unreachable!("open entries stay"),
            }
        }
        self.held -= count;
        last.map(|tag| (Frame::Ack { tag, multiple: count > 1 }, count))
    }

    /// Acks everything that is held, each on its own, past the open deliveries.
    pub(super) fn release(&mut self, frames: &mut Vec<Frame>) {
        for entry in &mut self.entries {
            if entry.state == State::Held {
                entry.state = State::Gone;
                frames.push(Frame::Ack { tag: entry.tag, multiple: false });
            }
        }
        self.gone += self.held;
        self.held = 0;
        self.sweep();
    }

    /// Finished deliveries whose ack waits.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Deliveries that the pipeline has.
    pub(super) fn outstanding(&self) -> usize {
        self.entries.len() - self.held - self.gone
    }

    /// The oldest delivery that the pipeline has.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.entries.iter().find(|e| e.state == State::Open).map(|e| e.tag)
    }

    fn sweep(&mut self) {
        if self.gone > SWEEP && self.gone * 2 > self.entries.len() {
            self.entries.retain(|e| e.state != State::Gone);
            self.gone = 0;
        }
    }

    fn open(&mut self, tag: u64) -> Option<&mut Entry> {
        let first = self.entries.front()?.tag;
        let guess = usize::try_from(tag.checked_sub(first)?).ok()?;
        // Tags have no gaps until settled entries were swept out, so the guess is nearly always right.
        let index = match self.entries.get(guess) {
            Some(entry) if entry.tag == tag => guess,
            _ => self.entries.binary_search_by_key(&tag, |e| e.tag).ok()?,
        };
        self.entries.get_mut(index).filter(|e| e.state == State::Open)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn tracker(tags: std::ops::RangeInclusive<u64>) -> Tracker {
        let mut tracker = Tracker::default();
        tags.for_each(|tag| tracker.deliver(tag));
        tracker
    }

    #[test]
    fn a_finished_batch_is_one_frame() {
        let mut tracker = tracker(1..=1024);
        for tag in (1..=1024).rev() {
            assert!(tracker.done(tag));
        }
        assert_eq!(tracker.advance(), Some((Frame::Ack { tag: 1024, multiple: true }, 1024)));
        assert_eq!(tracker.advance(), None);
        assert!(tracker.entries.is_empty());
    }

    #[test]
    fn what_finishes_behind_an_open_delivery_is_held() {
        let mut tracker = tracker(1..=4);
        assert!(tracker.done(2) && tracker.done(3));
        assert_eq!((tracker.advance(), tracker.held(), tracker.oldest()), (None, 2, Some(1)));
        assert!(tracker.done(1));
        assert_eq!(tracker.advance(), Some((Frame::Ack { tag: 3, multiple: true }, 3)));
        assert_eq!(tracker.outstanding(), 1);
    }

    #[test]
    fn a_multiple_ack_names_a_tag_that_the_broker_still_waits_for() {
        let mut tracker = tracker(1..=3);
        assert!(tracker.done(1) && tracker.done(2));
        assert_eq!(tracker.requeue(3), Some(Frame::Requeue { tag: 3 }));
        // Naming 3, which was nacked, would close the channel.
        assert_eq!(tracker.advance(), Some((Frame::Ack { tag: 2, multiple: true }, 2)));
    }

    #[test]
    fn r01_a_delivery_is_settled_at_most_once() {
        let mut tracker = tracker(1..=3);
        assert!(tracker.done(2));
        assert!(!tracker.done(2));
        assert_eq!(tracker.requeue(2), None);
        let mut frames = Vec::new();
        tracker.release(&mut frames);
        assert_eq!(frames, [Frame::Ack { tag: 2, multiple: false }]);
        assert!(!tracker.done(2) && !tracker.done(0) && !tracker.done(4));
        assert!(tracker.done(1));
        assert_eq!(tracker.advance(), Some((Frame::Ack { tag: 1, multiple: false }, 1)));
        assert_eq!(tracker.advance(), None);
    }

    #[test]
    fn a_delivery_that_stays_open_does_not_make_the_tracker_grow() {
        let mut tracker = Tracker::default();
        tracker.deliver(1);
        let mut frames = Vec::new();
        for tag in 2..100_000 {
            tracker.deliver(tag);
            assert!(tracker.done(tag));
            tracker.release(&mut frames);
        }
        assert_eq!(frames.len(), 99_998);
        assert!(tracker.entries.len() <= 2 * SWEEP, "{}", tracker.entries.len());
        assert!(tracker.done(1));
        assert_eq!(tracker.advance(), Some((Frame::Ack { tag: 1, multiple: false }, 1)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Deliver(u8),
        Done(u64),
        Requeue(u64),
        Advance,
        Release,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (1..20_u8).prop_map(Step::Deliver),
            8 => (0..80_u64).prop_map(Step::Done),
            2 => (0..80_u64).prop_map(Step::Requeue),
            3 => Just(Step::Advance),
            1 => Just(Step::Release),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// What the broker knows: it closes the channel on a tag that it does not wait for.
    #[derive(Default)]
    struct Broker {
        waiting: BTreeSet<u64>,
        acked: BTreeSet<u64>,
        requeued: BTreeSet<u64>,
    }

    impl Broker {
        fn take(&mut self, frame: Frame) -> Result<(), TestCaseError> {
            match frame {
                Frame::Ack { tag, multiple } => {
                    prop_assert!(self.waiting.contains(&tag), "unknown delivery tag {tag}");
                    let from = if multiple { 0 } else { tag };
                    let acked: Vec<u64> = self.waiting.range(from..=tag).copied().collect();
                    for tag in acked {
                        self.waiting.remove(&tag);
                        self.acked.insert(tag);
                    }
                }
                Frame::Requeue { tag } => {
                    prop_assert!(self.waiting.remove(&tag), "unknown delivery tag {tag}");
                    self.requeued.insert(tag);
                }
            }
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn the_broker_ends_with_what_the_pipeline_decided(steps in steps()) {
            let mut tracker = Tracker::default();
            let mut broker = Broker::default();
            let (mut done, mut requeued) = (BTreeSet::new(), BTreeSet::new());
            let mut next = 1;
            for step in steps {
                match step {
                    Step::Deliver(n) => for _ in 0..n {
                        tracker.deliver(next);
                        broker.waiting.insert(next);
                        next += 1;
                    },
                    Step::Done(tag) => {
                        let open = tag > 0 && tag < next && !done.contains(&tag) && !requeued.contains(&tag);
                        prop_assert_eq!(tracker.done(tag), open);
                        if open { done.insert(tag); }
                    }
                    Step::Requeue(tag) => {
                        let open = tag > 0 && tag < next && !done.contains(&tag) && !requeued.contains(&tag);
                        let frame = tracker.requeue(tag);
                        prop_assert_eq!(frame.is_some(), open);
                        if let Some(frame) = frame {
                            broker.take(frame)?;
                            requeued.insert(tag);
                        }
                    }
                    Step::Advance => if let Some((frame, count)) = tracker.advance() {
                        let before = broker.acked.len();
                        broker.take(frame)?;
                        prop_assert_eq!(broker.acked.len() - before, count);
                    },
                    Step::Release => {
                        let mut frames = Vec::new();
                        tracker.release(&mut frames);
                        for frame in frames { broker.take(frame)?; }
                        prop_assert_eq!(tracker.held(), 0);
                    }
                }
                prop_assert!(broker.acked.is_subset(&done), "acked before it was finished");
                prop_assert_eq!(&broker.requeued, &requeued);
                prop_assert_eq!(tracker.outstanding(), (next - 1) as usize - done.len() - requeued.len());
            }
            let mut frames = Vec::new();
            if let Some((frame, _)) = tracker.advance() { frames.push(frame); }
            tracker.release(&mut frames);
            for frame in frames { broker.take(frame)?; }
            prop_assert_eq!(broker.acked, done);
        }
    }
}
