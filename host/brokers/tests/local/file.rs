//! Deliveries from files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ackwright_brokers::file::line::Format;
use ackwright_brokers::file::source::{Config, Replaced, Source};
use ackwright_core::health::Health;
use ackwright_core::settle::{Disposal, Tally};
use ackwright_core::source::{Error, Source as _};
use tempfile::TempDir;

use crate::support::{APPLIED, Taken, reporter, settle, soon, take, take_all, text};

struct Place {
    folder: TempDir,
}

impl Place {
    fn with(lines: &str) -> Self {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        fs::write(place.path(), lines).unwrap();
        place
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("in.ndjson")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn source(&self, change: impl FnOnce(&mut Config)) -> Source {
        let mut config = Config::new(self.path());
        config.poll = Duration::from_millis(10);
        config.requeue_delay = Duration::from_millis(20);
        change(&mut config);
        Source::new(config, reporter())
    }

    /// Reads to the end, as `follow = false`.
    fn once(&self) -> Source {
        self.source(|config| config.follow = false)
    }
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn texts(taken: &[Taken]) -> Vec<String> {
    taken.iter().map(text).collect()
}

async fn finish(source: &Source, taken: &[Taken]) {
    let places = taken.iter().map(|t| (t.place, APPLIED)).collect();
    let tally = settle(&source.settler(), places).await;
    assert_eq!(tally, Tally { settled: taken.len(), void: 0 });
}

/// All that is left, finished; the source has then come to its end.
async fn drain(source: &mut Source) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match soon(source.next(100)).await {
            Ok(deliveries) => {
                let taken: Vec<_> = deliveries.into_iter().map(crate::support::surrender).collect();
                finish(source, &taken).await;
                all.extend(texts(&taken));
            }
            Err(Error::Ended) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The source can never go on; its reason.
async fn fatal(source: &mut Source) -> String {
    match soon(source.next(100)).await {
        Err(Error::Fatal(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_is_read_once_and_goes_on_where_it_was() {
    let place = Place::with("1\n2\n\n3");
    assert_eq!(drain(&mut place.once()).await, ["1", "2", "3"]);
    assert_eq!(drain(&mut place.once()).await, [""; 0]);
    append(&place.path(), "\n4\n");
    assert_eq!(drain(&mut place.once()).await, ["4"]);
}

#[tokio::test]
async fn unfinished_lines_come_again_after_a_restart() {
    let place = Place::with("1\n2\n3\n4\n");
    let mut first = place.once();
    let taken = take_all(&mut first, 4).await;
    finish(&first, &taken[..1]).await;
    finish(&first, &taken[2..3]).await;
    drop(first);
    assert_eq!(drain(&mut place.once()).await, ["2", "3", "4"], "3 was finished, and is a duplicate");
}

#[tokio::test]
async fn a_growing_file_is_followed_and_half_a_line_waits() {
    let place = Place::with("1\n2");
    let mut source = place.source(|_| ());
    let taken = take(&mut source, 9).await;
    assert_eq!(texts(&taken), ["1"]);
    let early = tokio::time::timeout(Duration::from_millis(60), source.next(9)).await;
    assert!(early.is_err(), "half a line was delivered: {early:?}");
    append(&place.path(), "2\n3\n");
    let more = take_all(&mut source, 2).await;
    assert_eq!(texts(&more), ["22", "3"]);
    finish(&source, &taken).await;
    finish(&source, &more).await;
}

#[tokio::test]
async fn a_line_that_is_handed_back_comes_again_and_holds_the_position() {
    let place = Place::with("1\n2\n");
    let mut source = place.once();
    let taken = take_all(&mut source, 2).await;
    finish(&source, &taken[1..]).await;
    settle(&source.settler(), vec![(taken[0].place, Disposal::Requeue)]).await;
    let again = take(&mut source, 9).await;
    assert_eq!((texts(&again), again[0].redelivered), (vec!["1".to_owned()], true));
    assert_eq!(again[0].place, taken[0].place);
    drop(source);
    let mut next = place.once();
    assert_eq!(drain(&mut next).await, ["1", "2"]);
}

#[tokio::test]
async fn a_dropped_delivery_is_not_passed_over() {
    let place = Place::with("1\n");
    let mut source = place.once();
    drop(soon(source.next(9)).await.unwrap());
    assert_eq!(drain(&mut source).await, ["1"]);
}

#[tokio::test]
async fn lines_in_flight_are_bounded_by_the_first_that_is_open() {
    let place = Place::with("1\n2\n3\n");
    let mut source = place.source(|config| config.in_flight = 2);
    let taken = take_all(&mut source, 2).await;
    finish(&source, &taken[1..]).await;
    let early = tokio::time::timeout(Duration::from_millis(60), source.next(9)).await;
    assert!(early.is_err(), "the first is still open");
    finish(&source, &taken[..1]).await;
    assert_eq!(texts(&take(&mut source, 9).await), ["3"]);
}

#[tokio::test]
async fn receipts_are_void_after_close() {
    let place = Place::with("1\n");
    let mut source = place.once();
    let taken = take(&mut source, 9).await;
    source.close().await;
    let tally = settle(&source.settler(), vec![(taken[0].place, APPLIED)]).await;
    assert_eq!(tally, Tally { settled: 0, void: 1 });
    assert_eq!(drain(&mut place.once()).await, ["1"]);
}

#[tokio::test]
async fn p01_after_stop_open_lines_can_still_be_finished() {
    let place = Place::with("1\n2\n");
    let mut source = place.once();
    let taken = take(&mut source, 1).await;
    source.stop().await;
    assert!(matches!(source.next(9).await, Err(Error::Ended)));
    finish(&source, &taken).await;
    drop(source);
    assert_eq!(drain(&mut place.once()).await, ["2"]);
}

#[tokio::test]
async fn a_rotation_is_followed_without_losing_the_former_files_tail() {
    let place = Place::with("1\n");
    let mut source = place.source(|_| ());
    let first = take(&mut source, 9).await;
    fs::rename(place.path(), place.beside("in.ndjson.1")).unwrap();
    append(&place.beside("in.ndjson.1"), "2\n3");
    fs::write(place.path(), "4\n").unwrap();
    let tail = take_all(&mut source, 2).await;
    assert_eq!(texts(&tail), ["2", "3"]);
    let early = tokio::time::timeout(Duration::from_millis(60), source.next(9)).await;
    assert!(early.is_err(), "the former file is not finished");
    finish(&source, &first).await;
    finish(&source, &tail).await;
    let next = take(&mut source, 9).await;
    assert_eq!(texts(&next), ["4"]);
    assert_ne!(next[0].place.generation, first[0].place.generation);
    finish(&source, &next).await;
    drop(source);
    assert_eq!(drain(&mut place.once()).await, [""; 0]);
}

#[tokio::test]
async fn a_file_rotated_while_the_host_was_down_is_finished_first() {
    let place = Place::with("1\n2\n");
    let mut source = place.once();
    let taken = take(&mut source, 1).await;
    finish(&source, &taken).await;
    drop(source);
    fs::rename(place.path(), place.beside("in.ndjson.1")).unwrap();
    fs::write(place.path(), "3\n").unwrap();
    let mut source = place.source(|_| ());
    let tail = take(&mut source, 9).await;
    assert_eq!(texts(&tail), ["2"]);
    finish(&source, &tail).await;
    assert_eq!(texts(&take(&mut source, 9).await), ["3"]);
}

#[tokio::test]
async fn a_file_written_anew_stops_the_source_or_starts_it_again() {
    let place = Place::with("1\n2\n");
    assert_eq!(drain(&mut place.once()).await, ["1", "2"]);
    fs::write(place.path(), "3\n").unwrap();
    let reason = fatal(&mut place.once()).await;
    assert!(reason.contains("in.ndjson.position") && reason.contains("on_replaced"), "{reason}");
    let restart = |config: &mut Config| {
        config.follow = false;
        config.on_replaced = Replaced::Restart;
    };
    assert_eq!(drain(&mut place.source(restart)).await, ["3"]);
}

#[tokio::test]
async fn a_file_cut_while_it_is_read_stops_the_source_or_starts_it_again() {
    for on_replaced in [Replaced::Stop, Replaced::Restart] {
        let place = Place::with("1\n2\n");
        let mut source = place.source(|config| config.on_replaced = on_replaced);
        let taken = take_all(&mut source, 2).await;
        finish(&source, &taken).await;
        fs::write(place.path(), "3\n").unwrap();
        match on_replaced {
            Replaced::Stop => assert!(fatal(&mut source).await.contains("shrank to 2 bytes")),
            Replaced::Restart => assert_eq!(texts(&take(&mut source, 9).await), ["3"]),
        }
    }
}

#[tokio::test]
async fn a_line_over_the_limit_stops_the_source_and_is_not_skipped() {
    for lines in ["1\n123456789\n2\n", "1\n123456789"] {
        let place = Place::with(lines);
        let mut source = place.source(|config| config.line_limit = 8);
        let taken = take(&mut source, 1).await;
        finish(&source, &taken).await;
        let reason = fatal(&mut source).await;
        assert!(reason.contains("at byte 2") && reason.contains("line_limit, 8"), "{reason}");
        drop(source);
        let rest = place.source(|config| config.follow = false).next(1).await.unwrap();
        assert_eq!(rest[0].message.body.as_deref(), Some(&b"123456789"[..]));
    }
}

#[tokio::test]
async fn p07_a_file_that_is_not_there_yet_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let health = Health::default();
    let mut config = Config::new(folder.path().join("in.ndjson"));
    config.poll = Duration::from_millis(10);
    let mut source = Source::new(config.clone(), health.component("broker.file"));
    let early = tokio::time::timeout(Duration::from_millis(60), source.next(9)).await;
    assert!(early.is_err());
    assert!(health.snapshot()["broker.file"].detail.contains("waiting for the file"));
    fs::write(folder.path().join("in.ndjson"), "1\n").unwrap();
    assert_eq!(texts(&take(&mut source, 9).await), ["1"]);
    assert!(health.ready());
    config.path = folder.path().join("other");
    config.position = folder.path().join("other.position");
    config.follow = false;
    assert!(fatal(&mut Source::new(config, reporter())).await.contains("cannot open"));
}

#[tokio::test]
async fn two_readers_do_not_share_a_position_file() {
    let place = Place::with("1\n");
    let mut first = place.once();
    take(&mut first, 9).await;
    assert!(fatal(&mut place.once()).await.contains("give each its own"));
    first.close().await;
    assert_eq!(drain(&mut place.once()).await, ["1"]);
}

#[tokio::test]
async fn a_position_that_cannot_be_saved_shows_and_only_brings_duplicates() {
    let place = Place::with("1\n2\n");
    let health = Health::default();
    let mut config = Config::new(place.path());
    config.follow = false;
    let mut source = Source::new(config, health.component("broker.file"));
    let taken = take_all(&mut source, 2).await;
    fs::create_dir(place.beside("in.ndjson.position.new")).unwrap();
    finish(&source, &taken[..1]).await;
    assert!(!health.ready());
    fs::remove_dir(place.beside("in.ndjson.position.new")).unwrap();
    finish(&source, &taken[1..]).await;
    assert!(health.ready(), "{:?}", health.snapshot());
    drop(source);
    assert_eq!(drain(&mut place.once()).await, [""; 0]);
}

#[tokio::test]
async fn lines_that_are_no_json_are_delivered_whole() {
    let place = Place::with("");
    fs::write(place.path(), b"\xff\xfe\n{\"id\":\"7\",\"body\":{\"a\":1}}\n{broken\n").unwrap();
    let mut source = place.source(|config| config.format = Format::Envelope);
    let taken = take_all(&mut source, 3).await;
    assert_eq!(taken[0].message.body.as_deref(), Some(&b"\xff\xfe"[..]));
    assert_eq!((taken[1].message.id.as_deref(), text(&taken[1]).as_str()), (Some("7"), "{\"a\":1}"));
    assert_eq!(text(&taken[2]), "{broken");
    assert!(taken.iter().all(|t| t.message.source == "in.ndjson"));
}

#[tokio::test]
async fn a_cancelled_wait_loses_no_line() {
    let place = Place::with("");
    let mut source = place.source(|config| config.poll = Duration::from_millis(1));
    let writer = tokio::spawn({
        let path = place.path();
        async move {
            for n in 0..200 {
                append(&path, &format!("{n}\n"));
                tokio::task::yield_now().await;
            }
        }
    });
    let mut all = Vec::new();
    let reading = async {
        while all.len() < 200 {
            if let Ok(more) = tokio::time::timeout(Duration::from_micros(300), source.next(7)).await {
                let taken: Vec<_> = more.unwrap().into_iter().map(crate::support::surrender).collect();
                all.extend(texts(&taken));
            }
        }
    };
    soon(reading).await;
    writer.await.unwrap();
    assert_eq!(all, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
}
