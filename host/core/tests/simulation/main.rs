//! The pipeline over a broker and a database in memory that fail at random: whatever the seed, each message's
//! effect is there once, nothing is lost, and no delivery is settled twice or forgotten.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackwright_core::access::{Access, Grants};
use ackwright_core::effect::{Buffer, Emit, Guard, Limits};
use ackwright_core::handler::{Class, Failure, Handler, Outcome, Prepared, Ran, Reads, Run};
use ackwright_core::health::Health;
use ackwright_core::key::Identity;
use ackwright_core::message::Message;
use ackwright_core::pipeline::Pipeline;
use ackwright_core::pulse::Pulses;
use ackwright_core::route::{Backoff, Bound, Route, Rule, Settings, Unmatched};
use ackwright_core::store::{State, Writer};
use ackwright_core::value::Value;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use world::{Broker, Faults, Memory, World, catalog};

/// A body is `number account amount manner`; the manner says how the handler behaves.
struct Script {
    access: Access,
    runs: AtomicU32,
    /// Attempts of messages that ask for later ones.
    asked: Mutex<BTreeMap<u32, u32>>,
}

struct Order {
    number: u32,
    account: i64,
    amount: i64,
    manner: String,
}

fn order(message: &Message) -> Option<Order> {
    let text = std::str::from_utf8(message.body.as_deref()?).ok()?;
    let mut words = text.split(' ');
    Some(Order {
        number: words.next()?.parse().ok()?,
        account: words.next()?.parse().ok()?,
        amount: words.next()?.parse().ok()?,
        manner: words.next()?.to_owned(),
    })
}

fn failure(class: Class, code: &str) -> Failure {
    Failure { class, code: code.into(), reason: "as scripted".into(), detail: None }
}

impl Script {
    fn identity(message: &Message) -> Result<Identity, Failure> {
        let order = order(message).ok_or_else(|| failure(Class::Rejected, "undecodable"))?;
        Ok(Identity {
            event_type: "ORDER".into(),
            business_key: vec![order.number.to_string()],
            order_key: Some(order.account.to_string()),
        })
    }

    fn handle(&self, order: &Order) -> Run {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut effects = Buffer::new(Limits::default());
        let otherwise = Guard { code: "absent".into(), reason: "no such account".into() };
        let key = vec![("id".to_owned(), Value::Integer(order.account))];
        let amounts = vec![("balance".to_owned(), Value::Integer(order.amount))];
        effects.add(&self.access, "accounts", key, amounts, None, otherwise).expect("the grant is there");
        let body = Bytes::from(order.number.to_string());
        let emit = Emit { destination: "out:done".into(), key: None, content_type: None, headers: vec![], body };
        effects.emit(&self.access, emit).expect("the grant is there");
        let outcome = match order.manner.as_str() {
            "reject" => Outcome::Failed(failure(Class::Rejected, "rejected:scripted")),
            "trap" => Outcome::Failed(failure(Class::Trapped, "trap:unreachable")),
            "later" => {
                let mut asked = self.asked.lock().unwrap_or_else(|e| e.into_inner());
                let times = asked.entry(order.number).or_default();
                *times += 1;
                if *times < 3 {
                    Outcome::Failed(failure(Class::Retry { after: None }, "retry:later"))
                } else {
                    Outcome::Done
                }
            }
            "never" => Outcome::Failed(failure(Class::Retry { after: None }, "retry:never")),
            _ => Outcome::Done,
        };
        Run { outcome, effects }
    }
}

#[async_trait]
impl Handler for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn digest(&self) -> &str {
        "00"
    }

    async fn prepare(&self, message: &Arc<Message>) -> Prepared {
        let identity = Script::identity(message);
        let run = match order(message) {
            Some(order) if order.manner != "read" => Ran::Finished(self.handle(&order)),
            Some(_) | None => Ran::NeedsReads,
        };
        Prepared { identity, run }
    }

    async fn invoke(&self, message: &Arc<Message>, _: &Identity, reads: Arc<dyn Reads>) -> Run {
        let order = order(message).expect("only identified messages are invoked");
        let mut run = self.handle(&order);
        // Reading after writing flushes what was declared so far.
        let key = vec![("id".to_owned(), Value::Integer(order.account))];
        match reads.get(&mut run.effects, &self.access, "accounts", key, true).await {
            Ok(row) => assert!(row.is_some(), "the account is there"),
            Err(error) => run.outcome = Outcome::Unavailable(error.to_string()),
        }
        run
    }
}

const MANNERS: [&str; 12] =
    ["fine", "fine", "fine", "fine", "read", "fine", "later", "reject", "trap", "never", "read", "poison"];

