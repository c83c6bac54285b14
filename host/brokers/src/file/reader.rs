//! An open file and the lines in it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

/// Read at once, in bytes.
const CHUNK: usize = 64 * 1024;

pub struct Reader {
    pub file: Arc<File>,
    inode: u64,
    lines: Lines,
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    More,
    /// The end as it is now.
    End,
    /// The end, and another file has the name.
    Renamed,
    /// The file is shorter than what was read.
    Shrunk {
        length: u64,
    },
}

impl Reader {
    pub fn new(file: File, offset: u64) -> io::Result<Self> {
        let inode = file.metadata()?.ino();
        Ok(Reader { file: Arc::new(file), inode, lines: Lines::new(offset) })
    }

    pub fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    /// Reads on. `path` is looked up at the end to see a rotation. Cancelling it loses nothing: the place to read
    /// from moves with the bytes.
    pub async fn read(&mut self, path: &Path) -> io::Result<Found> {
        let (file, path, at, inode) = (Arc::clone(&self.file), path.to_owned(), self.lines.end(), self.inode);
        let read = move || {
            let mut bytes = vec![0; CHUNK];
            let count = file.read_at(&mut bytes, at)?;
            bytes.truncate(count);
            let found = match count {
                0 => end(&file, at, inode, &path)?,
                _ => Found::More,
            };
            io::Result::Ok((bytes, found))
        };
        let (bytes, found) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        self.lines.extend(&bytes);
        Ok(found)
    }
}

fn end(file: &File, at: u64, inode: u64, path: &Path) -> io::Result<Found> {
    let length = file.metadata()?.len();
    if length < at {
        return Ok(Found::Shrunk { length });
    }
    match fs::metadata(path) {
        Ok(named) if named.ino() != inode => Ok(Found::Renamed),
        Ok(_) => Ok(Found::End),
        // Between a rotation's two steps the name is free.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::End),
        Err(error) => Err(error),
    }
}

/// A file of this folder with that inode: the former file after a rotation.
pub fn sibling(path: &Path, inode: u64) -> io::Result<Option<PathBuf>> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file that vanished meanwhile is not the one.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() && metadata.ino() == inode {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Bytes that were read and not yet taken as lines.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// Offset of the buffer's first byte.
    start: u64,
    /// Bytes of the buffer that hold no line feed.
    scanned: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub offset: u64,
    /// Where the next line starts.
    pub next: u64,
    /// Without its line feed, and without a carriage return before it.
    pub bytes: Bytes,
}

impl Lines {
    pub fn new(offset: u64) -> Self {
        Lines { buffer: BytesMut::new(), start: offset, scanned: 0 }
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Offset behind everything that was read.
    pub fn end(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    /// Offset and length of the line that has begun and not ended.
    pub fn rest(&self) -> (u64, usize) {
        (self.start, self.buffer.len())
    }

    /// The next whole line that holds something.
    pub fn take(&mut self) -> Option<Line> {
        loop {
            let feed = self.buffer[self.scanned..].iter().position(|b| *b == b'\n');
            let Some(feed) = feed.map(|feed| self.scanned + feed) else {
                self.scanned = self.buffer.len();
                return None;
            };
            if let Some(line) = self.cut(feed, 1) {
                return Some(line);
            }
        }
    }

    /// The last line of a file that grows no more, which may lack its line feed.
    pub fn take_rest(&mut self) -> Option<Line> {
        self.cut(self.buffer.len(), 0)
    }

    fn cut(&mut self, length: usize, feed: usize) -> Option<Line> {
        let offset = self.start;
        let bytes = self.buffer.split_to(length);
        self.buffer.advance(feed);
        self.scanned = 0;
        self.start += (length + feed) as u64;
        let text = bytes.strip_suffix(b"\r").unwrap_or(&bytes);
        // A copy, since a slice would keep all that was read with it.
        let line = Line { offset, next: self.start, bytes: Bytes::copy_from_slice(text) };
        (!text.trim_ascii().is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of(text: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(0);
        lines.extend(text);
        let mut all: Vec<_> = std::iter::from_fn(|| lines.take()).collect();
        all.extend(lines.take_rest());
        all
    }

    #[test]
    fn blank_lines_are_passed_over_and_carriage_returns_cut() {
        let line = |offset, next, text: &'static str| Line { offset, next, bytes: Bytes::from_static(text.as_bytes()) };
        assert_eq!(lines_of(b"a\r\n\n \n b \nc"), [line(0, 3, "a"), line(6, 10, " b "), line(10, 11, "c")]);
        assert_eq!(lines_of(b""), []);
    }

    #[test]
    fn a_line_that_has_not_ended_stays() {
        let mut lines = Lines::new(10);
        lines.extend(b"ab");
        assert_eq!(lines.take(), None);
        assert_eq!((lines.rest(), lines.end()), ((10, 2), 12));
        lines.extend(b"c\nd");
        assert_eq!(lines.take().map(|l| (l.offset, l.next, l.bytes)), Some((10, 14, Bytes::from_static(b"abc"))));
        assert_eq!(lines.rest(), (14, 1));
    }

    proptest! {
        /// However the reads fall, the same lines come out, and each stands at its offset.
        #[test]
        fn chunks_do_not_matter(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x'), any::<u8>()], 0..120),
            cuts in prop::collection::vec(1usize..9, 0..60),
        ) {
            let mut lines = Lines::new(0);
            let mut all = Vec::new();
            let mut at = 0;
            for cut in cuts.into_iter().chain(std::iter::repeat(usize::MAX)) {
                let to = at + cut.min(text.len() - at);
                lines.extend(&text[at..to]);
                at = to;
                all.extend(std::iter::from_fn(|| lines.take()));
                if at == text.len() {
                    break;
                }
            }
            all.extend(lines.take_rest());
            for line in &all {
                let (from, to) = (line.offset as usize, line.offset as usize + line.bytes.len());
                prop_assert_eq!(&text[from..to], &line.bytes[..]);
                prop_assert!(line.next as usize >= to && line.next as usize <= to + 2);
            }
            prop_assert_eq!(all, lines_of(&text));
        }
    }
}
