//! Brokers: sources of routes, and publishers of the outbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ackwright_brokers::secret::Secret;
use ackwright_brokers::{file, rabbitmq, webhook};
use ackwright_core::access::wildcard;
use ackwright_core::health::Health;
use ackwright_core::publisher::Publisher;
use ackwright_core::source::Source;
use anyhow::Context;
use tokio::sync::Mutex;

use crate::config::model::{self, Broker, Config, Format, Intake, Route};

/// What brokers share across routes: one HTTP server serves all paths of a webhook broker.
pub struct Brokers {
    health: Health,
    listeners: Mutex<BTreeMap<String, Arc<webhook::listener::Listener>>>,
}

impl Brokers {
    pub fn new(health: Health) -> Self {
        Brokers { health, listeners: Mutex::default() }
    }

    /// Opens a route's source. A broker that is away is waited for by the source itself.
    pub async fn source(&self, name: &str, route: &Route, config: &Config) -> anyhow::Result<Box<dyn Source>> {
        let broker = &route.broker.value;
        let health = self.health.component(format!("broker.{broker}.{name}"));
        let source: Box<dyn Source> = match (&config.brokers[broker], &route.intake) {
            (Broker::Rabbitmq(settings), Intake::Queue(queue)) => {
                let mut open = rabbitmq::SourceSettings::new(address(settings)?, queue.as_str());
                open.prefetch = u16::try_from(route.prefetch)?;
                open.heartbeat = settings.heartbeat;
                open.declare = settings.declare;
                open.connection_name = format!("ackwright {name}");
                open.tls_ca = certificates(settings).await?;
                Box::new(rabbitmq::Source::open(open, health).with_context(|| format!("broker {broker:?}"))?)
            }
            (Broker::Webhook(settings), Intake::Path(path)) => {
                let listener = self.listener(broker, settings, route.prefetch).await?;
                let source = listener.source(path).with_context(|| format!("broker {broker:?}"))?;
                health.ready();
                Box::new(source)
            }
            (Broker::File { format, .. }, Intake::File { path, follow }) => {
                let mut open = file::source::Config::new(path);
                open.in_flight = route.prefetch;
                open.format = line_format(*format);
                open.follow = *follow;
                Box::new(file::source::Source::new(open, health))
            }
            // The configuration was checked: an intake fits its broker.
            (_, intake) => anyhow::bail!("route {name:?}: broker {broker:?} cannot serve {intake:?}"),
        };
        Ok(source)
    }

    /// One publisher for each broker that plugins of this database's routes may emit to.
    pub async fn publishers(
        &self,
        database: &str,
        config: &Config,
    ) -> anyhow::Result<BTreeMap<String, Arc<dyn Publisher>>> {
        let routes = config.routes.values().filter(|route| route.database.value == database);
        let plugins = routes.flat_map(|route| &route.rules).map(|rule| &config.plugins[&rule.plugin.value]);
        let patterns: Vec<&str> = plugins
            .flat_map(|plugin| &plugin.grants.emit)
            .filter_map(|pattern| pattern.split_once(':').map(|(broker, _)| broker))
            .collect();
        let mut all = BTreeMap::new();
        for (name, broker) in &config.brokers {
            if patterns.iter().any(|pattern| wildcard(pattern, name)) {
                let publisher = self.publisher(database, name, broker).await;
                let publisher = publisher.with_context(|| format!("broker {name:?} cannot be published to"))?;
                all.insert(name.clone(), publisher);
            }
        }
        Ok(all)
    }

    async fn publisher(&self, database: &str, name: &str, broker: &Broker) -> anyhow::Result<Arc<dyn Publisher>> {
        let publisher: Arc<dyn Publisher> = match broker {
            Broker::Rabbitmq(settings) => {
                let mut open = rabbitmq::PublisherSettings::new(address(settings)?);
                open.exchange.clone_from(&settings.exchange);
                open.heartbeat = settings.heartbeat;
                open.confirm_timeout = settings.confirm_timeout;
                open.connection_name = format!("ackwright outbox of {database}");
                open.tls_ca = certificates(settings).await?;
                let health = self.health.component(format!("broker.{name}.publisher.{database}"));
                Arc::new(rabbitmq::Publisher::open(open, health)?)
            }
            Broker::Webhook(settings) => {
                let url = settings.url.as_ref().context("it has no url")?;
                let mut open = webhook::publisher::Config::new(url.expose());
                open.signature = signature(settings)?;
                Arc::new(webhook::publisher::Publisher::new(open)?)
            }
            Broker::File { path, .. } => {
                Arc::new(file::publisher::Publisher::new(file::publisher::Config { path: path.clone() })?)
            }
            Broker::Log { stdout } => {
                let stream = if *stdout { file::publisher::Stream::Stdout } else { file::publisher::Stream::Log };
                Arc::new(file::publisher::Printer::new(stream))
            }
        };
        Ok(publisher)
    }

    /// Stops the HTTP servers; sources answer what is open before.
    pub async fn close(&self) {
        for listener in self.listeners.lock().await.values() {
            listener.close().await;
        }
    }

    async fn listener(
        &self,
        broker: &str,
        settings: &model::Webhook,
        in_flight: usize,
    ) -> anyhow::Result<Arc<webhook::listener::Listener>> {
        let mut listeners = self.listeners.lock().await;
        if let Some(listener) = listeners.get(broker) {
            return Ok(Arc::clone(listener));
        }
        let listen = settings.listen.with_context(|| format!("broker {broker:?} has no address to listen on"))?;
        let mut open = webhook::listener::Config::new(listen);
        open.body_limit = usize::try_from(settings.body_limit)?;
        open.in_flight = open.in_flight.max(in_flight);
        open.signature = signature(settings)?;
        let health = self.health.component(format!("broker.{broker}"));
        let listener =
            webhook::listener::Listener::bind(open, health).await.with_context(|| format!("broker {broker:?}"))?;
        let listener = Arc::new(listener);
        listeners.insert(broker.to_owned(), Arc::clone(&listener));
        Ok(listener)
    }
}

fn address(settings: &model::Rabbitmq) -> anyhow::Result<rabbitmq::Address> {
    Ok(rabbitmq::Address::parse(settings.url.expose())?)
}

async fn certificates(settings: &model::Rabbitmq) -> anyhow::Result<Option<String>> {
    let Some(path) = settings.tls_ca.as_deref() else { return Ok(None) };
    read(path).await.map(Some)
}

async fn read(path: &Path) -> anyhow::Result<String> {
    tokio::fs::read_to_string(path).await.with_context(|| format!("{} cannot be read", path.display()))
}

fn signature(settings: &model::Webhook) -> anyhow::Result<Option<webhook::signature::Signature>> {
    let Some(secret) = &settings.secret else { return Ok(None) };
    Ok(Some(webhook::signature::Signature::new(&settings.signature_header, Secret::new(secret.expose()))?))
}

fn line_format(format: Format) -> file::line::Format {
    match format {
        Format::Body => file::line::Format::Body,
        Format::Envelope => file::line::Format::Envelope,
    }
}
