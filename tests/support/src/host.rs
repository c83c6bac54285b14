//! The `ackwright` binary as a test runs it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::keeper::{Keeper, Kept};
use crate::ports::free_port;
use crate::wait::{try_until, until};

const LOG: &str = "ackwright.log";

/// One host with a folder and an admin port of its own. Its log is printed where the test that holds it fails.
#[derive(Debug)]
pub struct Host {
    keeper: Keeper,
    admin: SocketAddr,
    process: Option<Kept>,
}

impl Host {
    /// Takes a folder and a port; nothing runs yet.
    pub fn new() -> Result<Self> {
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        Ok(Host { keeper: Keeper::new("host")?, admin, process: None })
    }

    /// What belongs under `[host] admin`.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Where `ackwright.toml` goes; relative paths in it start here.
    pub fn folder(&self) -> &Path {
        self.keeper.folder()
    }

    /// Starts `ackwright run` on this configuration. `environment` is added to the test's own.
    pub fn start(&mut self, toml: &str, environment: &[(&str, &str)]) -> Result<()> {
        ensure!(self.process.is_none(), "the host is running already");
        std::fs::write(self.folder().join("ackwright.toml"), toml)?;
        let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let binary = binary()?;
        let arguments = ["run", "--config", "ackwright.toml"];
        self.process = Some(self.keeper.spawn(binary, arguments, environment, LOG, Signal::SIGKILL)?);
        Ok(())
    }

    /// Waits until `/readyz` says yes.
    pub async fn ready(&mut self, deadline: Duration) -> Result<()> {
        let fact = try_until("the host is ready", deadline, async || {
            if let Some(status) = self.ended() {
                return Some(Err(status));
            }
            let answer = self.get("/readyz").await;
            answer.is_ok_and(|answer| answer.status == 200).then_some(Ok(()))
        });
        match fact.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("the host ended before it was ready, with {status}"),
            Err(why) => {
                let last = self.get("/readyz").await.map(|answer| String::from_utf8_lossy(&answer.body).into_owned());
                bail!("{why}; /readyz answers {last:?}")
            }
        }
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Kept::id)
    }

    /// The exit status, where the host has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.ended()
    }

    /// Waits until the host ends by itself, for instance at a crash point.
    pub async fn died(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let Some(process) = self.process.as_mut() else { bail!("the host was not started") };
        let status = process.wait("the host", deadline).await?;
        self.process = None;
        Ok(status)
    }

    /// Kills the host where it stands, and waits until it is gone.
    pub async fn kill9(&mut self) -> Result<()> {
        let Some(process) = self.process.as_mut() else { bail!("the host was not started") };
        process.kill();
        self.died(Duration::from_secs(10)).await?;
        Ok(())
    }

    /// Asks the host to drain and waits for its exit status.
    pub async fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let Some(process) = self.process.as_mut() else { bail!("the host was not started") };
        process.signal(Signal::SIGTERM);
        self.died(deadline).await
    }

    /// Runs another subcommand in the host's folder, to its end.
    pub async fn command(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = tokio::process::Command::new(binary()?);
        command.args(arguments).current_dir(self.folder()).stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
        output
            .with_context(|| format!("ackwright {} did not end", arguments.join(" ")))?
            .context("cannot run ackwright")
    }

    /// Asks the admin address.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        http(self.admin, "GET", path, &[], b"").await
    }

    /// `/api/status`.
    pub async fn status(&self) -> Result<serde_json::Value> {
        let answer = self.get("/api/status").await?;
        ensure!(answer.status == 200, "/api/status answers {answer:?}");
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Sum of the samples of a metric whose labels contain all of `labels`, each written as `name="value"`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let answer = self.get("/metrics").await?;
        ensure!(answer.status == 200, "/metrics answers {answer:?}");
        Ok(sample(&String::from_utf8(answer.body)?, name, labels))
    }

    /// Waits until a metric satisfies a condition; returns the value that did.
    pub async fn until_metric(&self, name: &str, labels: &[&str], deadline: Duration, is: impl Fn(f64) -> bool) -> f64 {
        until(&format!("metric {name} {labels:?} is as expected"), deadline, async || {
            self.metric(name, labels).await.ok().filter(|value| is(*value))
        })
        .await
    }

    /// Everything that the host has logged, over all its starts.
    pub fn logs(&self) -> String {
        std::fs::read(self.folder().join(LOG)).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of the log of the host at {}\n{}\n---", self.admin, self.keeper.tail(LOG));
        }
    }
}

/// The binary: `ACKWRIGHT_BIN`, or the one that Cargo has put beside the tests.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ACKWRIGHT_BIN") {
        return Ok(path.into());
    }
    let tests = std::env::current_exe()?;
    let beside = tests.ancestors().skip(1).take(2).map(|folder| folder.join("ackwright")).find(|path| path.exists());
    beside.context("there is no ackwright binary; `cargo xtask test` builds it")
}

fn sample(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| {
        let (key, value) = line.rsplit_once(' ')?;
        let (found, set) = key.split_once('{').unwrap_or((key, ""));
        (found == name && labels.iter().all(|label| set.contains(label))).then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}

/// What an HTTP server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// One HTTP request on a connection of its own.
pub async fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("cannot reach {address}"))?;
    let mut request = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("the answer has no end of headers")?;
    let head = String::from_utf8(answer[..end].to_vec())?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).context("no status line")?;
    let headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v.to_owned())).collect();
    Ok(Answer { status, headers, body: answer.split_off(end + 4) })
}

#[cfg(test)]
mod tests {
    use super::sample;

    #[test]
    fn samples_are_summed_over_the_labels_that_were_not_asked_for() {
        let metrics = "# TYPE a counter\na{route=\"x\",end=\"done\"} 2\na{route=\"y\",end=\"done\"} 3\nab 9\na 5\n";
        assert_eq!(sample(metrics, "a", &["route=\"x\""]), 2.0);
        assert_eq!(sample(metrics, "a", &["end=\"done\""]), 5.0);
        assert_eq!(sample(metrics, "a", &[]), 10.0);
        assert_eq!(sample(metrics, "absent", &[]), 0.0);
    }
}
