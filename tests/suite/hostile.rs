//! Guests that misbehave: their message is parked with the reason, and everybody else goes on.

use std::time::Duration;

use ackwright_testkit::until;
use serde_json::{Value, json};

use crate::database::Kind;
use crate::load::{Load, Size};
use crate::probe::{good, script};
use crate::stage::Stage;

const DEADLINE: Duration = Duration::from_secs(60);

/// Sends a hostile script between good neighbours and returns what it was parked with.
async fn parked_between_neighbours(kind: Kind, step: Value) -> crate::probe::Parked {
    let stage = Stage::new(kind).await;
    let _host = stage.host().await;
    let letters = [
        good("before"),
        script("hostile", json!([{ "insert": { "table": "probe_rows", "row": { "id": "hostile", "n": 1 } } }, step])),
        good("after"),
    ];
    stage.send(&letters).await;
    stage.until_row("before", DEADLINE).await;
    stage.until_row("after", DEADLINE).await;
    let parked = stage.until_parked("hostile", DEADLINE).await;
    let left = stage.database.number("SELECT count(*) FROM probe_rows WHERE id = 'hostile'").await;
    assert_eq!(left, 0, "nothing that the hostile message declared is applied");
    stage.send(&[good("next")]).await;
    stage.until_row("next", DEADLINE).await;
    parked
}

macro_rules! hostile {
    ($($name:ident: $step:tt => $code:literal),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let parked = parked_between_neighbours(Kind::Postgres, json!($step)).await;
            assert!(parked.code.starts_with($code), "{parked:?}");
        })*
    };
}

hostile! {
    an_endless_loop_is_stopped: { "loop": {} } => "limit:time",
    an_endless_loop_of_host_calls_is_stopped: { "loop-logging": {} } => "limit:",
    w01_an_endless_loop_of_reads_is_stopped: { "loop-reading": { "table": "probe_rows", "key": { "id": "x" } } } => "limit:",
    a_memory_bomb_is_stopped: { "memory-bomb": {} } => "limit:memory",
    a_recursion_without_end_is_stopped: { "recurse": {} } => "trap:stack-overflow",
    an_ungranted_table_is_denied: { "insert": { "table": "forbidden", "row": { "id": "x" } } } => "denied:write:forbidden",
    a_denied_effect_dooms_the_message_even_if_the_guest_ignores_the_error:
        { "ignore": { "insert": { "table": "forbidden", "row": { "id": "x" } } } } => "denied:write:forbidden",
    an_ungranted_destination_is_denied: { "emit": { "to": "events:elsewhere", "body": "x" } } => "denied:emit:events:elsewhere",
    a_flood_of_effects_is_stopped: { "flood": { "table": "probe_numbers", "effects": 10_000_000 } } => "limit:effects",
}

