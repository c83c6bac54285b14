//! Each effect once, however often, when and where a message comes.

use std::time::Duration;

use crate::database::Kind;
use crate::load::{Load, Size};
use crate::oracle::check;
use crate::stage::Stage;

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn every_message_has_its_effect_once_on_postgres() {
    every_message_has_its_effect_once(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_has_its_effect_once_on_sqlite() {
    every_message_has_its_effect_once(Kind::Sqlite).await;
}

async fn every_message_has_its_effect_once(kind: Kind) {
    let stage = Stage::new(kind).await;
    let host = stage.host().await;
    let load = Load::generate(1, Size { orders: 300, transfers: 300, poison: 10, readers: 0, repeats: 40 });
    stage.send(&load.letters).await;
    check(&stage, &load, DEADLINE).await;
    assert!(host.metric("ackwright_duplicates_total", &[]).await.expect("an answer") > 0.0);
    assert_eq!(host.metric("ackwright_forgotten_deliveries_total", &[]).await.expect("an answer"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_long_after_its_message_has_no_effect() {
    let stage = Stage::new(Kind::Postgres).await;
    let mut host = stage.host().await;
    let load = Load::generate(2, Size::default());
    stage.send(&load.letters).await;
    let first = check(&stage, &load, DEADLINE).await;
    // Another run of the host knows nothing but what the database tells.
    host.terminate(DEADLINE).await.expect("it ends");
    stage.start(&mut host, &stage.shape(), &[]).await;
    stage.send(&load.letters).await;
    let deadline = DEADLINE;
    host.until_metric("ackwright_settled_total", &[], deadline, |settled| settled >= load.letters.len() as f64).await;
    assert!(!first.is_empty());
    assert!(stage.announced().await.is_empty(), "nothing is announced again");
    let coupons = stage.database.number("SELECT count(*) FROM coupons").await;
    assert_eq!(coupons as usize, load.orders.len());
    let transfers = stage.database.number("SELECT count(*) FROM transfers").await;
    assert_eq!(transfers as usize, load.transfers.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn d07_copies_that_reach_two_hosts_at_the_same_time_have_one_effect() {
    let stage = Stage::new(Kind::Postgres).await;
    let (one, other) = (stage.host().await, stage.host().await);
    let mut load = Load::generate(3, Size { orders: 200, transfers: 200, poison: 5, readers: 0, repeats: 0 });
    // Each message twice in a row: the broker hands the copies to different hosts.
    load.letters = load.letters.into_iter().flat_map(|letter| [letter.clone(), letter]).collect();
    stage.send(&load.letters).await;
    check(&stage, &load, DEADLINE).await;
    for host in [&one, &other] {
        let applied = host.metric("ackwright_applied_total", &[]).await.expect("an answer");
        assert!(applied > 0.0, "both hosts worked");
    }
}
