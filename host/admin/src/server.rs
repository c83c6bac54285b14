//! The admin address.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackwright_core::health::Health;
use ackwright_core::pulse::Pulses;
use ackwright_core::{outbox, parked, store};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::metrics::Metrics;
use crate::{api, guard, page, probes};

/// How long `close` waits for answers that are on their way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const UPKEEP: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// Names, beside addresses and `localhost`, under which browsers may reach the API and the dashboard.
    pub hosts: Vec<String>,
}

impl Default for Config {
    /// Loopback, port 8900.
    fn default() -> Self {
        Config { listen: (Ipv4Addr::LOCALHOST, 8900).into(), hosts: Vec::new() }
    }
}

/// What the server shows.
pub struct Facts {
    pub version: &'static str,
    pub health: Health,
    pub pulses: Pulses,
    /// A task that is busy and makes no progress for longer than this is wedged.
    pub wedged_after: Duration,
    pub metrics: Metrics,
    pub routes: Vec<Route>,
    /// By name in the configuration.
    pub databases: BTreeMap<String, Database>,
}

/// A route as configured.
#[derive(Clone, Debug, Serialize)]
pub struct Route {
    pub name: String,
    pub broker: String,
    /// Queue, path or file.
    pub source: String,
    pub group: String,
    pub database: String,
    pub plugins: Vec<String>,
    pub lanes: usize,
}

/// The parts of a store that can be shown.
#[derive(Clone)]
pub struct Database {
    pub outbox: Arc<dyn outbox::Store>,
    pub parked: Arc<dyn parked::Store>,
}

impl Database {
    pub fn of(store: &dyn store::Store) -> Self {
        Database { outbox: store.outbox(), parked: store.parked() }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for the admin API; is another program using it?")]
pub struct Error {
    pub address: SocketAddr,
    pub source: std::io::Error,
}

pub struct Server {
    address: SocketAddr,
    stopping: watch::Sender<bool>,
    tasks: Mutex<Option<[JoinHandle<()>; 2]>>,
}

impl Server {
    /// Binds and serves from now on.
    pub async fn bind(config: Config, facts: Facts) -> Result<Self, Error> {
        let failed = |source| Error { address: config.listen, source };
        let socket = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let metrics = facts.metrics.clone();
        let app = router(facts, &config.hosts);
        let (stopping, mut stopped) = watch::channel(false);
        let serve = tokio::spawn(async move {
            let stop = async move {
                let _ = stopped.wait_for(|stop| *stop).await.is_ok();
            };
            if let Err(error) = axum::serve(socket, app).with_graceful_shutdown(stop).await {
                tracing::error!(error = %error, "admin server ended");
            }
        });
        let upkeep = tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                metrics.run_upkeep();
            }
        });
        tracing::info!(%address, "admin API and dashboard ready");
        Ok(Server { address, stopping, tasks: Mutex::new(Some([serve, upkeep])) })
    }

    /// Where it listens, with the port that the system chose where the configuration says 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening, and ends once the answers that are on their way are out, within five seconds.
    pub async fn close(&self) {
        self.stopping.send_replace(true);
        let tasks = self.tasks.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some([mut serve, upkeep]) = tasks {
            upkeep.abort();
            if tokio::time::timeout(CLOSE_TIMEOUT, &mut serve).await.is_err() {
                tracing::warn!("admin connections cut at shutdown");
                serve.abort();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(|e| e.into_inner()).take().into_iter().flatten() {
            task.abort();
        }
    }
}

fn router(facts: Facts, hosts: &[String]) -> Router {
    let names: Arc<[String]> = hosts.into();
    Router::new()
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(probes::metrics))
        .route("/api/status", get(api::status))
        .route("/api/outbox", get(api::outbox))
        .route("/api/parked", get(api::parked))
        .route("/api/parked/{key}", get(api::shown))
        .route("/api/inbox", get(api::inbox))
        .route("/", get(page::html))
        .route("/dashboard.js", get(page::script))
        .route("/dashboard.css", get(page::style))
        .layer(from_fn_with_state(names, guard::check))
        .with_state(Arc::new(facts))
}
