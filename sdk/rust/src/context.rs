//! Facts of this run, the same when it runs again. Calling these from `identify` traps.

use crate::Timestamp;
use crate::import::context;

/// The clock of this message: fixed when the host took it, the same on every run.
pub fn now() -> Timestamp {
    Timestamp::from_micros(context::current().now)
}

pub fn consumer_group() -> String {
    context::current().consumer_group
}

/// Hash of this version of the plugin, in hexadecimal.
pub fn plugin_digest() -> String {
    context::current().plugin_digest
}
