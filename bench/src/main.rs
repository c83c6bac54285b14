//! `cargo xtask bench`: Ackwright against the same job written by hand, measured alternately in one run.

mod load;
mod peers;
mod report;
mod sample;
mod scenario;
mod servers;

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::load::Mix;
use crate::peers::Peer;
use crate::report::Report;
use crate::scenario::Consumer;
use crate::servers::{Servers, Setting};

#[derive(Parser)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    peer: Option<Command>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Rounds of which the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Messages of the fast consumers; slow ones get a tenth
    #[arg(long, default_value_t = 150_000)]
    messages: usize,
    /// Seconds at each pace of the latency runs
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Lanes of the route, where a row names no other number
    #[arg(long, default_value_t = 1)]
    lanes: usize,
    /// Only rows whose name contains this
    #[arg(long)]
    only: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run one of the hand-written consumers
    #[command(hide = true)]
    Peer(peers::Arguments),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.peer {
            Some(Command::Peer(peer)) => peers::run(peer).await,
            None => measure(arguments).await,
        }
    })
}

/// One row of the throughput table: its name, its consumer, and what is in the queue.
fn rows(best: Setting, messages: usize) -> Vec<(&'static str, Consumer, Mix)> {
    let peer = |peer, workers| Consumer::Peer { peer, workers };
    let ackwright = |setting| Consumer::Ackwright(setting);
    let clean = Mix { messages, ..Mix::default() };
    let slow = Mix { messages: messages / 10, ..Mix::default() };
    vec![
        ("ackwright", ackwright(best), clean),
        ("usual, 8 workers", peer(Peer::Usual, 8), slow),
        ("usual, 32 workers", peer(Peer::Usual, 32), slow),
        ("one statement, 8 workers", peer(Peer::Best, 8), slow),
        ("one statement, 32 workers", peer(Peer::Best, 32), slow),
        ("ackwright, relay on", ackwright(Setting { relay: true, ..best }), clean),
        ("ackwright, 10 % duplicates", ackwright(best), Mix { duplicates: 10, ..clean }),
        ("ackwright, 1 % handler errors", ackwright(best), Mix { errors: 1, ..clean }),
        ("ackwright, 4 lanes", ackwright(Setting { lanes: 4, ..best }), clean),
    ]
}

async fn measure(arguments: Arguments) -> Result<()> {
    let best = Setting { lanes: arguments.lanes, batch: 1024, relay: false };
    let servers = Servers::start().await?;
    let mut report = Report::default();
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    for round in 1..=arguments.rounds {
        for (name, consumer, mix) in rows(best, arguments.messages) {
            if wanted(name) {
                eprintln!("round {round}: {name}");
                report.throughput(name, scenario::throughput(&servers, consumer, mix).await?);
            }
        }
        if wanted("drain") {
            eprintln!("round {round}: drain");
            report.throughput("drain, no database", scenario::drain(&servers, 2 * arguments.messages).await?);
        }
        for rate in [500, 2000] {
            for (name, consumer) in [
                ("ackwright", Consumer::Ackwright(best)),
                ("usual, 8 workers", Consumer::Peer { peer: Peer::Usual, workers: 8 }),
            ] {
                if wanted("latency") || arguments.only.is_none() {
                    eprintln!("round {round}: {name} at {rate} messages/s");
                    let time = Duration::from_secs(arguments.seconds);
                    report.latency(name, rate, scenario::latency(&servers, consumer, rate, time).await?);
                }
            }
        }
        if wanted("sqlite") {
            let one = Setting { lanes: 1, ..best };
            eprintln!("round {round}: sqlite");
            let rate = scenario::sqlite(&servers, Consumer::Ackwright(one), arguments.messages / 2).await?;
            report.sqlite("ackwright, sqlite", rate);
            let peer = Consumer::Peer { peer: Peer::UsualSqlite, workers: 1 };
            report.sqlite("usual, sqlite", scenario::sqlite(&servers, peer, arguments.messages / 20).await?);
        }
    }
    report.print(arguments.json)
}
