//! `cargo xtask <command>`: all set-up of this repository is in here.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod cargo;
mod debian;
mod demo;
mod servers;
mod test;
mod wasm;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, tests and measures Ackwright, with all the set-up that this takes")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build everything and run the main job on SQLite, webhook and file, with a kill -9 in the middle
    Demo {
        /// For `ackwright demo`: `--messages 5000`, `--dir FOLDER`, `--json`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure against hand-written consumers, on PostgreSQL and RabbitMQ servers of its own
    Bench {
        /// For the benchmark: `--rounds 5`, `--only NAME`, `--json`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build plugins/ and tests/guests/ to target/plugins/<name>.wasm
    Plugins,
    /// Install what the tests need, build everything, and run every test
    Test {
        /// For `cargo test` on the root workspace: `-p ackwright-core`, a part of a test's name, `-- --nocapture`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filters: Vec<String>,
    },
}

fn main() -> Result<()> {
    let root = root();
    match Arguments::parse().command {
        Command::Demo { arguments } => std::process::exit(demo::run(&root, &arguments)?),
        Command::Bench { arguments } => std::process::exit(bench::run(&root, &arguments)?),
        Command::Plugins => {
            for (name, wasm) in wasm::build(&root)? {
                println!("{name:<16} {}", wasm.strip_prefix(&root).unwrap_or(&wasm).display());
            }
            Ok(())
        }
        Command::Test { filters } => test::run(&root, &filters),
    }
}

/// The repository's root folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
