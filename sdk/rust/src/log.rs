//! The host's log: constant messages, data in fields. The host adds plugin, version, group and message.
//!
//! ```
//! # let order = "o-1";
//! ackwright_sdk::info!("coupon issued", order = order, amount = 500);
//! ackwright_sdk::warn!("order has no customer");
//! ```

pub use crate::bindings::ackwright::handler::log::Level;

/// Writes one line. The macros [`trace!`](crate::trace), [`debug!`](crate::debug), [`info!`](crate::info),
/// [`warn!`](crate::warn) and [`error!`](crate::error) call it.
pub fn write(level: Level, message: &str, fields: &[(String, String)]) {
    crate::import::log::log(level, message, fields);
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log {
    ($level:ident, $message:expr $(, $name:ident = $value:expr)* $(,)?) => {
        $crate::log::write(
            $crate::log::Level::$level,
            $message,
            &[$((::std::string::String::from(stringify!($name)), ::std::string::ToString::to_string(&$value))),*],
        )
    };
}

/// Logs at level trace: `trace!("message", field = value)`.
#[macro_export]
macro_rules! trace { ($($t:tt)*) => { $crate::__log!(Trace, $($t)*) } }
/// Logs at level debug: `debug!("message", field = value)`.
#[macro_export]
macro_rules! debug { ($($t:tt)*) => { $crate::__log!(Debug, $($t)*) } }
/// Logs at level info: `info!("message", field = value)`.
#[macro_export]
macro_rules! info { ($($t:tt)*) => { $crate::__log!(Info, $($t)*) } }
/// Logs at level warn: `warn!("message", field = value)`.
#[macro_export]
macro_rules! warn { ($($t:tt)*) => { $crate::__log!(Warn, $($t)*) } }
/// Logs at level error: `error!("message", field = value)`.
#[macro_export]
macro_rules! error { ($($t:tt)*) => { $crate::__log!(Error, $($t)*) } }
