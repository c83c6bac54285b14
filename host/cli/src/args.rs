//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0    done, or every check holds
  1    an operation failed, a check does not hold, or nothing was found
  2    the command line or the configuration is wrong
  130  a second signal ended the drain at once

Examples:
  ackwright demo                 see the whole thing work, without any server
  ackwright check                report every mistake of ./ackwright.toml
  ackwright run -c prod.toml     run the host";

/// Consumer host: applies each message's effect exactly once, through sandboxed WebAssembly handlers.
#[derive(Debug, Parser)]
#[command(name = "ackwright", version, about, after_help = EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    /// The configuration. Relative paths in it start at its folder.
    #[arg(short, long, global = true, default_value = "ackwright.toml", env = "ACKWRIGHT_CONFIG", value_name = "FILE")]
    pub config: PathBuf,
    /// Print JSON for scripts.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the host until SIGTERM or SIGINT, then drain.
    #[command(after_help = "\
The first signal stops intake, finishes or rolls back what is under way, settles it, and exits with 0 within
host.drain_timeout. A later second signal exits at once with 130.

Examples:
  ackwright run
  ACKWRIGHT_LOG=debug ackwright run -c prod.toml")]
    Run,
    /// Report every mistake of the configuration, the plugins and the grants at once.
    #[command(after_help = "\
Loads the plugins as `run` would, and compares grants with the tables of each database that can be reached.

Examples:
  ackwright check
  ackwright check --offline --json | jq .mistakes")]
    Check {
        /// Ask no database.
        #[arg(long)]
        offline: bool,
    },
    /// Bring the host's own tables in each database up to date.
    #[command(after_help = "\
Examples:
  ackwright migrate --dry-run
  ackwright migrate --database main")]
    Migrate {
        /// Only say what would be applied.
        #[arg(long)]
        dry_run: bool,
        /// Only this database.
        #[arg(long, value_name = "NAME")]
        database: Option<String>,
    },
    /// Show what a plugin's .wasm exports and imports, its contract version, size and digest.
    #[command(after_help = "\
Examples:
  ackwright inspect plugins/coupon.wasm
  ackwright inspect --json plugins/coupon.wasm | jq -r .digest")]
    Inspect {
        #[arg(value_name = "FILE.wasm")]
        file: PathBuf,
    },
    /// Which messages are recorded as handled.
    Inbox {
        #[command(subcommand)]
        command: Inbox,
    },
    /// Messages that plugins emitted.
    Outbox {
        #[command(subcommand)]
        command: Outbox,
    },
    /// Messages that were set aside, with their reason and their bytes.
    Parked {
        #[command(subcommand)]
        command: Parked,
    },
    /// Run the main job on SQLite, webhook and file, kill it in the middle, and check the outcome.
    #[command(after_help = "\
Needs no server and writes to a folder of its own. Exits with 1 when a check does not hold.

Examples:
  ackwright demo --plugins target/plugins
  ackwright demo --dir /var/tmp/ackwright --messages 5000")]
    Demo(Demo),
}

#[derive(Debug, Subcommand)]
pub enum Inbox {
    /// Find rows by dedup key, or by the start of a key or of its readable form.
    #[command(after_help = "\
Examples:
  ackwright inbox show 6b1f0c8e-53d2-8a41-9f0e-2f7f1c9f6f1e
  ackwright inbox show '\"ORDER_PAID\" \"4711\"'")]
    Show {
        /// A dedup key, or the start of a key or of its readable form.
        #[arg(value_name = "KEY OR TEXT")]
        text: String,
        #[command(flatten)]
        scope: Scope,
    },
}

#[derive(Debug, Subcommand)]
pub enum Outbox {
    /// List emitted messages, the newest last.
    #[command(after_help = "\
Examples:
  ackwright outbox list
  ackwright outbox list --state refused --json")]
    List {
        /// Only rows in this state.
        #[arg(long, value_enum)]
        state: Option<OutboxState>,
        #[command(flatten)]
        scope: Scope,
    },
}

#[derive(Debug, Subcommand)]
pub enum Parked {
    /// List messages that are parked for good or wait for another attempt.
    #[command(after_help = "\
Examples:
  ackwright parked list
  ackwright parked list --route marketing-coupon --code rejected:insufficient-funds")]
    List {
        /// Only messages of this route.
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
        /// Only messages with this code.
        #[arg(long)]
        code: Option<String>,
        /// Only messages in this state.
        #[arg(long, value_enum)]
        state: Option<ParkedState>,
        #[command(flatten)]
        scope: Scope,
    },
    /// Show one message whole: reason, detail, headers, properties and body.
    #[command(after_help = "\
Examples:
  ackwright parked show 6b1f0c8e-53d2-8a41-9f0e-2f7f1c9f6f1e
  ackwright parked show 6b1f0c8e-53d2-8a41-9f0e-2f7f1c9f6f1e --body-to order.json")]
    Show {
        /// The dedup key, as the list shows it.
        key: uuid::Uuid,
        /// Write the body, byte for byte, to this file.
        #[arg(long, value_name = "FILE")]
        body_to: Option<PathBuf>,
        #[command(flatten)]
        scope: Scope,
    },
}

/// Which databases a command asks, and for how much.
#[derive(Debug, Args)]
pub struct Scope {
    /// Only this database.
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,
    /// Most rows of one database.
    #[arg(long, default_value_t = 100, value_name = "ROWS")]
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OutboxState {
    Pending,
    Refused,
    Parked,
    Sent,
}

impl OutboxState {
    pub fn text(self) -> &'static str {
        match self {
            OutboxState::Pending => "pending",
            OutboxState::Refused => "refused",
            OutboxState::Parked => "parked",
            OutboxState::Sent => "sent",
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ParkedState {
    Parked,
    Waiting,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Folder that holds coupon.wasm and ledger.wasm.
    #[arg(long, default_value = "target/plugins", value_name = "FOLDER")]
    pub plugins: PathBuf,
    /// Work in this folder and leave everything there; it must be empty or absent.
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Distinct messages in the stream.
    #[arg(long, default_value_t = 1_200, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub messages: u32,
}
