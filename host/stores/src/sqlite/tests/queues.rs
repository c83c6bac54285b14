//! The outbox and the parked messages.

use ackwright_core::message::{Header, HeaderValue, Message};
use ackwright_core::outbox::{Fate, NewRow, SHARDS};
use ackwright_core::parked::{self, Envelope, Filter, Lease};

use super::*;

fn out(n: u128, order_key: &str) -> NewRow {
    NewRow {
        id: Uuid::from_u128(n),
        broker: "b".into(),
        destination: "d".into(),
        order_key: order_key.into(),
        content_type: None,
        headers: vec![Header { name: "n".into(), value: HeaderValue::I64(n as i64) }],
        body: bytes::Bytes::from(vec![0, 255, n as u8]),
    }
}

async fn emitted(db: &Db, rows: &[NewRow]) {
    let mut session = db.begun().await;
    session.emit(rows).await.unwrap();
    session.commit().await.unwrap();
}

#[tokio::test]
async fn o01_rows_are_taken_by_state_and_a_refused_one_holds_back_its_key() {
    let db = Db::new("").await;
    emitted(&db, &[out(1, "a"), out(2, "b"), out(3, "a")]).await;
    let outbox = db.store.outbox();
    let relay = Uuid::from_u128(9);
    let shards = outbox.lease(relay, SECOND * 60).await.unwrap();
    assert_eq!(shards.len(), SHARDS as usize);
    let rows = outbox.pending("b", &shards, 10).await.unwrap().rows;
    assert_eq!(rows.iter().map(|row| row.id.as_u128()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((&rows[0].headers, &rows[0].body), (&out(1, "a").headers, &out(1, "a").body));
    assert!(outbox.pending("other", &shards, 10).await.unwrap().is_empty());

    let refused = Fate::Refused { reason: "no".into(), after: SECOND * 60 };
    let fates = [(rows[0].position, refused), (rows[1].position, Fate::Sent)];
    outbox.settle(relay, &fates, SECOND).await.unwrap();
    assert!(outbox.pending("b", &shards, 10).await.unwrap().is_empty(), "3 waits behind 1");
    assert_eq!(outbox.retry(&[rows[0].id]).await.unwrap(), 1);
    let again = outbox.pending("b", &shards, 10).await.unwrap().rows;
    assert_eq!(again.iter().map(|row| (row.id.as_u128(), row.attempts)).collect::<Vec<_>>(), [(1, 1), (3, 0)]);

    let parked = Fate::Parked { reason: "never".into() };
    outbox
        .settle(relay, &[(again[0].position, parked), (again[1].position, Fate::Sent)], Duration::ZERO)
        .await
        .unwrap();
    let counts = outbox.counts().await.unwrap();
    assert_eq!((counts.pending, counts.refused, counts.parked), (0, 0, 1));
    let states: Vec<_> = outbox.list(None, 10).await.unwrap().into_iter().map(|row| row.state).collect();
    assert_eq!(states, ["parked", "sent"]);
    assert_eq!(outbox.clean(Duration::ZERO, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn o01_only_the_relay_that_holds_a_shard_settles_its_rows() {
    let db = Db::new("").await;
    emitted(&db, &[out(1, "a")]).await;
    let outbox = db.store.outbox();
    let (old, new) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let shards = outbox.lease(old, Duration::ZERO).await.unwrap();
    let position = outbox.pending("b", &shards, 1).await.unwrap().rows[0].position;
    assert_eq!(outbox.lease(new, SECOND * 60).await.unwrap().len(), SHARDS as usize);
    assert!(outbox.lease(old, SECOND).await.unwrap().is_empty());
    outbox.settle(old, &[(position, Fate::Sent)], Duration::ZERO).await.unwrap();
    assert_eq!(outbox.counts().await.unwrap().pending, 1);
    outbox.settle(new, &[(position, Fate::Sent)], Duration::ZERO).await.unwrap();
    assert_eq!(outbox.counts().await.unwrap().pending, 0);
    outbox.release(new).await.unwrap();
    assert_eq!(outbox.lease(old, SECOND).await.unwrap().len(), SHARDS as usize);
}

fn kept(n: u128, state: State, after: Duration) -> parked::NewRow {
    let message = Message { source: "q".into(), key: Some(bytes::Bytes::from_static(&[0, 1])), ..Message::default() };
    parked::NewRow {
        key: key(n),
        label: format!("message {n}"),
        writer: Writer(1),
        route: "r".into(),
        state,
        code: "trap:x".into(),
        reason: "because".into(),
        detail: Some("frames".into()),
        attempts: 2,
        after,
        envelope: Envelope::of(&message, None).into(),
        body: Some(bytes::Bytes::from_static(&[255, 0])),
    }
}

#[tokio::test]
async fn waiting_messages_are_leased_to_one_host_and_taken_over_by_lease() {
    let db = Db::new("").await;
    assert_eq!(db.store.writer("g", "p", "d").await.unwrap(), Writer(1));
    let mut session = db.begun().await;
    session
        .claim(&[Claim { state: State::Waiting, ..claim(1) }, Claim { state: State::Waiting, ..claim(2) }])
        .await
        .unwrap();
    session.park(&[kept(1, State::Waiting, Duration::ZERO), kept(2, State::Waiting, SECOND * 60)]).await.unwrap();
    session.commit().await.unwrap();

    let parked = db.store.parked();
    let due = parked.due("r", 10, SECOND * 60).await.unwrap();
    assert_eq!(due.iter().map(|due| due.key).collect::<Vec<_>>(), [key(1)]);
    assert_eq!(due[0].body.as_deref(), Some(&[255, 0][..]));
    assert_eq!(due[0].envelope, *kept(1, State::Waiting, Duration::ZERO).envelope);
    assert!(parked.due("r", 10, SECOND).await.unwrap().is_empty(), "it is leased");
    let next = parked.next_due("r").await.unwrap().unwrap();
    assert!(next > SECOND * 50 && next <= SECOND * 60, "{next:?}");
    assert_eq!(parked.next_due("other").await.unwrap(), None);

    let mut session = db.begun().await;
    let retry = |lease| Claim { retry: Some(lease), ..claim(1) };
    assert_eq!(session.claim(&[retry(Lease(Uuid::from_u128(5)))]).await.unwrap(), [Claimed::Gone]);
    assert_eq!(session.claim(&[retry(due[0].lease)]).await.unwrap(), [Claimed::New]);
    session.unpark(&[key(1)]).await.unwrap();
    session.commit().await.unwrap();
    let states = parked.inbox("message", 10).await.unwrap();
    let mut states: Vec<_> = states.into_iter().map(|row| (row.label, row.state, row.plugin)).collect();
    states.sort();
    assert_eq!(
        states,
        [("message 1".into(), "done".into(), "p".into()), ("message 2".into(), "waiting".into(), "p".into())]
    );
    assert_eq!(parked.inbox(&key(1).0.to_string()[..34], 10).await.unwrap().len(), 2);
    assert_eq!(parked.inbox(&key(1).0.to_string(), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_parked_message_is_kept_whole_and_counted_up() {
    let db = Db::new("").await;
    for _ in 0..2 {
        let mut session = db.begun().await;
        session.claim(&[Claim { state: State::Done, ..claim(1) }]).await.unwrap();
        session.record(&[(key(1), State::Failed)]).await.unwrap();
        session.park(&[kept(1, State::Failed, Duration::ZERO)]).await.unwrap();
        session.commit().await.unwrap();
    }
    let parked = db.store.parked();
    let shown = parked.show(key(1).0).await.unwrap().unwrap();
    assert_eq!((shown.listed.deliveries, shown.listed.attempts, shown.listed.state.as_str()), (2, 2, "parked"));
    assert_eq!((shown.detail.as_deref(), shown.body.as_deref()), (Some("frames"), Some(&[255, 0][..])));
    assert_eq!(shown.envelope, *kept(1, State::Failed, Duration::ZERO).envelope);
    assert!(shown.listed.first_seen_at > 1_600_000_000_000_000 && shown.listed.next_attempt_at.is_none());
    assert!(parked.show(key(2).0).await.unwrap().is_none());
    let filter = |state| Filter { state: Some(state), ..Filter::default() };
    assert_eq!(parked.list(&filter(State::Failed), 10).await.unwrap().len(), 1);
    assert!(parked.list(&filter(State::Waiting), 10).await.unwrap().is_empty());
    assert_eq!(parked.clean(Duration::ZERO, 10).await.unwrap(), 0, "a failed row keeps its inbox row");
}
