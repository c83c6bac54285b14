use std::time::{Duration, Instant};

use ackwright_brokers::rabbitmq::{Address, Publisher, PublisherSettings, Source};
use ackwright_core::health::Health;
use ackwright_core::publisher::{Error as PublishError, Publisher as _};
use ackwright_core::settle::Tally;
use ackwright_testkit::{Proxy, RabbitMq, until};
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};

use crate::support::{Rig, SOON, bodies, condition, done, row, source_settings, take};

#[tokio::test(flavor = "multi_thread")]
async fn r02_receipts_of_a_lost_channel_are_void_and_the_messages_come_again() {
    let rig = Rig::new().await;
    rig.queue("q", "quorum").await;
    rig.send_numbers("q", 0..5).await;
    let (proxy, through) = Proxy::before(&rig.url).await.unwrap();
    let mut source = Source::open(source_settings(&through, "q"), rig.health.component("route.test")).unwrap();
    let old = take(&mut source, 5).await;
    let old_generation = old[0].receipt.place().generation;
    proxy.cut();
    let new = take(&mut source, 5).await;
    assert!(new.iter().all(|d| d.redelivered && d.receipt.place().generation > old_generation));
    // The same delivery tags on the new channel must not be touched by the old receipts.
    assert_eq!(done(&source, old).await, Tally { settled: 0, void: 5 });
    rig.depth_is("q", 0, 5).await;
    assert_eq!(done(&source, new).await, Tally { settled: 5, void: 0 });
    rig.depth_is("q", 0, 0).await;
    let counts = source.counts();
    assert_eq!((counts.opened, counts.lost, counts.void), (2, 1, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn r03_a_silent_link_turns_readiness_red_within_two_heartbeats_and_heals() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    let (proxy, through) = Proxy::before(&rig.url).await.unwrap();
    let mut settings = source_settings(&through, "q");
    settings.heartbeat = Duration::from_secs(4);
    let mut source = Source::open(settings, rig.health.component("route.test")).unwrap();
    condition(&rig.health, "route.test", "consuming", |c| c.ready).await;
    proxy.black_hole();
    let silent = Instant::now();
    // Nobody asks for deliveries meanwhile: a busy pipeline must not hide it.
    condition(&rig.health, "route.test", "red", |c| !c.ready).await;
    assert!(silent.elapsed() <= Duration::from_secs(8), "{:?}", silent.elapsed());
    proxy.resume();
    rig.send_numbers("q", 0..1).await;
    let taken = take(&mut source, 1).await;
    assert_eq!(bodies(&taken), ["0"]);
    condition(&rig.health, "route.test", "green again", |c| c.ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r03_consuming_and_publishing_go_on_after_a_broker_restart() {
    let node = RabbitMq::start_private().await.unwrap();
    let url = node.vhost().await;
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("q".into(), durable, FieldTable::default()).await.unwrap();
    let health = Health::default();
    let address = Address::parse(&url).unwrap();
    let mut source = Source::open(source_settings(&url, "q"), health.component("route.test")).unwrap();
    let publisher = Publisher::open(PublisherSettings::new(address), health.component("broker.test")).unwrap();
    assert_eq!(publisher.publish(&[row(1, "q", "k")]).await, [Ok(())]);
    let held = take(&mut source, 1).await;
    node.kill().await.unwrap();
    condition(&health, "route.test", "red", |c| !c.ready).await;
    condition(&health, "broker.test", "red", |c| !c.ready).await;
    let answers = publisher.publish(&[row(2, "q", "k")]).await;
    assert!(matches!(answers[..], [Err(PublishError::Unavailable(_))]), "{answers:?}");
    node.start().await.unwrap();
    let back = Instant::now();
    let again = take(&mut source, 1).await;
    assert!(back.elapsed() < Duration::from_secs(30));
    assert_eq!((bodies(&again), again[0].redelivered), (vec!["1".to_owned()], true));
    assert_eq!(done(&source, held).await.void, 1);
    assert_eq!(done(&source, again).await.settled, 1);
    until("publishing goes on", SOON, async || {
        (publisher.publish(&[row(2, "q", "k")]).await == [Ok(())]).then_some(())
    })
    .await;
    assert_eq!(bodies(&take(&mut source, 1).await), ["2"]);
    assert!(health.ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_a_deleted_queue_turns_readiness_red_and_is_consumed_when_it_is_back() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    let mut source = rig.source(rig.settings("q"));
    condition(&rig.health, "route.test", "consuming", |c| c.ready).await;
    let delete = async {
        rig.node.delete_queue(&rig.url, "q").await.unwrap();
        let missing =
            condition(&rig.health, "route.test", "the queue is missed", |c| c.detail.contains("no queue 'q'")).await;
        assert!(!missing.ready);
        rig.queue("q", "quorum").await;
        rig.send_numbers("q", 7..8).await;
    };
    let (taken, ()) = tokio::join!(take(&mut source, 1), delete);
    assert_eq!(bodies(&taken), ["7"]);
    condition(&rig.health, "route.test", "green again", |c| c.ready).await;
    assert_eq!(source.counts().cancelled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r05_a_channel_that_the_broker_closes_is_reopened_and_its_message_comes_again() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    rig.send_numbers("q", 0..1).await;
    let mut source = rig.source(rig.settings("q"));
    let held = take(&mut source, 1).await;
    let vhost = rig.url.rsplit('/').next().unwrap();
    let close = format!(
        "length([gen_server2:cast(C, {{method, {{'basic.ack', 99, false}}, none, noflow}}) || C <- rabbit_channel:list(),
         rabbit_channel:info(C, [vhost]) =:= [{{vhost, <<\"{vhost}\">>}}],
         rabbit_channel:info(C, [messages_unacknowledged]) =/= [{{messages_unacknowledged, 0}}]])"
    );
    // An unknown tag makes the broker close the channel with the same 406 as its ack timeout does.
    assert_eq!(rig.node.eval(&close).await.unwrap(), "1");
    let again = take(&mut source, 1).await;
    assert!(again[0].redelivered);
    assert_eq!(done(&source, held).await.void, 1);
    assert_eq!((source.counts().lost, source.counts().opened), (1, 2));
    done(&source, again).await;
    rig.depth_is("q", 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_comes_late_is_waited_for() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    rig.send_numbers("q", 0..1).await;
    let (proxy, through) = Proxy::before(&rig.url).await.unwrap();
    proxy.refuse();
    let mut source = Source::open(source_settings(&through, "q"), rig.health.component("route.test")).unwrap();
    let down = condition(&rig.health, "route.test", "a reason", |c| c.detail.contains("connecting to")).await;
    assert!(!down.detail.contains("guest"), "{}", down.detail);
    proxy.resume();
    let taken = take(&mut source, 1).await;
    done(&source, taken).await;
    rig.depth_is("q", 0, 0).await;
}
