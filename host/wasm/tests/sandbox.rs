//! What guests may do, and what becomes of those that do something else.

mod guest;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackwright_core::effect::Change;
use ackwright_core::handler::{Class, Failure, Handler, Outcome, Prepared, Ran, Run};
use ackwright_core::value::Value;
use ackwright_wasm::{Engine, InspectError, Kind, Limits, LoadError, Settings, inspect};

use guest::{engine, foreign, handler, message};

fn finished(prepared: Prepared) -> Run {
    prepared.identity.expect("an identity");
    match prepared.run {
        Ran::Finished(run) => run,
        Ran::NeedsReads => panic!("the handler was taken for one that reads"),
    }
}

async fn failure(handler: &Arc<dyn Handler>, body: &str) -> Failure {
    match finished(handler.prepare(&message("m1", body)).await).outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{body} ended as {other:?}"),
    }
}

async fn usual() -> Arc<dyn Handler> {
    handler(&engine(4), guest::guest(), Limits::default()).await
}

#[tokio::test]
async fn the_same_message_gives_the_same_effects() {
    for bytes in [guest::guest(), guest::wasi_guest()] {
        let handler = handler(&engine(4), bytes, Limits::default()).await;
        let first = finished(handler.prepare(&message("m1", "o")).await);
        let second = finished(handler.prepare(&message("m1", "o")).await);
        let other = finished(handler.prepare(&message("m2", "o")).await);
        assert_eq!(first.outcome, Outcome::Done);
        assert_eq!(first.effects.effects, second.effects.effects);
        assert_eq!(first.effects.emits, second.effects.emits);
        assert_eq!(first.effects.effects[0].key, [(0, Value::Text("m1".into()))]);
        assert_eq!(first.effects.emits[0].body, "m1");
        assert_ne!(first.effects.effects, other.effects.effects);
    }
}

#[tokio::test]
async fn wasi_shows_the_messages_time_and_random_numbers_of_its_key() {
    let handler = handler(&engine(4), guest::wasi_guest(), Limits::default()).await;
    let number = |run: Run| match &run.effects.effects[0].change {
        Change::Upsert(cells) => match cells[0].1 {
            Value::Integer(n) => n,
            ref other => panic!("{other:?} is no number"),
        },
        other => panic!("{other:?} is no upsert"),
    };
    let first = number(finished(handler.prepare(&message("m1", "o")).await));
    let other = number(finished(handler.prepare(&message("m2", "o")).await));
    assert_eq!(first >> 32, 1_700_000_000);
    assert_eq!(other >> 32, 1_700_000_000);
    assert_ne!(first, other);
    let identity = handler.prepare(&message("m1", "o")).await.identity.expect("an identity");
    let inside = handler.invoke(&message("m1", "o"), &identity, Arc::new(guest::Nothing)).await;
    assert_eq!(number(inside), first);
}

#[tokio::test]
async fn business_errors_come_out_as_they_went_in() {
    let handler = usual().await;
    let rejected = failure(&handler, "x").await;
    assert_eq!((rejected.class, rejected.code.as_str()), (Class::Rejected, "rejected:no-funds"));
    assert_eq!(rejected.reason, "the account is empty");
    let retry = failure(&handler, "y").await;
    assert_eq!(retry.class, Class::Retry { after: Some(Duration::from_millis(1500)) });
    assert_eq!(retry.code, "retry:no-funds");
    let refused = handler.prepare(&message("m1", "J")).await.identity.expect_err("a rejection");
    assert_eq!((refused.class, refused.code.as_str()), (Class::Rejected, "rejected:no-funds"));
}

#[tokio::test]
async fn identify_sees_the_message_alone() {
    let handler = usual().await;
    for (body, code) in [("S", "denied:identify:store"), ("C", "denied:identify:context")] {
        let failure = handler.prepare(&message("m1", body)).await.identity.expect_err("a trap");
        assert_eq!((failure.class, failure.code.as_str()), (Class::Denied, code));
    }
    let empty = handler.prepare(&message("", "o")).await.identity.expect_err("no key");
    assert_eq!(empty.code, "invalid:identity");
}

#[tokio::test]
async fn a_failed_host_call_decides_the_message() {
    // The guest ignores the error and returns ok.
    let denied = failure(&usual().await, "d").await;
    assert_eq!((denied.class, denied.code.as_str()), (Class::Denied, "denied:write:secrets"));
}

