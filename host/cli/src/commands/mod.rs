//! The subcommands, one file each.

pub mod check;
pub mod demo;
pub mod inbox;
pub mod inspect;
pub mod migrate;
pub mod outbox;
pub mod parked;
pub mod run;

use std::path::Path;
use std::sync::Arc;

use ackwright_core::store::Store;
use anyhow::Context;

use crate::config::{self, Loaded};
use crate::output::colours;
use crate::wiring::databases;

/// How a command ended, beside errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// A check does not hold, or nothing was found; what there is to say was said.
    Unmet,
    /// The command line or the configuration is wrong; said as well.
    Misused,
}

/// Reads the configuration, and says what is wrong with it; `None` where it cannot be used.
pub fn configuration(path: &Path) -> Option<Loaded> {
    match config::load(path) {
        Ok(loaded) => {
            if !loaded.report.mistakes.is_empty() {
                eprint!("{}", loaded.report.render(colours(&std::io::stderr())));
            }
            Some(loaded)
        }
        Err(report) => {
            eprint!("{}", report.render(colours(&std::io::stderr())));
            None
        }
    }
}

/// The databases that a command asks: all, or the one that it names.
pub fn stores(loaded: &Loaded, only: Option<&str>) -> anyhow::Result<Vec<(String, Arc<dyn Store>)>> {
    chosen(loaded, only)?
        .into_iter()
        .map(|name| {
            let store = databases::open(&loaded.config.databases[&name])
                .with_context(|| format!("database {name:?} cannot be used as configured"))?;
            Ok((name, store))
        })
        .collect()
}

/// What a database answered; where it lacks the host's tables, the error says so rather than that one is missing.
pub async fn unmigrated<T, E>(answer: Result<T, E>, loaded: &Loaded, database: &str, what: &str) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let error = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) => anyhow::Error::new(error),
    };
    let missing = databases::pending(&loaded.config.databases[database]).await.unwrap_or_default();
    Err(if missing.is_empty() {
        error.context(format!("the {what} of database {database:?} cannot be read"))
    } else {
        anyhow::anyhow!(
            "database {database:?} lacks the tables of this host ({}); run `ackwright migrate`",
            missing.join(", ")
        )
    })
}

/// Names of databases, checked against the configuration.
pub fn chosen(loaded: &Loaded, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let known: Vec<String> = loaded.config.databases.keys().cloned().collect();
    match only {
        None => Ok(known),
        Some(name) if known.iter().any(|k| k == name) => Ok(vec![name.to_owned()]),
        Some(name) => anyhow::bail!("there is no [database.{name}] in the configuration; it has {}", known.join(", ")),
    }
}
