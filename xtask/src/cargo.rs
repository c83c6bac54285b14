//! Cargo, as every task here runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What `test`, `demo` and the checks of a change build. Cargo compiles a dependency anew for each set of features
/// that a build asks for, so all of them ask for the same. The tests kill the host at its stages' boundaries; without
/// this feature it has no such points, and with it they are off unless the environment names one.
pub const EVERYTHING: [&str; 4] = ["--workspace", "--all-targets", "--features", "ackwright/failpoints"];

/// Runs in the folder of the workspace, whose toolchain file and configuration then hold.
pub fn command(workspace: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace);
    command
}

pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Where builds of the root workspace go, which the environment and the user's own configuration may change.
pub fn target_folder(root: &Path) -> Result<PathBuf> {
    let mut metadata = command(root);
    metadata.args(["metadata", "--no-deps", "--format-version=1"]);
    let output = metadata.output().with_context(|| format!("cannot start {metadata:?}"))?;
    ensure!(output.status.success(), "{metadata:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("read cargo's metadata")?;
    Ok(metadata["target_directory"].as_str().context("cargo names no target folder")?.into())
}
