//! The admin address: what it is told about this host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ackwright_admin::metrics;
use ackwright_admin::server::{self, Facts, Server};
use ackwright_core::health::Health;
use ackwright_core::pulse::Pulses;
use ackwright_core::store::Store;
use anyhow::Context;

use crate::config::model::{Config, Intake};

/// A message is bounded by its limits, a statement by the database's; a minute without progress is a fault.
const WEDGED_AFTER: Duration = Duration::from_secs(60);

/// Listens and records metrics where the configuration says so: nobody could read them otherwise.
pub async fn start(
    config: &Config,
    stores: &BTreeMap<String, Arc<dyn Store>>,
    health: &Health,
    pulses: &Pulses,
) -> anyhow::Result<Option<Server>> {
    let Some(listen) = config.host.admin else { return Ok(None) };
    let metrics = metrics::install_recorder().context("metrics cannot be recorded")?;
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION"),
        health: health.clone(),
        pulses: pulses.clone(),
        wedged_after: WEDGED_AFTER,
        metrics,
        routes: routes(config),
        databases: stores.iter().map(|(name, store)| (name.clone(), server::Database::of(store.as_ref()))).collect(),
    };
    let settings = server::Config { listen, hosts: config.host.admin_hosts.clone() };
    Ok(Some(Server::bind(settings, facts).await?))
}

fn routes(config: &Config) -> Vec<server::Route> {
    let route = |(name, route): (&String, &crate::config::model::Route)| server::Route {
        name: name.clone(),
        broker: route.broker.value.clone(),
        source: match &route.intake {
            Intake::Queue(queue) => queue.clone(),
            Intake::Path(path) => path.clone(),
            Intake::File { path, .. } => path.display().to_string(),
        },
        group: route.group.value.clone(),
        database: route.database.value.clone(),
        plugins: route.rules.iter().map(|rule| rule.plugin.value.clone()).collect(),
        lanes: route.lanes,
    };
    config.routes.iter().map(route).collect()
}
