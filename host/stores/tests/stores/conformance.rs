//! What every store does the same way.

use std::sync::Arc;
use std::time::Duration;

use ackwright_core::effect::Guard;
use ackwright_core::key::Identity;
use ackwright_core::message::{Header, HeaderValue, Message};
use ackwright_core::outbox::{self, Fate};
use ackwright_core::parked::{self, Envelope};
use ackwright_core::plan::Verb;
use ackwright_core::store::{ApplyError, Claim, Claimed, CommitError, Purpose, ReadError, Refusal, Session, State};
use ackwright_core::value::Value;
use bytes::Bytes;
use uuid::Uuid;

use crate::bed::{Bed, commit, key, row, text};

fn refusal(result: Result<(), ApplyError>) -> Refusal {
    match result {
        Err(ApplyError::Refused(refusal)) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub async fn d06_a_rolled_back_claim_leaves_nothing(bed: &Bed) {
    for _ in 0..2 {
        let mut session = bed.open().await;
        assert_eq!(session.claim(&[bed.claim(key(&["a"]), 1)]).await.unwrap(), [Claimed::New]);
        session.rollback().await;
    }
    assert!(bed.store.parked().inbox("label", 10).await.unwrap().is_empty());
}

pub async fn d07_the_second_claim_is_a_duplicate(bed: &Bed) {
    let mut session = bed.open().await;
    let claims = [bed.claim(key(&["b"]), 1), bed.claim(key(&["a"]), 2)];
    assert_eq!(session.claim(&claims).await.unwrap(), [Claimed::New, Claimed::New]);
    commit(&mut *session).await.unwrap();
    session.begin().await.unwrap();
    let again = [bed.claim(key(&["a"]), 9), bed.claim(key(&["c"]), 3), bed.claim(key(&["b"]), 1)];
    let expected = [
        Claimed::Duplicate { state: State::Done, same_body: false },
        Claimed::New,
        Claimed::Duplicate { state: State::Done, same_body: true },
    ];
    assert_eq!(session.claim(&again).await.unwrap(), expected);
    session.record(&[(key(&["c"]), State::Failed)]).await.unwrap();
    commit(&mut *session).await.unwrap();
    let rows = bed.store.parked().inbox(&key(&["c"]).0.to_string(), 10).await.unwrap();
    assert_eq!(rows.iter().map(|r| r.state.as_str()).collect::<Vec<_>>(), ["failed"]);
    assert_eq!(rows[0].group, "group");
}

pub async fn d03_keys_that_differ_by_case_or_space_are_different(bed: &Bed) {
    let keys = [key(&["a"]), key(&["A"]), key(&["a "]), key(&["\u{e9}"]), key(&["e\u{301}"]), key(&["", "a"])];
    let mut session = bed.open().await;
    let claimed = session.claim(&keys.map(|k| bed.claim(k, 0))).await.unwrap();
    assert_eq!(claimed, [Claimed::New; 6]);
    session.rollback().await;
}

pub async fn d04_long_keys_are_hashed_and_labels_kept(bed: &Bed) {
    let long = "x".repeat(100_000);
    let identity = Identity { event_type: "E".into(), business_key: vec![long.clone()], order_key: None };
    let mut claim = bed.claim(key(&[&long]), 0);
    claim.label = identity.label();
    let mut other = bed.claim(key(&[&format!("{long}y")]), 0);
    other.label = claim.label.clone();
    let mut session = bed.open().await;
    assert_eq!(session.claim(&[claim.clone(), other]).await.unwrap(), [Claimed::New; 2]);
    commit(&mut *session).await.unwrap();
    let found = bed.store.parked().inbox("\"E\" \"xxx", 10).await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].label, claim.label);
}

pub async fn d08_a_refused_row_is_no_duplicate_and_names_its_message(bed: &Bed) {
    let coupon = |id: &str, order: i64, amount: i64, origin| {
        row(text(id), vec![Value::Integer(order), Value::Integer(amount)], origin)
    };
    let insert = |rows| bed.group("coupons", Verb::Insert, &["id"], &["order_id", "amount"], rows);
    let mut session = bed.open().await;
    session.apply(&insert(vec![coupon("a", 1, 5, 0), coupon("b", 2, 5, 1)])).await.unwrap();
    commit(&mut *session).await.unwrap();

    session.begin().await.unwrap();
    let rows = vec![coupon("c", 3, 5, 10), coupon("d", 2, 5, 11), coupon("e", 4, 5, 12)];
    let unique = refusal(session.apply(&insert(rows)).await);
    assert!(unique.code.starts_with("constraint:"), "{unique:?}");
    assert!(!unique.retry);
    assert!(unique.suspects.contains(&11), "{unique:?}");
    session.rollback().await;

    session.begin().await.unwrap();
    let check = refusal(session.apply(&insert(vec![coupon("c", 3, 5, 10), coupon("d", 5, 0, 11)])).await);
    assert_eq!(check.code, "constraint:positive");
    assert!(check.suspects.contains(&11), "{check:?}");
    session.rollback().await;
}

