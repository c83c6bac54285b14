//! The running host: every database with its routes and its relay, from start to drained.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ackwright_core::catalog::Catalog;
use ackwright_core::health::{Health, Reporter};
use ackwright_core::pipeline::Pipeline;
use ackwright_core::pulse::Pulses;
use ackwright_core::relay::{self, Relay};
use ackwright_core::route::{self, Backoff, Bound};
use ackwright_core::store::{Store, Writer};
use anyhow::Context;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::brokers::Brokers;
use super::databases::{self, Reached};
use super::{admin, janitor, plugins, signals};
use crate::config::model::{Config, Route};

/// How a row of the outbox that its broker refused is tried again.
const OUTBOX_RETRY: Backoff = Backoff { attempts: 20, initial: Duration::from_secs(1), max: Duration::from_secs(300) };

/// How often an ended host looks whether its outbox is empty.
const LOOK: Duration = Duration::from_millis(50);

/// What all parts of the host share.
struct Host {
    config: Config,
    plugins: plugins::Loaded,
    brokers: Brokers,
    health: Health,
    pulses: Pulses,
    stop: CancellationToken,
}

/// Runs until a signal, or until every source has ended; then drains.
pub async fn serve(config: Config) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    signals::watch(stop.clone())?;
    let health = Health::default();
    let pulses = Pulses::default();
    let mut stores = BTreeMap::new();
    for name in config.routes.values().map(|route| &route.database.value) {
        if !stores.contains_key(name) {
            let store = databases::open(&config.databases[name])
                .with_context(|| format!("database {name:?} cannot be used as configured"))?;
            stores.insert(name.clone(), store);
        }
    }
    // Known before the first probe: a host that has registered nothing yet would count as ready.
    let starts: Vec<_> = stores.keys().map(|name| health.component(format!("routes.{name}"))).collect();
    // Before anything that can wait, so that probes are answered.
    let admin = admin::start(&config, &stores, &health, &pulses).await?;

    let engine = plugins::engine(&config)?;
    let mut loaded = plugins::Loaded::new();
    for name in plugins::used(&config) {
        loaded.insert(name.to_owned(), plugins::load(&engine, name, &config.plugins[name]).await?);
    }
    let drain_timeout = config.host.drain_timeout;
    let brokers = Brokers::new(health.clone());
    let host = Arc::new(Host { config, plugins: loaded, brokers, health, pulses, stop: stop.clone() });

    let mut tasks = JoinSet::new();
    for ((name, store), start) in stores.into_iter().zip(starts) {
        let host = Arc::clone(&host);
        tasks.spawn(async move { host.serve_database(name, store, start).await });
    }

    // A fault that waiting cannot heal drains the rest; the first one is reported.
    let mut fault = None;
    let drained = async {
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended.context("a part of the host ended badly").and_then(|result| result) {
                fault.get_or_insert(error);
                stop.cancel();
            }
        }
        host.brokers.close().await;
    };
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(drain_timeout).await;
    };
    let in_time = tokio::select! {
        () = drained => true,
        () = late => false,
    };
    if let Some(admin) = admin {
        admin.close().await;
    }
    match fault {
        Some(error) => Err(error),
        None if in_time => Ok(()),
        None => Err(anyhow::anyhow!(
            "the host did not drain within host.drain_timeout ({}); what was under way is rolled back and comes again",
            crate::config::units::duration_text(drain_timeout)
        )),
    }
}

impl Host {
    /// One database: its routes, its relay and its janitor. The others do not wait for it.
    async fn serve_database(&self, name: String, store: Arc<dyn Store>, start: Reporter) -> anyhow::Result<()> {
        let database = &self.config.databases[&name];
        let health = self.health.component(format!("database.{name}"));
        let reached = databases::reach(name.clone(), database.clone(), store, health, self.stop.clone()).await?;
        let Some(reached) = reached else { return Ok(()) };
        let label: Arc<str> = name.as_str().into();
        let emitted = Arc::new(Notify::new());

        let Some(routes) = self.routes(&name, &reached).await? else { return Ok(()) };
        // They outlive the routes: what a last batch emits is still published.
        let ending = CancellationToken::new();
        let mut helpers = JoinSet::new();
        if database.relay {
            let relay = Relay {
                settings: relay::Settings {
                    database: Arc::clone(&label),
                    relay: Uuid::from_u128(rand::random()),
                    retry: OUTBOX_RETRY,
                    keep: database.keep_sent,
                },
                store: reached.store.outbox(),
                publishers: self.brokers.publishers(&name, &self.config).await?,
                emitted: Arc::clone(&emitted),
                health: self.health.clone(),
                pulses: self.pulses.clone(),
            };
            helpers.spawn(relay.run(ending.clone()));
        }
        let keep = self.config.routes.values().filter(|route| route.database.value == name);
        let keep = keep.map(|route| route.dedup_ttl).max().unwrap_or(Duration::MAX);
        let pulse = self.pulses.task(format!("database.{name}.janitor"));
        helpers.spawn(janitor::clean(label, reached.store.parked(), keep, pulse, ending.clone()));

        let result = self.run_routes(routes, &reached, &emitted, start).await;
        if result.is_ok() && database.relay {
            self.empty_outbox(&name, reached.store.as_ref()).await;
        }
        ending.cancel();
        while let Some(ended) = helpers.join_next().await {
            ended.with_context(|| format!("the relay or the janitor of database {name:?} ended badly"))?;
        }
        result
    }

