//! Crash points for tests: the process kills itself at a chosen pass of a chosen stage boundary.
//!
//! `ACKWRIGHT_CRASH="commit:before#3"` ends it, as a power cut would, at the third pass of that point; several are
//! separated by commas. Only a binary built with the feature `failpoints` does it.

const VARIABLE: &str = "ACKWRIGHT_CRASH";

/// A point that nobody passes would make a test of it pass for the wrong reason.
#[cfg(feature = "failpoints")]
const POINTS: [&str; 17] = [
    "source:before",
    "source:after",
    "route:before",
    "identify:before",
    "identify:after",
    "claim:before",
    "claim:after",
    "invoke:before",
    "invoke:after",
    "apply:before",
    "apply:after",
    "commit:before",
    "commit:after",
    "settle:before",
    "settle:after",
    "relay:before",
    "relay:after",
];

#[cfg(feature = "failpoints")]
pub fn arm() -> anyhow::Result<()> {
    use std::sync::atomic::{AtomicU64, Ordering};

    use anyhow::Context;

    let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
    for wish in text.split(',').map(str::trim).filter(|wish| !wish.is_empty()) {
        let (point, pass) = wish.split_once('#').unwrap_or((wish, "1"));
        let pass: u64 = pass.parse().with_context(|| format!("{VARIABLE}: {wish:?} has no number after the `#`"))?;
        anyhow::ensure!(
            POINTS.contains(&point),
            "{VARIABLE}: there is no point {point:?}; there are {}",
            POINTS.join(", ")
        );
        let passes = AtomicU64::new(0);
        let name = point.to_owned();
        fail::cfg_callback(point, move || {
            if passes.fetch_add(1, Ordering::SeqCst) + 1 == pass {
                tracing::warn!(point = %name, pass, "crashing as asked");
                // Nothing may run after this, not even destructors.
                if nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::SIGKILL).is_err() {
                    std::process::abort();
                }
                // The signal ends the process before the pipeline can go on.
                loop {
                    std::thread::park();
                }
            }
        })
        .map_err(|error| anyhow::anyhow!("{VARIABLE}: {point:?} cannot be set: {error}"))?;
    }
    Ok(())
}

#[cfg(not(feature = "failpoints"))]
pub fn arm() -> anyhow::Result<()> {
    anyhow::ensure!(
        std::env::var_os(VARIABLE).is_none(),
        "{VARIABLE} is set, but this binary was built without the feature `failpoints`: it would never crash"
    );
    Ok(())
}
