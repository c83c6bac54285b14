//! The sandbox: plugins are WebAssembly components, and every message gets a fresh guest.
//!
//! ```no_run
//! # async fn wire(access: ackwright_core::access::Access) -> Result<(), Box<dyn std::error::Error>> {
//! let engine = ackwright_wasm::Engine::new(ackwright_wasm::Settings::default())?;
//! let plugin = engine.load("coupon", std::fs::read("coupon.wasm")?).await?;
//! let settings = serde_json::json!({ "campaign": "winter" });
//! let handler = plugin.bind(access, ackwright_wasm::Limits::default(), settings, "coupon-consumer")?;
//! # drop(handler);
//! # Ok(())
//! # }
//! ```
//!
//! [`Engine`] is made once a process. [`Engine::load`] checks and compiles a file, [`Plugin::bind`] joins it with grants,
//! limits and settings to a version that implements [`ackwright_core::handler::Handler`]. [`inspect()`] tells what a
//! file is without running any of it.
//!
//! What a guest can see is fixed by the message: its clocks show when the message was published (the epoch where
//! nobody stamped it) and do not move; its random numbers follow from the message's content in `identify` and from the
//! dedup key in `handle`. It has no files, no network and no environment.

mod bindings;
mod cache;
mod convert;
mod engine;
mod failure;
mod host;
mod inspect;
mod load;
mod log;
mod plugin;
mod run;
mod state;
mod wasi;

pub use engine::{Engine, Error as EngineError, Settings};
pub use inspect::{CONTRACT, Error as InspectError, Inspection, Kind, PACKAGE, inspect};
pub use load::Error as LoadError;
pub use plugin::{BindError, Limits, Plugin};
