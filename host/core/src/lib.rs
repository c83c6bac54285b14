//! The pipeline of the consumer host, pure: it knows no broker, no database and no sandbox, only the traits
//! that they implement, so that it runs under simulation.
//!
//! A message walks through these files:
//!
//! ```text
//! pipeline   source -> intake -> identify -> lane [ claim -> invoke -> apply -> commit (attempt) ] -> settle
//! relay      outbox -> publisher
//! ```

pub mod access;
pub mod base16;
pub mod catalog;
pub mod commit;
pub mod delivery;
pub mod effect;
pub mod handler;
pub mod health;
pub mod identify;
pub mod key;
pub mod message;
pub mod outbox;
pub mod parked;
pub mod pipeline;
pub mod plan;
pub mod position;
pub mod publisher;
pub mod pulse;
pub mod relay;
pub mod retry;
pub mod route;
pub mod settle;
pub mod source;
pub mod store;
pub mod telemetry;
pub mod value;

mod attempt;
mod float;
mod intake;
mod invoke;
mod lane;
