//! `/livez`, `/readyz` and `/metrics`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::server::Facts;

/// Alive while no task is stuck. A database or broker that is away does not count: a restart would not bring it back.
pub async fn live(State(facts): State<Arc<Facts>>) -> Response {
    let wedged = facts.pulses.wedged(facts.wedged_after);
    if wedged.is_empty() {
        return Json(json!({"live": true})).into_response();
    }
    let stuck: Vec<_> = wedged.iter().map(|(task, time)| json!({"task": task, "seconds": time.as_secs()})).collect();
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"live": false, "wedged": stuck}))).into_response()
}

pub async fn ready(State(facts): State<Arc<Facts>>) -> Response {
    let conditions = facts.health.snapshot();
    let ready = conditions.values().all(|condition| condition.ready);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"ready": ready, "conditions": conditions}))).into_response()
}

pub async fn metrics(State(facts): State<Arc<Facts>>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], facts.metrics.render()).into_response()
}