    /// All routes of a database with their plugins bound; `None` where the host stops before.
    async fn routes(
        &self,
        database: &str,
        reached: &Reached,
    ) -> anyhow::Result<Option<BTreeMap<String, route::Route>>> {
        let mut routes = BTreeMap::new();
        let mut mistakes = Vec::new();
        for (name, configured) in self.config.routes.iter().filter(|(_, route)| route.database.value == database) {
            match self.route(name, configured, reached).await {
                Ok(Some(route)) => drop(routes.insert(name.clone(), route)),
                Ok(None) => return Ok(None),
                Err(more) => mistakes.extend(more),
            }
        }
        mistakes.sort();
        mistakes.dedup();
        anyhow::ensure!(
            mistakes.is_empty(),
            "the grants do not fit database {database:?}:\n  {}",
            mistakes.join("\n  ")
        );
        Ok(Some(routes))
    }

    async fn route(
        &self,
        name: &str,
        configured: &Route,
        reached: &Reached,
    ) -> Result<Option<route::Route>, Vec<String>> {
        let group = configured.group.value.as_str();
        // What no plugin saw is parked in the name of the host.
        let Some(writer) = self.writer(reached.store.as_ref(), group, "", "").await else { return Ok(None) };
        let mut bound: BTreeMap<&str, Arc<Bound>> = BTreeMap::new();
        let mut mistakes = Vec::new();
        for rule in &configured.rules {
            let plugin = rule.plugin.value.as_str();
            if bound.contains_key(plugin) {
                continue;
            }
            match plugins::bind(plugin, &self.plugins[plugin], &self.config.plugins[plugin], &reached.catalog, group) {
                Ok(handler) => {
                    let writer = self.writer(reached.store.as_ref(), group, plugin, handler.digest()).await;
                    let Some(writer) = writer else { return Ok(None) };
                    bound.insert(plugin, Arc::new(Bound { handler, writer }));
                }
                Err(more) => mistakes.extend(more),
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let rules = configured.rules.iter().map(|rule| route::Rule {
            when: rule.when.clone(),
            plugin: Arc::clone(&bound[rule.plugin.value.as_str()]),
        });
        Ok(Some(route::Route {
            rules: rules.collect(),
            settings: route::Settings {
                name: name.into(),
                group: group.into(),
                lanes: configured.lanes,
                batch: configured.batch,
                batch_bytes: usize::try_from(configured.batch_bytes).unwrap_or(usize::MAX),
                unmatched: configured.unmatched,
                retry: configured.retry,
                writer,
            },
        }))
    }

    /// Asks until the database answers; `None` where the host stops before.
    async fn writer(&self, store: &dyn Store, group: &str, plugin: &str, digest: &str) -> Option<Writer> {
        let mut pause = Duration::from_millis(100);
        loop {
            match store.writer(group, plugin, digest).await {
                Ok(writer) => return Some(writer),
                Err(error) => {
                    tracing::warn!(group, plugin, %error, retry_in = ?pause, "database cannot be used yet, waiting for it");
                }
            }
            if tokio::time::timeout(pause, self.stop.cancelled()).await.is_ok() {
                return None;
            }
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    async fn run_routes(
        &self,
        routes: BTreeMap<String, route::Route>,
        reached: &Reached,
        emitted: &Arc<Notify>,
        start: Reporter,
    ) -> anyhow::Result<()> {
        let mut pipelines = JoinSet::new();
        let mut fault = None;
        for (name, route) in routes {
            let source = match self.brokers.source(&name, &self.config.routes[&name], &self.config).await {
                Ok(source) => source,
                Err(error) => {
                    fault = Some(error.context(format!("route {name:?} cannot start")));
                    self.stop.cancel();
                    break;
                }
            };
            let pipeline = Pipeline {
                route: Arc::new(route),
                source,
                store: Arc::clone(&reached.store),
                catalog: Arc::<Catalog>::clone(&reached.catalog),
                emitted: Arc::clone(emitted),
                health: self.health.clone(),
                pulses: self.pulses.clone(),
            };
            let stop = self.stop.clone();
            tracing::info!(route = %name, "route runs");
            pipelines.spawn(async move {
                let result = pipeline.run(stop).await;
                result.with_context(|| format!("route {name:?} ended"))
            });
        }
        if fault.is_none() {
            start.ready();
        }
        while let Some(ended) = pipelines.join_next().await {
            if let Err(error) = ended.context("a route ended badly").and_then(|result| result) {
                fault.get_or_insert(error);
                self.stop.cancel();
            }
        }
        fault.map_or(Ok(()), Err)
    }

    /// Where all sources came to their end by themselves, what they caused is published before the host ends.
    async fn empty_outbox(&self, name: &str, store: &dyn Store) {
        let outbox = store.outbox();
        while !self.stop.is_cancelled() {
            match outbox.counts().await {
                Ok(counts) if counts.pending + counts.refused == 0 => return,
                Ok(_) => {}
                Err(error) => tracing::debug!(database = name, %error, "outbox cannot be counted now"),
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}
