//! `[host]`, `[database.*]` and `[broker.*]`.

use std::time::Duration;

use super::mistake::Mistake;
use super::model::{Broker, Database, DatabaseKind, Format, Host, LogFormat, Rabbitmq, Webhook};
use super::read::{Fields, Item, Reading, nearest};
use super::secret::Secret;

const BROKER_KINDS: [&str; 4] = ["rabbitmq", "webhook", "file", "log"];

pub fn host(reading: &Reading<'_>, item: Option<Item<'_>>) -> Host {
    let mut host = Host {
        drain_timeout: Duration::from_secs(25),
        admin: Some(([127, 0, 0, 1], 8900).into()),
        admin_hosts: Vec::new(),
        log_level: "info".into(),
        log_format: LogFormat::Auto,
    };
    let Some(mut fields) = item.and_then(|item| reading.fields(item)) else { return host };
    if let Some(timeout) = fields.optional("drain_timeout", Reading::duration) {
        host.drain_timeout = timeout.value;
    }
    if let Some(item) = fields.take("admin") {
        match &item.value {
            toml_span::value::ValueInner::Boolean(false) => host.admin = None,
            _ => host.admin = reading.address(item).map(|at| at.value),
        }
    }
    if let Some(names) = fields.optional("admin_hosts", Reading::strings) {
        host.admin_hosts = names.into_iter().map(|at| at.value).collect();
    }
    if let Some(mut log) = fields.optional("log", Reading::fields) {
        if let Some(level) = log.optional("level", Reading::name) {
            match tracing_subscriber::EnvFilter::try_new(&level.value) {
                Ok(_) => host.log_level = level.value,
                Err(_) => reading.note(
                    Mistake::error(level.span, "host.log.level cannot be read")
                        .label("a level such as \"info\", or directives such as \"info,ackwright=debug\""),
                ),
            }
        }
        let formats = [("auto", LogFormat::Auto), ("human", LogFormat::Human), ("json", LogFormat::Json)];
        if let Some(format) = log.optional("format", |r, item| r.choice(item, &formats)) {
            host.log_format = format.value;
        }
        log.finish();
    }
    fields.finish();
    host
}

pub fn database(name: &str, mut fields: Fields<'_, '_>) -> Option<Database> {
    let reading = fields.reading();
    let url = fields.required("url", "\"${DATABASE_URL}\"", Reading::text);
    let migrate = fields.optional("migrate", Reading::boolean).unwrap_or(false);
    let relay = fields.optional("relay", Reading::boolean).unwrap_or(true);
    let keep_sent = fields.optional("keep_sent", Reading::duration).map_or(Duration::ZERO, |at| at.value);
    let lock_timeout = fields.optional("lock_timeout", Reading::duration).map(|at| at.value);
    let statement_timeout = fields.optional("statement_timeout", Reading::duration).map(|at| at.value);
    let words = [("full", "full"), ("normal", "normal")];
    let synchronous = fields.optional("synchronous", |r, item| r.choice(item, &words));
    let pooled = fields.optional("pooled", Reading::located_boolean);
    fields.finish();
    let url = url?;
    let scheme = url.text.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    let misplaced = |span, key: &str, only: &str, help: &str| {
        let message = format!("database.{name}.{key} is for {only} only");
        reading.note(Mistake::error(span, message).help(help));
    };
    let (kind, text) = match scheme {
        "postgres" | "postgresql" => {
            if let Some(at) = synchronous {
                let help = "PostgreSQL's synchronous_commit is a setting of the server or of the role";
                misplaced(at.span, "synchronous", "SQLite", help);
            }
            (DatabaseKind::Postgres, url.text)
        }
        "sqlite" => {
            if let Some(at) = &pooled {
                misplaced(at.span.clone(), "pooled", "PostgreSQL", "SQLite is a file, there is no pooler before it");
            }
            if url.text.contains(":memory:") {
                let message = format!("database.{name}.url is a database in memory");
                reading.note(
                    Mistake::error(url.span, message)
                        .label("it must be a file")
                        .help("the host opens several connections, and each would see a database of its own"),
                );
                return None;
            }
            (DatabaseKind::Sqlite, file_url(&url.text, synchronous.map(|at| at.value), reading))
        }
        other => {
            let known = ["postgres", "postgresql", "sqlite"];
            let message = format!("database.{name}.url is for no known kind of database");
            let mut mistake = Mistake::error(url.span, message).label("it must begin with postgres:// or sqlite:");
            if let Some(near) = nearest(other, known.into_iter()).filter(|_| !url.foreign) {
                mistake = mistake.help(format!("did you mean {near}:?"));
            } else if other == "mysql" || other == "mariadb" {
                mistake = mistake.help("this version of the host has no adapter for MySQL and MariaDB");
            }
            reading.note(mistake);
            return None;
        }
    };
    let pooled = pooled.is_some_and(|at| at.value);
    Some(Database { url: Secret::url(text), kind, migrate, relay, keep_sent, pooled, lock_timeout, statement_timeout })
}

