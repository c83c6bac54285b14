//! From the bytes of a file to a verified, compiled plugin.

use std::sync::Arc;

use tokio::sync::oneshot;
use wasmtime::component::Component;

use crate::bindings::HandlerPre;
use crate::engine::Shared;
use crate::inspect::{self, CONTRACT, Inspection, PACKAGE};
use crate::plugin::Plugin;

/// Packages of WASI that the host offers, with nothing granted.
const WASI: [&str; 6] = ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];
/// Their version, up to the last number.
const WASI_VERSION: &str = "0.2.";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("plugin {plugin}: cannot load it")]
    File {
        plugin: String,
        #[source]
        source: inspect::Error,
    },
    #[error(
        "plugin {plugin}: it was built for another version of the contract: {interface} is wanted in version {wanted}, \
         and the plugin offers {offered}; build it again with an SDK of version {wanted}"
    )]
    Contract { plugin: String, interface: String, wanted: String, offered: String },
    #[error("plugin {plugin}: it does not export {wanted}; it exports {}", list(.offered))]
    NoExport { plugin: String, wanted: String, offered: Vec<String> },
    #[error(
        "plugin {plugin}: it imports {import}, which the host does not offer; plugins get {PACKAGE}@{CONTRACT} and \
         WASI {WASI_VERSION}x without files, network and environment"
    )]
    Import { plugin: String, import: String },
    #[error("plugin {plugin}: its types differ from those of {PACKAGE}@{CONTRACT}")]
    Types {
        plugin: String,
        #[source]
        source: wasmtime::Error,
    },
    #[error("plugin {plugin}: cannot compile it")]
    Compile {
        plugin: String,
        #[source]
        source: wasmtime::Error,
    },
    #[error("plugin {plugin}: cannot start a thread to compile it")]
    Thread {
        plugin: String,
        #[source]
        source: std::io::Error,
    },
    #[error("plugin {plugin}: the compiler panicked; this is a bug of the host")]
    Panicked { plugin: String },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

/// Loads on a thread of its own: compiling takes from milliseconds to many seconds.
pub(crate) async fn load(engine: Shared, plugin: &str, bytes: Arc<[u8]>) -> Result<Arc<Plugin>, Error> {
    let (done, loaded) = oneshot::channel();
    let name = plugin.to_owned();
    std::thread::Builder::new()
        .name("ackwright-compile".into())
        .spawn(move || {
            // Nobody waits any more where the receiver is gone.
            let _ = done.send(load_here(engine, name, &bytes));
        })
        .map_err(|source| Error::Thread { plugin: plugin.into(), source })?;
    loaded.await.map_err(|_| Error::Panicked { plugin: plugin.into() })?
}

fn load_here(engine: Shared, plugin: String, bytes: &[u8]) -> Result<Arc<Plugin>, Error> {
    let (inspection, made) =
        inspect::examine(bytes).map_err(|source| Error::File { plugin: plugin.clone(), source })?;
    verify(&plugin, &inspection)?;
    let cached = engine.cache.as_ref().and_then(|cache| cache.get(&engine.engine, &inspection.digest));
    let component = match cached {
        Some(component) => component,
        None => {
            let component = Component::from_binary(&engine.engine, made.as_deref().unwrap_or(bytes))
                .map_err(|source| Error::Compile { plugin: plugin.clone(), source })?;
            if let Some(cache) = &engine.cache {
                cache.put(&inspection.digest, &component);
            }
            component
        }
    };
    let wasi = inspection.imports.iter().any(|name| name.starts_with("wasi:"));
    let linker = if wasi { &engine.wasi } else { &engine.plain };
    let pre = linker
        .instantiate_pre(&component)
        .and_then(HandlerPre::new)
        .map_err(|source| Error::Types { plugin: plugin.clone(), source })?;
    Ok(Arc::new(Plugin::new(engine, plugin, inspection, pre)))
}

/// Says in the terms of the contract what the linker would only say in its own.
fn verify(plugin: &str, inspection: &Inspection) -> Result<(), Error> {
    let wanted = format!("{PACKAGE}/consumer@{CONTRACT}");
    for name in inspection.exports.iter().chain(&inspection.imports) {
        if let Some(offered) = inspect::version_of(name)
            && !inspect::compatible(offered)
        {
            return Err(Error::Contract {
                plugin: plugin.into(),
                interface: name.split('@').next().unwrap_or(name).into(),
                wanted: CONTRACT.into(),
                offered: offered.into(),
            });
        }
    }
    let consumer = |name: &String| {
        name.strip_prefix(PACKAGE).and_then(|n| n.strip_prefix("/consumer@")).is_some_and(inspect::compatible)
    };
    if !inspection.exports.iter().any(consumer) {
        return Err(Error::NoExport { plugin: plugin.into(), wanted, offered: inspection.exports.clone() });
    }
    let offered = |name: &str| {
        let contract = ["log", "settings", "context", "store", "outbox", "types"].iter().any(|interface| {
            name.strip_prefix(PACKAGE)
                .and_then(|n| n.strip_prefix('/'))
                .and_then(|n| n.strip_prefix(interface))
                .is_some_and(|n| n.starts_with('@'))
        });
        let wasi = WASI.iter().any(|package| name.starts_with(package))
            && name.split_once('@').is_some_and(|(_, version)| version.starts_with(WASI_VERSION));
        contract || wasi
    };
    match inspection.imports.iter().find(|name| !offered(name)) {
        Some(import) => Err(Error::Import { plugin: plugin.into(), import: import.clone() }),
        None => Ok(()),
    }
}
