//! Prometheus metrics.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Seconds; from a quick batch to one that met a lock.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
const MESSAGES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];

/// What `/metrics` renders.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

#[derive(Debug, thiserror::Error)]
#[error("cannot record metrics: {0}")]
pub struct Error(String);

/// Records the metrics of the whole process from now on; once a process.
pub fn install_recorder() -> Result<Metrics, Error> {
    let recorder = recorder().map_err(|e| Error(e.to_string()))?;
    let metrics = Metrics(recorder.handle());
    ::metrics::set_global_recorder(recorder).map_err(|_| Error("another recorder was installed before".into()))?;
    ackwright_core::telemetry::describe();
    Ok(metrics)
}

fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_messages".into()), &MESSAGES)?;
    Ok(builder.build_recorder())
}

impl Metrics {
    /// A recorder that nobody writes to.
    pub fn detached() -> Self {
        Metrics(PrometheusBuilder::new().build_recorder().handle())
    }

    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Folds what was recorded since the last call, so that memory stays bounded when nobody scrapes.
    pub fn run_upkeep(&self) {
        self.0.run_upkeep();
    }
}
