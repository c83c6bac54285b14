//! Write message handlers for Ackwright in Rust.
//!
//! A handler sees a message and *declares* effects: rows of granted tables and messages for the outbox. The host
//! writes all of them in one transaction, once for each message, and settles the delivery after the commit.
//!
//! ```
//! use ackwright_sdk::prelude::*;
//!
//! #[derive(serde::Deserialize)]
//! struct Signup {
//!     user: String,
//!     email: String,
//! }
//!
//! #[derive(Row)]
//! #[row(table = "users", key("id"))]
//! struct User {
//!     id: String,
//!     email: String,
//! }
//!
//! struct Welcome;
//!
//! impl Handler for Welcome {
//!     fn identify(message: &Message) -> Result<Identity, Rejection> {
//!         let signup: Signup = message.json()?;
//!         Ok(Identity::new("signup").key(signup.user))
//!     }
//!
//!     fn handle(message: &Message) -> Result<(), Failure> {
//!         let signup: Signup = message.json()?;
//!         store::upsert(&User { id: signup.user.clone(), email: signup.email })?;
//!         outbox::to("events:user.welcomed").key(signup.user).emit(b"hello".to_vec())?;
//!         Ok(())
//!     }
//! }
//!
//! ackwright_sdk::export!(Welcome);
//!
//! // In tests, the same handler runs against a fake host in memory:
//! # #[cfg(not(target_arch = "wasm32"))] {
//! use ackwright_sdk::fake::{Host, Outcome, Table, Type};
//!
//! let mut host = Host::new()
//!     .table(Table::new("users").column("id", Type::Text).column("email", Type::Text).key(&["id"]))
//!     .allow_emit("events:user.*");
//! let message = Message::new("queue.users").with_body(r#"{"user": "ada", "email": "ada@example.org"}"#);
//! assert_eq!(host.deliver::<Welcome>(&message), Outcome::Done);
//! assert_eq!(host.deliver::<Welcome>(&message), Outcome::Duplicate);
//! assert_eq!(host.row("users", ("id", "ada")).unwrap()["email"], Value::from("ada@example.org"));
//! assert_eq!(host.emitted().len(), 1);
//! # }
//! ```
//!
//! Build it with `crate-type = ["cdylib"]` for `wasm32-unknown-unknown`; the host takes the `.wasm` as it is.

// Paths in generated code name this crate from inside it as plugins do from outside.
extern crate self as ackwright_sdk;

pub mod column;
pub mod context;
mod error;
#[cfg(not(target_arch = "wasm32"))]
pub mod fake;
mod import;
pub mod log;
mod message;
pub mod outbox;
pub mod row;
pub mod settings;
pub mod store;

#[cfg(any(all(target_arch = "wasm32", feature = "arena"), test))]
mod arena;
#[doc(hidden)]
pub mod bindings;
#[doc(hidden)]
pub mod export;
#[doc(hidden)]
pub use wit_bindgen as wit_bindgen_rt;

pub use ackwright_sdk_macros::{FromRow, Row};
pub use bindings::ackwright::handler::types::{
    Delay, Failure, Field, Header, HeaderValue, Identity, Message, Rejection, Value,
};
pub use column::{Bytes, Decimal, Json, Timestamp};
pub use error::{reject, retry};
pub use row::{FromRow, Row, Stored};
pub use uuid::Uuid;

/// What a handler author writes.
///
/// **Invariant:** both functions are pure but for the calls into this crate. The host may run them again at any time,
/// in a fresh instance that has seen no other message.
pub trait Handler {
    /// What makes two deliveries the same message. Sees the message alone: calling [`store`], [`outbox`] or
    /// [`context`] from here traps. Use stable business fields, never times or delivery counts.
    fn identify(message: &Message) -> Result<Identity, Rejection>;

    /// Declares the message's effects. Returning `Err` drops them all.
    fn handle(message: &Message) -> Result<(), Failure>;
}

/// Everything that a handler usually names.
pub mod prelude {
    pub use crate::{
        Bytes, Decimal, Delay, Failure, FromRow, Handler, Header, HeaderValue, Identity, Json, Message, Rejection, Row,
        Stored, Timestamp, Uuid, Value, context, outbox, reject, retry, row, settings, store,
    };
}
