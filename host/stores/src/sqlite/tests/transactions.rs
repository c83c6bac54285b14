//! Claims, commits, cancellations and writers side by side.

use std::sync::Arc;

use ackwright_core::store::CommitError;
use tokio::task::JoinSet;

use super::*;

#[tokio::test]
async fn d07_the_first_claim_wins_and_the_second_is_a_duplicate() {
    let db = Db::new("").await;
    let mut one = db.begun().await;
    assert_eq!(one.claim(&[claim(2), claim(1)]).await.unwrap(), [Claimed::New, Claimed::New]);
    one.commit().await.unwrap();

    let mut two = db.begun().await;
    let other_body = Claim { body_hash: 8, ..claim(1) };
    let duplicate = |same_body| Claimed::Duplicate { state: State::Done, same_body };
    let answers = two.claim(&[claim(3), claim(2), other_body]).await.unwrap();
    assert_eq!(answers, [Claimed::New, duplicate(true), duplicate(false)]);
}

#[tokio::test]
async fn d07_simultaneous_claims_of_one_key_have_one_winner() {
    let db = Arc::new(Db::new("").await);
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let db = Arc::clone(&db);
        tasks.spawn(async move {
            let mut session = db.begun().await;
            let answer = session.claim(&[claim(1)]).await.unwrap()[0];
            session.commit().await.unwrap();
            answer
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| **answer == Claimed::New).count(), 1);
    assert_eq!(db.number("SELECT count(*) FROM ackwright_inbox").await, 1);
}

#[tokio::test]
async fn d06_a_claim_without_commit_leaves_nothing_behind() {
    let db = Db::new("").await;
    let mut session = db.begun().await;
    session.claim(&[claim(1)]).await.unwrap();
    drop(session);
    let mut session = db.begun().await;
    assert_eq!(session.claim(&[claim(1)]).await.unwrap(), [Claimed::New]);
}

#[tokio::test]
async fn two_claims_of_one_key_in_one_call_have_one_winner() {
    let db = Db::new("").await;
    let mut session = db.begun().await;
    let answers = session.claim(&[claim(1), claim(1)]).await.unwrap();
    assert_eq!(answers, [Claimed::New, Claimed::Duplicate { state: State::Done, same_body: true }]);
}

#[tokio::test]
async fn d03_keys_and_labels_are_kept_byte_by_byte() {
    let db = Db::new("CREATE TABLE t (k TEXT PRIMARY KEY NOT NULL)").await;
    let keys = ["a", "A", "a ", "\u{e9}", "e\u{301}", "", "a\0b"];
    let declares: Vec<_> = keys
        .iter()
        .map(|k| move |b: &mut Buffer, a: &Access| b.insert(a, "t", row(&[("k", text(k))])).unwrap())
        .collect();
    let declares: Vec<&Declare<'_>> = declares.iter().map(|d| d as &Declare<'_>).collect();
    db.written(&declares).await;
    assert_eq!(db.number("SELECT count(*) FROM t").await, keys.len() as i64);
}

#[tokio::test]
async fn d04_a_long_label_is_kept_whole() {
    let db = Db::new("").await;
    let mut session = db.begun().await;
    let label = "x".repeat(1024);
    session.claim(&[Claim { label: label.clone(), ..claim(1) }]).await.unwrap();
    session.commit().await.unwrap();
    assert_eq!(db.store.parked().inbox(&label, 10).await.unwrap()[0].label, label);
}

