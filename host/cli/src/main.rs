//! The `ackwright` binary: configuration, wiring and subcommands.

mod args;
mod commands;
mod config;
mod logging;
mod output;
mod wiring;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use crate::args::{Cli, Command};
use crate::commands::Outcome;
use crate::config::Loaded;

/// A message makes many small values on one thread that another frees; the system's allocator is slow at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Work on blocking threads that outlives the host is left behind after this.
const GOODBYE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(cli) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Unmet) => ExitCode::from(1),
        Ok(Outcome::Misused) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {}", output::chain(&error));
            ExitCode::from(1)
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<Outcome> {
    // Whoever set it before has set the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("ackwright")
        .build()
        .context("the runtime cannot be started")?;
    let result = runtime.block_on(run(cli));
    runtime.shutdown_timeout(GOODBYE);
    result
}

async fn run(cli: Cli) -> anyhow::Result<Outcome> {
    let json = cli.json;
    if !matches!(cli.command, Command::Run) {
        logging::start_if_asked()?;
    }
    let loaded = |path: &Path| commands::configuration(path);
    match cli.command {
        Command::Check { offline } => commands::check::check(&cli.config, offline, json).await,
        Command::Inspect { file } => commands::inspect::inspect(&file, json),
        Command::Demo(arguments) => commands::demo::demo(&arguments, json).await,
        Command::Run => with(loaded(&cli.config), async |loaded| commands::run::run(loaded).await).await,
        Command::Migrate { dry_run, database } => {
            with(loaded(&cli.config), async |loaded| {
                commands::migrate::migrate(&loaded, database.as_deref(), dry_run, json).await
            })
            .await
        }
        Command::Inbox { command } => {
            with(loaded(&cli.config), async |loaded| commands::inbox::inbox(&loaded, command, json).await).await
        }
        Command::Outbox { command } => {
            with(loaded(&cli.config), async |loaded| commands::outbox::outbox(&loaded, command, json).await).await
        }
        Command::Parked { command } => {
            with(loaded(&cli.config), async |loaded| commands::parked::parked(&loaded, command, json).await).await
        }
    }
}

/// A configuration that cannot be used was reported already.
async fn with(
    loaded: Option<Loaded>,
    command: impl AsyncFnOnce(Loaded) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    match loaded {
        Some(loaded) => command(loaded).await,
        None => Ok(Outcome::Misused),
    }
}
