//! A broker and a database in memory that fail at random, from a seed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ackwright_core::access::Access;
use ackwright_core::catalog::{Catalog, Column, ColumnId, Kind, Table, TableId, UniqueKey};
use ackwright_core::delivery::{Delivery, Place, Receipt};
use ackwright_core::effect::{self, Cells};
use ackwright_core::key::DedupKey;
use ackwright_core::message::Message;
use ackwright_core::plan::{Plan, Verb};
use ackwright_core::settle::{Disposal, Finish, Settler, Tally};
use ackwright_core::source::{self, Source};
use ackwright_core::store::{
    ApplyError, Capabilities, Claim, Claimed, CommitError, Error, Purpose, ReadError, Refusal, Rows, Session, State,
    Statement, Store, Writer,
};
use ackwright_core::value::Value;
use ackwright_core::{outbox, parked};
use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;
use uuid::Uuid;

/// Balances below this are refused by the database's own check.
pub const LEAST: i64 = -1000;

pub fn catalog() -> Arc<Catalog> {
    let column = |name: &str, kind| Column {
        name: name.into(),
        kind,
        native: "bigint".into(),
        nullable: false,
        defaulted: false,
        generated: false,
        foldable: name != "balance",
    };
    let whole = Kind::Integer { min: i64::MIN, max: i64::MAX };
    let columns = vec![column("id", whole), column("balance", whole), column("last", whole)];
    let key = UniqueKey { name: "accounts_pkey".into(), columns: vec![0] };
    Arc::new(Catalog::new(vec![Table::new("accounts", columns, vec![key])]))
}

#[derive(Clone, Default)]
pub struct Database {
    /// `id -> (balance, sequence number of the last message)`.
    pub accounts: BTreeMap<i64, (i64, i64)>,
    pub inbox: BTreeMap<DedupKey, State>,
    pub outbox: BTreeMap<Uuid, Vec<u8>>,
    pub parked: BTreeMap<DedupKey, Held>,
}

#[derive(Clone)]
pub struct Held {
    pub row: parked::NewRow,
    due: tokio::time::Instant,
    lease: Option<parked::Lease>,
}

/// How often the world fails, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub begin: u32,
    pub claim: u32,
    pub apply: u32,
    pub rolled_back: u32,
    pub in_doubt: u32,
    /// The broker hands a delivery over twice.
    pub duplicate: u32,
    /// The broker takes everything back that is not settled.
    pub reconnect: u32,
}

pub struct World {
    state: Mutex<Inner>,
    arrived: Notify,
}

struct Inner {
    random: StdRng,
    faults: Faults,
    committed: Database,
    /// Sessions that hold inbox keys in an open transaction.
    held: HashMap<DedupKey, u64>,
    sessions: u64,
    queue: VecDeque<Arc<Message>>,
    unsettled: HashMap<u64, Arc<Message>>,
    generation: u64,
    tags: u64,
    stopped: bool,
    pub twice: usize,
    pub forgotten: usize,
    pub finished: HashMap<&'static str, usize>,
}