pub async fn a_missing_parent_asks_for_a_later_try(bed: &Bed) {
    let rows = vec![row(Value::Integer(1), vec![text("nobody")], 4)];
    let mut session = bed.open().await;
    let plan = bed.group("lines", Verb::Insert, &["id"], &["coupon"], rows);
    let refused = refusal(session.apply(&plan).await);
    assert!(refused.retry, "{refused:?}");
    assert!(refused.suspects.is_empty() || refused.suspects == [4]);
    session.rollback().await;
}

pub async fn effects_reach_the_database(bed: &Bed) {
    let mut session = bed.open().await;
    let accounts = |verb, rows| bed.group("accounts", verb, &["id"], &["balance"], rows);
    let money = |id: &str, amount| row(text(id), vec![Value::Integer(amount)], 0);
    session.apply(&accounts(Verb::Upsert, vec![money("a", 10), money("b", 20)])).await.unwrap();
    session.apply(&accounts(Verb::InsertIfAbsent, vec![money("b", 99), money("c", 30)])).await.unwrap();
    session.apply(&accounts(Verb::Add, vec![money("a", 5), money("b", -7)])).await.unwrap();
    session.apply(&accounts(Verb::Update, vec![money("c", 31)])).await.unwrap();
    session.apply(&accounts(Verb::Upsert, vec![money("d", 1)])).await.unwrap();
    let gone = vec![row(text("d"), vec![], 0), row(text("nobody"), vec![], 0)];
    session.apply(&bed.group("accounts", Verb::Delete, &["id"], &[], gone)).await.unwrap();
    let version = bed.columns("profiles", &["version"])[0];
    for (number, name) in [(2, "new"), (1, "old"), (2, "same")] {
        let rows = vec![row(text("p"), vec![Value::Integer(number), text(name)], 0)];
        let plan = bed.group("profiles", Verb::UpsertIfNewer { version }, &["id"], &["version", "name"], rows);
        session.apply(&plan).await.unwrap();
    }
    commit(&mut *session).await.unwrap();
    for (id, balance) in [("a", Some(15)), ("b", Some(13)), ("c", Some(31)), ("d", None)] {
        assert_eq!(bed.row("accounts", id, &["balance"]).await, balance.map(|b| vec![Value::Integer(b)]), "{id}");
    }
    assert_eq!(bed.row("profiles", "p", &["name", "version"]).await, Some(vec![text("new"), Value::Integer(2)]));
}

pub async fn guards_refuse_with_their_own_words(bed: &Bed) {
    let guard = Guard { code: "funds".into(), reason: "too little".into() };
    let add = |id: &str, amount: i64, origin| {
        let mut row = row(text(id), vec![Value::Integer(amount)], origin);
        row.floors = vec![Some(Value::Integer(0))];
        row.guard = Some(guard.clone());
        row
    };
    let mut session = bed.open().await;
    let rows = ["a", "b", "c"].map(|id| row(text(id), vec![Value::Integer(10)], 0)).to_vec();
    session.apply(&bed.group("accounts", Verb::Insert, &["id"], &["balance"], rows)).await.unwrap();
    commit(&mut *session).await.unwrap();
    for rows in [
        vec![add("a", -10, 1), add("b", -11, 2), add("c", 1, 3)],
        vec![add("a", -10, 1), add("bb", 11, 2), add("c", 1, 3)],
    ] {
        session.begin().await.unwrap();
        let refused = refusal(session.apply(&bed.group("accounts", Verb::Add, &["id"], &["balance"], rows)).await);
        assert_eq!((refused.guard.as_deref(), refused.suspects.as_slice()), (Some(&guard), &[2][..]));
        assert_eq!(refused.reason, "too little");
        session.rollback().await;
    }
    assert_eq!(bed.row("accounts", "a", &["balance"]).await, Some(vec![Value::Integer(10)]));
}

pub async fn t08_a_failed_transaction_cannot_commit(bed: &Bed) {
    let bad = || {
        bed.group(
            "coupons",
            Verb::Insert,
            &["id"],
            &["order_id", "amount"],
            vec![row(text("x"), vec![Value::Integer(1), Value::Integer(-1)], 0)],
        )
    };
    let good =
        || bed.group("accounts", Verb::Upsert, &["id"], &["balance"], vec![row(text("x"), vec![Value::Integer(1)], 0)]);
    let mut session = bed.open().await;
    session.apply(&good()).await.unwrap();
    session.savepoint().await.unwrap();
    refusal(session.apply(&bad()).await);
    session.rollback_to().await.unwrap();
    commit(&mut *session).await.unwrap();
    assert!(bed.row("accounts", "x", &["balance"]).await.is_some());

    session.begin().await.unwrap();
    let gone = vec![row(text("x"), vec![], 0)];
    session.apply(&bed.group("accounts", Verb::Delete, &["id"], &[], gone)).await.unwrap();
    refusal(session.apply(&bad()).await);
    match commit(&mut *session).await {
        Err(CommitError::RolledBack(_)) => {}
        other => panic!("a failed transaction ended as {other:?}"),
    }
    assert!(bed.row("accounts", "x", &["balance"]).await.is_some());
}

