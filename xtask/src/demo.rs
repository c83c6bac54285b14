//! `cargo xtask demo`: the main job on the embedded default, from nothing but a Rust toolchain.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, wasm};

/// Names a binary that is there already.
const BINARY: &str = "ACKWRIGHT_BIN";

/// Returns the exit code of the demo, which is the caller's too.
pub fn run(root: &Path, arguments: &[String]) -> Result<i32> {
    wasm::build_examples(root)?;
    let binary = binary(root)?;
    let mut demo = Command::new(&binary);
    demo.arg("demo").arg("--plugins").arg(root.join(wasm::OUT)).args(arguments);
    let status = demo.status().with_context(|| format!("cannot start {}", binary.display()))?;
    // Without a code it was ended by a signal.
    Ok(status.code().unwrap_or(1))
}

/// A newcomer who runs both commands of the README builds once: this is what `cargo xtask test` builds.
fn binary(root: &Path) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(BINARY) {
        let named = PathBuf::from(named);
        return named.canonicalize().with_context(|| format!("{BINARY} names {}", named.display()));
    }
    eprintln!("building the host and its tests; the first time takes some minutes");
    cargo::run(cargo::command(root).arg("build").args(cargo::EVERYTHING))?;
    Ok(cargo::target_folder(root)?.join("debug/ackwright"))
}
