//! Files in both directions: a line of NDJSON is a delivery, and outbox rows are appended as lines.

pub mod line;
pub mod publisher;
pub mod source;

mod bookmark;
mod reader;
mod settler;
