//! The conservation oracle: each message's effect exactly once, none lost, the outbox complete.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ackwright_testkit::until;

use crate::database::Database;
use crate::load::Load;
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
