//! Signals: the first drains, the second ends the process at once.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// As shells report a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Signals so close together are one request.
const SAME: Duration = Duration::from_millis(200);

/// Cancels `stop` at the first SIGTERM or SIGINT.
pub fn watch(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    tokio::spawn(async move {
        let first = either(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = first, "draining; a second signal exits at once");
        stop.cancel();
        // Some supervisors signal the process and then its group: that is one request, not two.
        let pause = tokio::time::sleep(SAME);
        tokio::pin!(pause);
        while tokio::select! {
            () = &mut pause => false,
            _ = either(&mut terminate, &mut interrupt) => true,
        } {}
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
