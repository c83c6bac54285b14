//! Every metric of the pipeline, in one place. Labels hold names from the configuration, never keys.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use std::time::Duration;

/// Counters. The name that Prometheus shows has the prefix `ackwright_` and the suffix `_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Deliveries,
    Redeliveries,
    Applied,
    Duplicates,
    /// The same key came with another body.
    Mismatches,
    Parked,
    Retries,
    Batches,
    /// Batches that ran again because a row was refused.
    Refusals,
    /// Batches that ran again because the database gave out or asked for it.
    SystemFaults,
    Conflicts,
    InDoubt,
    Settled,
    /// Receipts of dead channels or revoked partitions.
    VoidReceipts,
    Forgotten,
    Published,
    PublishFailures,
    OutboxParked,
    Cleaned,
}

impl Count {
    pub const ALL: [Count; 19] = [
        Count::Deliveries,
        Count::Redeliveries,
        Count::Applied,
        Count::Duplicates,
        Count::Mismatches,
        Count::Parked,
        Count::Retries,
        Count::Batches,
        Count::Refusals,
        Count::SystemFaults,
        Count::Conflicts,
        Count::InDoubt,
        Count::Settled,
        Count::VoidReceipts,
        Count::Forgotten,
        Count::Published,
        Count::PublishFailures,
        Count::OutboxParked,
        Count::Cleaned,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Count::Deliveries => "ackwright_deliveries_total",
            Count::Redeliveries => "ackwright_redeliveries_total",
            Count::Applied => "ackwright_applied_total",
            Count::Duplicates => "ackwright_duplicates_total",
            Count::Mismatches => "ackwright_body_mismatches_total",
            Count::Parked => "ackwright_parked_total",
            Count::Retries => "ackwright_retries_total",
            Count::Batches => "ackwright_batches_total",
            Count::Refusals => "ackwright_batch_refusals_total",
            Count::SystemFaults => "ackwright_system_faults_total",
            Count::Conflicts => "ackwright_conflicts_total",
            Count::InDoubt => "ackwright_commits_in_doubt_total",
            Count::Settled => "ackwright_settled_total",
            Count::VoidReceipts => "ackwright_void_receipts_total",
            Count::Forgotten => "ackwright_forgotten_deliveries_total",
            Count::Published => "ackwright_outbox_published_total",
            Count::PublishFailures => "ackwright_outbox_failures_total",
            Count::OutboxParked => "ackwright_outbox_parked_total",
            Count::Cleaned => "ackwright_cleaned_rows_total",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Count::Deliveries => "Deliveries taken from the broker",
            Count::Redeliveries => "Deliveries that the broker had handed over before",
            Count::Applied => "Messages whose effects were committed",
            Count::Duplicates => "Deliveries of messages that were recorded already",
            Count::Mismatches => "Duplicates whose body differs from the first",
            Count::Parked => "Messages parked for good",
            Count::Retries => "Messages parked for a later attempt",
            Count::Batches => "Transactions committed",
            Count::Refusals => "Batches run again because the database refused a row",
            Count::SystemFaults => "Batches run again because the database was out of reach",
            Count::Conflicts => "Batches run again after a deadlock or serialization failure",
            Count::InDoubt => "Commits whose answer was lost",
            Count::Settled => "Deliveries settled at the broker",
            Count::VoidReceipts => "Receipts that were void when their delivery was finished",
            Count::Forgotten => "Deliveries dropped without being settled, which is a fault of the host",
            Count::Published => "Outbox rows confirmed by the broker",
            Count::PublishFailures => "Outbox rows that could not be published, to be tried again",
            Count::OutboxParked => "Outbox rows given up",
            Count::Cleaned => "Inbox and outbox rows removed by age",
        }
    }
}

/// Tells the recorder about all metrics, so that they show before they first count.
pub fn describe() {
    for count in Count::ALL {
        describe_counter!(count.name(), count.help());
    }
    describe_histogram!("ackwright_batch_seconds", Unit::Seconds, "Time from taking a batch to its commit");
    describe_histogram!("ackwright_batch_messages", "Messages in a committed batch");
    describe_gauge!("ackwright_outbox_pending", "Outbox rows that wait to be published");
}

/// Counts for one route, relay or database.
pub fn count(what: Count, label: &std::sync::Arc<str>, by: usize) {
    if by > 0 {
        counter!(what.name(), "of" => label.to_string()).increment(by as u64);
    }
}

/// A receipt does not know its route.
pub fn forgotten() {
    counter!(Count::Forgotten.name(), "of" => "host").increment(1);
}

pub fn batch(route: &std::sync::Arc<str>, messages: usize, time: Duration) {
    histogram!("ackwright_batch_seconds", "of" => route.to_string()).record(time.as_secs_f64());
    histogram!("ackwright_batch_messages", "of" => route.to_string()).record(messages as f64);
}

pub fn outbox_pending(database: &std::sync::Arc<str>, rows: i64) {
    gauge!("ackwright_outbox_pending", "of" => database.to_string()).set(rows as f64);
}
