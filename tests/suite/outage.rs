//! Broker and database go away and come back.

use std::time::Duration;

use ackwright_testkit::{Hook, Host, Options, Postgres, Proxy, RabbitMq, Stop, Way, When, rabbitmq, until};

use crate::database::{Database, Kind};
use crate::load::{Load, Size};
use crate::oracle::check;
use crate::stage::{START, Stage};

const DEADLINE: Duration = Duration::from_secs(90);
const SIZE: Size = Size { orders: 150, transfers: 150, poison: 5, readers: 30, repeats: 30 };

/// A broker of the test's own. It lives as long as the test process, and its keeper ends it with that.
async fn private_broker() -> &'static RabbitMq {
    Box::leak(Box::new(RabbitMq::start_private().await.expect("it starts")))
}

#[tokio::test(flavor = "multi_thread")]
async fn r02_r03_the_broker_is_killed_and_starts_again() {
    let broker = private_broker().await;
    let mut stage = Stage::with(Database::new(Kind::Postgres).await, broker).await;
    let mut host = stage.host().await;
    let load = Load::generate(21, SIZE);
    let (early, late) = load.letters.split_at(load.letters.len() / 2);
    stage.send(early).await;
    broker.kill().await.expect("it runs");
    until("readiness is red", Duration::from_secs(20), async || {
        host.get("/readyz").await.is_ok_and(|answer| answer.status != 200).then_some(())
    })
    .await;
    broker.start().await.expect("it starts again");
    host.ready(Duration::from_secs(30)).await.expect("it consumes again within 30 s");
    stage.reconnect().await;
    stage.send(late).await;
    check(&stage, &load, DEADLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_the_database_crashes_and_starts_again() {
    let server = Postgres::start_private(Options::default()).await.expect("it starts");
    let stage = Stage::with(Database::at(server.database().await).await, rabbitmq().await).await;
    let mut host = stage.host().await;
    let load = Load::generate(22, SIZE);
    let (early, late) = load.letters.split_at(load.letters.len() / 2);
    stage.send(early).await;
    server.stop(Stop::Immediate).await.expect("it runs");
    stage.send(late).await;
    until("readiness is red", Duration::from_secs(20), async || {
        host.get("/readyz").await.is_ok_and(|answer| answer.status != 200).then_some(())
    })
    .await;
    server.start().await.expect("it starts again");
    host.ready(Duration::from_secs(30)).await.expect("it works again within 30 s");
    check(&stage, &load, DEADLINE).await;
    assert_eq!(host.metric("ackwright_retries_total", &[]).await.expect("an answer"), 0.0, "no attempt was spent");
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_sessions_are_cut_under_load() {
    let stage = Stage::new(Kind::Postgres).await;
    let server = ackwright_testkit::postgres().await;
    let host = stage.host().await;
    let load = Load::generate(23, SIZE);
    for letters in load.letters.chunks(40) {
        stage.send(letters).await;
        server.terminate(&stage.database.url()).await.expect("an answer");
    }
    check(&stage, &load, DEADLINE).await;
    assert_eq!(host.metric("ackwright_forgotten_deliveries_total", &[]).await.expect("an answer"), 0.0);
}

/// Each lane has a connection of its own and waits for no second one while it holds it, so that too few of them
/// make the host slow and red, and never stuck.
#[tokio::test(flavor = "multi_thread")]
async fn t02_too_few_connections_are_reported_and_nothing_is_stuck_or_lost() {
    let stage = Stage::new(Kind::Postgres).await;
    let url = stage.database.url();
    let role = format!("narrow_{}", url.rsplit('/').next().expect("a name"));
    for statement in [
        format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 3"),
        format!("GRANT ALL ON SCHEMA public TO {role}"),
        format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
    ] {
        stage.database.execute(&statement).await;
    }
    let shape = crate::stage::Shape { database: url.replace("postgres@", &format!("{role}@")), ..stage.shape() };
    let mut host = Host::new().expect("a host");
    host.start(&shape.toml(host.admin()), &[]).expect("it starts");
    let load = Load::generate(26, SIZE);
    stage.send(&load.letters).await;
    until("readiness names the limit", START, async || {
        let answer = host.get("/readyz").await.ok()?;
        let text = String::from_utf8(answer.body).ok()?;
        (answer.status == 503 && text.contains("too many connections for role")).then_some(())
    })
    .await;
    stage.database.execute(&format!("ALTER ROLE {role} CONNECTION LIMIT 20")).await;
    host.ready(START).await.expect("it recovers unaided");
    check(&stage, &load, DEADLINE).await;
    assert_eq!(host.metric("ackwright_retries_total", &[]).await.expect("an answer"), 0.0, "no attempt was spent");
}

#[tokio::test(flavor = "multi_thread")]
async fn t07_the_link_is_cut_just_before_commit_arrives() {
    cut_at_commit(When::Before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t07_the_link_is_cut_when_commit_is_done_and_its_answer_is_on_the_way() {
    cut_at_commit(When::Answered).await;
}

/// The relay commits over the same link, so the cut is repeated until it has hit a batch.
async fn cut_at_commit(when: When) {
    let stage = Stage::new(Kind::Postgres).await;
    let (proxy, through) = Proxy::before(&stage.database.url()).await.expect("it listens");
    let shape = crate::stage::Shape { database: through, ..stage.shape() };
    let mut host = Host::new().expect("a host");
    stage.start(&mut host, &shape, &[]).await;
    let load = Load::generate(24, SIZE);
    let mut hits = 0.0;
    for letters in load.letters.chunks(20) {
        let hook = Hook { way: Way::ToServer, pattern: b"COMMIT".into(), when, skip: 1 };
        let fired = proxy.hook(hook);
        stage.send(letters).await;
        tokio::time::timeout(DEADLINE, fired).await.expect("somebody commits").expect("the hook tells");
        hits = host.metric("ackwright_commits_in_doubt_total", &[]).await.expect("an answer");
    }
    check(&stage, &load, DEADLINE).await;
    assert!(hits > 0.0, "no batch was ever in doubt");
}

#[tokio::test(flavor = "multi_thread")]
async fn p07_a_host_that_starts_before_broker_and_database_is_ready_soon_after_them() {
    let server = Postgres::start_private(Options::default()).await.expect("it starts");
    let broker = private_broker().await;
    let stage = Stage::with(Database::at(server.database().await).await, broker).await;
    let load = Load::generate(25, Size::default());
    stage.send(&load.letters).await;
    server.stop(Stop::Fast).await.expect("it runs");
    broker.stop().await.expect("it runs");

    let mut host = Host::new().expect("a host");
    host.start(&stage.shape().toml(host.admin()), &[]).expect("it starts");
    until("the host lives and is not ready", START, async || {
        let (live, ready) = (host.get("/livez").await.ok()?, host.get("/readyz").await.ok()?);
        (live.status == 200 && ready.status != 200).then_some(())
    })
    .await;
    broker.start().await.expect("it starts");
    server.start().await.expect("it starts");
    host.ready(Duration::from_secs(30)).await.expect("it is ready within 30 s of their arrival");
    let mut stage = stage;
    stage.reconnect().await;
    check(&stage, &load, DEADLINE).await;
}