fn emitted(order_key: &str, ordinal: u32) -> outbox::NewRow {
    outbox::NewRow {
        id: key(&[order_key]).emit_id(ordinal),
        broker: Arc::from("events"),
        destination: "coupon.issued".into(),
        order_key: order_key.into(),
        content_type: Some("application/json".into()),
        headers: vec![
            Header { name: "n".into(), value: HeaderValue::Null },
            Header { name: "n".into(), value: HeaderValue::Bytes(Bytes::from_static(b"\0\xff")) },
        ],
        body: Bytes::from_static(b"\0body"),
    }
}

pub async fn o04_a_refused_row_blocks_its_key_only(bed: &Bed) {
    let rows = [emitted("a", 0), emitted("a", 1), emitted("b", 0)];
    let mut session = bed.open().await;
    session.emit(&rows).await.unwrap();
    commit(&mut *session).await.unwrap();
    let outbox = bed.store.outbox();
    let (relay, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let shards = outbox.lease(relay, Duration::from_secs(60)).await.unwrap();
    assert_eq!(shards, (0..outbox::SHARDS).collect::<Vec<_>>());
    assert!(outbox.lease(other, Duration::from_secs(60)).await.unwrap().is_empty());

    let pending = outbox.pending("events", &shards, 10).await.unwrap().rows;
    assert_eq!(pending.iter().map(|r| r.id).collect::<Vec<_>>(), rows.iter().map(|r| r.id).collect::<Vec<_>>());
    assert_eq!((&pending[0].headers, &pending[0].body), (&rows[0].headers, &rows[0].body));
    assert!(outbox.pending("elsewhere", &shards, 10).await.unwrap().is_empty());

    let refused = Fate::Refused { reason: "unroutable".into(), after: Duration::from_secs(600) };
    // A relay that holds no lease changes nothing.
    outbox.settle(other, &[(pending[0].position, Fate::Sent)], Duration::ZERO).await.unwrap();
    outbox.settle(relay, &[(pending[0].position, refused)], Duration::ZERO).await.unwrap();
    let left = outbox.pending("events", &shards, 10).await.unwrap().rows;
    assert_eq!(left.iter().map(|r| r.id).collect::<Vec<_>>(), [rows[2].id]);
    let counts = outbox.counts().await.unwrap();
    assert_eq!((counts.pending, counts.refused, counts.parked), (2, 1, 0));

    assert_eq!(outbox.retry(&[]).await.unwrap(), 1);
    let again = outbox.pending("events", &shards, 10).await.unwrap().rows;
    assert_eq!((again[0].id, again[0].attempts), (rows[0].id, 1));
    let sent: Vec<_> = again.iter().map(|r| (r.position, Fate::Sent)).collect();
    outbox.settle(relay, &sent, Duration::from_secs(60)).await.unwrap();
    assert_eq!(outbox.list(Some("sent"), 10).await.unwrap().len(), 3);
    assert_eq!(outbox.clean(Duration::ZERO, 2).await.unwrap(), 2);
    outbox.release(relay).await.unwrap();
    assert_eq!(outbox.lease(other, Duration::from_secs(1)).await.unwrap().len(), 16);
}

pub async fn o04_a_row_that_nobody_can_read_holds_up_no_other(bed: &Bed) {
    let rows = [emitted("a", 0), emitted("b", 1)];
    let mut session = bed.open().await;
    session.emit(&rows).await.unwrap();
    commit(&mut *session).await.unwrap();
    bed.sql(
        "UPDATE ackwright_outbox SET headers = '[{\"name\":\"n\",\"value\":{\"f64\":null}}]' WHERE order_key = 'a'",
    )
    .await;
    let outbox = bed.store.outbox();
    let shards: Vec<i16> = (0..outbox::SHARDS).collect();
    let pending = outbox.pending("events", &shards, 10).await.unwrap();
    assert_eq!(pending.rows.iter().map(|r| r.id).collect::<Vec<_>>(), [rows[1].id]);
    let unreadable = &pending.unreadable[..];
    assert_eq!(unreadable.iter().map(|r| r.id).collect::<Vec<_>>(), [rows[0].id]);
    assert!(unreadable[0].position < pending.rows[0].position && unreadable[0].reason.contains("headers"));
}

/// Parks a message that is due at once.
async fn wait(bed: &Bed, session: &mut dyn Session, name: &str) -> Claim {
    let message = Message { source: "queue".into(), body: None, ..Message::default() };
    let mut claim = bed.claim(key(&[name]), 7);
    claim.state = State::Waiting;
    let parked = parked::NewRow {
        key: claim.key,
        label: claim.label.clone(),
        writer: bed.writer,
        route: Arc::from("route"),
        state: State::Waiting,
        code: "retry:later".into(),
        reason: "not\0yet".into(),
        detail: None,
        attempts: 1,
        after: Duration::ZERO,
        envelope: Arc::new(Envelope::of(&message, None)),
        body: message.body.clone(),
    };
    session.claim(std::slice::from_ref(&claim)).await.unwrap();
    session.park(std::slice::from_ref(&parked)).await.unwrap();
    claim
}

pub async fn a_waiting_message_that_nobody_can_read_holds_up_no_other(bed: &Bed) {
    let mut session = bed.open().await;
    wait(bed, &mut *session, "broken").await;
    commit(&mut *session).await.unwrap();
    bed.sql("UPDATE ackwright_parked SET envelope = '{}'").await;
    session.begin().await.unwrap();
    let fine = wait(bed, &mut *session, "fine").await;
    commit(&mut *session).await.unwrap();
    let store = bed.store.parked();
    let due = store.due("route", 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!(due.iter().map(|d| d.key).collect::<Vec<_>>(), [fine.key]);
    assert!(store.due("route", 10, Duration::from_secs(60)).await.unwrap().is_empty(), "both are leased");
}

pub async fn a_waiting_message_runs_for_the_holder_of_its_lease(bed: &Bed) {
    let mut session = bed.open().await;
    let claim = wait(bed, &mut *session, "w").await;
    commit(&mut *session).await.unwrap();

    let store = bed.store.parked();
    assert_eq!(store.next_due("route").await.unwrap(), Some(Duration::ZERO));
    let due = store.due("route", 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!((due.len(), due[0].attempts, &due[0].body), (1, 1, &None));
    assert!(store.due("route", 10, Duration::from_secs(60)).await.unwrap().is_empty());

    let mut stale = claim.clone();
    stale.retry = Some(parked::Lease(Uuid::from_u128(5)));
    let mut ours = claim.clone();
    ours.retry = Some(due[0].lease);
    ours.state = State::Done;
    session.begin().await.unwrap();
    assert_eq!(session.claim(&[stale]).await.unwrap(), [Claimed::Gone]);
    assert_eq!(session.claim(std::slice::from_ref(&ours)).await.unwrap(), [Claimed::New]);
    session.unpark(&[claim.key]).await.unwrap();
    commit(&mut *session).await.unwrap();
    assert!(store.show(claim.key.0).await.unwrap().is_none());

    session.begin().await.unwrap();
    assert_eq!(session.claim(&[ours]).await.unwrap(), [Claimed::Gone]);
    let done = Claimed::Duplicate { state: State::Done, same_body: true };
    assert_eq!(session.claim(&[claim]).await.unwrap(), [done]);
    session.rollback().await;
}

pub async fn plugin_sql_is_bound_and_bounded(bed: &Bed) {
    let access = bed.access();
    let admit = |sql: &str, purpose| bed.store.admit(sql, &access, purpose).unwrap();
    let mut session = bed.open().await;
    let insert = admit("INSERT INTO accounts (id, balance) VALUES ($1, $2)", Purpose::Execute);
    for (id, balance) in [("a", i64::MAX), ("b", i64::MIN)] {
        let affected = session.execute(&insert, &[text(id), Value::Integer(balance)]).await.unwrap();
        assert_eq!(affected, 1);
    }
    let select = admit("SELECT id, balance FROM accounts WHERE id >= $1 ORDER BY id", Purpose::Query);
    let rows = session.query(&select, &[text("a")], 2).await.unwrap();
    assert_eq!(rows.columns, ["id", "balance"]);
    assert_eq!(rows.rows, [[text("a"), Value::Integer(i64::MAX)], [text("b"), Value::Integer(i64::MIN)]]);
    match session.query(&select, &[text("a")], 1).await {
        Err(ReadError::Invalid(why)) => assert!(why.contains('1'), "{why}"),
        other => panic!("too many rows came as {other:?}"),
    }
    session.rollback().await;
    assert!(bed.store.admit("SELECT * FROM coupons", &access, Purpose::Query).is_err());
}

pub async fn migrating_again_does_nothing(bed: &Bed) {
    assert!(ackwright_stores::pending(&bed.url).await.unwrap().is_empty());
    assert!(ackwright_stores::migrate(&bed.url).await.unwrap().is_empty());
}
