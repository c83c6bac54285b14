use ackwright_sdk::fake::{Host, Outcome, Table, Type};
use ackwright_sdk::prelude::*;
use serde_json::json;

use crate::Probe;

fn host() -> Host {
    Host::new()
        .table(Table::new("things").column("id", Type::Integer).nullable("note", Type::Text).key(&["id"]))
        .table(Table::new("probe_reads").column("name", Type::Text).column("row", Type::Json).key(&["name"]))
        .allow_emit("events:*")
        .seed("things", row! { "id": 1, "note": "one" })
}

fn script(body: serde_json::Value) -> Message {
    Message::new("queue.probe").with_body(body.to_string())
}

fn run(body: serde_json::Value) -> (Host, Outcome) {
    let mut host = host();
    let outcome = host.deliver::<Probe>(&script(body));
    (host, outcome)
}

#[test]
fn steps_run_in_order_and_reads_see_them() {
    let (host, outcome) = run(json!({"key": "k", "do": [
        {"insert": {"table": "things", "row": {"id": 2, "note": null}}},
        {"get": {"table": "things", "key": {"id": 2}, "lock": true, "store": "two"}},
        {"get": {"table": "things", "key": {"id": 3}, "store": "three"}},
        {"emit": {"to": "events:probe", "headers": {"n": 1}, "body": "hi"}},
    ]}));
    assert_eq!(outcome, Outcome::Done);
    let read = |name: &str| host.row("probe_reads", ("name", name)).unwrap()["row"].clone();
    assert_eq!(read("two"), Value::Json(r#"{"id":{"integer":2},"note":null}"#.into()));
    assert_eq!(read("three"), Value::Json("null".into()));
    assert_eq!(host.emitted()[0].message.headers[0].value, HeaderValue::Integer(1));
}

#[test]
fn verdicts_are_those_of_the_script() {
    let reject = json!({"key": "k", "do": [{"reject": {"code": "c", "reason": "r"}}]});
    assert_eq!(run(reject).1, Outcome::Rejected(ackwright_sdk::reject("c", "r")));
    let retry = json!({"key": "k", "do": [{"retry": {"code": "c", "reason": "r", "after_ms": 5}}]});
    assert_eq!(run(retry).1, Outcome::Retry(Delay { code: "c".into(), reason: "r".into(), after_ms: Some(5) }));
    assert_eq!(run(json!({"key": "k", "do": [{"panic": "why"}]})).1, Outcome::Panicked("why".into()));
}

#[test]
fn a_failed_host_call_dooms_the_message_even_when_the_guest_ignores_it() {
    let (host, outcome) = run(json!({"key": "k", "do": [
        {"insert": {"table": "things", "row": {"id": 2}}},
        {"ignore": {"insert": {"table": "secrets", "row": {"id": 2}}}},
    ]}));
    assert!(matches!(outcome, Outcome::Invalid(_)), "{outcome:?}");
    assert_eq!(host.rows("things").len(), 1);
}

#[test]
fn identify_cannot_call_the_store() {
    let steps = json!([{"get": {"table": "things", "key": {"id": 1}}}]);
    let (_, outcome) = run(json!({"key": "k", "identify": steps}));
    assert!(matches!(&outcome, Outcome::Invalid(why) if why.contains("store.get")), "{outcome:?}");
}

#[test]
fn an_unstable_key_differs_between_two_runs_of_one_guest() {
    let message = script(json!({"key": "k", "identify": [{"unstable-key": {}}]}));
    let mut host = host();
    assert_ne!(host.identify::<Probe>(&message).unwrap(), host.identify::<Probe>(&message).unwrap());
}

#[test]
fn a_message_that_is_no_script_is_echoed_whole() {
    let mut message =
        Message::new("q").with_header("a", HeaderValue::Null).with_header("a", HeaderValue::Bytes(vec![255]));
    message.key = Some(vec![]);
    let mut host = host();
    assert_eq!(host.deliver::<Probe>(&message), Outcome::Done);
    let echoed: serde_json::Value = serde_json::from_slice(&host.emitted()[0].message.body).unwrap();
    assert_eq!(echoed["headers"], json!([{"name": "a", "null": null}, {"name": "a", "bytes": [255]}]));
    assert_eq!((&echoed["key"], &echoed["body"]), (&json!([]), &json!(null)));
}

#[test]
fn a_misspelled_step_is_rejected() {
    let (_, outcome) = run(json!({"key": "k", "do": [{"inset": {}}]}));
    assert!(
        matches!(&outcome, Outcome::Rejected(r) if r.code == "bad-script" && r.reason.contains("inset")),
        "{outcome:?}"
    );
}
