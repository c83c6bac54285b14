//! The `settings` of this plugin in the host's TOML.

use serde::de::DeserializeOwned;

use crate::{Delay, Failure, Rejection};

/// One setting as text: a string as it is, anything else as JSON.
pub fn get(name: &str) -> Option<String> {
    crate::import::settings::get(name)
}

/// All settings as a type of your own.
///
/// ```
/// # use ackwright_sdk::{fake::Host, settings};
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Settings {
///     campaign: String,
///     amount: u32,
/// }
///
/// # Host::new().settings(serde_json::json!({"campaign": "winter", "amount": 5})).enter(|| {
/// let settings: Settings = settings::load()?;
/// assert_eq!(settings.campaign, "winter");
/// # Ok::<(), settings::Error>(()) }).unwrap();
/// ```
pub fn load<T: DeserializeOwned>() -> Result<T, Error> {
    serde_json::from_str(&crate::import::settings::json()).map_err(Error)
}

/// The settings in the TOML are not those that the plugin expects.
#[derive(Debug)]
pub struct Error(serde_json::Error);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("read the settings of this plugin from the host's TOML")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl Error {
    fn reason(&self) -> String {
        format!("{self}: {}", self.0)
    }
}

/// Settings are the operator's mistake, not the message's: it runs again once they are right.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Retry(Delay { code: "bad-settings".into(), reason: error.reason(), after_ms: None })
    }
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Rejection { code: "bad-settings".into(), reason: error.reason() }
    }
}
