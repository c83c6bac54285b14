//! The position file: how far a file was finished, and which file that was.
//!
//! **Invariant:** it is replaced in one step and only ever holds a position up to which all lines are finished. Where
//! it lags behind, lines come again and are duplicates.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes at the start of a file that tell it from another one.
const HEAD: u64 = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bookmark {
    version: u32,
    pub inode: u64,
    /// Every line before it is finished.
    pub offset: u64,
    /// SHA-256 of the first bytes of the file, up to `offset` and at most 1024 of them.
    head: String,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct Error {
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

/// Wraps an I/O error with what was attempted.
pub fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error { action, path: path.to_owned(), source }
}

impl Bookmark {
    pub fn of(file: &File, offset: u64) -> io::Result<Self> {
        Ok(Bookmark { version: 1, inode: file.metadata()?.ino(), offset, head: head(file, offset)? })
    }

    /// Whether this is the file that the position belongs to, with everything that was finished still in it.
    pub fn fits(&self, file: &File) -> io::Result<bool> {
        let metadata = file.metadata()?;
        Ok(metadata.ino() == self.inode && metadata.len() >= self.offset && head(file, self.offset)? == self.head)
    }

    /// Absent where no position was saved yet.
    pub fn load(path: &Path) -> Result<Option<Self>, Error> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read the position file", path))?,
        };
        let bookmark: Bookmark = serde_json::from_slice(&text)
            .map_err(io::Error::other)
            .map_err(failed("understand the position file", path))?;
        if bookmark.version != 1 {
            let other = io::Error::other(format!("it has version {}, this host knows 1", bookmark.version));
            return Err(failed("understand the position file", path)(other));
        }
        Ok(Some(bookmark))
    }

    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let mut file = File::create(&beside).map_err(failed("create", &beside))?;
        let mut text = serde_json::to_vec(self).expect("numbers and a string");
        text.push(b'\n');
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed("write", &beside))?;
        fs::rename(&beside, path).map_err(failed("replace the position file", path))?;
        sync_folder(path)
    }
}

/// Makes a created or renamed file last.
pub fn sync_folder(path: &Path) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync the folder", folder))
}

fn head(file: &File, offset: u64) -> io::Result<String> {
    let mut bytes = vec![0; offset.min(HEAD) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(hex::encode(Sha256::digest(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_belongs_to_one_file_and_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.ndjson");
        fs::write(&path, "1\n2\n3\n").unwrap();
        let file = File::open(&path).unwrap();
        let bookmark = Bookmark::of(&file, 4).unwrap();
        assert!(bookmark.fits(&file).unwrap());

        fs::write(&path, "1\n2\n3\n4\n").unwrap();
        assert!(bookmark.fits(&file).unwrap(), "it grew");
        fs::write(&path, "1\n").unwrap();
        assert!(!bookmark.fits(&file).unwrap(), "it shrank");
        fs::write(&path, "1\n3\n3\n").unwrap();
        assert!(!bookmark.fits(&file).unwrap(), "it was written anew");
        fs::write(folder.path().join("other"), "1\n2\n3\n").unwrap();
        assert!(!bookmark.fits(&File::open(folder.path().join("other")).unwrap()).unwrap(), "another file");
    }

    #[test]
    fn a_saved_position_loads_and_a_strange_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.ndjson.position");
        assert_eq!(Bookmark::load(&path).unwrap(), None);
        fs::write(folder.path().join("in"), "1\n").unwrap();
        let bookmark = Bookmark::of(&File::open(folder.path().join("in")).unwrap(), 2).unwrap();
        bookmark.save(&path).unwrap();
        assert_eq!(Bookmark::load(&path).unwrap(), Some(bookmark.clone()));
        for strange in ["", "{}", r#"{"version":2,"inode":1,"offset":0,"head":""}"#] {
            fs::write(&path, strange).unwrap();
            let error = Bookmark::load(&path).unwrap_err().to_string();
            assert!(error.contains("cannot understand the position file"), "{error}");
        }
    }
}