impl World {
    pub fn new(seed: u64, faults: Faults, messages: Vec<Message>) -> Arc<Self> {
        let inner = Inner {
            random: StdRng::seed_from_u64(seed),
            faults,
            committed: Database { accounts: (0..4).map(|id| (id, (0, -1))).collect(), ..Database::default() },
            held: HashMap::new(),
            sessions: 0,
            queue: messages.into_iter().map(Arc::new).collect(),
            unsettled: HashMap::new(),
            generation: 1,
            tags: 0,
            stopped: false,
            twice: 0,
            forgotten: 0,
            finished: HashMap::new(),
        };
        Arc::new(World { state: Mutex::new(inner), arrived: Notify::new() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn strikes(&self, of: impl Fn(&Faults) -> u32) -> bool {
        let mut inner = self.inner();
        let odds = of(&inner.faults);
        inner.random.random_range(0..100) < odds
    }

    pub fn database(&self) -> Database {
        self.inner().committed.clone()
    }

    /// Nothing is queued, out, or waiting for a retry.
    pub fn at_rest(&self) -> bool {
        let inner = self.inner();
        inner.queue.is_empty()
            && inner.unsettled.is_empty()
            && inner.committed.parked.values().all(|held| held.row.state != State::Waiting)
    }

    /// Settled twice, and dropped without being settled.
    pub fn faulty_settles(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.twice, inner.forgotten)
    }
}

fn fault(attempted: &str, lost: bool, conflict: bool) -> Error {
    Error { attempted: attempted.into(), lost, conflict, source: "simulated".into() }
}

pub struct Broker(pub Arc<World>);

#[async_trait]
impl Source for Broker {
    fn capabilities(&self) -> source::Capabilities {
        source::Capabilities { ordered: true, shared: false, requeues: true }
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::new(Acks(Arc::clone(&self.0)))
    }

    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, source::Error> {
        loop {
            let arrived = self.0.arrived.notified();
            if let Some(deliveries) = self.take(most) {
                return Ok(deliveries);
            }
            arrived.await;
        }
    }

    async fn stop(&mut self) {
        self.0.inner().stopped = true;
    }

    async fn close(&mut self) {}
}

impl Broker {
    fn take(&self, most: usize) -> Option<Vec<Delivery>> {
        let settler = self.settler();
        let mut inner = self.0.inner();
        let odds = inner.faults.reconnect;
        if !inner.unsettled.is_empty() && inner.random.random_range(0..100) < odds {
            // A new connection: receipts of the old one are void and its deliveries come again, in order.
            inner.generation += 1;
            let mut back: Vec<_> = inner.unsettled.drain().collect();
            back.sort_by_key(|(tag, _)| std::cmp::Reverse(*tag));
            // A broker has one message, however often it handed it over.
            for (_, message) in back {
                if !inner.queue.iter().any(|queued| Arc::ptr_eq(queued, &message)) {
                    inner.queue.push_front(message);
                }
            }
        }
        let count = inner.random.random_range(1..=most.min(12)).min(inner.queue.len());
        if count == 0 || inner.stopped {
            return None;
        }
        let mut deliveries = Vec::new();
        for _ in 0..count {
            let Some(message) = inner.queue.pop_front() else { break };
            let odds = inner.faults.duplicate;
            let copies = if inner.random.random_range(0..100) < odds { 2 } else { 1 };
            for _ in 0..copies {
                inner.tags += 1;
                let tag = inner.tags;
                inner.unsettled.insert(tag, Arc::clone(&message));
                let place = Place { generation: inner.generation, stream: 0, position: tag };
                let receipt = Receipt::new(place, Arc::clone(&settler));
                deliveries.push(Delivery { message: Arc::clone(&message), receipt, redelivered: false });
            }
        }
        Some(deliveries)
    }
}

struct Acks(Arc<World>);

#[async_trait]
impl Settler for Acks {
    async fn settle(&self, places: Vec<(Place, Disposal)>) -> Tally {
        let mut inner = self.0.inner();
        let mut tally = Tally::default();
        for (place, disposal) in places {
            if place.generation != inner.generation {
                tally.void += 1;
                continue;
            }
            let Some(message) = inner.unsettled.remove(&place.position) else {
                inner.twice += 1;
                continue;
            };
            tally.settled += 1;
            match disposal {
                Disposal::Done(finish) => {
                    let name = match finish {
                        Finish::Applied => "applied",
                        Finish::Duplicate => "duplicate",
                        Finish::Rejected => "rejected",
                        Finish::Waiting => "waiting",
                    };
                    *inner.finished.entry(name).or_default() += 1;
                }
                Disposal::Requeue => inner.queue.push_front(message),
            }
        }
        drop(inner);
        self.0.arrived.notify_one();
        tally
    }

    fn forgotten(&self, _place: Place) {
        self.0.inner().forgotten += 1;
    }
}

pub struct Memory {
    pub world: Arc<World>,
    pub catalog: Arc<Catalog>,
}

#[async_trait]
impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities { concurrent_writers: true, savepoints: true }
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, Error> {
        Ok(Arc::clone(&self.catalog))
    }

    async fn writer(&self, _group: &str, _plugin: &str, _digest: &str) -> Result<Writer, Error> {
        Ok(Writer(1))
    }

    fn session(&self) -> Box<dyn Session> {
        let mut inner = self.world.inner();
        inner.sessions += 1;
        Box::new(Open {
            number: inner.sessions,
            world: Arc::clone(&self.world),
            draft: None,
            claimed: Vec::new(),
            saved: None,
        })
    }

    fn admit(&self, sql: &str, access: &Access, purpose: Purpose) -> Result<Statement, effect::Error> {
        let tables = access.catalog().tables().map(|(id, _)| id).collect();
        Ok(Statement { sql: sql.into(), purpose, tables })
    }

    fn outbox(&self) -> Arc<dyn outbox::Store> {
        unreachable!("the simulation runs no relay")
    }

    fn parked(&self) -> Arc<dyn parked::Store> {
        Arc::new(Waiting(Arc::clone(&self.world)))
    }
}

/// A transaction works on a draft: what others committed meanwhile is merged in row by row when it commits.
struct Open {
    number: u64,
    world: Arc<World>,
    draft: Option<Draft>,
    claimed: Vec<DedupKey>,
    saved: Option<Draft>,
}

#[derive(Clone, Default)]
struct Draft {
    /// Additions, and the last sequence number, by account.
    accounts: BTreeMap<i64, (i64, Option<i64>)>,
    inbox: BTreeMap<DedupKey, State>,
    outbox: BTreeMap<Uuid, Vec<u8>>,
    parked: BTreeMap<DedupKey, Held>,
    unparked: Vec<DedupKey>,
}

impl Open {
    fn draft(&mut self) -> Result<&mut Draft, Error> {
        self.draft.as_mut().ok_or_else(|| fault("work outside a transaction", true, false))
    }