/// A relative path of a SQLite file starts at the folder of the configuration, like every other path in it.
fn file_url(url: &str, synchronous: Option<&str>, reading: &Reading<'_>) -> String {
    let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).unwrap_or(url);
    let mut whole = String::from("sqlite://");
    if !path.starts_with('/') && !path.is_empty() {
        // What a URL would read as its own has to be written as a code; the user's part is a URL already.
        let folder = reading.folder.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        whole.push_str(&folder);
        whole.push('/');
    }
    whole.push_str(path);
    if let Some(synchronous) = synchronous {
        whole.push(if path.contains('?') { '&' } else { '?' });
        whole.push_str(&format!("synchronous={synchronous}"));
    }
    whole
}

pub fn broker(name: &str, mut fields: Fields<'_, '_>) -> Option<Broker> {
    let reading = fields.reading();
    let kind = fields.required("kind", "\"rabbitmq\"", Reading::name)?;
    let broker = match kind.value.as_str() {
        "rabbitmq" => rabbitmq(name, &mut fields),
        "webhook" => webhook(name, &mut fields),
        "file" => {
            let path = fields.optional("path", Reading::path);
            let formats = [("body", Format::Body), ("envelope", Format::Envelope)];
            let format = fields.optional("format", |r, item| r.choice(item, &formats));
            Some(Broker::File {
                path: path.map_or_else(|| reading.folder.join("{destination}.ndjson"), |at| at.value),
                format: format.map_or(Format::Envelope, |at| at.value),
            })
        }
        "log" => {
            let stdout = fields.optional("to", |r, item| r.choice(item, &[("log", false), ("stdout", true)]));
            Some(Broker::Log { stdout: stdout.is_some_and(|at| at.value) })
        }
        other => {
            let message = format!("broker.{name}.kind cannot be {other:?}");
            let mut mistake = Mistake::error(kind.span.clone(), message);
            mistake = match nearest(other, BROKER_KINDS.into_iter()) {
                Some(near) => mistake.label(format!("did you mean {near:?}?")),
                None => mistake.label("this version of the host has no such broker"),
            };
            reading.note(mistake.help(format!("known kinds: {}", BROKER_KINDS.join(", "))));
            // Which other keys belong here cannot be told.
            return None;
        }
    };
    fields.finish();
    broker
}

fn rabbitmq(name: &str, fields: &mut Fields<'_, '_>) -> Option<Broker> {
    let reading = fields.reading();
    let url = fields.required("url", "\"${AMQP_URL}\"", Reading::text);
    let exchange = fields.optional("exchange", Reading::string).unwrap_or_default();
    let declare = fields.optional("declare", Reading::boolean).unwrap_or(false);
    let heartbeat = fields.optional("heartbeat", Reading::duration);
    let confirm_timeout = fields.optional("confirm_timeout", Reading::duration);
    let tls_ca = fields.optional("tls_ca", Reading::path).map(|at| at.value);
    if let Some(at) = &heartbeat
        && !(Duration::from_secs(2)..=Duration::from_secs(3600)).contains(&at.value)
    {
        let message = format!("broker.{name}.heartbeat is out of range");
        reading.note(Mistake::error(at.span.clone(), message).label("a duration from 2s to 1h"));
    }
    if let Some(at) = &confirm_timeout
        && at.value.is_zero()
    {
        let message = format!("broker.{name}.confirm_timeout is zero");
        reading.note(Mistake::error(at.span.clone(), message).label("no message could ever be confirmed"));
    }
    let url = url?;
    if let Err(why) = ackwright_brokers::rabbitmq::Address::parse(&url.text) {
        let message = format!("broker.{name}.url is no address of RabbitMQ");
        reading.note(Mistake::error(url.span, message).label(why.to_string()));
        return None;
    }
    Some(Broker::Rabbitmq(Rabbitmq {
        url: Secret::url(url.text),
        exchange,
        declare,
        heartbeat: heartbeat.map_or(Duration::from_secs(10), |at| at.value),
        confirm_timeout: confirm_timeout.map_or(Duration::from_secs(10), |at| at.value),
        tls_ca,
    }))
}

fn webhook(name: &str, fields: &mut Fields<'_, '_>) -> Option<Broker> {
    let reading = fields.reading();
    // One that is wrong is not absent: later checks must not miss it.
    let listen = fields.take("listen").map(|item| reading.address(item));
    let url = fields.optional("url", Reading::text);
    let body_limit = fields.optional("body_limit", Reading::size).map_or(1 << 20, |at| at.value);
    let secret = fields.optional("secret", Reading::secret);
    let header = fields.optional("signature_header", Reading::name);
    if let (Some(header), None) = (&header, &secret) {
        let message = format!("broker.{name}.signature_header is set without a secret");
        reading.note(
            Mistake::error(header.span.clone(), message)
                .label("no signature is checked")
                .help("add a line such as: secret = \"${WEBHOOK_SECRET}\""),
        );
    }
    let url = match url {
        Some(url) if !url.text.starts_with("http://") && !url.text.starts_with("https://") => {
            let message = format!("broker.{name}.url is no address for HTTP");
            reading.note(Mistake::error(url.span, message).label("it must begin with http:// or https://"));
            None
        }
        url => url.map(|url| Secret::url(url.text)),
    };
    let listen = match listen {
        Some(read) => Some(read?.value),
        None => None,
    };
    Some(Broker::Webhook(Webhook {
        listen,
        url,
        body_limit,
        secret,
        signature_header: header.map_or_else(|| "x-hub-signature-256".into(), |at| at.value),
    }))
}
