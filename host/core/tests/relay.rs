//! The relay over an outbox in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackwright_core::health::Health;
use ackwright_core::outbox::{Counts, Fate, Listed, Pending, Row, SHARDS, Store};
use ackwright_core::publisher::{self, Publisher};
use ackwright_core::pulse::Pulses;
use ackwright_core::relay::{Relay, Settings};
use ackwright_core::route::Backoff;
use ackwright_core::store::Error;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Rows with their headers as stored, and what became of them.
#[derive(Default)]
struct Memory {
    stored: Mutex<BTreeMap<i64, (Row, &'static str)>>,
    fates: Mutex<Vec<(i64, Fate)>>,
    settled: Notify,
}

#[async_trait]
impl Store for Memory {
    async fn lease(&self, _: Uuid, _: Duration) -> Result<Vec<i16>, Error> {
        Ok((0..SHARDS).collect())
    }

    async fn release(&self, _: Uuid) -> Result<(), Error> {
        Ok(())
    }

    async fn pending(&self, broker: &str, _: &[i16], _: usize) -> Result<Pending, Error> {
        let mut pending = Pending::default();
        let stored = self.stored.lock().unwrap();
        stored.values().filter(|(row, _)| row.broker == broker).for_each(|(row, h)| pending.push(row.clone(), h));
        Ok(pending)
    }

    async fn settle(&self, _: Uuid, fates: &[(i64, Fate)], _: Duration) -> Result<(), Error> {
        let mut stored = self.stored.lock().unwrap();
        fates.iter().for_each(|(position, _)| drop(stored.remove(position)));
        self.fates.lock().unwrap().extend_from_slice(fates);
        self.settled.notify_one();
        Ok(())
    }

    async fn clean(&self, _: Duration, _: usize) -> Result<u64, Error> {
        Ok(0)
    }

    async fn counts(&self) -> Result<Counts, Error> {
        Ok(Counts::default())
    }

    async fn list(&self, _: Option<&str>, _: usize) -> Result<Vec<Listed>, Error> {
        unreachable!("a relay lists nothing")
    }

    async fn retry(&self, _: &[Uuid]) -> Result<u64, Error> {
        unreachable!("people make rows due again")
    }
}

/// Takes everything, and keeps the positions of what it took.
#[derive(Default)]
struct Broker(Mutex<Vec<Vec<i64>>>);

#[async_trait]
impl Publisher for Broker {
    async fn publish(&self, rows: &[Row]) -> Vec<Result<(), publisher::Error>> {
        self.0.lock().unwrap().push(rows.iter().map(|row| row.position).collect());
        rows.iter().map(|_| Ok(())).collect()
    }

    async fn close(&self) {}
}

/// Runs a relay until it has settled as many rows as there are.
async fn relayed(rows: &[(&'static str, &'static str)]) -> (Vec<(i64, Fate)>, Vec<Vec<i64>>) {
    let store = Arc::new(Memory::default());
    for (at, (order_key, headers)) in rows.iter().enumerate() {
        let position = at as i64;
        let row = Row {
            position,
            id: Uuid::from_u128(at as u128),
            broker: "events".into(),
            destination: "d".into(),
            order_key: (*order_key).into(),
            content_type: None,
            headers: Vec::new(),
            body: Bytes::new(),
            attempts: 0,
        };
        store.stored.lock().unwrap().insert(position, (row, headers));
    }
    let broker = Arc::new(Broker::default());
    let relay = Relay {
        settings: Settings {
            database: "main".into(),
            relay: Uuid::from_u128(1),
            retry: Backoff { attempts: 3, initial: Duration::from_secs(1), max: Duration::from_secs(1) },
            keep: Duration::ZERO,
        },
        store: Arc::clone(&store) as Arc<dyn Store>,
        publishers: BTreeMap::from([("events".to_owned(), Arc::clone(&broker) as Arc<dyn Publisher>)]),
        emitted: Arc::new(Notify::new()),
        health: Health::default(),
        pulses: Pulses::default(),
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.run(stop.clone()));
    tokio::time::timeout(Duration::from_secs(20), async {
        while store.fates.lock().unwrap().len() < rows.len() {
            store.settled.notified().await;
        }
    })
    .await
    .expect("every row has its fate");
    stop.cancel();
    running.await.unwrap();
    let fates = store.fates.lock().unwrap().clone();
    let published = broker.0.lock().unwrap().clone();
    (fates, published)
}

const FINE: &str = "[]";
const BROKEN: &str = r#"[{"name":"n","value":{"f64":null}}]"#;

#[tokio::test]
async fn o04_a_row_that_nobody_can_read_is_parked_and_its_neighbours_are_sent() {
    let (mut fates, published) = relayed(&[("a", FINE), ("b", BROKEN), ("b", FINE)]).await;
    fates.sort_by_key(|(position, _)| *position);
    assert_eq!(published, [[0, 2]]);
    match &fates[..] {
        [(0, Fate::Sent), (1, Fate::Parked { reason }), (2, Fate::Sent)] => assert!(reason.contains("headers")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn o04_rows_that_nobody_can_read_are_parked_without_the_broker() {
    let (fates, published) = relayed(&[("a", BROKEN), ("b", BROKEN)]).await;
    assert!(fates.iter().all(|(_, fate)| matches!(fate, Fate::Parked { .. })), "{fates:?}");
    assert!(published.is_empty(), "{published:?}");
}
