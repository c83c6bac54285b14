use std::time::Duration;

use ackwright_brokers::rabbitmq::{Address, Publisher, PublisherSettings, Source};
use ackwright_core::health::Health;
use ackwright_core::message::{Header, HeaderValue};
use ackwright_core::publisher::{Error, Publisher as _};
use ackwright_testkit::{RabbitMq, until};
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};

use crate::support::{Rig, SOON, bodies, condition, done, row, source_settings, take};

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_confirmed_and_arrives_in_order() {
    let rig = Rig::new().await;
    rig.queue("q", "quorum").await;
    let publisher = rig.publisher(rig.publisher_settings());
    let rows: Vec<_> = (0..1024).map(|n| row(n, "/q", "one key")).collect();
    assert_eq!(publisher.publish(&rows).await, vec![Ok(()); 1024]);
    let mut source = rig.source(rig.settings("q"));
    let taken = take(&mut source, 1024).await;
    assert_eq!(bodies(&taken), (0..1024).map(|n| n.to_string()).collect::<Vec<_>>());
    done(&source, taken).await;
    publisher.close().await;
    let answers = publisher.publish(&rows[..1]).await;
    assert!(matches!(answers[..], [Err(Error::Unavailable(_))]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_a_message_to_nowhere_is_refused_and_its_neighbours_are_sent() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    let topic = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    rig.channel.exchange_declare("events".into(), ExchangeKind::Topic, topic, FieldTable::default()).await.unwrap();
    let bind = QueueBindOptions::default();
    rig.channel.queue_bind("q".into(), "events".into(), "known.*".into(), bind, FieldTable::default()).await.unwrap();
    let mut settings = rig.publisher_settings();
    settings.exchange = "events".into();
    let publisher = rig.publisher(settings);
    for _ in 0..2 {
        let rows = [row(1, "known.a", "a"), row(2, "nowhere", "b"), row(3, "known.b", "b"), row(4, "known.c", "c")];
        let answers = publisher.publish(&rows).await;
        assert_eq!((&answers[0], &answers[3]), (&Ok(()), &Ok(())));
        let refused = "no queue takes it: exchange \"events\" returned routing key \"nowhere\" (312 NO_ROUTE)";
        assert_eq!(answers[1], Err(Error::Refused(refused.into())));
        // Sent now, it would overtake the refused one of its key.
        assert!(matches!(&answers[2], Err(Error::Unavailable(_))), "{answers:?}");
    }
    rig.depth_is("q", 4, 0).await;
    assert_eq!(publisher.counts().opened, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_exchange_refuses_its_rows_only() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    let publisher = rig.publisher(rig.publisher_settings());
    let rows = [
        row(1, "q", "a"),
        row(2, "missing/x", "b"),
        row(3, "q", "c"),
        row(4, "missing/y", "d"),
        row(5, "also-missing/z", "e"),
        row(6, "q", "a"),
    ];
    let answers = publisher.publish(&rows).await;
    for index in [0, 2, 5] {
        assert_eq!(answers[index], Ok(()), "{answers:?}");
    }
    for (index, exchange) in [(1, "'missing'"), (3, "'missing'"), (4, "'also-missing'")] {
        assert!(matches!(&answers[index], Err(Error::Refused(why)) if why.contains(exchange)), "{answers:?}");
    }
    // The connection has lived through it.
    assert_eq!(publisher.counts().opened, 1);
    assert!(rig.health.ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn r10_a_huge_header_is_refused_with_sizes_and_the_connection_lives() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    let publisher = rig.publisher(rig.publisher_settings());
    let header = |bytes| Header { name: "trace".into(), value: HeaderValue::Text("x".repeat(bytes)) };
    let mut rows = vec![row(1, "q", "a"), row(2, "q", "b"), row(3, "q", "c"), row(4, "q", "d")];
    rows[1].headers = vec![header(1 << 20)];
    rows[2].headers = vec![header(1000), header(1)];
    // The largest that fits: what the sizes say must be what the broker takes.
    let fixed = 8 + 14 + 1 + (1 + 36) + (1 + "text/plain".len()) + 4 + (1 + "trace".len()) + 1 + 4;
    rows[3].headers = vec![header(131_072 - fixed)];
    let answers = publisher.publish(&rows).await;
    assert_eq!((&answers[0], &answers[3]), (&Ok(()), &Ok(())));
    assert!(matches!(&answers[1], Err(Error::Permanent(why)) if why.contains("131072")), "{answers:?}");
    assert!(matches!(&answers[2], Err(Error::Permanent(why)) if why.contains("twice")), "{answers:?}");
    rig.depth_is("q", 2, 0).await;
    assert_eq!(publisher.counts().opened, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r06_under_a_memory_alarm_rows_stay_unsent_and_consuming_goes_on() {
    let node = RabbitMq::start_private().await.unwrap();
    let url = node.vhost().await;
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("q".into(), durable, FieldTable::default()).await.unwrap();
    let health = Health::default();
    let mut settings = PublisherSettings::new(Address::parse(&url).unwrap());
    settings.confirm_timeout = Duration::from_secs(2);
    let publisher = Publisher::open(settings, health.component("broker.test")).unwrap();
    let mut source = Source::open(source_settings(&url, "q"), health.component("route.test")).unwrap();
    let first: Vec<_> = (0..10).map(|n| row(n, "q", "k")).collect();
    assert_eq!(publisher.publish(&first).await, vec![Ok(()); 10]);
    node.memory_alarm(true).await.unwrap();
    // The alarm rises a moment later, and the broker still takes what meets it first.
    until("the alarm blocks publishing", SOON, async || {
        let sent = publisher.publish(&[row(5, "q", "k")]).await;
        matches!(&sent[0], Err(Error::Unavailable(why)) if why.contains("blocked")).then_some(())
    })
    .await;
    let second: Vec<_> = (10..20).map(|n| row(n, "q", "k")).collect();
    let answers = publisher.publish(&second).await;
    assert!(
        answers.iter().all(|a| matches!(a, Err(Error::Unavailable(why)) if why.contains("blocked"))),
        "{answers:?}"
    );
    let blocked = condition(&health, "broker.test", "blocked", |c| c.detail.contains("blocked")).await;
    assert!(blocked.detail.contains("memory"), "{}", blocked.detail);
    let taken = take(&mut source, 10).await;
    assert_eq!(done(&source, taken).await.settled, 10);
    node.memory_alarm(false).await.unwrap();
    until("the rows are sent", SOON, async || publisher.publish(&second).await.iter().all(Result::is_ok).then_some(()))
        .await;
    let mut arrived = Vec::new();
    while !arrived.contains(&"19".to_owned()) {
        let taken = take(&mut source, 1).await;
        arrived.extend(bodies(&taken));
        done(&source, taken).await;
    }
    // What was queued behind the alarm may come as well, under its old id; nothing is missing and nothing overtakes.
    arrived.retain(|body| body != "5");
    arrived.dedup();
    assert_eq!(arrived, (10..20).map(|n| n.to_string()).collect::<Vec<_>>());
    condition(&health, "broker.test", "unblocked", |c| c.detail == "ok").await;
    assert_eq!(publisher.counts().opened, 1);
}
