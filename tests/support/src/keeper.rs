//! Child processes and their folder, which do not outlive the test process.
//!
//! **Invariant:** whether the test process returns, panics, is interrupted or is killed with SIGKILL, the kernel
//! closes its end of a pipe; a watchdog shell that reads the other end then ends the processes and removes the
//! folder. Destructors would not do: they run neither for statics nor after SIGKILL.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::wait::try_until;

/// Each running process group has a file `running/<group>.<signal>`. The signal lets it clean up; two seconds later
/// comes SIGKILL.
const WATCHDOG: &str = r#"
cat >/dev/null
for file in "$1"/running/*; do
    name=${file##*/}
    kill -s "${name#*.}" -- "-${name%.*}" 2>/dev/null
done
for file in "$1"/running/*; do
    name=${file##*/}
    tries=0
    while kill -s 0 -- "-${name%.*}" 2>/dev/null && [ $tries -lt 40 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -s KILL -- "-${name%.*}" 2>/dev/null
done
rm -rf "$1"
"#;

/// Notes the process group before the program begins, so that there is no moment at which it is not kept.
const START: &str = r#"echo >"$1/running/$$.$2" && shift 2 && exec "$@""#;

/// A temporary folder and the processes that live in it.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    watchdog: Child,
    pipe: Option<ChildStdin>,
}

impl Keeper {
    pub fn new(name: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("ackwright-{name}-"))
            .tempdir()
            .context("cannot make a temporary folder")?
            .keep();
        std::fs::create_dir(folder.join("running"))?;
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt typed at the terminal goes to the test's group; the watchdog must outlive that.
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let pipe = watchdog.stdin.take();
        Ok(Keeper { folder, watchdog, pipe })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a program in a process group of its own. Its output goes to the end of `log`. `end` is the signal
    /// with which the watchdog ends it.
    pub fn spawn<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
        environment: impl IntoIterator<Item = (String, String)>,
        log: &str,
        end: Signal,
    ) -> Result<Kept> {
        let log = File::options().create(true).append(true).open(self.folder.join(log))?;
        let program = program.as_ref();
        let child = Command::new("sh")
            .args(["-c", START, "start"])
            .arg(&self.folder)
            .arg(end.as_str().trim_start_matches("SIG"))
            .arg(program)
            .args(arguments)
            .envs(environment)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let note = self.folder.join(format!("running/{}.{}", child.id(), end.as_str().trim_start_matches("SIG")));
        Ok(Kept { child, note })
    }

    /// The end of a log file, for messages.
    pub fn tail(&self, log: &str) -> String {
        let text = std::fs::read(self.folder.join(log)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // Nothing can be done about a failure here, and the watchdog always ends.
        let _ = self.watchdog.wait();
    }
}

/// A process of a [`Keeper`].
#[derive(Debug)]
pub struct Kept {
    child: Child,
    note: PathBuf,
}

impl Kept {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        // It fails where the process is gone, which whoever waits for it will see.
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Sends SIGKILL to the process and to its children in the same group.
    pub fn kill(&self) {
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
    }

    /// The exit status, where the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // The only error is that somebody else has reaped it, and nobody does.
        let status = self.child.try_wait().ok().flatten()?;
        let _ = std::fs::remove_file(&self.note);
        Some(status)
    }

    pub async fn wait(&mut self, what: &str, deadline: Duration) -> Result<ExitStatus> {
        try_until(&format!("{what} ends"), deadline, async || self.ended()).await
    }
}
