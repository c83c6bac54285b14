//! Outbox rows over HTTP, into a receiver whose answers the test chooses.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackwright_brokers::secret::Secret;
use ackwright_brokers::webhook::publisher::{Config, Publisher};
use ackwright_brokers::webhook::signature::Signature;
use ackwright_core::outbox::Row;
use ackwright_core::publisher::{Error, Publisher as _};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::support::soon;

#[derive(Clone, Debug)]
struct Seen {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// Answers by path: `/code/503` with that status, `/hang` never, `/slow/...` after a while.
struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Receiver {
    async fn start() -> Self {
        let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                let seen = Arc::clone(&all);
                let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Receiver { address, seen }
    }

    fn publisher(&self, change: impl FnOnce(&mut Config)) -> Publisher {
        let mut config = Config::new(format!("http://{}", self.address));
        config.timeout = Duration::from_millis(500);
        change(&mut config);
        Publisher::new(config).unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn answer(request: Request<Incoming>, seen: Arc<Mutex<Vec<Seen>>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    if path.starts_with("/slow") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    seen.lock().unwrap().push(Seen { path: path.clone(), headers: head.headers, body });
    if path == "/hang" {
        std::future::pending::<()>().await;
    }
    let code = path.strip_prefix("/code/").and_then(|code| code.parse().ok()).unwrap_or(204);
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    Ok(response)
}

fn row(id: u128, key: &str, destination: &str) -> Row {
    Row {
        position: id as i64,
        id: Uuid::from_u128(id),
        broker: "out".into(),
        destination: destination.into(),
        order_key: key.into(),
        content_type: Some("application/json".into()),
        headers: Vec::new(),
        body: Bytes::from(format!("{{\"n\":{id}}}")),
        attempts: 0,
    }
}

fn class(answer: &Result<(), Error>) -> &'static str {
    match answer {
        Ok(()) => "sent",
        Err(Error::Unavailable(_)) => "unavailable",
        Err(Error::Refused(_)) => "refused",
        Err(Error::Permanent(_)) => "permanent",
    }
}

fn classes(answers: &[Result<(), Error>]) -> Vec<&'static str> {
    answers.iter().map(class).collect()
}

#[tokio::test]
async fn a_row_arrives_with_its_id_and_signature_and_the_same_on_every_repeat() {
    let receiver = Receiver::start().await;
    let signature = Signature::new("x-signature", Secret::new("key")).unwrap();
    let publisher = receiver.publisher(|config| config.signature = Some(signature.clone()));
    for _ in 0..2 {
        assert_eq!(soon(publisher.publish(&[row(7, "k", "coupon.issued/eu")])).await, [Ok(())]);
    }
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2);
    for seen in &seen {
        assert_eq!(seen.path, "/coupon.issued/eu");
        assert_eq!(seen.body, r#"{"n":7}"#);
        assert_eq!(seen.headers["ackwright-message-id"], Uuid::from_u128(7).to_string());
        assert_eq!(seen.headers["idempotency-key"], Uuid::from_u128(7).to_string());
        assert_eq!(seen.headers["content-type"], "application/json");
        assert!(signature.verify(&seen.headers, &seen.body));
    }
}

#[tokio::test]
async fn o01_order_is_kept_within_a_key() {
    let receiver = Receiver::start().await;
    let publisher = receiver.publisher(|_| ());
    let rows: Vec<_> = (0..12).map(|n| row(n, ["a", "b", "c"][n as usize % 3], &format!("slow/{n}"))).collect();
    assert!(soon(publisher.publish(&rows)).await.iter().all(Result::is_ok));
    let seen = receiver.seen();
    for key in 0..3 {
        let numbers = seen.iter().map(|s| s.path["/slow/".len()..].parse::<u32>().unwrap());
        let of_key: Vec<_> = numbers.filter(|n| n % 3 == key).collect();
        assert_eq!(of_key, (0..4).map(|n| n * 3 + key).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn o03_a_refused_row_holds_its_own_key_only() {
    let receiver = Receiver::start().await;
    let publisher = receiver.publisher(|_| ());
    let rows = [
        row(1, "a", "code/500"),
        row(2, "a", "later"),
        row(3, "b", "fine"),
        row(4, "c", "code/413"),
        row(5, "c", "fine"),
        row(6, "d", "../escape"),
        row(7, "e", "code/503"),
        row(8, "f", "code/307"),
    ];
    let answers = soon(publisher.publish(&rows)).await;
    let wanted = ["refused", "unavailable", "sent", "permanent", "sent", "permanent", "unavailable", "refused"];
    assert_eq!(classes(&answers), wanted, "{answers:?}");
    assert!(!receiver.seen().iter().any(|s| s.path == "/later"), "it would have overtaken");
}

#[tokio::test]
async fn a_receiver_that_hangs_is_left_after_the_timeout() {
    let receiver = Receiver::start().await;
    let publisher = receiver.publisher(|config| config.timeout = Duration::from_millis(100));
    let answers = soon(publisher.publish(&[row(1, "a", "hang"), row(2, "b", "fine")])).await;
    assert_eq!(classes(&answers), ["refused", "sent"]);
}

#[tokio::test]
async fn c02_a_receiver_that_is_away_spends_no_attempt_and_no_secret_shows() {
    let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let publisher = Publisher::new(Config::new(format!("http://user:hunter2@{address}"))).unwrap();
    let rows: Vec<_> = (0..40).map(|n| row(n, &n.to_string(), "x")).collect();
    let answers = soon(publisher.publish(&rows)).await;
    assert!(answers.iter().all(|a| class(a) == "unavailable"), "{answers:?}");
    assert!(!format!("{answers:?}").contains("hunter2"));
}
