//! What a source and a publisher count about themselves.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($(#[$doc:meta])* $snapshot:ident, $counters:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $snapshot {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct $counters {
            $(pub(super) $field: Counter,)*
        }

        impl $counters {
            pub(super) fn snapshot(&self) -> $snapshot {
                $snapshot { $($field: self.$field.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn one(&self) {
        self.add(1);
    }
}

counters! {
    /// Totals of one source since it was opened.
    SourceCounts, SourceCounters {
        /// Deliveries handed to the pipeline.
        delivered,
        /// Deliveries acked.
        acked,
        /// Frames that acked them: far fewer where acks are contiguous.
        ack_frames,
        /// Deliveries handed back.
        requeued,
        /// Receipts of a channel that was gone when they were settled.
        void,
        /// Receipts dropped unsettled, which is a bug of the host.
        forgotten,
        /// Times that the channel was opened.
        opened,
        /// Times that an open channel was lost.
        lost,
        /// Times that the broker cancelled the consumer, most often because the queue was deleted.
        cancelled,
    }
}

counters! {
    /// Totals of one publisher since it was opened.
    PublisherCounts, PublisherCounters {
        confirmed,
        /// Messages that no queue wanted.
        returned,
        /// Messages that the broker refused in another way.
        refused,
        /// Messages that were not confirmed in time, or not sent since the broker was away.
        unavailable,
        /// Messages that can never be sent.
        permanent,
        opened,
        lost,
        /// Times that the broker blocked the connection.
        blocked,
    }
}
