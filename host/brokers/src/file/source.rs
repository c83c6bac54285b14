//! A route's intake: the lines of a file, from where the last run left off.
//!
//! **Invariant:** a line is passed over only once it is finished. What cannot be read as a line stops the source with
//! its reason; it is not skipped.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ackwright_core::delivery::{Delivery, Receipt};
use ackwright_core::health::Reporter;
use ackwright_core::message::{Header, HeaderValue};
use ackwright_core::settle::Settler;
use ackwright_core::source::{self, Capabilities, Source as _};
use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use super::bookmark::{Bookmark, failed};
use super::line::{self, Format};
use super::reader::{Found, Line, Reader, sibling};
use super::settler::Ledger;

#[derive(Clone, Debug)]
pub struct Config {
    pub path: PathBuf,
    /// Where the position is kept. Each route needs its own.
    pub position: PathBuf,
    pub format: Format,
    /// Wait for more at the end; otherwise the source ends there, and a last line may lack its line feed.
    pub follow: bool,
    pub on_replaced: Replaced,
    /// Longest line, in bytes.
    pub line_limit: usize,
    /// Lines handed over beyond the first that is not finished.
    pub in_flight: usize,
    /// How often the end of the file is looked at.
    pub poll: Duration,
    /// How soon a line that was handed back goes out again.
    pub requeue_delay: Duration,
}

/// What to do when the lines behind the position are gone: the file was cut, written anew, or another one has its
/// place. A rotation by renaming loses nothing and is followed in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replaced {
    #[default]
    Stop,
    /// Start at the beginning of what is there now. Lines that were finished before are duplicates.
    Restart,
}

impl Config {
    /// Follows the file, with the position in `<path>.position`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let position = beside(&path, ".position");
        Config {
            path,
            position,
            format: Format::Body,
            follow: true,
            on_replaced: Replaced::Stop,
            line_limit: 16 * 1024 * 1024,
            in_flight: 4096,
            poll: Duration::from_millis(100),
            requeue_delay: Duration::from_millis(500),
        }
    }
}

pub struct Source {
    config: Config,
    name: String,
    reporter: Reporter,
    ledger: Arc<Ledger>,
    reader: Option<Reader>,
    /// Held while the position file is ours.
    lock: Option<File>,
    /// The end was seen after another file took the name: the former one grows no more.
    renamed: bool,
    stopped: bool,
}

impl Source {
    /// Nothing is opened before the first `next`, which waits for a file that is not there yet.
    pub fn new(config: Config, reporter: Reporter) -> Self {
        let ledger = Arc::new(Ledger::new(config.position.clone(), reporter.clone(), config.requeue_delay));
        let name = config.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Source { config, name, reporter, ledger, reader: None, lock: None, renamed: false, stopped: false }
    }

    /// What can go out now: lines that were handed back, then new ones.
    fn take(&mut self, most: usize) -> Result<Vec<Delivery>, source::Error> {
        let settler = self.settler();
        let again = self.ledger.again(most).into_iter().map(|(place, message)| Delivery {
            message,
            receipt: Receipt::new(place, Arc::clone(&settler)),
            redelivered: true,
        });
        let mut taken: Vec<_> = again.collect();
        while taken.len() < most && self.ledger.held() < self.config.in_flight {
            let Some(line) = self.reader.as_mut().and_then(|reader| reader.lines().take()) else { break };
            taken.push(self.deliver(line)?);
        }
        Ok(taken)
    }

    fn deliver(&self, line: Line) -> Result<Delivery, source::Error> {
        if line.bytes.len() > self.config.line_limit {
            return Err(self.too_long(line.offset));
        }
        let mut message = line::message(self.config.format, &self.name, &line.bytes);
        if let Ok(offset) = i64::try_from(line.offset) {
            message.properties.push(Header { name: "offset".into(), value: HeaderValue::I64(offset) });
        }
        let message = Arc::new(message);
        let place = self.ledger.register(line.offset, line.next, &message).map_err(|e| fatal(&e))?;
        Ok(Delivery { message, receipt: Receipt::new(place, self.settler()), redelivered: false })
    }

    /// Nothing can go out: reads on, or waits for what may change that. A delivery is a last line without a line
    /// feed.
    async fn advance(&mut self) -> Result<Option<Delivery>, source::Error> {
        if self.ledger.held() >= self.config.in_flight {
            self.wait(None).await;
            return Ok(None);
        }
        let Some(reader) = &mut self.reader else {
            if !self.open().await? {
                self.wait(Some(self.config.poll)).await;
            }
            return Ok(None);
        };
        let found = reader.read(&self.config.path).await.map_err(|e| fatal(&failed("read", &self.config.path)(e)))?;
        let (begun, length) = reader.lines().rest();
        if length > self.config.line_limit && found != Found::More {
            return Err(self.too_long(begun));
        }
        let last = match found {
            Found::More => {
                self.renamed = false;
                // Whole lines come out on the next turn; only the unfinished rest counts against the limit.
                return Ok(None);
            }
            Found::Shrunk { length } => {
                let what = format!("{} shrank to {length} bytes, below what was read", self.config.path.display());
                self.replaced(&what)?;
                self.restart().await?;
                return Ok(None);
            }
            Found::End if self.config.follow => false,
            Found::End => true,
            Found::Renamed if !self.config.follow => true,
            // Its writer may have added lines between our read and the renaming: look once more, after a pause.
            Found::Renamed => std::mem::replace(&mut self.renamed, true),
        };
        if !last {
            self.wait(Some(self.config.poll)).await;
            return Ok(None);
        }
        if let Some(line) = self.reader.as_mut().and_then(|reader| reader.lines().take_rest()) {
            return self.deliver(line).map(Some);
        }
        if self.ledger.held() > 0 {
            // They may come back; the next file must not hide them.
            self.wait(None).await;
            return Ok(None);
        }
        if !self.config.follow {
            return Err(source::Error::Ended);
        }
        self.restart().await?;
        Ok(None)
    }

