//! Every endpoint over a real socket, with stores that answer from memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ackwright_admin::metrics::{Metrics, install_recorder};
use ackwright_admin::server::{Config, Database, Facts, Route, Server};
use ackwright_core::health::Health;
use ackwright_core::key::DedupKey;
use ackwright_core::message::Message;
use ackwright_core::outbox::{self, Counts, Fate};
use ackwright_core::parked::{self, Due, Envelope, Filter, InboxRow, Shown};
use ackwright_core::pulse::Pulses;
use ackwright_core::store::{Error, State};
use async_trait::async_trait;
use bytes::Bytes;
use reqwest::{Client, Response};
use serde_json::Value;
use uuid::Uuid;

const KEY: Uuid = Uuid::from_u128(7);

#[derive(Default)]
struct Memory {
    away: AtomicBool,
}

impl Memory {
    fn here<T>(&self, attempted: &str, answer: T) -> Result<T, Error> {
        if self.away.load(Ordering::Relaxed) {
            let source = "connection to postgres://app:hunter2@db failed".into();
            return Err(Error { attempted: attempted.into(), lost: true, conflict: false, source });
        }
        Ok(answer)
    }
}

fn parked_row() -> parked::Listed {
    parked::Listed {
        key: KEY,
        label: "\"ORDER_PAID\" \"<script>alert(1)</script>\"".into(),
        group: "g".into(),
        plugin: "coupon".into(),
        digest: "ab".into(),
        route: "orders".into(),
        state: "parked".into(),
        code: "rejected:no".into(),
        reason: "no".into(),
        attempts: 1,
        deliveries: 2,
        bytes: Some(2),
        first_seen_at: 1,
        last_attempt_at: 2,
        next_attempt_at: None,
    }
}

#[async_trait]
impl outbox::Store for Memory {
    async fn lease(&self, _: Uuid, _: Duration) -> Result<Vec<i16>, Error> {
        unreachable!("the admin API only reads")
    }
    async fn release(&self, _: Uuid) -> Result<(), Error> {
        unreachable!("the admin API only reads")
    }
    async fn pending(&self, _: &str, _: &[i16], _: usize) -> Result<outbox::Pending, Error> {
        unreachable!("the admin API only reads")
    }
    async fn settle(&self, _: Uuid, _: &[(i64, Fate)], _: Duration) -> Result<(), Error> {
        unreachable!("the admin API only reads")
    }
    async fn clean(&self, _: Duration, _: usize) -> Result<u64, Error> {
        unreachable!("the admin API only reads")
    }
    async fn counts(&self) -> Result<Counts, Error> {
        self.here("count outbox rows", Counts { pending: 3, refused: 2, parked: 1 })
    }
    async fn list(&self, state: Option<&str>, most: usize) -> Result<Vec<outbox::Listed>, Error> {
        let row = outbox::Listed {
            position: most as i64,
            id: KEY,
            broker: "events".into(),
            destination: "coupon.issued".into(),
            order_key: "k".into(),
            state: state.unwrap_or("any").into(),
            attempts: 0,
            reason: None,
            bytes: 2,
            created_at: 1,
            next_attempt_at: None,
            sent_at: None,
        };
        self.here("list outbox rows", vec![row])
    }
    async fn retry(&self, _: &[Uuid]) -> Result<u64, Error> {
        unreachable!("the admin API only reads")
    }
}

#[async_trait]
impl parked::Store for Memory {
    async fn due(&self, _: &str, _: usize, _: Duration) -> Result<Vec<Due>, Error> {
        unreachable!("the admin API only reads")
    }
    async fn next_due(&self, _: &str) -> Result<Option<Duration>, Error> {
        unreachable!("the admin API only reads")
    }
    async fn list(&self, filter: &Filter, _: usize) -> Result<Vec<parked::Listed>, Error> {
        let fits = filter.state != Some(State::Waiting) && filter.route.as_deref().is_none_or(|r| r == "orders");
        self.here("list parked messages", fits.then(parked_row).into_iter().collect())
    }
    async fn show(&self, key: Uuid) -> Result<Option<Shown>, Error> {
        let message = Message { source: "q".into(), ..Message::default() };
        let shown = |_| Shown {
            listed: parked_row(),
            detail: Some("trace".into()),
            envelope: Envelope::of(&message, None),
            body: Some(Bytes::from_static(b"\xff\xfe")),
        };
        self.here("show a parked message", (key == KEY).then_some(()).map(shown))
    }
    async fn inbox(&self, text: &str, _: usize) -> Result<Vec<InboxRow>, Error> {
        let row = InboxRow {
            key: DedupKey(KEY).0,
            label: text.into(),
            group: "g".into(),
            plugin: "p".into(),
            digest: "d".into(),
            state: "done".into(),
            created_at: 5,
        };
        self.here("show inbox rows", vec![row])
    }
    async fn clean(&self, _: Duration, _: usize) -> Result<u64, Error> {
        unreachable!("the admin API only reads")
    }
}

