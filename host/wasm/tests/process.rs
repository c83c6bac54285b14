//! What the sandbox does to the process around it: memory, and the time of others. One test at a time, since each
//! measures the whole process.

mod guest;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackwright_core::handler::{Outcome, Ran};
use ackwright_wasm::Limits;
use tokio::sync::Mutex;

use guest::{engine, handler, message};

static ALONE: Mutex<()> = Mutex::const_new(());

/// Calls of the endurance test. A leak of one page a call would be 80 MB, far beyond the tenth that is allowed.
const CALLS: usize = 20_000;

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the kernel's count");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4096
}

#[tokio::test]
async fn w08_memory_stays_flat_over_many_calls_and_reloads() {
    let _alone = ALONE.lock().await;
    let engine = engine(4);
    let bytes = guest::guest();
    let kept = handler(&engine, bytes.clone(), Limits::default()).await;
    let calls = async |count: usize| {
        for i in 0..count {
            // Every tenth message traps, every hundredth runs into its memory limit.
            let body = if i % 100 == 0 {
                "m"
            } else if i % 10 == 0 {
                "u"
            } else {
                "o"
            };
            let Ran::Finished(run) = kept.prepare(&message("m1", body)).await.run else { panic!("it reads") };
            assert_eq!(run.outcome == Outcome::Done, body == "o");
        }
    };
    let reloads = async |count: usize| {
        for _ in 0..count {
            let handler = handler(&engine, bytes.clone(), Limits::default()).await;
            assert!(matches!(handler.prepare(&message("m1", "o")).await.run, Ran::Finished(_)));
        }
    };
    calls(CALLS / 10).await;
    reloads(20).await;
    let before = resident();
    calls(CALLS).await;
    reloads(50).await;
    let after = resident();
    assert!(after <= before + before / 10, "resident memory grew from {before} to {after} bytes");
}

/// How late a timer of one millisecond is, at the 99th hundredth, while `work` goes on.
async fn lateness(work: impl Future<Output = ()>) -> Duration {
    let mut late = Vec::new();
    let watch = async {
        loop {
            let started = Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            late.push(started.elapsed());
        }
    };
    tokio::select! { () = work => {}, () = watch => {} }
    late.sort();
    late[late.len() * 99 / 100]
}

#[tokio::test]
async fn w09_neither_a_looping_guest_nor_a_compilation_keeps_others_waiting() {
    let _alone = ALONE.lock().await;
    let engine = engine(4);
    // One thread runs all of this: a guest that did not give way would stop the timers for its whole budget.
    let limits = Limits { time: Duration::from_secs(1), ..Limits::default() };
    let looping = handler(&engine, guest::guest(), limits).await;
    let p99 = lateness(async {
        let Ran::Finished(run) = looping.prepare(&message("m1", "l")).await.run else { panic!("it reads") };
        assert!(matches!(run.outcome, Outcome::Failed(failure) if failure.code == "limit:time"));
    })
    .await;
    assert!(p99 < Duration::from_millis(100), "a looping guest made others wait {p99:?}");

    // Thousands of functions, so that compiling takes its time.
    let mut functions = String::new();
    for i in 0..4_000 {
        functions.push_str(&format!("(func $f{i} (param i64) (result i64) (local.get 0)"));
        functions.push_str(&"(i64.const 3) (i64.mul) (local.get 0) (i64.xor)".repeat(40));
        functions.push(')');
    }
    let text = include_str!("guest/guest.wat")
        .replace(";;IMPORTS", "")
        .replace("(func $say", &format!("{functions}(func $say"));
    let large = guest::module(&text, &[], "handler");
    let loaded = Arc::new(Mutex::new(None));
    let p99 = lateness(async {
        *loaded.lock().await = Some(engine.load("large", large).await.expect("a plugin"));
    })
    .await;
    assert!(loaded.lock().await.is_some());
    assert!(p99 < Duration::from_millis(100), "a compilation made others wait {p99:?}");
}
