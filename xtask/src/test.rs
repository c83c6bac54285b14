//! `cargo xtask test`: every test of the repository, with all that they need.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::{debian, wasm};

/// The tests kill the host at the stages' boundaries; a binary without this feature has no such points.
const FEATURES: [&str; 2] = ["--features", "ackwright/failpoints"];

/// With `filters`, which are handed to `cargo test`, only the root workspace is tested.
pub fn run(root: &Path, filters: &[String]) -> Result<()> {
    let mut parts = Parts::default();
    parts.time("servers", install_servers)?;
    parts.time("build plugins and guests", || wasm::build(root).map(drop))?;
    // All targets at once: Cargo then builds each dependency with one set of features for the binary and for the
    // tests, and not twice. The end-to-end tests start the binary that this leaves beside them.
    parts.time("build host and tests", || {
        let mut build = cargo(root);
        run_command(build.args(["build", "--workspace", "--all-targets"]).args(FEATURES))
    })?;
    parts.time("test", || {
        let mut test = cargo(root);
        // One server of each kind serves all tests of a binary, which `cargo test` runs one after the other.
        run_command(test.args(["test", "--workspace", "--no-fail-fast"]).args(FEATURES).args(filters))
    })?;
    if filters.is_empty() {
        parts.time("test plugins and guests natively", || {
            wasm::WORKSPACES.iter().try_for_each(|workspace| {
                let mut test = cargo(&root.join(workspace));
                run_command(test.args(["test", "--workspace"]).arg("--target-dir").arg(root.join("target/native")))
            })
        })?;
    }
    parts.print();
    Ok(())
}

/// PostgreSQL and RabbitMQ, whose servers the tests start for themselves.
fn install_servers() -> Result<()> {
    let debian_postgres = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let postgres = debian_postgres.map(|version| version.path().join("bin/initdb")).any(|initdb| initdb.exists())
        || on_path("initdb");
    let rabbitmq = Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").exists();
    let missing: Vec<_> = [(postgres, "postgresql"), (rabbitmq, "rabbitmq-server")]
        .into_iter()
        .filter_map(|(there, package)| (!there).then_some(package))
        .collect();
    if missing.is_empty() { Ok(()) } else { debian::install(&missing) }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Runs in the folder of the workspace, whose toolchain file and configuration then hold.
fn cargo(workspace: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace);
    command
}

fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// How long each part took.
#[derive(Default)]
struct Parts(Vec<(&'static str, Duration)>);

impl Parts {
    fn time(&mut self, name: &'static str, part: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("==> {name}");
        let start = Instant::now();
        let done = part();
        self.0.push((name, start.elapsed()));
        if done.is_err() {
            self.print();
        }
        done.with_context(|| format!("{name} failed"))
    }

    fn print(&self) {
        println!();
        for (name, took) in &self.0 {
            println!("{name:<28} {:>4} min {:>2} s", took.as_secs() / 60, took.as_secs() % 60);
        }
    }
}
