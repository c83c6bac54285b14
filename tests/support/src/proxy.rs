//! A TCP proxy on loopback that breaks connections on demand.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Forward,
    /// Connections stay open and nothing passes: a link that died without a word.
    BlackHole,
    /// New connections are reset at once.
    Refuse,
}

/// The direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// When a [`Hook`] cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The other side never sees the pattern.
    Before,
    /// The other side has seen it, and its answer is lost. Of `ToServer` only.
    Answered,
}

/// Cuts the connection on which a pattern passes, once.
#[derive(Clone, Debug)]
pub struct Hook {
    pub way: Way,
    pub pattern: Vec<u8>,
    pub when: When,
    /// How many times the pattern passes unharmed before.
    pub skip: u32,
}

/// Forwards connections to one server. Ends with its last handle; its connections are then reset.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    mode: watch::Sender<Mode>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    delay: watch::Sender<Duration>,
    cut: broadcast::Sender<()>,
    hook: Mutex<Option<(Hook, oneshot::Sender<()>)>>,
    accepted: AtomicU64,
    live: AtomicU64,
}

impl Proxy {
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot open a loopback port")?;
        let address = listener.local_addr()?;
        let (mode, modes) = watch::channel(Mode::Forward);
        let shared = Arc::new(Shared {
            delay: watch::Sender::new(Duration::ZERO),
            cut: broadcast::Sender::new(1),
            hook: Mutex::new(None),
            accepted: AtomicU64::new(0),
            live: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, upstream, Arc::clone(&shared), modes));
        Ok(Proxy { address, shared, mode, accepting })
    }

    /// A proxy before the server that `url` names, and the URL that leads through it.
    pub async fn before(url: &str) -> Result<(Self, String)> {
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = authority.split(['/', '?']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let upstream = host.parse().with_context(|| format!("{url} does not name an address and a port"))?;
        let proxy = Self::start(upstream).await?;
        let through = url.replacen(host, &proxy.address.to_string(), 1);
        Ok((proxy, through))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets all connections; new ones are served.
    pub fn cut(&self) {
        // It fails where there is no connection, and then there is nothing to cut.
        let _ = self.shared.cut.send(());
    }

    /// Resets all connections, and new ones as they come, until [`Self::resume`].
    pub fn refuse(&self) {
        self.mode.send_replace(Mode::Refuse);
        self.cut();
    }

    /// Lets nothing pass and closes nothing, until [`Self::resume`].
    pub fn black_hole(&self) {
        self.mode.send_replace(Mode::BlackHole);
    }

    /// Forwards again. Bytes held back by a black hole pass now.
    pub fn resume(&self) {
        self.mode.send_replace(Mode::Forward);
    }

    /// Holds every piece back for this long, both ways.
    pub fn delay(&self, time: Duration) {
        self.shared.delay.send_replace(time);
    }

    /// Sets the hook; the receiver hears when it has cut.
    pub fn hook(&self, hook: Hook) -> oneshot::Receiver<()> {
        let (fired, hears) = oneshot::channel();
        *self.shared.hook.lock().expect("nobody panics while holding it") = Some((hook, fired));
        hears
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn live(&self) -> u64 {
        self.shared.live.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, shared: Arc<Shared>, mode: watch::Receiver<Mode>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        if *mode.borrow() == Mode::Refuse {
            let _ = client.set_zero_linger();
            continue;
        }
        let (shared, mode) = (Arc::clone(&shared), mode.clone());
        // Subscribed here: a cut that comes right after the accept shall reach this connection.
        let cut = shared.cut.subscribe();
        tokio::spawn(async move {
            shared.live.fetch_add(1, Ordering::SeqCst);
            carry(client, upstream, &shared, mode, cut).await;
            shared.live.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// How a direction of a connection ended.
enum End {
    /// The sender has closed its side; the other direction may go on.
    Closed,
    Cut,
}

async fn carry(
    client: TcpStream,
    upstream: SocketAddr,
    shared: &Shared,
    mode: watch::Receiver<Mode>,
    mut cut: broadcast::Receiver<()>,
) {
    let Ok(server) = TcpStream::connect(upstream).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answered = watch::Sender::new(false);
    let end = tokio::select! {
        end = async {
            let there = pump(Way::ToServer, &mut from_client, &mut to_server, shared, mode.clone(), &answered);
            let back = pump(Way::ToClient, &mut from_server, &mut to_client, shared, mode, &answered);
            tokio::pin!(there, back);
            tokio::select! {
                End::Cut = &mut there => End::Cut,
                End::Cut = &mut back => End::Cut,
                else => End::Closed,
            }
        } => end,
        _ = cut.recv() => End::Cut,
    };
    if matches!(end, End::Cut) {
        // Closing with no time to linger sends RST, unless a write half on its way out has sent FIN before.
        let _ = (from_client.as_ref().set_zero_linger(), from_server.as_ref().set_zero_linger());
        to_client.forget();
        to_server.forget();
    }
}

async fn pump(
    way: Way,
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    shared: &Shared,
    mut mode: watch::Receiver<Mode>,
    answered: &watch::Sender<bool>,
) -> End {
    let mut buffer = vec![0; 64 * 1024];
    // The end of what passed before: a pattern can lie across two reads.
    let mut seen = Vec::new();
    loop {
        let Ok(length) = from.read(&mut buffer).await else { return End::Cut };
        if length == 0 {
            let _ = to.shutdown().await;
            return End::Closed;
        }
        let piece = &buffer[..length];
        if way == Way::ToClient && *answered.borrow() {
            fire(shared);
            return End::Cut;
        }
        let delay = *shared.delay.borrow();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if mode.wait_for(|mode| *mode != Mode::BlackHole).await.is_err() {
            return End::Cut;
        }
        match matched(way, piece, &mut seen, shared) {
            Some(When::Before) => {
                fire(shared);
                return End::Cut;
            }
            Some(When::Answered) => {
                answered.send_replace(true);
            }
            None => {}
        }
        if to.write_all(piece).await.is_err() {
            return End::Cut;
        }
    }
}

/// Whether the hook strikes on this piece.
fn matched(way: Way, piece: &[u8], seen: &mut Vec<u8>, shared: &Shared) -> Option<When> {
    let mut hook = shared.hook.lock().expect("nobody panics while holding it");
    let (hook, _) = hook.as_mut()?;
    if hook.way != way {
        return None;
    }
    seen.extend_from_slice(piece);
    let mut end = 0;
    let mut strikes = false;
    while let Some(at) = seen[end..].windows(hook.pattern.len()).position(|window| window == hook.pattern) {
        end += at + hook.pattern.len();
        strikes |= hook.skip == 0;
        hook.skip = hook.skip.saturating_sub(1);
    }
    let keep = seen.len().saturating_sub(hook.pattern.len() - 1).max(end);
    seen.drain(..keep);
    strikes.then_some(hook.when)
}

fn fire(shared: &Shared) {
    if let Some((_, fired)) = shared.hook.lock().expect("nobody panics while holding it").take() {
        // The test need not listen.
        let _ = fired.send(());
    }
}
