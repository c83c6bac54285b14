//! What only a server can break: cut connections, cancelled calls, deadlocks, types.

use std::time::Duration;

use ackwright_core::plan::{Plan, Verb};
use ackwright_core::store::{ApplyError, Claimed, CommitError, ReadError, Session, State};
use ackwright_core::value::Value;
use ackwright_stores::Settings;
use ackwright_testkit::{Hook, Proxy, Way, When, postgres, until};
use bytes::Bytes;
use uuid::Uuid;

use crate::bed::{self, Bed, commit, key, row, text};

const SOON: Duration = Duration::from_secs(20);

fn put(bed: &Bed, id: &str, balance: i64) -> Plan {
    bed.group("accounts", Verb::Upsert, &["id"], &["balance"], vec![row(text(id), vec![Value::Integer(balance)], 0)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t01_cancelled_calls_leave_no_open_transaction() {
    let bed = bed::postgres().await;
    let mut session = bed.store.session();
    let mut finished = 0;
    // Grows while rounds are cut and shrinks when one finishes: about as long as a round takes on this machine now.
    let mut window = 1_500.0;
    for round in 0..10_000u64 {
        let work = async {
            session.begin().await.unwrap();
            session.claim(&[bed.claim(key(&[&round.to_string()]), 0)]).await.unwrap();
            commit(&mut *session).await.unwrap();
        };
        // Odd numbers spread the cuts over every await, the connecting included.
        let cut = Duration::from_micros(round * 7_919 % window as u64);
        if tokio::time::timeout(cut, work).await.is_ok() {
            finished += 1;
            window = f64::max(window * 0.75, 200.0);
        } else {
            window = f64::min(window * 1.004, 1e6);
        }
    }
    assert!(finished > 0 && finished < 10_000, "{finished} rounds finished");
    session.begin().await.unwrap();
    assert_eq!(session.claim(&[bed.claim(key(&["last"]), 0)]).await.unwrap(), [Claimed::New]);
    commit(&mut *session).await.unwrap();
    until("no session is idle in a transaction", SOON, async || {
        (postgres().await.idle_in_transaction(&bed.url).await.ok()? == 0).then_some(())
    })
    .await;
}

async fn cut_around_commit(when: When) -> bool {
    let bed = bed::postgres().await;
    let (proxy, through) = Proxy::before(&bed.url).await.unwrap();
    let store = ackwright_stores::open(&through, &Settings::default()).unwrap();
    let mut session = store.session();
    session.begin().await.unwrap();
    session.claim(&[bed.claim(key(&["a"]), 0)]).await.unwrap();
    session.apply(&put(&bed, "a", 1)).await.unwrap();
    let fired = proxy.hook(Hook { way: Way::ToServer, pattern: b"COMMIT".to_vec(), when, skip: 0 });
    match commit(&mut *session).await {
        Err(CommitError::InDoubt(error)) => assert!(error.lost),
        other => panic!("a cut commit ended as {other:?}"),
    }
    fired.await.unwrap();
    // The inbox tells, once the server has noticed that the link is gone.
    session.begin().await.unwrap();
    let claimed = session.claim(&[bed.claim(key(&["a"]), 0)]).await.unwrap();
    session.rollback().await;
    let there = bed.row("accounts", "a", &["balance"]).await.is_some();
    let expected = Claimed::Duplicate { state: State::Done, same_body: true };
    assert_eq!(claimed, [if there { expected } else { Claimed::New }]);
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t07_a_commit_cut_before_the_server_saw_it_is_in_doubt_and_undone() {
    assert!(!cut_around_commit(When::Before).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t07_a_commit_whose_answer_was_lost_is_in_doubt_and_done() {
    assert!(cut_around_commit(When::Answered).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t12_a_transaction_that_the_server_ended_stays_ended() {
    let bed = bed::postgres().await;
    let mut session = bed.open().await;
    session.apply(&put(&bed, "a", 1)).await.unwrap();
    postgres().await.terminate(&bed.url).await.unwrap();
    match session.apply(&put(&bed, "b", 1)).await {
        Err(ApplyError::System(error)) => assert!(error.lost),
        other => panic!("a dead session answered {other:?}"),
    }
    assert!(session.emit(&[]).await.is_ok());
    assert!(session.claim(&[bed.claim(key(&["a"]), 0)]).await.unwrap_err().lost);
    match commit(&mut *session).await {
        Err(CommitError::RolledBack(_)) => {}
        other => panic!("a dead transaction ended as {other:?}"),
    }
    assert_eq!(bed.row("accounts", "a", &["balance"]).await, None);
    session.begin().await.unwrap();
    session.apply(&put(&bed, "a", 2)).await.unwrap();
    commit(&mut *session).await.unwrap();
    assert_eq!(bed.row("accounts", "a", &["balance"]).await, Some(vec![Value::Integer(2)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_deadlock_is_a_conflict() {
    let bed = bed::postgres().await;
    let (mut one, mut two) = (bed.open().await, bed.open().await);
    one.apply(&put(&bed, "a", 1)).await.unwrap();
    two.apply(&put(&bed, "b", 1)).await.unwrap();
    let (first, second) = (put(&bed, "b", 2), put(&bed, "a", 2));
    let cross = async |session: &mut Box<dyn Session>, plan: &Plan| {
        let result = session.apply(plan).await;
        match result {
            Ok(()) => commit(&mut **session).await.unwrap(),
            Err(_) => session.rollback().await,
        }
        result
    };
    let (a, b) = tokio::join!(cross(&mut one, &first), cross(&mut two, &second));
    let lost: Vec<_> = [a, b].into_iter().filter_map(Result::err).collect();
    match lost.as_slice() {
        [ApplyError::System(error)] => assert!(error.conflict && !error.lost),
        other => panic!("a deadlock ended as {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o01_a_row_that_commits_late_is_still_found() {
    let bed = bed::postgres().await;
    let emitted = |name: &str| ackwright_core::outbox::NewRow {
        id: key(&[name]).emit_id(0),
        broker: "events".into(),
        destination: "d".into(),
        order_key: name.into(),
        content_type: None,
        headers: Vec::new(),
        body: Bytes::new(),
    };
    let (mut early, mut late) = (bed.open().await, bed.open().await);
    early.emit(&[emitted("early")]).await.unwrap();
    late.emit(&[emitted("late")]).await.unwrap();
    commit(&mut *late).await.unwrap();
    let outbox = bed.store.outbox();
    let relay = Uuid::from_u128(1);
    let shards = outbox.lease(relay, Duration::from_secs(60)).await.unwrap();
    let first = outbox.pending("events", &shards, 10).await.unwrap().rows;
    assert_eq!(first.len(), 1);
    let sent = [(first[0].position, ackwright_core::outbox::Fate::Sent)];
    outbox.settle(relay, &sent, Duration::ZERO).await.unwrap();
    commit(&mut *early).await.unwrap();
    let second = outbox.pending("events", &shards, 10).await.unwrap().rows;
    assert_eq!(second.len(), 1);
    assert!(second[0].position < first[0].position);
}

const TYPES: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'glad');
    CREATE DOMAIN small AS int CHECK (VALUE < 10);
    CREATE TABLE types (id text PRIMARY KEY, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric,
        n2 numeric(12, 3), t text, v varchar(5), y bytea, u uuid, tz timestamptz, ts timestamp, j json, jb jsonb,
        d date, e mood, dom small, arr int[], iv interval)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_every_type_comes_back_exactly_or_as_an_error() {
    let first = bed::postgres().await;
    first.sql(TYPES).await;
    // A catalog is read once; a new store reads the new table.
    let store = ackwright_stores::open(&first.url, &Settings::default()).unwrap();
    let bed = Bed { catalog: store.catalog().await.unwrap(), store, ..first };
    let cases = [
        ("b", Value::Boolean(true)),
        ("i2", Value::Integer(i16::MIN.into())),
        ("i4", Value::Integer(i32::MAX.into())),
        ("i8", Value::Integer(i64::MIN)),
        ("f4", Value::Float(1.5)),
        ("f8", Value::Float(f64::MIN_POSITIVE)),
        ("n", Value::Decimal("123456789012345678901234567890.000000000000000000001".into())),
        ("n2", Value::Decimal("-999999999.999".into())),
        ("t", text("ž\u{301} 🍵 trailing ")),
        ("v", text("abcde")),
        ("y", Value::Bytes(Bytes::from_static(b"\0\xff\\x"))),
        ("u", Value::Uuid(Uuid::from_u128(u128::MAX))),
        ("tz", Value::Timestamp(-1)),
        ("ts", Value::Timestamp(4_102_444_800_000_001)),
        ("j", Value::Json("{\"a\":  1}".into())),
        ("jb", Value::Json("{\"a\": 1}".into())),
        ("d", text("2024-02-29")),
        ("e", text("glad")),
        ("dom", Value::Integer(9)),
        ("arr", text("{1,NULL,3}")),
        ("iv", text("1 day")),
    ];
    let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
    let values: Vec<Value> = cases.iter().map(|(_, value)| value.clone()).collect();
    let mut session = bed.open().await;
    let nulls = values.iter().map(|_| Value::Null).collect();
    for verb in [Verb::Insert, Verb::Upsert, Verb::Update] {
        let rows = vec![row(text("full"), values.clone(), 0)];
        session.apply(&bed.group("types", verb, &["id"], &names, rows)).await.unwrap();
    }
    session.apply(&bed.group("types", Verb::Insert, &["id"], &names, vec![row(text("null"), nulls, 0)])).await.unwrap();
    commit(&mut *session).await.unwrap();
    assert_eq!(bed.row("types", "full", &names).await.unwrap(), values);
    assert!(bed.row("types", "null", &names).await.unwrap().iter().all(|v| *v == Value::Null));

    bed.sql("UPDATE types SET n = 'NaN', tz = 'infinity' WHERE id = 'null'").await;
    for name in ["n", "tz"] {
        session.begin().await.unwrap();
        let key = vec![(bed.columns("types", &["id"])[0], text("null"))];
        match session.get(bed.table("types"), &key, &bed.columns("types", &[name]), false).await {
            Err(ReadError::Invalid(why)) => assert!(why.contains(name), "{why}"),
            other => panic!("{name} came as {other:?}"),
        }
        session.rollback().await;
    }
    // Sums that leave their type are refused, never wrapped.
    session.begin().await.unwrap();
    let add = bed.group("types", Verb::Add, &["id"], &["i4"], vec![row(text("full"), vec![Value::Integer(1)], 3)]);
    match session.apply(&add).await {
        Err(ApplyError::Refused(refusal)) => assert_eq!(refusal.code, "data:22003"),
        other => panic!("an overflow ended as {other:?}"),
    }
    session.rollback().await;
}

#[tokio::test]
async fn c02_no_error_holds_the_password() {
    let secret = "s3cr3t";
    for url in [
        format!("postgres://user:{secret}@127.0.0.1:1/db"),
        format!("postgres://user:{secret}@[broken:99999/db"),
        format!("{secret}://x"),
        format!("user:{secret}@host"),
    ] {
        let text = match ackwright_stores::open(&url, &Settings::default()) {
            Err(error) => format!("{error} {error:?}"),
            Ok(store) => match store.catalog().await {
                Err(error) => format!("{error} {error:?} {:?}", std::error::Error::source(&error)),
                Ok(_) => panic!("connected to nowhere"),
            },
        };
        assert!(!text.contains(secret), "{text}");
    }
}
