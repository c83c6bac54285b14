//! What operators and probes see of a running host: health, metrics, a read-only JSON API and a dashboard over it.
//!
//! **Invariant:** nothing here changes anything, and nothing here shows a secret.

pub mod metrics;
pub mod server;

mod api;
mod guard;
mod page;
mod probes;
