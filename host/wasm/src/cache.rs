//! Compiled code on disk, so that a restart does not compile.
//!
//! **Invariant:** nothing that is wrong with an entry can do more than cause a compilation: entries are read whole
//! and checked against their own hash, never mapped; they are named by content, and replaced by renaming, never
//! written in place.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use wasmtime::Engine;
use wasmtime::component::Component;

const MAGIC: &[u8; 16] = b"ackwright code 1";
const HASH: usize = blake3::OUT_LEN;

pub(crate) struct Cache {
    folder: PathBuf,
    /// Code of another version of the engine, or of another configuration, has another name.
    compatibility: u64,
    owner: u32,
    next: AtomicU32,
}

impl Cache {
    /// Nothing where the folder cannot be used; the host then compiles at every start.
    pub fn open(folder: &Path, engine: &Engine) -> Option<Self> {
        let unusable = |why: String| {
            tracing::warn!(folder = %folder.display(), why, "compiled plugins are not cached");
            None
        };
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(folder) {
            return unusable(format!("it cannot be created: {error}"));
        }
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        let mut cache =
            Cache { folder: folder.into(), compatibility: hasher.finish(), owner: 0, next: AtomicU32::new(0) };
        // A file of our own tells who we are.
        let probe = cache.temporary();
        let owner = cache.write(&probe, &[]).and_then(|()| fs::metadata(&probe)).map(|m| m.uid());
        let _ = fs::remove_file(&probe);
        cache.owner = match owner {
            Ok(owner) => owner,
            Err(error) => return unusable(format!("it cannot be written: {error}")),
        };
        match fs::metadata(folder) {
            Ok(found) if found.uid() != cache.owner => {
                unusable(format!("it belongs to user {}, not to {}", found.uid(), cache.owner))
            }
            Ok(found) if found.mode() & 0o077 != 0 => {
                unusable(format!("others may use it (mode {:o}); make it 0700", found.mode() & 0o7777))
            }
            Ok(_) => Some(cache),
            Err(error) => unusable(format!("it cannot be read: {error}")),
        }
    }

    /// The compiled component, where there is a sound entry.
    pub fn get(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let path = self.path(digest);
        let file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "compiled plugin cannot be read, compiling again");
                return None;
            }
        };
        let owned = fs::metadata(&path).is_ok_and(|m| m.uid() == self.owner && m.mode() & 0o022 == 0);
        let code = owned.then(|| sound(&file, digest)).flatten();
        let component = code.and_then(|code| trusted(engine, code).ok());
        if component.is_none() {
            tracing::warn!(path = %path.display(), "compiled plugin is damaged or foreign, compiling again");
        }
        component
    }

    /// Keeps compiled code; a failure only costs a later compilation.
    pub fn put(&self, digest: &str, component: &Component) {
        let path = self.path(digest);
        let kept = component.serialize().map_err(io::Error::other).and_then(|code| {
            let temporary = self.temporary();
            let written = self
                .write(&temporary, &[MAGIC, digest.as_bytes(), seal(digest, &code).as_bytes(), &code])
                .and_then(|()| fs::rename(&temporary, &path));
            if written.is_err() {
                let _ = fs::remove_file(&temporary);
            }
            written
        });
        if let Err(error) = kept {
            tracing::warn!(path = %path.display(), %error, "compiled plugin could not be kept");
        }
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}-{:016x}.code", self.compatibility))
    }

    fn temporary(&self) -> PathBuf {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!(".{}-{next}-{:016x}.new", std::process::id(), self.compatibility))
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        // Left over from a process that was killed and had our id.
        let _ = fs::remove_file(path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        for part in parts {
            file.write_all(part)?;
        }
        Ok(())
    }
}

fn seal(digest: &str, code: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(MAGIC).update(digest.as_bytes()).update(code);
    hasher.finalize()
}

/// The code in an entry, where the entry is whole and is of this plugin.
fn sound<'a>(file: &'a [u8], digest: &str) -> Option<&'a [u8]> {
    let rest = file.strip_prefix(MAGIC)?.strip_prefix(digest.as_bytes())?;
    let (hash, code) = rest.split_at_checked(HASH)?;
    (seal(digest, code).as_bytes() == hash).then_some(code)
}

/// Takes compiled code as it is.
#[allow(unsafe_code)]
fn trusted(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes were written by this user into a folder that nobody else may enter (`open` checks both),
    // and carry the hash that they were written with; code of another engine is refused by wasmtime.
    unsafe { Component::deserialize(engine, code) }
}