#[tokio::test]
async fn a_handler_that_reads_runs_inside_the_transaction() {
    let handler = usual().await;
    let message = guest::message("m1", "g");
    let prepared = handler.prepare(&message).await;
    let identity = prepared.identity.expect("an identity");
    assert!(matches!(prepared.run, Ran::NeedsReads));
    // The version remembers, so not even a message that would not read is tried before its transaction.
    assert!(matches!(handler.prepare(&guest::message("m2", "o")).await.run, Ran::NeedsReads));
    let run = handler.invoke(&message, &identity, Arc::new(guest::Nothing)).await;
    assert_eq!((run.outcome, run.effects.effects.len()), (Outcome::Done, 1));
    let away = handler.invoke(&message, &identity, Arc::new(guest::Away)).await;
    assert_eq!(away.outcome, Outcome::Unavailable("connection refused".into()));
    let other = ackwright_core::key::Identity { business_key: vec!["m9".into()], ..identity };
    match handler.invoke(&message, &other, Arc::new(guest::Nothing)).await.outcome {
        Outcome::Failed(failure) => {
            assert_eq!((failure.class, failure.code.as_str()), (Class::Trapped, "unstable:key"))
        }
        other => panic!("ended as {other:?}"),
    }
}

#[tokio::test]
async fn hostile_guests_end_with_their_own_reason() {
    let handler = usual().await;
    for (body, code) in [
        ("u", "trap:unreachable"),
        ("r", "trap:stack-overflow"),
        ("m", "limit:memory"),
        ("l", "limit:time"),
        ("c", "limit:copy"),
    ] {
        let failure = failure(&handler, body).await;
        assert_eq!((failure.class, failure.code.as_str()), (Class::Trapped, code), "{failure:?}");
        assert_eq!(finished(handler.prepare(&message("m1", "o")).await).outcome, Outcome::Done, "after {body}");
    }
    let started = Instant::now();
    let looping = handler.prepare(&message("m1", "I")).await.identity.expect_err("a limit");
    assert_eq!(looping.code, "limit:time");
    assert!(looping.reason.contains("limits.time"), "{}", looping.reason);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(finished(handler.prepare(&message("m1", "L")).await).outcome, Outcome::Done, "a giant log is cut");
}

#[tokio::test]
async fn w01_a_host_call_that_does_not_return_ends_at_the_deadline() {
    let wall = Duration::from_millis(200);
    let handler = handler(&engine(4), guest::guest(), Limits { wall, ..Limits::default() }).await;
    let message = message("m1", "g");
    let identity = handler.prepare(&message).await.identity.expect("an identity");
    let started = Instant::now();
    let run = handler.invoke(&message, &identity, Arc::new(guest::Stuck)).await;
    let took = started.elapsed();
    match run.outcome {
        Outcome::Failed(failure) => assert_eq!(failure.code, "limit:wall"),
        other => panic!("ended as {other:?}"),
    }
    assert!(took >= wall && took < wall + Duration::from_secs(1), "took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w02_a_burst_of_ten_thousand_waits_for_places_and_loses_nothing() {
    let handler = handler(&engine(8), guest::guest(), Limits::default()).await;
    let mut burst = tokio::task::JoinSet::new();
    for i in 0..10_000 {
        let handler = Arc::clone(&handler);
        burst.spawn(async move { finished(handler.prepare(&message(&format!("m{i}"), "o")).await).outcome });
    }
    let outcomes = burst.join_all().await;
    assert_eq!(outcomes.len(), 10_000);
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Done));
}

#[tokio::test]
async fn w03_the_next_message_runs_after_any_trap() {
    // One place only: a guest that was not thrown away would block it, or be met again.
    let handler = handler(&engine(1), guest::guest(), Limits::default()).await;
    for round in 0..200 {
        let body = ["u", "P", "r", "m"][round % 4];
        failure(&handler, body).await;
        assert_eq!(finished(handler.prepare(&message("m1", "o")).await).outcome, Outcome::Done);
    }
}