    /// Waits until something is settled or a handed-back line is due, and at most this long.
    async fn wait(&self, most: Option<Duration>) {
        let until = [self.ledger.next_again(), most.map(|most| Instant::now() + most)].into_iter().flatten().min();
        let pause = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.ledger.changed.notified() => {}
            () = pause => {}
        }
    }

    /// Opens the file at its position; false where it is not there yet.
    async fn open(&mut self) -> Result<bool, source::Error> {
        if self.lock.is_none() {
            self.lock = Some(lock(&self.config.position)?);
        }
        let bookmark = Bookmark::load(&self.config.position).map_err(|e| fatal(&e))?;
        let path = &self.config.path;
        let file = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.config.follow => {
                self.reporter.down(format!("waiting for the file {}", path.display()));
                return Ok(false);
            }
            opened => opened.map_err(|e| fatal(&failed("open", path)(e)))?,
        };
        let Some(bookmark) = bookmark else {
            self.begin(file, 0, false)?;
            return Ok(true);
        };
        let fits = |file: &File| bookmark.fits(file).map_err(|e| fatal(&failed("read the start of", path)(e)));
        if fits(&file)? {
            self.begin(file, bookmark.offset, true)?;
            return Ok(true);
        }
        // Renamed while nobody looked: its unread lines come first.
        let former =
            sibling(path, bookmark.inode).map_err(|e| fatal(&failed("look for the former file of", path)(e)))?;
        if let Some(former) = former.filter(|former| former != path) {
            let file = File::open(&former).map_err(|e| fatal(&failed("open", &former)(e)))?;
            if fits(&file)? {
                tracing::info!(file = %former.display(), "reading a renamed file to its end first");
                self.begin(file, bookmark.offset, true)?;
                return Ok(true);
            }
        }
        self.replaced(&format!("{} is not the file that its position belongs to", path.display()))?;
        self.begin(file, 0, false)?;
        self.ledger.save().await;
        Ok(true)
    }

    fn begin(&mut self, file: File, offset: u64, saved: bool) -> Result<(), source::Error> {
        let reader = Reader::new(file, offset).map_err(|e| fatal(&failed("look at", &self.config.path)(e)))?;
        self.ledger.start(Arc::clone(&reader.file), offset, saved);
        self.reader = Some(reader);
        self.renamed = false;
        self.reporter.ready();
        Ok(())
    }

    /// Begins with the file that has the name now.
    async fn restart(&mut self) -> Result<(), source::Error> {
        let path = &self.config.path;
        let file = File::open(path).map_err(|e| fatal(&failed("open", path)(e)))?;
        self.begin(file, 0, false)?;
        // At once: the former position would not fit the new file.
        self.ledger.save().await;
        Ok(())
    }

    fn replaced(&self, what: &str) -> Result<(), source::Error> {
        let position = self.config.position.display();
        match self.config.on_replaced {
            Replaced::Stop => Err(source::Error::Fatal(format!(
                "{what}, so lines may be missing; remove {position} to start at the beginning, or set \
                 on_replaced = \"restart\""
            ))),
            Replaced::Restart => {
                tracing::warn!(what, "file starts at its beginning again, lines may be missing");
                Ok(())
            }
        }
    }

    fn too_long(&self, offset: u64) -> source::Error {
        source::Error::Fatal(format!(
            "the line at byte {offset} of {} is longer than line_limit, {} bytes; raise it to go on",
            self.config.path.display(),
            self.config.line_limit
        ))
    }
}

#[async_trait]
impl source::Source for Source {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, shared: false, requeues: true }
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::clone(&self.ledger) as Arc<dyn Settler>
    }

    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, source::Error> {
        loop {
            if self.stopped {
                return Err(source::Error::Ended);
            }
            let taken = self.take(most.max(1))?;
            if !taken.is_empty() {
                return Ok(taken);
            }
            if let Some(delivery) = self.advance().await? {
                return Ok(vec![delivery]);
            }
        }
    }

    async fn stop(&mut self) {
        self.stopped = true;
    }

    async fn close(&mut self) {
        self.ledger.close();
        self.reader = None;
        self.lock = None;
    }
}

/// Two readers with one position file would each pass over lines that the other has not finished.
fn lock(position: &Path) -> Result<File, source::Error> {
    let path = beside(position, ".lock");
    let file = File::create(&path).map_err(|e| fatal(&failed("create", &path)(e)))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(source::Error::Fatal(format!(
            "another route or host reads with the position file {}; give each its own",
            position.display()
        ))),
        Err(TryLockError::Error(error)) => Err(fatal(&failed("lock", &path)(error))),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn fatal(error: &dyn std::error::Error) -> source::Error {
    source::Error::Fatal(error.to_string())
}
