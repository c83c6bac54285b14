//! Signals: the first drains, the second ends the process at once.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// As shells report a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Cancels `stop` at the first SIGTERM or SIGINT.
pub fn watch(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    tokio::spawn(async move {
        let first = either(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = first, "draining; a second signal exits at once");
        stop.cancel();
        let second = either(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = second, "exiting without drain; unsettled messages come again");
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
