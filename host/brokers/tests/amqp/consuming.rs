use std::time::Duration;

use ackwright_core::delivery::Place;
use ackwright_core::message::{Header, HeaderValue};
use ackwright_core::settle::{Disposal, Finish, Tally};
use ackwright_core::source::{Error, Source as _};

use crate::support::{Rig, bodies, condition, done, place_of, requeue, settle, take};

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_what_has_arrived_and_one_frame_acks_it() {
    let rig = Rig::new().await;
    rig.queue("q", "quorum").await;
    rig.send_numbers("q", 0..200).await;
    let mut source = rig.source(rig.settings("q"));
    let deliveries = take(&mut source, 200).await;
    assert_eq!(bodies(&deliveries), (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
    let first = &deliveries[0].message;
    assert_eq!((first.source.as_str(), first.subject.as_deref()), ("q", Some("q")));
    assert_eq!(done(&source, deliveries).await, Tally { settled: 200, void: 0 });
    rig.depth_is("q", 0, 0).await;
    let counts = source.counts();
    assert_eq!((counts.delivered, counts.acked, counts.ack_frames), (200, 200, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_delivery_comes_back_marked_and_its_neighbours_are_acked() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    rig.send_numbers("q", 0..5).await;
    let mut source = rig.source(rig.settings("q"));
    let mut deliveries = take(&mut source, 5).await;
    let back = deliveries.remove(2);
    // The ack of 3 and 4 passes over the requeued one, in the same call.
    let mut places = vec![(place_of(back), Disposal::Requeue)];
    places.extend(deliveries.into_iter().map(|d| (place_of(d), Disposal::Done(Finish::Applied))));
    assert_eq!(settle(&source, places).await.settled, 5);
    let again = take(&mut source, 1).await;
    assert_eq!((bodies(&again), again[0].redelivered), (vec!["2".to_owned()], true));
    done(&source, again).await;
    rig.depth_is("q", 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_delivery_is_requeued_and_counted() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    rig.send_numbers("q", 0..1).await;
    let mut source = rig.source(rig.settings("q"));
    drop(take(&mut source, 1).await);
    let again = take(&mut source, 1).await;
    assert!(again[0].redelivered);
    assert_eq!((source.counts().forgotten, source.counts().acked), (1, 0));
    done(&source, again).await;
    rig.depth_is("q", 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_delivery_does_not_hold_back_the_acks_behind_it() {
    let rig = Rig::new().await;
    rig.queue("q", "quorum").await;
    rig.send_numbers("q", 0..12).await;
    let mut source = rig.source(ackwright_brokers::rabbitmq::SourceSettings { prefetch: 4, ..rig.settings("q") });
    let mut first = take(&mut source, 4).await;
    let slow = vec![first.remove(0)];
    done(&source, first).await;
    // With a prefetch of four, these come only if the three are acked past the slow one.
    for _ in 0..4 {
        let more = take(&mut source, 2).await;
        done(&source, more).await;
    }
    rig.depth_is("q", 0, 1).await;
    assert_eq!(done(&source, slow).await.settled, 1);
    rig.depth_is("q", 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r01_settling_twice_sends_nothing_and_the_channel_lives() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    rig.send_numbers("q", 0..3).await;
    let mut source = rig.source(rig.settings("q"));
    let places: Vec<Place> = take(&mut source, 3).await.into_iter().map(place_of).collect();
    let finish = |place: &Place| (*place, Disposal::Done(Finish::Applied));
    assert_eq!(settle(&source, places.iter().map(finish).collect()).await, Tally { settled: 3, void: 0 });
    assert_eq!(settle(&source, places.iter().map(finish).collect()).await, Tally { settled: 0, void: 3 });
    let requeued = places.iter().map(|place| (*place, Disposal::Requeue)).collect();
    assert_eq!(settle(&source, requeued).await, Tally { settled: 0, void: 3 });
    rig.send_numbers("q", 3..4).await;
    let next = take(&mut source, 1).await;
    assert_eq!(done(&source, next).await, Tally { settled: 1, void: 0 });
    rig.depth_is("q", 0, 0).await;
    assert_eq!((source.counts().opened, source.counts().lost), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_gives_back_what_was_not_handed_out_and_receipts_stay_valid_until_close() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    rig.send_numbers("q", 0..10).await;
    let mut source = rig.source(rig.settings("q"));
    let held = take(&mut source, 4).await;
    source.stop().await;
    rig.depth_is("q", 6, 4).await;
    assert!(matches!(source.next(10).await, Err(Error::Ended)));
    let mut held = held.into_iter();
    let finished = held.by_ref().take(3).collect();
    assert_eq!(done(&source, finished).await.settled, 3);
    // Closing flushes the acks that were sent before; what was not settled goes back.
    let unsettled: Vec<Place> = held.map(place_of).collect();
    source.close().await;
    rig.depth_is("q", 7, 0).await;
    let late = unsettled.iter().map(|place| (*place, Disposal::Done(Finish::Applied))).collect();
    assert_eq!(settle(&source, late).await, Tally { settled: 0, void: 1 });
    assert!(!rig.health.ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wait_loses_nothing() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    let mut source = rig.source(rig.settings("q"));
    let mut taken = Vec::new();
    let producing = rig.send_numbers("q", 0..100);
    tokio::pin!(producing);
    let mut sent = false;
    while taken.len() < 100 {
        tokio::select! {
            biased;
            () = &mut producing, if !sent => sent = true,
            batch = source.next(7) => taken.extend(batch.unwrap()),
            () = tokio::time::sleep(Duration::from_micros(300)) => {}
        }
    }
    assert_eq!(bodies(&taken), (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    requeue(&source, taken).await;
    source.stop().await;
    rig.depth_is("q", 100, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r12_a_queue_that_differs_is_refused_with_argument_expected_and_actual_value() {
    let rig = Rig::new().await;
    rig.queue("q", "classic").await;
    rig.queue("other", "quorum").await;
    rig.send_numbers("other", 0..1).await;
    let mut settings = rig.settings("q");
    settings.arguments = vec![Header { name: "x-queue-type".into(), value: HeaderValue::Text("quorum".into()) }];
    let _refused = rig.source(settings);
    let refused =
        condition(&rig.health, "route.test", "the queue is refused", |c| c.detail.contains("inequivalent")).await;
    assert!(!refused.ready);
    for word in ["x-queue-type", "quorum", "classic", "queue 'q'"] {
        assert!(refused.detail.contains(word), "{}", refused.detail);
    }
    // Another consumer starts all the same, with a prefetch of its own on a quorum queue.
    let mut other = rig.source(rig.settings("other"));
    let taken = take(&mut other, 1).await;
    done(&other, taken).await;
    rig.depth_is("other", 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_queue_is_declared_where_the_settings_say_so() {
    let rig = Rig::new().await;
    let mut settings = rig.settings("fresh");
    settings.declare = true;
    let mut source = rig.source(settings);
    condition(&rig.health, "route.test", "consuming", |c| c.ready).await;
    rig.send_numbers("fresh", 0..1).await;
    let taken = take(&mut source, 1).await;
    done(&source, taken).await;
    rig.depth_is("fresh", 0, 0).await;
    rig.channel
        .queue_declare(
            "fresh".into(),
            lapin::options::QueueDeclareOptions { durable: true, ..Default::default() },
            lapin::types::FieldTable::default(),
        )
        .await
        .expect_err("it is a quorum queue");
}
