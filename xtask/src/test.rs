//! `cargo xtask test`: every test of the repository, with all that they need.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{cargo, servers, wasm};

/// With `filters`, which are handed to `cargo test`, only the root workspace is tested.
pub fn run(root: &Path, filters: &[String]) -> Result<()> {
    let mut parts = Parts::default();
    parts.time("servers", servers::install)?;
    parts.time("build plugins and guests", || wasm::build(root).map(drop))?;
    // Before the tests, since the end-to-end tests start the binary that this leaves beside them.
    parts.time("build host and tests", || cargo::run(cargo::command(root).arg("build").args(cargo::EVERYTHING)))?;
    parts.time("test", || {
        let mut test = cargo::command(root);
        // One server of each kind serves all tests of a binary, which `cargo test` runs one after the other.
        test.args(["test", "--workspace", "--no-fail-fast", "--features", "ackwright/failpoints"]).args(filters);
        cargo::run(&mut test)
    })?;
    if filters.is_empty() {
        parts.time("test plugins and guests natively", || {
            wasm::WORKSPACES.iter().try_for_each(|workspace| {
                let mut test = cargo::command(&root.join(workspace));
                cargo::run(test.args(["test", "--workspace"]).arg("--target-dir").arg(root.join("target/native")))
            })
        })?;
    }
    parts.print();
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
