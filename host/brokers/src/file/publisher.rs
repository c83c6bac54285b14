//! Outbox rows as lines: appended to files, or written to standard output or the log.
//!
//! **Invariant:** a row counts as sent once its line is on the disk. A line that a crash has torn is ended first, so
//! that it spoils no other.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ackwright_core::outbox::Row;
use ackwright_core::publisher::{self, Error as Failure};
use async_trait::async_trait;

use super::bookmark::{self, failed, sync_folder};
use super::line::of_row;

/// Stands for a row's destination in the configured path.
pub const PLACEHOLDER: &str = "{destination}";

/// Longest file name that a destination may become, in bytes: what file systems take, with room for a suffix.
const NAME_LIMIT: usize = 200;

#[derive(Clone, Debug)]
pub struct Config {
    /// One file for all destinations, or with `{destination}` in its last part one for each.
    pub path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{{destination}}` may stand in the file name only, not in a folder: {}", .0.display())]
    Folder(PathBuf),
    #[error("the path of a file broker names no file: {}", .0.display())]
    NoName(PathBuf),
}

pub struct Publisher {
    folder: PathBuf,
    pattern: String,
    /// One writer at a time, so that lines stay whole and in order.
    writing: Arc<Mutex<()>>,
}

impl Publisher {
    pub fn new(config: Config) -> Result<Self, Error> {
        let name = config.path.file_name().ok_or_else(|| Error::NoName(config.path.clone()))?;
        let folder = config.path.parent().unwrap_or(Path::new("")).to_owned();
        if folder.to_string_lossy().contains(PLACEHOLDER) {
            return Err(Error::Folder(config.path));
        }
        Ok(Publisher { folder, pattern: name.to_string_lossy().into_owned(), writing: Arc::default() })
    }

    fn file(&self, destination: &str) -> Result<PathBuf, String> {
        if !self.pattern.contains(PLACEHOLDER) {
            return Ok(self.folder.join(&self.pattern));
        }
        let name = file_name(destination);
        if name.is_empty() || name.len() > NAME_LIMIT {
            return Err(format!("the destination must give a file name of 1 to {NAME_LIMIT} bytes"));
        }
        Ok(self.folder.join(self.pattern.replace(PLACEHOLDER, &name)))
    }
}

#[async_trait]
impl publisher::Publisher for Publisher {
    async fn publish(&self, rows: &[Row]) -> Vec<Result<(), Failure>> {
        let mut answers: Vec<Result<(), Failure>> = vec![Ok(()); rows.len()];
        let mut files: BTreeMap<PathBuf, (Vec<u8>, Vec<usize>)> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            match self.file(&row.destination) {
                Ok(path) => {
                    let (lines, indexes) = files.entry(path).or_default();
                    lines.extend(of_row(row));
                    indexes.push(index);
                }
                Err(reason) => answers[index] = Err(Failure::Permanent(reason)),
            }
        }
        let writing = Arc::clone(&self.writing);
        let write = move || {
            let _turn = writing.lock().unwrap_or_else(|e| e.into_inner());
            let append = |(path, (lines, indexes)): (PathBuf, (Vec<u8>, Vec<usize>))| (indexes, append(&path, &lines));
            files.into_iter().map(append).collect::<Vec<_>>()
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(written) => {
                for (indexes, result) in written {
                    if let Err(error) = result {
                        for index in indexes {
                            answers[index] = Err(Failure::Unavailable(error.to_string()));
                        }
                    }
                }
                answers
            }
            Err(error) => vec![Err(Failure::Unavailable(format!("writing did not end: {error}"))); rows.len()],
        }
    }

    async fn close(&self) {
        // Every call leaves its lines on the disk and holds no file open.
    }
}

/// Opened each time, so that a file that was rotated away is not written to for ever.
fn append(path: &Path, lines: &[u8]) -> Result<(), bookmark::Error> {
    let fresh = !path.exists();
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path).map_err(failed("open", path))?;
    if torn(&mut file).map_err(failed("read the end of", path))? {
        tracing::warn!(file = %path.display(), "ending a line that was torn");
        file.write_all(b"\n").map_err(failed("append to", path))?;
    }
    file.write_all(lines).and_then(|()| file.sync_data()).map_err(failed("append to", path))?;
    if fresh { sync_folder(path) } else { Ok(()) }
}

fn torn(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Letters, digits, `-`, `_` and inner dots as they are, the rest escaped, so that no destination names a folder, a
/// hidden file, or another destination's file.
fn file_name(destination: &str) -> String {
    let mut name = String::with_capacity(destination.len());
    for byte in destination.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b'.' if !name.is_empty() => name.push('.'),
            other => name.push_str(&format!("%{other:02X}")),
        }
    }
    name
}

/// Where lines go that no file keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    #[default]
    Stdout,
    /// The host's own log, at level info.
    Log,
}

/// Kind `log`: shows what would be sent.
pub struct Printer {
    stream: Stream,
}

impl Printer {
    pub fn new(stream: Stream) -> Self {
        Printer { stream }
    }
}

#[async_trait]
impl publisher::Publisher for Printer {
    async fn publish(&self, rows: &[Row]) -> Vec<Result<(), Failure>> {
        match self.stream {
            Stream::Log => {
                for row in rows {
                    let line = of_row(row);
                    let message = String::from_utf8_lossy(line.trim_ascii_end());
                    tracing::info!(id = %row.id, destination = row.destination, %message, "outbox message");
                }
                vec![Ok(()); rows.len()]
            }
            Stream::Stdout => {
                let lines: Vec<u8> = rows.iter().flat_map(of_row).collect();
                let print = move || {
                    let mut out = std::io::stdout().lock();
                    out.write_all(&lines).and_then(|()| out.flush())
                };
                let printed = tokio::task::spawn_blocking(print).await.map_err(std::io::Error::other).flatten();
                let answer = printed.map_err(|e| Failure::Unavailable(format!("cannot write to standard output: {e}")));
                vec![answer; rows.len()]
            }
        }
    }

    async fn close(&self) {
        // Both streams are flushed with each call.
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;

    use bytes::Bytes;
    use proptest::prelude::*;
    use publisher::Publisher as _;
    use uuid::Uuid;

    use super::*;
    use crate::file::line::{Format, message};

    fn row(id: u128, destination: &str) -> Row {
        Row {
            position: id as i64,
            id: Uuid::from_u128(id),
            broker: "out".into(),
            destination: destination.into(),
            order_key: "k".into(),
            content_type: None,
            headers: Vec::new(),
            body: Bytes::from_static(b"{\"a\":1}"),
            attempts: 0,
        }
    }

    fn ids(path: &Path) -> Vec<Option<String>> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| message(Format::Envelope, "f", line.as_bytes()).id).collect()
    }

    #[tokio::test]
    async fn rows_are_appended_in_order_to_one_file_a_destination() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { path: folder.path().join("{destination}.ndjson") };
        let publisher = Publisher::new(config).unwrap();
        let rows = [row(1, "a"), row(2, "../b"), row(3, "a"), row(4, "")];
        let answers = publisher.publish(&rows).await;
        assert_eq!(answers[..3], [Ok(()), Ok(()), Ok(())]);
        assert!(matches!(answers[3], Err(Failure::Permanent(_))));
        publisher.publish(&[row(5, "a")]).await[0].clone().unwrap();
        let id = |id: u128| Some(Uuid::from_u128(id).to_string());
        assert_eq!(ids(&folder.path().join("a.ndjson")), [id(1), id(3), id(5)]);
        assert_eq!(ids(&folder.path().join("%2E.%2Fb.ndjson")), [id(2)]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn a_torn_line_is_ended_and_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        fs::write(&path, "{\"id\":\"x\"}\n{\"id\":\"to").unwrap();
        let publisher = Publisher::new(Config { path: path.clone() }).unwrap();
        assert_eq!(publisher.publish(&[row(7, "a")]).await, [Ok(())]);
        assert_eq!(ids(&path), [Some("x".into()), None, Some(Uuid::from_u128(7).to_string())]);
    }

    #[tokio::test]
    async fn a_folder_that_is_away_spends_no_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let publisher = Publisher::new(Config { path: folder.path().join("no/out.ndjson") }).unwrap();
        let answers = publisher.publish(&[row(1, "a"), row(2, "b")]).await;
        assert!(answers.iter().all(|a| matches!(a, Err(Failure::Unavailable(r)) if r.contains("out.ndjson"))));
        fs::create_dir(folder.path().join("no")).unwrap();
        assert_eq!(publisher.publish(&[row(1, "a")]).await, [Ok(())]);
    }

    #[tokio::test]
    async fn a_printer_takes_every_row() {
        for stream in [Stream::Stdout, Stream::Log] {
            assert_eq!(Printer::new(stream).publish(&[row(1, "a"), row(2, "b")]).await, [Ok(()), Ok(())]);
        }
    }

    #[test]
    fn a_placeholder_in_a_folder_is_refused() {
        assert!(matches!(Publisher::new(Config { path: "/x/{destination}/y".into() }), Err(Error::Folder(_))));
        assert!(matches!(Publisher::new(Config { path: "/".into() }), Err(Error::NoName(_))));
    }

    proptest! {
        #[test]
        fn destinations_never_share_or_leave_their_file(destinations in prop::collection::hash_set("\\PC{1,6}", 1..8)) {
            let names: HashSet<_> = destinations.iter().map(|d| file_name(d)).collect();
            prop_assert_eq!(names.len(), destinations.len());
            for name in names {
                prop_assert!(!name.contains('/') && !name.starts_with('.') && !name.is_empty());
            }
        }
    }
}
