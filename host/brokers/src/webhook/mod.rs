//! HTTP in both directions: a POST to the host is a delivery, and an outbox row leaves as a POST.
//!
//! **Invariant:** the answer to a POST is its settlement. 200 and 422 leave only after a commit; a sender that saw
//! no answer sends again and is then a duplicate.

pub mod listener;
pub mod publisher;
pub mod signature;
pub mod source;

mod answer;
mod endpoint;
mod request;
