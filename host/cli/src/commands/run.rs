//! `ackwright run`.

use super::Outcome;
use crate::config::Loaded;
use crate::{logging, wiring};

pub async fn run(loaded: Loaded) -> anyhow::Result<Outcome> {
    logging::start(&loaded.config.host)?;
    wiring::crash::arm()?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), config = %loaded.report.source.path.display(), "starting");
    wiring::serve(loaded.config).await?;
    tracing::info!("drained");
    Ok(Outcome::Done)
}