#[tokio::test]
async fn t04_fifty_parallel_writers_all_commit() {
    let db = Arc::new(Db::new("CREATE TABLE n (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)").await);
    db.written(&[&|b, a| b.insert(a, "n", row(&[("id", int(1)), ("n", int(0))])).unwrap()]).await;
    // Half of them share a store; the other half stand for other processes on the same file.
    let mut tasks = JoinSet::new();
    for writer in 0..50_u128 {
        let db = Arc::clone(&db);
        tasks.spawn(async move {
            let other = Sqlite::open(&db.url, &Settings::default()).unwrap();
            other.catalog().await.unwrap();
            let store = if writer % 2 == 0 { &db.store } else { &other };
            for message in 0..4 {
                let mut session = store.session();
                session.begin().await.unwrap();
                assert_eq!(session.claim(&[claim(writer * 100 + message)]).await.unwrap(), [Claimed::New]);
                let add = |b: &mut Buffer, a: &Access| {
                    b.add(a, "n", row(&[("id", int(1))]), row(&[("n", int(1))]), None, guard("absent")).unwrap();
                };
                db.apply(&mut *session, &[&add]).await.unwrap();
                session.commit().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(db.number("SELECT n FROM n").await, 200);
    assert_eq!(db.number("SELECT count(*) FROM ackwright_inbox").await, 200);
}

#[tokio::test]
async fn t01_cancelled_calls_leave_no_open_transaction() {
    let db = Db::new("").await;
    let mut session = db.store.session();
    let mut rounds = 0_u64;
    for round in 0..3000_u128 {
        // Each round is cut off after another number of steps.
        let work = async {
            session.begin().await.unwrap();
            session.claim(&[claim(round)]).await.unwrap();
            session.commit().await.unwrap();
        };
        let mut work = std::pin::pin!(work);
        let mut polls = round % 17;
        let done = std::future::poll_fn(|context| {
            if polls == 0 {
                return std::task::Poll::Ready(false);
            }
            polls -= 1;
            work.as_mut().poll(context).map(|()| true)
        });
        rounds += u64::from(tokio::time::timeout(SECOND, done).await.is_ok_and(|done| done));
    }
    assert!(rounds > 0 && rounds < 3000, "{rounds} rounds ran to their end: the test cut off nothing or everything");
    // A writer of another process gets the lock, so nothing was left open.
    let other = Sqlite::open(&db.url, &Settings { lock: SECOND, ..Settings::default() }).unwrap();
    drop(session);
    let mut other = other.session();
    other.begin().await.unwrap();
    other.claim(&[claim(u128::MAX)]).await.unwrap();
    other.commit().await.unwrap();
}

#[tokio::test]
async fn t12_calls_after_the_loss_of_the_transaction_fail() {
    let db = Db::new("").await;
    let mut session = db.store.session();
    let mut cut_off = false;
    while !cut_off {
        // Polled once and dropped, the claim is cut off, unless SQLite was faster than this thread.
        session.begin().await.unwrap();
        let claims = [claim(1)];
        let mut cut = std::pin::pin!(session.claim(&claims));
        cut_off = std::future::poll_fn(|context| std::task::Poll::Ready(cut.as_mut().poll(context).is_pending())).await;
    }
    assert!(session.claim(&[claim(2)]).await.unwrap_err().lost);
    assert!(matches!(session.commit().await, Err(CommitError::RolledBack(_))));
    session.begin().await.unwrap();
    assert_eq!(session.claim(&[claim(1)]).await.unwrap(), [Claimed::New]);
}

#[tokio::test]
async fn t10_a_busy_database_is_a_conflict_and_not_a_refusal() {
    let db = Db::new("").await;
    let impatient = Settings { lock: Duration::from_millis(50), ..Settings::default() };
    let other = Sqlite::open(&db.url, &impatient).unwrap();
    let _holder = db.begun().await;
    let error = other.session().begin().await.unwrap_err();
    assert!(error.conflict && !error.lost, "{error:?}");
    // Within one process, too.
    let store = Sqlite::open(&db.url, &impatient).unwrap();
    drop(_holder);
    let _first = {
        let mut s = store.session();
        s.begin().await.unwrap();
        s
    };
    assert!(store.session().begin().await.unwrap_err().conflict);
}

#[tokio::test]
async fn t08_a_savepoint_survives_a_refused_statement() {
    let db = Db::new("CREATE TABLE t (id INTEGER PRIMARY KEY)").await;
    let insert = |b: &mut Buffer, a: &Access| b.insert(a, "t", row(&[("id", int(1))])).unwrap();
    db.written(&[&insert]).await;
    let mut session = db.begun().await;
    session.claim(&[claim(1)]).await.unwrap();
    session.savepoint().await.unwrap();
    assert!(matches!(db.apply(&mut *session, &[&insert]).await, Err(ApplyError::Refused(_))));
    session.rollback_to().await.unwrap();
    session.commit().await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM ackwright_inbox").await, 1);
}

#[tokio::test]
async fn a_commit_that_a_deferred_foreign_key_refuses_is_rolled_back() {
    let db = Db::new(
        "CREATE TABLE p (id INTEGER PRIMARY KEY);
         CREATE TABLE c (id INTEGER PRIMARY KEY, p INTEGER REFERENCES p (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    let mut session = db.begun().await;
    let orphan = |b: &mut Buffer, a: &Access| b.insert(a, "c", row(&[("id", int(1)), ("p", int(9))])).unwrap();
    db.apply(&mut *session, &[&orphan]).await.unwrap();
    match session.commit().await {
        Err(CommitError::Refused(refusal)) => assert!(refusal.retry, "{refusal:?}"),
        other => panic!("a commit over an orphan ended as {other:?}"),
    }
    drop(session);
    assert_eq!(db.number("SELECT count(*) FROM c").await, 0);
}

#[tokio::test]
async fn migrations_run_once_and_say_what_is_pending() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("new.db").display());
    let store = Sqlite::open(&url, &Settings::default()).unwrap();
    let all = store.pending().await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(store.migrate().await.unwrap(), all);
    assert!(store.migrate().await.unwrap().is_empty());
    assert!(store.pending().await.unwrap().is_empty());
}

#[test]
fn urls_that_cannot_serve_are_refused_without_repeating_them() {
    for url in ["sqlite::memory:", "sqlite://", "postgres://u:secret@h/d", "sqlite://a.db?password=secret"] {
        let error = Sqlite::open(url, &Settings::default()).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{url} was taken"));
        assert!(!error.contains("secret") && error.contains("sqlite://path"), "{error}");
    }
}

#[tokio::test]
async fn a_writer_keeps_its_number() {
    let db = Db::new("").await;
    let one = db.store.writer("g", "p", "d").await.unwrap();
    let two = db.store.writer("g", "p", "e").await.unwrap();
    assert_ne!(one, two);
    let again = Sqlite::open(&db.url, &Settings::default()).unwrap();
    assert_eq!(again.writer("g", "p", "d").await.unwrap(), one);
}
