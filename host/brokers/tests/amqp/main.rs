//! RabbitMQ as source and as destination, against a node of the test run's own.

mod consuming;
mod fields;
mod publishing;
mod reconnecting;
mod support;
