//! Sources and publishers: one folder a broker, each implementing core's `Source`, `Settler` and `Publisher`.

pub mod file;
pub mod rabbitmq;
pub mod secret;
pub mod webhook;