fn messages(count: u32) -> Vec<Message> {
    (0..count)
        .map(|number| {
            let manner = MANNERS[number as usize % MANNERS.len()];
            // The database refuses poison, whatever came before: a balance may not fall that low.
            let amount = if manner == "poison" { -1_000_000 } else { i64::from(number % 7) + 1 };
            let body = format!("{number} {} {amount} {manner}", number % 4);
            let body = if number % 50 == 49 { "not an order".to_owned() + &body } else { body };
            Message { source: "orders".into(), body: Some(Bytes::from(body)), ..Message::default() }
        })
        .collect()
}

/// Runs a world to rest and holds the oracle against it.
fn check(seed: u64, faults: Faults) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let sent = messages(180);
        let world = World::new(seed, faults, sent.clone());
        let catalog = catalog();
        let grants =
            Grants { read: vec!["accounts".into()], write: vec!["accounts".into()], emit: vec!["out:*".into()] };
        let access = Access::resolve(&grants, Arc::clone(&catalog)).expect("the grants resolve");
        let script = Arc::new(Script { access, runs: AtomicU32::new(0), asked: Mutex::default() });
        let plugin = Arc::new(Bound { handler: script.clone(), writer: Writer(1) });
        let settings = Settings {
            name: "orders".into(),
            group: "ledger".into(),
            lanes: 3,
            batch: 16,
            batch_bytes: 1 << 20,
            unmatched: Unmatched::Park,
            retry: Backoff { attempts: 4, initial: Duration::from_secs(1), max: Duration::from_secs(10) },
            writer: Writer(1),
        };
        let pipeline = Pipeline {
            route: Arc::new(Route { settings, rules: vec![Rule { when: vec![], plugin }] }),
            source: Box::new(Broker(Arc::clone(&world))),
            store: Arc::new(Memory { world: Arc::clone(&world), catalog: Arc::clone(&catalog) }),
            catalog,
            emitted: Arc::new(Notify::new()),
            health: Health::default(),
            pulses: Pulses::default(),
        };
        let stop = CancellationToken::new();
        let running = tokio::spawn(pipeline.run(stop.clone()));
        let rest = async {
            while !world.at_rest() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(3600), rest).await.unwrap_or_else(|_| panic!("seed {seed}: stuck"));
        stop.cancel();
        running.await.expect("the pipeline does not panic").expect("the pipeline ends well");
        oracle(seed, &world, &sent);
    });
}

fn oracle(seed: u64, world: &World, sent: &[Message]) {
    let database = world.database();
    let mut balances: BTreeMap<i64, i64> = (0..4).map(|id| (id, 0)).collect();
    let mut emitted = BTreeSet::new();
    let mut parked = 0;
    for message in sent {
        match order(message) {
            Some(order) if ["fine", "read", "later"].contains(&order.manner.as_str()) => {
                *balances.entry(order.account).or_default() += order.amount;
                emitted.insert(order.number.to_string().into_bytes());
            }
            Some(_) | None => parked += 1,
        }
    }
    let found: BTreeMap<i64, i64> = database.accounts.iter().map(|(id, (balance, _))| (*id, *balance)).collect();
    assert_eq!(found, balances, "seed {seed}: balances");
    let published: BTreeSet<Vec<u8>> = database.outbox.into_values().collect();
    assert_eq!(published, emitted, "seed {seed}: outbox");
    assert_eq!(database.parked.len(), parked, "seed {seed}: parked");
    assert_eq!(database.inbox.len(), sent.len(), "seed {seed}: inbox");
    let failed = database.inbox.values().filter(|state| **state == State::Failed).count();
    assert_eq!(failed, parked, "seed {seed}: failed");
    for (key, held) in &database.parked {
        assert!(held.row.body.is_some(), "seed {seed}: {key:?} was parked without its body");
    }
    assert_eq!(world.faulty_settles(), (0, 0), "seed {seed}: settled twice, forgotten");
}

#[test]
fn a_calm_world_ends_right() {
    check(1, Faults::default());
}

#[test]
fn a_failing_database_and_broker_change_no_effect() {
    for seed in 0..150 {
        check(
            seed,
            Faults { begin: 8, claim: 8, apply: 8, rolled_back: 8, in_doubt: 15, duplicate: 20, reconnect: 10 },
        );
    }
}

#[test]
fn commits_in_doubt_are_told_by_the_inbox() {
    for seed in 0..60 {
        check(seed, Faults { in_doubt: 60, ..Faults::default() });
    }
}

#[test]
fn duplicates_and_lost_receipts_change_no_effect() {
    for seed in 0..60 {
        check(seed, Faults { duplicate: 60, reconnect: 40, ..Faults::default() });
    }
}
