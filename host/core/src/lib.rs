//! The pipeline of the consumer host, pure: it knows no broker, no database and no sandbox, only the traits
//! that they implement, so that it runs under simulation.

pub mod access;
pub mod base16;
pub mod catalog;
pub mod commit;
pub mod delivery;
pub mod effect;
pub mod handler;
pub mod health;
pub mod key;
pub mod message;
pub mod outbox;
pub mod parked;
pub mod plan;
pub mod publisher;
pub mod settle;
pub mod source;
pub mod store;
pub mod value;