struct Host {
    server: Server,
    health: Health,
    pulses: Pulses,
    memory: Arc<Memory>,
}

async fn host(metrics: Metrics) -> Host {
    let (health, pulses, memory) = (Health::default(), Pulses::default(), Arc::new(Memory::default()));
    let route = Route {
        name: "orders".into(),
        broker: "events".into(),
        source: "q".into(),
        group: "g".into(),
        database: "main".into(),
        plugins: vec!["coupon".into()],
        lanes: 4,
    };
    let database = Database { outbox: memory.clone(), parked: memory.clone() };
    let facts = Facts {
        version: "1.2.3",
        health: health.clone(),
        pulses: pulses.clone(),
        wedged_after: Duration::ZERO,
        metrics,
        routes: vec![route],
        databases: BTreeMap::from([("main".into(), database)]),
    };
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), hosts: vec!["ops.example.org".into()] };
    let server = Server::bind(config, facts).await.expect("a free port of loopback");
    Host { server, health, pulses, memory }
}

impl Host {
    async fn named(&self, path: &str, name: Option<&str>) -> Response {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap();
        let mut request = client.get(format!("http://{}{path}", self.server.address()));
        if let Some(name) = name {
            request = request.header("host", name);
        }
        request.send().await.expect("an answer")
    }

    async fn get(&self, path: &str) -> Response {
        self.named(path, None).await
    }

    async fn json(&self, path: &str, status: u16) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), status, "{path}");
        answer.json().await.expect("JSON")
    }
}

#[tokio::test]
async fn p03_liveness_follows_progress() {
    let host = host(Metrics::detached()).await;
    let pulse = host.pulses.task("lane orders/0");
    assert_eq!(host.json("/livez", 200).await["live"], true);
    pulse.beat();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while host.get("/livez").await.status() == 200 {
        assert!(tokio::time::Instant::now() < deadline, "a busy task without progress stays green");
    }
    assert_eq!(host.json("/livez", 503).await["wedged"][0]["task"], "lane orders/0");
    assert_eq!(host.json("/api/status", 200).await["live"], false);
    pulse.idle();
    host.json("/livez", 200).await;
}

#[tokio::test]
async fn p07_readiness_lists_what_is_missing() {
    let host = host(Metrics::detached()).await;
    host.json("/readyz", 200).await;
    let broker = host.health.component("broker.events");
    let answer = host.json("/readyz", 503).await;
    assert_eq!(answer["ready"], false);
    assert_eq!(answer["conditions"]["broker.events"]["detail"], "starting");
    host.json("/livez", 200).await;
    broker.ready();
    assert_eq!(host.json("/readyz", 200).await["ready"], true);
}

#[tokio::test]
async fn metrics_are_rendered_for_prometheus() {
    let host = host(install_recorder().expect("the first recorder of this process")).await;
    let of = Arc::from("orders");
    ackwright_core::telemetry::count(ackwright_core::telemetry::Count::Applied, &of, 3);
    ackwright_core::telemetry::batch(&of, 3, Duration::from_millis(4));
    let answer = host.get("/metrics").await;
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    let text = answer.text().await.unwrap();
    assert!(text.contains("ackwright_applied_total{of=\"orders\"} 3"), "{text}");
    assert!(text.contains("ackwright_batch_seconds_bucket{of=\"orders\",le=\"0.005\"} 1"), "{text}");
    assert!(install_recorder().is_err());
}

