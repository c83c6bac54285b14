//! Logs: for people on a terminal, JSON elsewhere, always on standard error and always scrubbed.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::model::{Host, LogFormat};
use crate::config::secret::scrub;
use crate::output::colours;

/// Replaces `host.log.level`.
const VARIABLE: &str = "ACKWRIGHT_LOG";

/// What the client of RabbitMQ logs at `error` are states that the host handles and reports in its own words, and at
/// `warn` it logs bodies of messages. A directive of the user's for the same target wins.
const QUIET: &str = "lapin=off";

pub fn start(host: &Host) -> anyhow::Result<()> {
    let level = std::env::var(VARIABLE).unwrap_or_else(|_| host.log_level.clone());
    install(&level, host.log_format)
}

/// For the short commands: they log only when asked by the environment.
pub fn start_if_asked() -> anyhow::Result<()> {
    match std::env::var(VARIABLE) {
        Ok(level) => install(&level, LogFormat::Human),
        Err(_) => Ok(()),
    }
}

fn install(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(format!("{QUIET},{level}"))
        .map_err(|error| anyhow::anyhow!("{VARIABLE} is no log level and no list of directives: {error}"))?;
    let people = match format {
        LogFormat::Auto => io::IsTerminal::is_terminal(&io::stderr()),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Scrubbed);
    let done = if people {
        log.with_ansi(colours(&io::stderr())).try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
    done.map_err(|error| anyhow::anyhow!("logging cannot be set up: {error}"))
}

/// Standard error without secrets: libraries log what they were given, passwords included.
struct Scrubbed;

/// One event, written at once.
struct Event;

impl<'a> MakeWriter<'a> for Scrubbed {
    type Writer = Event;

    fn make_writer(&'a self) -> Event {
        Event
    }
}

impl Write for Event {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The subscriber formats an event as a whole before it writes.
        let text = String::from_utf8_lossy(bytes);
        io::stderr().lock().write_all(scrub(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
