//! Deliveries by HTTP.

use std::sync::Arc;
use std::time::Duration;

use ackwright_brokers::secret::Secret;
use ackwright_brokers::webhook::listener::{Config, Error, Listener};
use ackwright_brokers::webhook::signature::Signature;
use ackwright_brokers::webhook::source::Source as Webhook;
use ackwright_core::message::HeaderValue;
use ackwright_core::settle::{Disposal, Finish, Tally};
use ackwright_core::source::{self, Source};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::{APPLIED, reporter, settle, soon, take, text};

async fn listener(change: impl FnOnce(&mut Config)) -> Listener {
    let mut config = Config::new(([127, 0, 0, 1], 0).into());
    change(&mut config);
    Listener::bind(config, reporter()).await.expect("a free port of loopback")
}

async fn orders(change: impl FnOnce(&mut Config)) -> (Listener, Webhook) {
    let listener = listener(change).await;
    let source = listener.source("/orders").expect("a free path");
    (listener, source)
}

fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().expect("a client")
}

fn request(listener: &Listener, method: Method, path: &str) -> RequestBuilder {
    client().request(method, format!("http://{}{path}", listener.address()))
}

fn post(listener: &Listener, path: &str, body: &'static str) -> RequestBuilder {
    request(listener, Method::POST, path).body(body)
}

fn send(request: RequestBuilder) -> JoinHandle<Response> {
    tokio::spawn(async move { soon(request.send()).await.expect("an answer") })
}

async fn status(request: RequestBuilder) -> StatusCode {
    send(request).await.unwrap().status()
}

#[tokio::test]
async fn the_answer_to_a_post_is_its_settlement() {
    let (listener, mut source) = orders(|_| ()).await;
    let settler = source.settler();
    for (disposal, code, word) in [
        (APPLIED, 200, "applied"),
        (Disposal::Done(Finish::Duplicate), 200, "duplicate"),
        (Disposal::Done(Finish::Waiting), 202, "waiting"),
        (Disposal::Done(Finish::Rejected), 422, "rejected"),
        (Disposal::Requeue, 503, "retry"),
    ] {
        let answer = send(post(&listener, "/orders/paid", "{}").header("x-a", "1").header("idempotency-key", "7"));
        let taken = take(&mut source, 9).await;
        assert_eq!(taken.len(), 1);
        assert_eq!(text(&taken[0]), "{}");
        assert_eq!(taken[0].message.source, "/orders");
        assert_eq!(taken[0].message.subject.as_deref(), Some("paid"));
        assert_eq!(taken[0].message.id.as_deref(), Some("7"));
        assert_eq!(taken[0].message.header("x-a"), Some("1"));
        assert!(!answer.is_finished(), "nothing is answered before it is settled");
        let tally = settle(&settler, vec![(taken[0].place, disposal)]).await;
        assert_eq!(tally, Tally { settled: 1, void: 0 });
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), code);
        assert_eq!(answer.headers().contains_key("retry-after"), code == 503);
        assert_eq!(answer.json::<serde_json::Value>().await.unwrap()["status"], word);
        let again = settle(&settler, vec![(taken[0].place, APPLIED)]).await;
        assert_eq!(again, Tally { settled: 0, void: 1 }, "a place settles once");
    }
}

#[tokio::test]
async fn a_dropped_delivery_is_not_acked() {
    let (listener, mut source) = orders(|_| ()).await;
    let answer = send(post(&listener, "/orders", "{}"));
    drop(soon(source.next(1)).await.unwrap());
    assert_eq!(answer.await.unwrap().status(), 503);
}

#[tokio::test]
async fn requests_that_are_no_delivery_are_refused_with_their_reason() {
    let (listener, _source) = orders(|config| config.body_limit = 8).await;
    assert_eq!(status(post(&listener, "/other", "")).await, 404);
    assert_eq!(status(post(&listener, "/ordersx", "")).await, 404);
    let get = send(request(&listener, Method::GET, "/orders")).await.unwrap();
    assert_eq!(get.status(), 405);
    assert_eq!(get.headers()["allow"], "POST");
    assert!(get.text().await.unwrap().contains("a delivery is a POST"));
    assert_eq!(status(post(&listener, "/orders", "123456789")).await, 413);
    let chunks = futures::stream::iter(["12345", "6789"].map(Ok::<_, std::io::Error>));
    let chunked = request(&listener, Method::POST, "/orders").body(reqwest::Body::wrap_stream(chunks));
    assert_eq!(status(chunked).await, 413, "a length that is not announced is limited too");
}

