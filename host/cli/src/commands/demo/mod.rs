//! `ackwright demo`: the main job on the embedded default, with a kill -9 in the middle.

mod host;
mod stream;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinSet;

use self::host::Host;
use self::stream::{Post, Stream};
use super::Outcome;
use crate::args::Demo;
use crate::output::{print, print_json, table};

/// Posts that are open at the same time.
const SENDERS: usize = 16;
/// Lines are appended in so many portions, as the posts get on.
const PORTIONS: usize = 20;
/// For all messages to be answered, and then for all to be published.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn demo(arguments: &Demo, json: bool) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let plugins = plugins(&arguments.plugins)?;
    let kept = arguments.dir.as_deref().map(empty_folder).transpose()?;
    let temporary = tempfile::Builder::new().prefix("ackwright-demo-").tempdir().context("no temporary folder")?;
    let folder = kept.as_deref().unwrap_or(temporary.path());

    let Stream { posts, lines, expected } = stream::compose(arguments.messages as usize);
    let mut host = Host::prepare(folder, &plugins, &expected).await?;
    let progress = progress(posts.len() + lines.len());
    progress.set_message("the host starts");
    host.start()?;
    let posts = Arc::new(posts);
    let sent = send(&mut host, &posts, &lines, &progress).await?;
    progress.set_message("the rest is handled and published");
    settle(&mut host, &expected).await?;
    progress.set_message("SIGTERM: the host drains");
    let drained = host.terminate().await?;
    progress.finish_and_clear();

    let (counts, checks) = verify::verify(&host, &expected, sent, drained).await?;
    let holds = checks.iter().all(|check| check.holds);
    if json {
        print_json(&serde_json::json!({
            "ok": holds, "counts": counts, "checks": checks, "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else {
        report(&counts, &checks, began.elapsed())?;
    }
    if !holds && kept.is_none() {
        let left = temporary.keep();
        eprintln!("a check does not hold; everything is left in {}", left.display());
    }
    Ok(if holds { Outcome::Done } else { Outcome::Unmet })
}

fn plugins(folder: &Path) -> anyhow::Result<PathBuf> {
    for name in ["coupon.wasm", "ledger.wasm"] {
        anyhow::ensure!(
            folder.join(name).is_file(),
            "there is no {name} in {}; `cargo xtask plugins` builds the plugins, --plugins names their folder",
            folder.display()
        );
    }
    folder.canonicalize().with_context(|| format!("{} cannot be found", folder.display()))
}

fn empty_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let mut entries = folder.read_dir().with_context(|| format!("{} cannot be read", folder.display()))?;
    anyhow::ensure!(entries.next().is_none(), "{} is not empty; the demo starts from nothing", folder.display());
    folder.canonicalize().with_context(|| format!("{} cannot be found", folder.display()))
}

fn progress(length: usize) -> ProgressBar {
    // Hidden by itself where standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:32} {pos:>6}/{len} deliveries  {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Sends everything, kills the host in the middle and starts it again; returns the number of deliveries.
async fn send(
    host: &mut Host,
    posts: &Arc<Vec<Post>>,
    lines: &[String],
    progress: &ProgressBar,
) -> anyhow::Result<usize> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .context("no HTTP client can be made")?;
    let url = format!("http://{}/orders", host.webhook);
    let (next, answered, attempts) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let (client, url, posts) = (client.clone(), url.clone(), Arc::clone(posts));
        let (next, answered, attempts) = (Arc::clone(&next), Arc::clone(&answered), Arc::clone(&attempts));
        senders.spawn(async move {
            while let Some(post) = posts.get(next.fetch_add(1, Ordering::Relaxed)) {
                attempts.fetch_add(deliver(&client, &url, post).await?, Ordering::Relaxed);
                answered.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }

    let mut file = std::fs::OpenOptions::new().append(true).open(host.transfers())?;
    let mut appended = 0;
    let mut killed = false;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let done = answered.load(Ordering::Relaxed);
        let portion = (PORTIONS * done / posts.len() + 1).min(PORTIONS);
        let due = lines.len() * portion / PORTIONS;
        if due > appended {
            let text: String = lines[appended..due].iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            file.write_all(text.as_bytes()).context("the file of transfers cannot be written")?;
            appended = due;
        }
        progress.set_position((done + appended) as u64);
        if !killed && done >= posts.len() * 2 / 5 {
            killed = true;
            progress.set_message("kill -9, and the host starts again");
            host.kill().await?;
            host.start()?;
        }
        host.lives()?;
        if done == posts.len() {
            break;
        }
        anyhow::ensure!(Instant::now() < deadline, "only {done} of {} posts were answered in time", posts.len());
        // A sender that failed has said why.
        while let Some(ended) = senders.try_join_next() {
            ended.context("a sender ended badly")??;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while let Some(ended) = senders.join_next().await {
        ended.context("a sender ended badly")??;
    }
    Ok(attempts.load(Ordering::Relaxed) + lines.len())
}

/// Posts until the host answers for good, as any sender of webhooks does; returns how often it was handed over.
async fn deliver(client: &reqwest::Client, url: &str, post: &Post) -> anyhow::Result<usize> {
    let deadline = Instant::now() + PATIENCE;
    let mut attempts = 0;
    loop {
        let request = client
            .post(url)
            .header("eventType", post.event_type)
            .header("content-type", "application/json")
            .body(post.body.clone());
        let why = match request.send().await {
            Ok(answer) => {
                attempts += 1;
                match answer.status().as_u16() {
                    // Applied or a duplicate, kept for a later attempt, or parked as rejected.
                    200 | 202 | 422 => return Ok(attempts),
                    503 => "503: not now".to_owned(),
                    other => anyhow::bail!("the host answers a post with {other}"),
                }
            }
            Err(error) => {
                // What broke off may have been handed over; a connection that was never made was not.
                if !error.is_connect() {
                    attempts += 1;
                }
                error.without_url().to_string()
            }
        };
        anyhow::ensure!(Instant::now() < deadline, "a post was not answered in time, the last try: {why}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn settle(host: &mut Host, expected: &stream::Expected) -> anyhow::Result<()> {
    let mut database = host.database().await?;
    let deadline = Instant::now() + PATIENCE;
    while !verify::settled(&mut database, expected).await? {
        host.lives()?;
        if Instant::now() > deadline {
            // The checks say what is missing.
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn report(counts: &verify::Counts, checks: &[verify::Check], time: Duration) -> anyhow::Result<()> {
    let rows = [
        ("deliveries", counts.deliveries),
        ("distinct messages", counts.distinct),
        ("duplicates", counts.duplicates),
        ("effects", counts.effects),
        ("parked", counts.parked),
        ("outbox published", counts.published),
        ("published again", counts.republished),
    ];
    print(&table(["what", "count"], rows.map(|(what, count)| [what.to_owned(), count.to_string()])))?;
    print("")?;
    let rows = checks.iter().map(|check| {
        [if check.holds { "holds" } else { "FAILS" }.to_owned(), check.what.to_owned(), check.detail.clone()]
    });
    print(&table(["check", "what", "found"], rows))?;
    print(&format!("\nwith one kill -9 and a restart in the middle, in {:.1} s", time.as_secs_f64()))
}
