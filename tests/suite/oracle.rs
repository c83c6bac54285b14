//! The conservation oracle: each message's effect exactly once, none lost, the outbox complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ackwright_testkit::until;

use crate::database::{Database, Kind};
use crate::load::{Load, Size};
use crate::stage::{Announced, Stage};

/// Waits until everything that was sent is finished, and then asks whether it is [`conserved`].
/// Returns all announcements, repeats included.
pub async fn check(stage: &Stage, load: &Load, deadline: Duration) -> Vec<Announced> {
    for queue in ["orders", "transfers", "probe"] {
        until(&format!("queue {queue} is empty"), deadline, async || {
            let depth = stage.broker.depth(&stage.vhost, queue).await.ok()?;
            (depth.ready == 0 && depth.unacknowledged == 0).then_some(())
        })
        .await;
    }
    // Every settled message is in the database by now, and so is all that is to be published.
    published(&stage.database, deadline).await;
    let announced = stage.announced().await;
    conserved(&stage.database, load, &announced).await;
    announced
}

pub async fn published(database: &Database, deadline: Duration) {
    until("the outbox has nothing left to publish", deadline, async || {
        (database.number("SELECT count(*) FROM ackwright_outbox WHERE state < 3").await == 0).then_some(())
    })
    .await;
}

/// Holds what is there against what must be there.
pub async fn conserved(database: &Database, load: &Load, announced: &[Announced]) {
    let set = async |sql: &str| -> BTreeSet<String> {
        let texts = database.texts(sql).await;
        let count = texts.len();
        let set: BTreeSet<_> = texts.into_iter().collect();
        assert_eq!(set.len(), count, "{sql} gives some rows twice");
        set
    };
    let differ = |what: &str, found: &BTreeSet<String>, wanted: &BTreeSet<String>| {
        let lost: Vec<_> = wanted.difference(found).collect();
        let extra: Vec<_> = found.difference(wanted).collect();
        assert!(lost.is_empty() && extra.is_empty(), "{what}: lost {lost:?}, there without cause {extra:?}");
    };
    differ("coupons", &set("SELECT order_id FROM coupons").await, &load.orders);
    differ("transfers", &set("SELECT id FROM transfers").await, &load.transfers);

    let readers = "SELECT id || ' ' || CAST(n AS TEXT) FROM probe_rows WHERE id LIKE 'reader-%'";
    let counted = load.readers.iter().map(|id| format!("{id} 2")).collect();
    differ("rows of readers", &set(readers).await, &counted);

    let parked = format!("SELECT {} FROM ackwright_parked WHERE state = 1", database.hex("body"));
    differ("parked messages", &set(&parked).await, &load.parked);
    assert_eq!(database.number("SELECT count(*) FROM ackwright_parked WHERE state <> 1").await, 0, "messages wait");

    let done = database.number("SELECT count(*) FROM ackwright_inbox WHERE state = 0").await;
    let wanted = load.orders.len() + load.transfers.len() + load.readers.len();
    assert_eq!(done as usize, wanted, "inbox rows of messages that are done");

    // One SELECT: the sums belong to one moment.
    let mut balances = BTreeMap::new();
    for line in database.texts("SELECT id || ' ' || CAST(balance AS TEXT) FROM accounts").await {
        let (id, balance) = line.split_once(' ').expect("two words");
        balances.insert(id.to_owned(), balance.parse::<i64>().expect("a number"));
    }
    let wrong: Vec<_> = balances.iter().filter(|(id, found)| load.balances.get(*id).unwrap_or(&0) != *found).collect();
    assert!(wrong.is_empty(), "balances {wrong:?} differ from {:?}", load.balances);

    differ("announced orders", &announced_once(announced), &load.orders);
}

/// The orders that were announced. A repeat of an announcement is its equal in everything, id included.
fn announced_once(announced: &[Announced]) -> BTreeSet<String> {
    let mut by_id: BTreeMap<&str, &Announced> = BTreeMap::new();
    for announcement in announced {
        let first = by_id.entry(&announcement.id).or_insert(announcement);
        assert_eq!(*first, announcement, "a repeat differs from the first");
    }
    let mut orders = BTreeSet::new();
    for announcement in by_id.values() {
        let body: serde_json::Value = serde_json::from_slice(&announcement.body).expect("the plugin emits JSON");
        let order = body["order_id"].as_str().expect("an order").to_owned();
        assert!(orders.insert(order.clone()), "{order} is announced under two ids");
    }
    orders
}

/// A check that cannot fail shows nothing: one damage at a time, each must be noticed.
#[tokio::test]
async fn the_oracle_notices_every_kind_of_damage() {
    const DEADLINE: Duration = Duration::from_secs(60);
    let stage = Stage::new(Kind::Sqlite).await;
    let mut host = stage.host().await;
    let load = Load::generate(61, Size { orders: 20, transfers: 20, poison: 2, readers: 5, repeats: 20 });
    stage.send(&load.letters).await;
    let announced = check(&stage, &load, DEADLINE).await;
    host.terminate(DEADLINE).await.expect("it ends");
    let load = Arc::new(load);

    let notices = async |what: &str, sql: &str, announced: Vec<Announced>| -> bool {
        let copy = stage.database.copy().await;
        if !sql.is_empty() {
            copy.execute(sql).await;
        }
        let load = Arc::clone(&load);
        match tokio::spawn(async move { conserved(&copy, &load, &announced).await }).await {
            Ok(()) => false,
            Err(error) => error.is_panic() || panic!("{what}: {error}"),
        }
    };
    assert!(!notices("nothing", "", announced.clone()).await, "a faithful copy is found whole");
    for sql in [
        "DELETE FROM coupons WHERE order_id = (SELECT min(order_id) FROM coupons)",
        "INSERT INTO coupons VALUES ('never-paid', 'winter', 'customer-1', 500)",
        "DELETE FROM transfers WHERE id = (SELECT min(id) FROM transfers)",
        "UPDATE accounts SET balance = balance + 1 WHERE id = 'account-3'",
        "UPDATE probe_rows SET n = n + 1 WHERE id = (SELECT min(id) FROM probe_rows)",
        "DELETE FROM ackwright_inbox WHERE key = (SELECT min(key) FROM ackwright_inbox WHERE state = 0)",
        "DELETE FROM ackwright_parked WHERE key = (SELECT min(key) FROM ackwright_parked)",
        "UPDATE ackwright_parked SET body = x'00' WHERE key = (SELECT min(key) FROM ackwright_parked)",
    ] {
        assert!(notices(sql, sql, announced.clone()).await, "not noticed: {sql}");
    }
    let first = announced[0].clone();
    let changed = Announced { body: announced[1].body.clone(), ..first.clone() };
    let renamed = Announced { id: "another".into(), ..first.clone() };
    assert!(notices("a lost announcement", "", announced[1..].to_vec()).await);
    assert!(notices("a repeat that differs", "", [&announced[..], &[changed]].concat()).await);
    assert!(notices("a second announcement", "", [&announced[..], &[renamed]].concat()).await);
    assert!(!notices("an equal repeat", "", [&announced[..], &[first]].concat()).await, "repeats are allowed");
}
