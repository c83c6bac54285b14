//! The read-only JSON API. One database that is away does not hide the others: it shows as `error` in its place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ackwright_core::parked::Filter;
use ackwright_core::store::{self, State as InboxState};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::server::{Database, Facts};

const ROWS: usize = 100;
const MOST_ROWS: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutboxQuery {
    database: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkedQuery {
    database: Option<String>,
    route: Option<String>,
    code: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InboxQuery {
    database: Option<String>,
    key: String,
    limit: Option<usize>,
}

/// A request that cannot be answered as asked.
pub struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Refusal(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}

fn bad(why: impl Into<String>) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, why.into())
}

type Answer = Result<Json<Value>, Refusal>;
type Asked<T> = Result<Query<T>, QueryRejection>;

pub async fn status(State(facts): State<Arc<Facts>>) -> Json<Value> {
    let conditions = facts.health.snapshot();
    Json(json!({
        "version": facts.version,
        "ready": conditions.values().all(|condition| condition.ready),
        "live": facts.pulses.wedged(facts.wedged_after).is_empty(),
        "conditions": conditions,
        "routes": facts.routes,
        "databases": facts.databases.keys().collect::<Vec<_>>(),
    }))
}

pub async fn outbox(State(facts): State<Arc<Facts>>, query: Asked<OutboxQuery>) -> Answer {
    let Query(query) = query?;
    if query.state.as_deref().is_some_and(|state| !["pending", "refused", "parked", "sent"].contains(&state)) {
        return Err(bad("state must be pending, refused, parked or sent"));
    }
    let limit = rows(query.limit)?;
    each(&facts, query.database.as_deref(), Question::Outbox { state: query.state, limit }).await
}

pub async fn parked(State(facts): State<Arc<Facts>>, query: Asked<ParkedQuery>) -> Answer {
    let Query(query) = query?;
    let state = match query.state.as_deref() {
        None => None,
        Some("parked") => Some(InboxState::Failed),
        Some("waiting") => Some(InboxState::Waiting),
        Some(_) => return Err(bad("state must be parked or waiting")),
    };
    let limit = rows(query.limit)?;
    let filter = Filter { route: query.route, code: query.code, state };
    each(&facts, query.database.as_deref(), Question::Parked { filter, limit }).await
}

pub async fn inbox(State(facts): State<Arc<Facts>>, query: Asked<InboxQuery>) -> Answer {
    let Query(query) = query?;
    if query.key.is_empty() {
        return Err(bad("key must be a dedup key, or the start of a readable one"));
    }
    let limit = rows(query.limit)?;
    each(&facts, query.database.as_deref(), Question::Inbox { key: query.key, limit }).await
}

/// The message whole, its body as text where it is text.
pub async fn shown(State(facts): State<Arc<Facts>>, Path(key): Path<String>) -> Answer {
    let key: Uuid = key.parse().map_err(|_| bad("the key of a parked message is a UUID"))?;
    let mut away = Vec::new();
    for (name, database) in &facts.databases {
        match ask(name, database.parked.show(key)).await {
            Err(reason) => away.push(format!("{name}: {reason}")),
            Ok(None) => {}
            Ok(Some(shown)) => {
                let body = shown.body.as_deref().map(|body| match std::str::from_utf8(body) {
                    Ok(text) => json!({"text": text}),
                    Err(_) => json!({"base64": STANDARD.encode(body)}),
                });
                return Ok(Json(json!({
                    "database": name,
                    "listed": shown.listed,
                    "detail": shown.detail,
                    "envelope": shown.envelope,
                    "body": body,
                })));
            }
        }
    }
    if away.is_empty() {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("no message is parked under {key}")));
    }
    Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, away.join("; ")))
}

/// Asks one database, or all, one after the other.
async fn each(facts: &Facts, only: Option<&str>, question: Question) -> Answer {
    if let Some(name) = only
        && !facts.databases.contains_key(name)
    {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("no database is named {name:?}")));
    }
    let mut answers = BTreeMap::new();
    for (name, database) in &facts.databases {
        if only.is_none_or(|only| only == name) {
            let answer = ask(name, question.put(database)).await.unwrap_or_else(|reason| json!({"error": reason}));
            answers.insert(name, answer);
        }
    }
    Ok(Json(json!({"databases": answers})))
}

/// What every database can be asked.
enum Question {
    Outbox { state: Option<String>, limit: usize },
    Parked { filter: Filter, limit: usize },
    Inbox { key: String, limit: usize },
}

impl Question {
    async fn put(&self, database: &Database) -> Result<Value, store::Error> {
        Ok(match self {
            Question::Outbox { state, limit } => json!({
                "counts": database.outbox.counts().await?,
                "rows": database.outbox.list(state.as_deref(), *limit).await?,
            }),
            Question::Parked { filter, limit } => json!({"rows": database.parked.list(filter, *limit).await?}),
            Question::Inbox { key, limit } => json!({"rows": database.parked.inbox(key, *limit).await?}),
        })
    }
}

/// The log has the cause, which may quote what was sent; the answer has only what was attempted.
async fn ask<T>(name: &str, question: impl Future<Output = Result<T, store::Error>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, question).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let cause = &error.source;
            tracing::warn!(database = name, attempted = error.attempted, cause = %cause, "admin API was not answered");
            Err(format!("cannot {} now", error.attempted))
        }
        Err(_) => Err("the database did not answer in time".into()),
    }
}

fn rows(limit: Option<usize>) -> Result<usize, Refusal> {
    match limit {
        None => Ok(ROWS),
        Some(limit) if (1..=MOST_ROWS).contains(&limit) => Ok(limit),
        Some(_) => Err(bad(format!("limit must be 1 to {MOST_ROWS}"))),
    }
}