#[tokio::test(flavor = "multi_thread")]
async fn w03_w07_a_panic_is_reported_in_its_own_words_and_names() {
    let parked = parked_between_neighbours(Kind::Postgres, json!({ "panic": "the moon is down" })).await;
    assert!(parked.reason.contains("the moon is down"), "{parked:?}");
    assert!(parked.detail.contains("panic_with"), "the backtrace has the guest's own names: {parked:?}");
    assert!(parked.detail.contains("plugin probe"), "{parked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_sql_of_plugins_cannot_end_the_transaction_or_change_the_schema() {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let stage = Stage::new(kind).await;
        let _host = stage.host().await;
        let statements = [
            "COMMIT",
            "ROLLBACK",
            "DROP TABLE probe_rows",
            "CREATE TABLE mine (id int)",
            "SET search_path = public",
            "INSERT INTO probe_rows (id, n) VALUES ('sneaked', 1); COMMIT",
            "DELETE FROM ackwright_inbox",
            "INSERT INTO forbidden (id) SELECT id FROM probe_rows",
        ];
        for (n, sql) in statements.into_iter().enumerate() {
            let before = json!({ "insert": { "table": "probe_rows", "row": { "id": format!("sql-{n}"), "n": 1 } } });
            stage.send(&[script(&format!("sql-{n}-end"), json!([before, { "execute": { "sql": sql } }]))]).await;
        }
        for (n, sql) in statements.into_iter().enumerate() {
            let parked = stage.until_parked(&format!("sql-{n}-end"), DEADLINE).await;
            assert!(!parked.code.starts_with("trap"), "{sql}: {parked:?}");
        }
        assert_eq!(stage.database.number("SELECT count(*) FROM probe_rows").await, 0, "{kind:?}: nothing leaked out");
        stage.send(&[good("next")]).await;
        stage.until_row("next", DEADLINE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_giant_log_is_cut_and_its_message_is_fine() {
    let stage = Stage::new(Kind::Postgres).await;
    let host = stage.host().await;
    let insert = json!({ "insert": { "table": "probe_rows", "row": { "id": "chatty", "n": 1 } } });
    stage.send(&[script("chatty", json!([{ "giant-log": { "bytes": 1_000_000 } }, insert]))]).await;
    stage.until_row("chatty", DEADLINE).await;
    assert!(host.logs().len() < 500_000, "the log has {} bytes", host.logs().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn p02_a_message_that_asks_for_retries_for_ever_is_tried_a_bounded_number_of_times() {
    let stage = Stage::new(Kind::Postgres).await;
    let _host = stage.host().await;
    stage.send(&[script("later", json!([{ "retry": { "code": "later", "reason": "not yet" } }])), good("other")]).await;
    stage.until_row("other", DEADLINE).await;
    let parked = stage.until_parked("later", DEADLINE).await;
    assert_eq!((parked.code.as_str(), parked.attempts), ("retry:later", 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn d09_two_consumers_of_one_message_have_an_effect_each() {
    let stage = Stage::new(Kind::Postgres).await;
    let _host = stage.host().await;
    stage.database.execute("INSERT INTO probe_rows (id, n) VALUES ('sum', 0)").await;
    let one =
        script("shared", json!([{ "add": { "table": "probe_rows", "key": { "id": "sum" }, "amounts": { "n": 1 } } }]));
    let two = crate::load::Letter { queue: "probe-too", ..one.clone() };
    stage.send(&[one.clone(), two.clone(), one, two]).await;
    until("both queues are settled", DEADLINE, async || {
        for queue in ["probe", "probe-too"] {
            let depth = stage.broker.depth(&stage.vhost, queue).await.ok()?;
            (depth == ackwright_testkit::Depth::default()).then_some(())?;
        }
        Some(())
    })
    .await;
    assert_eq!(stage.database.number("SELECT n FROM probe_rows WHERE id = 'sum'").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn d11_the_same_key_with_another_body_is_a_duplicate_and_counted() {
    let stage = Stage::new(Kind::Postgres).await;
    let host = stage.host().await;
    let mut other = script("same", json!([]));
    other.body.push(b' ');
    stage.send(&[script("same", json!([])), script("same", json!([])), other]).await;
    host.until_metric("ackwright_body_mismatches_total", &[], DEADLINE, |count| count == 1.0).await;
    host.until_metric("ackwright_duplicates_total", &[], DEADLINE, |count| count == 2.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o04_rows_that_no_queue_takes_do_not_hold_back_the_others() {
    let stage = Stage::new(Kind::Postgres).await;
    let _host = stage.host().await;
    let lost: Vec<_> = (0..50)
        .map(|n| script(&format!("lost-{n}"), json!([{ "emit": { "to": "events:probe.nowhere", "body": "x" } }])))
        .collect();
    stage.send(&lost).await;
    let refused = "SELECT count(*) FROM ackwright_outbox WHERE state = 1 AND reason IS NOT NULL";
    until("all are refused, with the reason", DEADLINE, async || {
        (stage.database.number(refused).await == 50).then_some(())
    })
    .await;
    let load = Load::generate(41, Size { orders: 20, transfers: 0, poison: 0, readers: 0, repeats: 0 });
    stage.send(&load.letters).await;
    let mut announced = 0;
    until("the healthy rows are published in 5 s", Duration::from_secs(5), async || {
        announced += stage.announced().await.len();
        (announced == 20).then_some(())
    })
    .await;
    // The queue appears: what was refused goes out unaided.
    stage.queue("probe.nowhere").await;
    until("the refused rows are published", DEADLINE, async || {
        (stage.broker.depth(&stage.vhost, "probe.nowhere").await.ok()?.ready == 50).then_some(())
    })
    .await;
    assert_eq!(stage.database.number("SELECT count(*) FROM ackwright_outbox WHERE state < 3").await, 0);
}
