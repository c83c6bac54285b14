//! The imports of the contract: the real ones in a plugin, the fake host's in a native build.
//!
//! **Invariant:** nothing else in this crate calls an import, so that a handler meets the same functions in both.

#[cfg(target_arch = "wasm32")]
pub use crate::bindings::ackwright::handler::{context, log, outbox, settings, store};

#[cfg(not(target_arch = "wasm32"))]
pub use crate::fake::import::{context, log, outbox, settings, store};