#[tokio::test]
async fn w04_a_damaged_or_foreign_cache_entry_means_compiling_again() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("code");
    let engine = || Engine::new(Settings { guests: 2, cache: Some(folder.clone()), ..Settings::default() });
    let run = async || {
        let handler = handler(&engine().expect("an engine"), guest::guest(), Limits::default()).await;
        assert_eq!(finished(handler.prepare(&message("m1", "o")).await).outcome, Outcome::Done);
    };
    run().await;
    assert_eq!(fs::metadata(&folder).expect("the cache").permissions().mode() & 0o777, 0o700);
    let entries: Vec<_> = fs::read_dir(&folder).expect("the cache").map(|e| e.expect("an entry").path()).collect();
    let [entry] = entries.as_slice() else { panic!("one entry was expected: {entries:?}") };
    let sound = fs::read(entry).expect("the entry");
    let inode = || fs::metadata(entry).expect("the entry").ino();
    let first = inode();
    run().await;
    assert_eq!(inode(), first, "a sound entry is used, not written");
    let mut flipped = sound.clone();
    let last = flipped.len() - 100;
    flipped[last] ^= 1;
    for damaged in [sound[..sound.len() / 2].to_vec(), flipped, b"ackwright code 0".to_vec(), Vec::new()] {
        let before = inode();
        fs::write(entry, damaged).expect("damage");
        run().await;
        assert_eq!(fs::read(entry).expect("the entry"), sound, "it was replaced");
        assert_ne!(inode(), before, "by another file, for a reader may hold the old one");
    }
    // A folder that others may enter is not used, and the plugin runs all the same.
    fs::write(entry, b"").expect("damage");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("permissions");
    run().await;
    assert_eq!(fs::read(entry).expect("the entry"), b"");
}

#[tokio::test]
async fn w06_a_plugin_that_does_not_fit_is_refused_with_both_sides_named() {
    let engine = engine(2);
    let load = async |bytes: Vec<u8>| engine.load("probe", bytes).await.expect_err("a refusal");
    let empty = "(module (memory (export \"memory\") 1) (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) unreachable)";

    let other = foreign(
        &format!("{empty} (func (export \"ackwright:handler/consumer@0.2.0#handle\")))"),
        "package ackwright:handler@0.2.0; interface consumer { handle: func(); } world handler { export consumer; }",
        "handler",
    );
    assert_eq!(inspect(&other).expect("an inspection").contract.as_deref(), Some("0.2.0"));
    let error = load(other).await;
    assert!(matches!(error, LoadError::Contract { .. }), "{error:?}");
    for part in ["probe", "ackwright:handler/consumer", "0.1.0", "0.2.0"] {
        assert!(error.to_string().contains(part), "{error} does not name {part}");
    }

    let none = foreign(&format!("{empty} (func (export \"go\")))"), "package t:t; world w { export go: func(); }", "w");
    let error = load(none).await;
    assert!(matches!(error, LoadError::NoExport { .. }), "{error:?}");
    assert!(error.to_string().contains("ackwright:handler/consumer@0.1.0") && error.to_string().contains("go"));

    let http = guest::module(
        &include_str!("guest/guest.wat")
            .replace(";;IMPORTS", "(import \"wasi:http/outgoing-handler@0.2.0\" \"handle\" (func $http))")
            .replace("(;NUMBER;)", "(call $http)"),
        &[
            "package wasi:http@0.2.0; interface outgoing-handler { handle: func(); }",
            "package test:guest; world guest { include ackwright:handler/handler@0.1.0; \
             import wasi:http/outgoing-handler@0.2.0; }",
        ],
        "test:guest/guest",
    );
    let error = load(http).await;
    assert!(matches!(error, LoadError::Import { .. }), "{error:?}");
    assert!(error.to_string().contains("wasi:http/outgoing-handler@0.2.0"), "{error}");

    let text = load(b"#!/bin/sh\n".to_vec()).await;
    assert!(matches!(text, LoadError::File { source: InspectError::NotWasm { .. }, .. }), "{text:?}");
    let plain = load(wat::parse_str("(module)").expect("a module")).await;
    assert!(matches!(plain, LoadError::File { source: InspectError::NoMetadata(_), .. }), "{plain:?}");
    let cut = load(guest::guest()[..200].to_vec()).await;
    assert!(matches!(cut, LoadError::File { .. }), "{cut:?}");
}

#[test]
fn inspect_tells_what_a_file_is() {
    let bytes = guest::guest();
    let found = inspect(&bytes).expect("an inspection");
    assert_eq!((found.kind, found.size, found.contract.as_deref()), (Kind::CoreModule, bytes.len(), Some("0.1.0")));
    assert_eq!(found.exports, ["ackwright:handler/consumer@0.1.0"]);
    assert!(found.imports.contains(&"ackwright:handler/store@0.1.0".to_owned()), "{:?}", found.imports);
    assert_eq!(found.digest.len(), 64);
}

#[tokio::test]
async fn w07_a_trap_report_names_plugin_and_functions_and_keeps_the_panic() {
    let handler = usual().await;
    let panic = failure(&handler, "P").await;
    assert_eq!((panic.code.as_str(), panic.reason.as_str()), ("trap:unreachable", "panicked at 'boom'"));
    let detail = panic.detail.expect("a detail");
    for part in ["probe", handler.digest(), "deep_in_the_guest", "consumer@0.1.0#handle"] {
        assert!(detail.contains(part), "{detail} does not name {part}");
    }
}
