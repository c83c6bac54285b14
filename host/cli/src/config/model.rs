//! The configuration as the rest of the program sees it: every value checked, every reference resolved.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ackwright_core::access::Grants;
use ackwright_core::route::{Backoff, Condition, Unmatched};

use super::read::At;
use super::secret::Secret;

#[derive(Debug)]
pub struct Config {
    pub host: Host,
    pub databases: BTreeMap<String, Database>,
    pub brokers: BTreeMap<String, Broker>,
    pub plugins: BTreeMap<String, Plugin>,
    pub routes: BTreeMap<String, Route>,
}

#[derive(Clone, Debug)]
pub struct Host {
    /// From the signal to the exit.
    pub drain_timeout: Duration,
    /// Absent where it is switched off.
    pub admin: Option<SocketAddr>,
    /// Names under which browsers may reach it, beside addresses and `localhost`.
    pub admin_hosts: Vec<String>,
    /// Directives as `tracing` reads them: `info`, `info,ackwright=debug`.
    pub log_level: String,
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal, JSON elsewhere.
    Auto,
    Human,
    Json,
}

#[derive(Clone, Debug)]
pub struct Database {
    pub url: Secret,
    pub kind: DatabaseKind,
    /// `run` applies migrations at its start.
    pub migrate: bool,
    /// This host publishes the outbox; where not, other hosts on the same database do.
    pub relay: bool,
    /// How long sent rows stay in the outbox; zero removes them at once.
    pub keep_sent: Duration,
    /// Connections go through a pooler that hands out a server session a transaction.
    pub pooled: bool,
    pub lock_timeout: Option<Duration>,
    pub statement_timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    Postgres,
    Sqlite,
}

#[derive(Clone, Debug)]
pub enum Broker {
    Rabbitmq(Rabbitmq),
    Webhook(Webhook),
    File {
        /// Where emitted messages go; `{destination}` in the file's name makes one file for each destination.
        path: PathBuf,
        /// What the lines that routes read are. Emitted ones are always envelopes.
        format: Format,
    },
    /// Emitted messages are printed on standard output, or logged.
    Log {
        stdout: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Rabbitmq {
    pub url: Secret,
    /// Where destinations that name no exchange go; empty is the default exchange, whose keys are queue names.
    pub exchange: String,
    /// Create a route's queue where it is missing.
    pub declare: bool,
    pub heartbeat: Duration,
    pub confirm_timeout: Duration,
    /// PEM file with certificates that sign the broker's, beside the public roots.
    pub tls_ca: Option<PathBuf>,
}

/// What a line of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The body of a message, and nothing else.
    Body,
    /// An object that holds the body, headers and the rest.
    Envelope,
}

#[derive(Clone, Debug)]
pub struct Webhook {
    /// Where deliveries are taken; needed by routes.
    pub listen: Option<SocketAddr>,
    /// Where emitted messages are sent: the destination is appended. Needed by `grants.emit`.
    pub url: Option<Secret>,
    pub body_limit: u64,
    /// Key of the HMAC-SHA256 that deliveries must carry.
    pub secret: Option<Secret>,
    pub signature_header: String,
}

#[derive(Clone, Debug)]
pub struct Plugin {
    pub path: PathBuf,
    pub grants: Grants,
    /// `grants.emit` once more, with places.
    pub emits: Vec<At<String>>,
    pub limits: Limits,
    /// As the plugin's `settings` call returns them.
    pub settings: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub memory: u64,
    /// CPU time of one message.
    pub time: Duration,
    /// Wall clock of one message, host calls included.
    pub wall: Duration,
    /// Rows that one query may return.
    pub rows: usize,
    pub effects: usize,
    pub emits: usize,
    /// Bytes of all that one message declares.
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Route {
    pub broker: At<String>,
    pub intake: Intake,
    pub group: At<String>,
    pub database: At<String>,
    pub lanes: usize,
    pub batch: usize,
    pub batch_bytes: u64,
    pub prefetch: usize,
    pub dedup_ttl: Duration,
    pub retry: Backoff,
    pub rules: Vec<Rule>,
    pub unmatched: Unmatched,
}

/// What the route takes from its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intake {
    Queue(String),
    /// Path of the HTTP request.
    Path(String),
    File {
        path: PathBuf,
        /// Go on waiting for lines at the end of the file.
        follow: bool,
    },
}

/// First match wins.
#[derive(Clone, Debug)]
pub struct Rule {
    pub when: Vec<Condition>,
    pub plugin: At<String>,
}