#[tokio::test]
async fn c02_a_signature_is_checked_and_stays_out_of_the_message() {
    let signature = Signature::new("X-Signature", Secret::new("key")).unwrap();
    let (listener, mut source) = orders(|config| config.signature = Some(signature.clone())).await;
    let settler = source.settler();
    assert_eq!(status(post(&listener, "/orders", "{}")).await, 401);
    let wrong = signature.sign(b"{ }").unwrap();
    assert_eq!(status(post(&listener, "/orders", "{}").header("x-signature", wrong)).await, 401);
    let right = signature.sign(b"{}").unwrap();
    let request = post(&listener, "/orders", "{}").header("x-signature", &right).bearer_auth("hunter2");
    let answer = send(request);
    let taken = take(&mut source, 9).await;
    assert_eq!(taken.len(), 1, "the unsigned ones were no deliveries");
    let shown = format!("{:?}", taken[0].message);
    assert!(!shown.contains("hunter2") && !shown.contains(&right[7..]), "{shown}");
    settle(&settler, vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test]
async fn open_deliveries_are_bounded() {
    let (listener, mut source) = orders(|config| config.in_flight = 1).await;
    let settler = source.settler();
    let first = send(post(&listener, "/orders", "1"));
    let taken = take(&mut source, 9).await;
    assert_eq!(status(post(&listener, "/orders", "2")).await, 503);
    settle(&settler, vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(first.await.unwrap().status(), 200);
    let third = send(post(&listener, "/orders", "3"));
    let taken = take(&mut source, 9).await;
    assert_eq!(text(&taken[0]), "3");
    settle(&settler, vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(third.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_delivery_goes_on_when_its_sender_has_waited_long_enough() {
    let (listener, mut source) = orders(|config| config.answer_timeout = Duration::from_millis(50)).await;
    let answer = send(post(&listener, "/orders", "1")).await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.unwrap().contains("still running"));
    let taken = take(&mut source, 9).await;
    assert_eq!(text(&taken[0]), "1");
    let tally = settle(&source.settler(), vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(tally, Tally { settled: 0, void: 1 }, "nobody waits for it");
}

#[tokio::test]
async fn a_delivery_goes_on_when_its_sender_leaves_and_holds_its_place_until_then() {
    let (listener, mut source) = orders(|config| config.in_flight = 1).await;
    let leaving = send(post(&listener, "/orders", "1"));
    let taken = take(&mut source, 9).await;
    leaving.abort();
    let _ = leaving.await;
    assert_eq!(status(post(&listener, "/orders", "1")).await, 503, "the open delivery still counts");
    settle(&source.settler(), vec![(taken[0].place, APPLIED)]).await;
    let repeat = send(post(&listener, "/orders", "1"));
    let taken = take(&mut source, 9).await;
    settle(&source.settler(), vec![(taken[0].place, Disposal::Done(Finish::Duplicate))]).await;
    assert_eq!(repeat.await.unwrap().status(), 200);
}

#[tokio::test]
async fn p01_stop_refuses_new_deliveries_and_finishes_open_ones() {
    let (listener, mut source) = orders(|_| ()).await;
    let settler = source.settler();
    let first = send(post(&listener, "/orders", "1"));
    let taken = take(&mut source, 9).await;
    let queued = send(post(&listener, "/orders", "2"));
    // It is queued, and not yet taken, once a source that is asked for one gets it.
    let second = take(&mut source, 1).await;
    settle(&settler, vec![(second[0].place, Disposal::Requeue)]).await;
    assert_eq!(queued.await.unwrap().status(), 503);
    source.stop().await;
    assert!(matches!(source.next(1).await, Err(source::Error::Ended)));
    assert_eq!(status(post(&listener, "/orders", "3")).await, 503);
    assert!(!first.is_finished());
    settle(&settler, vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(first.await.unwrap().status(), 200);
    source.close().await;
    soon(listener.close()).await;
    assert!(client().get(format!("http://{}/", listener.address())).send().await.is_err(), "nobody listens");
}

#[tokio::test]
async fn close_sends_waiting_senders_away_and_voids_their_receipts() {
    let (listener, mut source) = orders(|_| ()).await;
    let answer = send(post(&listener, "/orders", "1"));
    let taken = take(&mut source, 9).await;
    source.close().await;
    assert_eq!(answer.await.unwrap().status(), 503);
    let tally = settle(&source.settler(), vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(tally, Tally { settled: 0, void: 1 });

    let mut next = listener.source("/orders").expect("a closed path is free");
    let answer = send(post(&listener, "/orders", "1"));
    let again = take(&mut next, 9).await;
    assert_ne!(again[0].place.generation, taken[0].place.generation);
    let tally = settle(&next.settler(), vec![(taken[0].place, APPLIED), (again[0].place, APPLIED)]).await;
    assert_eq!(tally, Tally { settled: 1, void: 1 });
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test]
async fn two_routes_do_not_share_a_path_and_ports_are_checked() {
    let (listener, _source) = orders(|_| ()).await;
    assert!(matches!(listener.source("/orders"), Err(Error::Taken(path)) if path == "/orders"));
    assert!(matches!(listener.source("orders"), Err(Error::Path(_))));
    let config = Config::new(listener.address());
    let taken = Listener::bind(config, reporter()).await.err().expect("the port is taken");
    assert!(taken.to_string().contains(&listener.address().to_string()), "{taken}");
}

#[tokio::test]
async fn deliveries_that_have_arrived_come_together() {
    let (listener, mut source) = orders(|_| ()).await;
    let settler = source.settler();
    let answers: Vec<_> = (0..20).map(|_| send(post(&listener, "/orders", "{}"))).collect();
    let mut count = 0;
    while count < 20 {
        let taken = take(&mut source, 7).await;
        assert!(taken.len() <= 7);
        count += taken.len();
        settle(&settler, taken.iter().map(|t| (t.place, APPLIED)).collect()).await;
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
}

async fn raw(listener: &Listener, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(listener.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A server that hangs up on half a request may reset the connection.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn slow_and_bloated_requests_are_cut_off() {
    let (listener, _source) = orders(|config| {
        config.header_timeout = Duration::from_millis(100);
        config.body_timeout = Duration::from_millis(100);
        config.headers = 8;
    })
    .await;
    let head = raw(&listener, b"POST /orders HTTP/1.1\r\nhost: x\r\nx-slow").await;
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "{head}");
    let body = raw(&listener, b"POST /orders HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n123").await;
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
    let many = format!("POST /orders HTTP/1.1\r\n{}\r\n", "x-a: 1\r\n".repeat(9));
    let many = raw(&listener, many.as_bytes()).await;
    assert!(many.starts_with("HTTP/1.1 431"), "{many}");
}

#[tokio::test]
async fn a_connection_over_the_limit_waits_for_its_turn() {
    let (listener, mut source) = orders(|config| config.connections = 1).await;
    let settler = source.settler();
    let holder = TcpStream::connect(listener.address()).await.unwrap();
    let waiting = send(post(&listener, "/orders", "1"));
    let early = tokio::time::timeout(Duration::from_millis(100), source.next(1)).await;
    assert!(early.is_err(), "the one connection is taken");
    drop(holder);
    let taken = take(&mut source, 1).await;
    settle(&settler, vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(waiting.await.unwrap().status(), 200);
}

#[tokio::test]
async fn r08_header_bytes_that_are_no_text_reach_the_message() {
    let (listener, mut source) = orders(|_| ()).await;
    let settler = Arc::clone(&source.settler());
    let value = reqwest::header::HeaderValue::from_bytes(b"\xff\xfe").unwrap();
    let answer = send(post(&listener, "/orders", "").header("x-bytes", value));
    let taken = take(&mut source, 1).await;
    let header = taken[0].message.headers.iter().find(|h| h.name == "x-bytes").unwrap();
    assert_eq!(header.value, HeaderValue::Bytes(bytes::Bytes::from_static(b"\xff\xfe")));
    assert_eq!(taken[0].message.body.as_deref(), Some(&b""[..]));
    settle(&settler, vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(answer.await.unwrap().status(), 200);
}
