//! How a handler becomes the exports of a plugin.

use crate::Handler;

/// Makes a [`Handler`] the plugin of this crate. Once in each plugin.
///
/// ```
/// use ackwright_sdk::prelude::*;
///
/// struct Ignore;
///
/// impl Handler for Ignore {
///     fn identify(message: &Message) -> Result<Identity, Rejection> {
///         let id = message.id.clone().ok_or_else(|| reject("no-id", "the message has no id"))?;
///         Ok(Identity::new("ignored").key(id))
///     }
///
///     fn handle(_: &Message) -> Result<(), Failure> {
///         Ok(())
///     }
/// }
///
/// ackwright_sdk::export!(Ignore);
/// ```
#[macro_export]
macro_rules! export {
    ($handler:ty) => {
        const _: () = {
            // Native builds have no exports, but a type that is no handler is an error there too.
            const fn is_handler<H: $crate::Handler>() {}
            is_handler::<$handler>();
        };

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Exported = $crate::export::Plugin<$handler>;
    $crate::bindings::__export_world!(Exported with_types_in $crate::bindings);
        };
    };
}

/// Stands between the contract and a handler.
pub struct Plugin<H>(std::marker::PhantomData<H>);

#[cfg(target_arch = "wasm32")]
impl<H: Handler> crate::bindings::exports::ackwright::handler::consumer::Guest for Plugin<H> {
    fn identify(message: crate::Message) -> Result<crate::Identity, crate::Rejection> {
        report_panics();
        H::identify(&message)
    }

    fn handle(message: crate::Message) -> Result<(), crate::Failure> {
        report_panics();
        H::handle(&message)
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl<H: Handler> Plugin<H> {
    /// Keeps the bound in native builds, where there is nothing to export.
    pub const IDENTIFY: fn(&crate::Message) -> Result<crate::Identity, crate::Rejection> = H::identify;
}

/// On this target a panic is a trap without words, so the words go to the log before.
#[cfg(target_arch = "wasm32")]
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("a panic without a message");
        crate::log::write(crate::log::Level::Error, &format!("panicked at {place}: {text}"), &[]);
    }));
}
