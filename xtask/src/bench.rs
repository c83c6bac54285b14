//! `cargo xtask bench`: builds for speed, installs the servers, and measures.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, servers, wasm};

/// Returns the exit code of the benchmark. Standard output is the benchmark's alone: it may be JSON.
pub fn run(root: &Path, arguments: &[String]) -> Result<i32> {
    servers::install()?;
    wasm::build_examples(root)?;
    cargo::run(cargo::command(root).args(["build", "--release", "-p", "ackwright", "-p", "ackwright-bench"]))?;
    let built = cargo::target_folder(root)?.join("release");
    let mut bench = Command::new(built.join("ackwright-bench"));
    bench
        .args(arguments)
        .current_dir(root)
        .env("ACKWRIGHT_BIN", built.join("ackwright"))
        .env("ACKWRIGHT_PLUGINS", root.join(wasm::OUT));
    let status = bench.status().with_context(|| format!("cannot start {bench:?}"))?;
    Ok(status.code().unwrap_or(1))
}