    fn end(&mut self) {
        let mut inner = self.world.inner();
        let number = self.number;
        inner.held.retain(|_, holder| *holder != number);
        drop(inner);
        self.draft = None;
        self.saved = None;
        self.claimed.clear();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end();
    }
}

#[async_trait]
impl Session for Open {
    async fn begin(&mut self) -> Result<(), Error> {
        assert!(self.draft.is_none(), "a session has one transaction at a time");
        if self.world.strikes(|f| f.begin) {
            return Err(fault("connect", true, false));
        }
        self.draft = Some(Draft::default());
        Ok(())
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Error> {
        if self.world.strikes(|f| f.claim) {
            return Err(fault("claim", false, true));
        }
        let mut found = Vec::new();
        for claim in claims {
            tokio::task::yield_now().await;
            let mut inner = self.world.inner();
            if inner.held.get(&claim.key).is_some_and(|holder| *holder != self.number) {
                return Err(fault("wait for the same key", false, true));
            }
            let known = inner.committed.inbox.get(&claim.key).copied();
            let leased = inner.committed.parked.get(&claim.key).and_then(|held| held.lease);
            let outcome = match (known, claim.retry) {
                (Some(State::Waiting), Some(lease)) if leased == Some(lease) => Claimed::New,
                (_, Some(_)) => Claimed::Gone,
                (Some(state), None) => Claimed::Duplicate { state, same_body: true },
                (None, None) => Claimed::New,
            };
            if outcome == Claimed::New {
                inner.held.insert(claim.key, self.number);
                drop(inner);
                self.claimed.push(claim.key);
                self.draft()?.inbox.insert(claim.key, claim.state);
            }
            found.push(outcome);
        }
        Ok(found)
    }

    async fn record(&mut self, states: &[(DedupKey, State)]) -> Result<(), Error> {
        for (key, state) in states {
            self.draft()?.inbox.insert(*key, *state);
        }
        Ok(())
    }

    async fn apply(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        if self.world.strikes(|f| f.apply) {
            return Err(fault("apply", true, false).into());
        }
        for group in &plan.groups {
            assert_eq!(group.verb, Verb::Add, "the simulated handlers only add");
            tokio::task::yield_now().await;
            for row in &group.rows {
                let (Value::Integer(id), Value::Integer(amount)) = (&row.key[0], &row.values[0]) else {
                    panic!("accounts hold whole numbers");
                };
                let committed = self.world.database().accounts.get(id).map_or(0, |a| a.0);
                let draft = self.draft()?;
                let account = draft.accounts.entry(*id).or_default();
                account.0 += amount;
                if committed + account.0 < LEAST {
                    let suspects = if row.origins.len() % 2 == 0 { row.origins.clone() } else { Vec::new() };
                    return Err(ApplyError::Refused(Refusal {
                        code: "constraint:accounts_balance_check".into(),
                        reason: "the balance is too low".into(),
                        retry: false,
                        guard: None,
                        suspects,
                    }));
                }
            }
        }
        Ok(())
    }

    async fn emit(&mut self, rows: &[outbox::NewRow]) -> Result<(), Error> {
        for row in rows {
            let body = row.body.to_vec();
            self.draft()?.outbox.insert(row.id, body);
        }
        Ok(())
    }

    async fn park(&mut self, rows: &[parked::NewRow]) -> Result<(), Error> {
        for row in rows {
            let held = Held { row: row.clone(), due: tokio::time::Instant::now() + row.after, lease: None };
            self.draft()?.parked.insert(row.key, held);
        }
        Ok(())
    }

    async fn unpark(&mut self, keys: &[DedupKey]) -> Result<(), Error> {
        self.draft()?.unparked.extend(keys);
        Ok(())
    }

    async fn get(&mut self, _: TableId, key: &Cells, _: &[ColumnId], _: bool) -> Result<Option<Vec<Value>>, ReadError> {
        let Value::Integer(id) = key[0].1 else { panic!("accounts have whole numbers as keys") };
        let committed = self.world.database().accounts.get(&id).copied();
        let added = self.draft()?.accounts.get(&id).map_or(0, |a| a.0);
        Ok(committed
            .map(|(balance, last)| vec![Value::Integer(id), Value::Integer(balance + added), Value::Integer(last)]))
    }

    async fn query(&mut self, _: &Statement, _: &[Value], _: usize) -> Result<Rows, ReadError> {
        unreachable!("the simulated handlers query nothing")
    }

    async fn execute(&mut self, _: &Statement, _: &[Value]) -> Result<u64, ApplyError> {
        unreachable!("the simulated handlers execute nothing")
    }

    async fn savepoint(&mut self) -> Result<(), Error> {
        self.saved = self.draft.clone();
        Ok(())
    }

    async fn rollback_to(&mut self) -> Result<(), Error> {
        self.draft = self.saved.take();
        Ok(())
    }

    async fn release(&mut self) -> Result<(), Error> {
        self.saved = None;
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), CommitError> {
        tokio::task::yield_now().await;
        if self.world.strikes(|f| f.rolled_back) {
            self.end();
            return Err(CommitError::RolledBack(fault("commit", false, true)));
        }
        let in_doubt = self.world.strikes(|f| f.in_doubt);
        if !in_doubt || self.world.strikes(|_| 50) {
            let draft = self.draft.take().expect("commit ends a transaction");
            let mut inner = self.world.inner();
            let database = &mut inner.committed;
            for (id, (added, _)) in draft.accounts {
                database.accounts.get_mut(&id).expect("the account is there").0 += added;
            }
            for (key, state) in draft.inbox {
                let before = database.inbox.insert(key, state);
                assert!(before.is_none_or(|b| b == State::Waiting), "an inbox row was overwritten");
            }
            for key in draft.unparked {
                database.parked.remove(&key);
            }
            database.parked.extend(draft.parked);
            for (id, body) in draft.outbox {
                assert_eq!(database.outbox.insert(id, body), None, "a message was emitted twice");
            }
        }
        self.end();
        if in_doubt { Err(CommitError::InDoubt(fault("commit", true, false))) } else { Ok(()) }
    }

    async fn rollback(&mut self) {
        self.end();
    }
}

struct Waiting(Arc<World>);

#[async_trait]
impl parked::Store for Waiting {
    async fn due(&self, _: &str, most: usize, _: Duration) -> Result<Vec<parked::Due>, Error> {
        let mut inner = self.0.inner();
        let id = Uuid::from_u128(inner.random.random());
        let now = tokio::time::Instant::now();
        let due =
            inner.committed.parked.iter_mut().filter(|(_, held)| held.row.state == State::Waiting && held.due <= now);
        Ok(due
            .take(most)
            .map(|(key, held)| {
                let lease = parked::Lease(id);
                held.lease = Some(lease);
                held.due = now + Duration::from_secs(60);
                let envelope = (*held.row.envelope).clone();
                parked::Due { key: *key, lease, attempts: held.row.attempts, envelope, body: held.row.body.clone() }
            })
            .collect())
    }

    async fn next_due(&self, _: &str) -> Result<Option<Duration>, Error> {
        let inner = self.0.inner();
        let now = tokio::time::Instant::now();
        let waiting = inner.committed.parked.values().filter(|held| held.row.state == State::Waiting);
        Ok(waiting.map(|held| held.due.saturating_duration_since(now)).min())
    }

    async fn list(&self, _: &parked::Filter, _: usize) -> Result<Vec<parked::Listed>, Error> {
        Ok(Vec::new())
    }

    async fn show(&self, _: Uuid) -> Result<Option<parked::Shown>, Error> {
        Ok(None)
    }

    async fn inbox(&self, _: &str, _: usize) -> Result<Vec<parked::InboxRow>, Error> {
        Ok(Vec::new())
    }

    async fn clean(&self, _: Duration, _: usize) -> Result<u64, Error> {
        Ok(0)
    }
}
