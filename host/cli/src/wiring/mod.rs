//! Wiring: from the configuration to a running host. Tasks are spawned here and in core's pipeline only.

mod admin;
pub mod brokers;
pub mod crash;
pub mod databases;
mod janitor;
pub mod plugins;
mod serve;
mod signals;

pub use serve::serve;
