//! Plugins: read, compiled once, and bound to the grants, limits and settings of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use ackwright_core::access::Access;
use ackwright_core::catalog::Catalog;
use ackwright_core::handler::Handler;
use ackwright_wasm::{Engine, Plugin};
use anyhow::Context;

use crate::config::model::{self, Config};
use crate::output::chain;

/// Plugins that routes use, by name.
pub type Loaded = BTreeMap<String, Arc<Plugin>>;

pub fn engine(config: &Config) -> anyhow::Result<Engine> {
    let own = ackwright_wasm::Settings::default();
    // A guest that waits for a row lock keeps its place, so there are more places than lanes.
    let lanes: usize = config.routes.values().map(|route| route.lanes + 1).sum();
    let memory = config.plugins.values().map(|plugin| plugin.limits.memory).max().unwrap_or(0);
    let settings = ackwright_wasm::Settings {
        guests: own.guests.max(2 * lanes as u32),
        memory: own.memory.max(usize::try_from(memory)?),
        ..own
    };
    Ok(Engine::new(settings)?)
}

/// Names of plugins that a route uses.
pub fn used(config: &Config) -> Vec<&str> {
    let mut names: Vec<&str> =
        config.routes.values().flat_map(|route| &route.rules).map(|rule| rule.plugin.value.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub async fn load(engine: &Engine, name: &str, plugin: &model::Plugin) -> anyhow::Result<Arc<Plugin>> {
    let path = plugin.path.display();
    let bytes =
        tokio::fs::read(&plugin.path).await.with_context(|| format!("plugin {name:?}: {path} cannot be read"))?;
    engine.load(name, bytes).await.with_context(|| format!("plugin {name:?}: {path} cannot be used"))
}

/// One plugin with its grants resolved against one database; all that is wrong with it is reported.
pub fn bind(
    name: &str,
    plugin: &Arc<Plugin>,
    configured: &model::Plugin,
    catalog: &Arc<Catalog>,
    group: &str,
) -> Result<Arc<dyn Handler>, Vec<String>> {
    let access = Access::resolve(&configured.grants, Arc::clone(catalog))
        .map_err(|mistakes| mistakes.into_iter().map(|m| format!("plugin.{name}: {m}")).collect::<Vec<_>>())?;
    let settings = configured.settings.clone().into();
    plugin
        .bind(access, limits(&configured.limits), settings, group)
        .map_err(|error| vec![chain(&anyhow::Error::from(error))])
}

fn limits(limits: &model::Limits) -> ackwright_wasm::Limits {
    ackwright_wasm::Limits {
        memory: usize::try_from(limits.memory).unwrap_or(usize::MAX),
        time: limits.time,
        wall: limits.wall,
        rows: limits.rows,
        effects: ackwright_core::effect::Limits {
            effects: limits.effects,
            emits: limits.emits,
            bytes: usize::try_from(limits.bytes).unwrap_or(usize::MAX),
        },
    }
}