#[tokio::test]
async fn the_api_shows_status_outbox_parked_and_inbox() {
    let host = host(Metrics::detached()).await;
    let status = host.json("/api/status", 200).await;
    assert_eq!((&status["version"], &status["routes"][0]["lanes"]), (&"1.2.3".into(), &4.into()));
    assert_eq!(status["databases"][0], "main");

    let outbox = host.json("/api/outbox?state=refused&limit=5", 200).await;
    let main = &outbox["databases"]["main"];
    assert_eq!((&main["counts"]["pending"], &main["rows"][0]["state"]), (&3.into(), &"refused".into()));
    assert_eq!(main["rows"][0]["position"], 5, "the limit reaches the store");

    let parked = host.json("/api/parked?state=parked&route=orders", 200).await;
    assert_eq!(parked["databases"]["main"]["rows"][0]["code"], "rejected:no");
    let waiting = host.json("/api/parked?state=waiting", 200).await;
    assert_eq!(waiting["databases"]["main"]["rows"], Value::Array(vec![]));

    let shown = host.json(&format!("/api/parked/{KEY}"), 200).await;
    assert_eq!((&shown["database"], &shown["body"]["base64"]), (&"main".into(), &"//4=".into()));
    assert_eq!((&shown["detail"], &shown["envelope"]["source"]), (&"trace".into(), &"q".into()));

    let inbox = host.json("/api/inbox?key=%22ORDER", 200).await;
    assert_eq!(inbox["databases"]["main"]["rows"][0]["label"], "\"ORDER");
}

#[tokio::test]
async fn bad_questions_are_named() {
    let host = host(Metrics::detached()).await;
    for (path, status, word) in [
        ("/api/outbox?state=lost", 400, "pending, refused"),
        ("/api/outbox?limit=0", 400, "limit"),
        ("/api/outbox?stat=sent", 400, "stat"),
        ("/api/parked?state=done", 400, "parked or waiting"),
        ("/api/parked?database=other", 404, "other"),
        ("/api/parked/nonsense", 400, "UUID"),
        ("/api/parked/00000000-0000-0000-0000-000000000001", 404, "no message"),
        ("/api/inbox", 400, "key"),
        ("/api/inbox?key=", 400, "key"),
    ] {
        let error = host.json(path, status).await["error"].to_string();
        assert!(error.contains(word), "{path}: {error}");
    }
    assert_eq!(host.get("/nothing").await.status(), 404);
}

#[tokio::test]
async fn c02_a_database_that_is_away_shows_without_its_secrets() {
    let host = host(Metrics::detached()).await;
    host.memory.away.store(true, Ordering::Relaxed);
    let outbox = host.json("/api/outbox", 200).await;
    assert_eq!(outbox["databases"]["main"]["error"], "cannot count outbox rows now");
    let shown = host.json(&format!("/api/parked/{KEY}"), 503).await;
    assert!(!format!("{outbox}{shown}").contains("hunter2"));
}

#[tokio::test]
async fn the_dashboard_brings_everything_with_it_and_trusts_no_text() {
    let host = host(Metrics::detached()).await;
    let page = host.get("/").await;
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    let html = page.text().await.unwrap();
    for asset in ["/dashboard.js", "/dashboard.css"] {
        assert!(html.contains(asset));
        assert_eq!(host.get(asset).await.status(), 200);
    }
    assert!(!html.contains("http:") && !html.contains("https:"), "no outside asset");
    let script = host.get("/dashboard.js").await.text().await.unwrap();
    for unsafe_way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!script.contains(unsafe_way), "{unsafe_way} would run what a message holds");
    }
}

#[tokio::test]
async fn a_name_that_points_here_is_not_enough() {
    let host = host(Metrics::detached()).await;
    for path in ["/", "/api/status", "/api/parked", "/dashboard.js"] {
        assert_eq!(host.named(path, Some("evil.example:8900")).await.status(), 421, "{path}");
        assert_eq!(host.named(path, Some("ops.example.org")).await.status(), 200, "{path}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(host.named(path, Some("ackwright.monitoring.svc")).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn p01_close_ends_the_server() {
    let host = host(Metrics::detached()).await;
    host.json("/livez", 200).await;
    tokio::time::timeout(Duration::from_secs(10), host.server.close()).await.expect("it ends in time");
    assert!(tokio::net::TcpStream::connect(host.server.address()).await.is_err());
}
