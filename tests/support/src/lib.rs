//! What tests of Ackwright share: real servers, a proxy that breaks connections, waiting for facts, and the
//! `ackwright` binary itself.
//!
//! Servers listen on loopback ports of their own, keep their data in temporary folders of their own, and die with
//! the test process, however that ends. The machine's own servers are never touched.

mod host;
mod keeper;
mod ports;
mod postgres;
mod proxy;
mod rabbitmq;
mod wait;

pub use host::{Answer, Host, http};
pub use keeper::{Keeper, Kept};
pub use ports::free_port;
pub use postgres::{Options, Postgres, Stop, postgres};
pub use proxy::{Hook, Proxy, Way, When};
pub use rabbitmq::{Depth, RabbitMq, rabbitmq};
pub use wait::{try_until, until};
