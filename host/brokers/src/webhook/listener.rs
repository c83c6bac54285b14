//! The HTTP server of one broker; routes subscribe to its paths.
//!
//! **Invariant:** everything that a sender can hold is bounded: connections, headers, body, open deliveries, and
//! the time for each.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ackwright_core::health::Reporter;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::Answer;
use super::endpoint::Endpoint;
use super::request::Rules;
use super::signature::Signature;
use super::source::Source;

/// How long `close` waits for answers that are on their way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Request line and headers of one request together, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// Deliveries without a valid signature are refused where set.
    pub signature: Option<Signature>,
    /// Header whose value becomes the message's key.
    pub key_header: Option<hyper::header::HeaderName>,
    /// Largest body, in bytes.
    pub body_limit: usize,
    /// Open deliveries of one path.
    pub in_flight: usize,
    pub connections: usize,
    /// Headers of one request, in number.
    pub headers: usize,
    /// For a request's headers to arrive; idle connections are closed after it.
    pub header_timeout: Duration,
    /// For a request's body to arrive.
    pub body_timeout: Duration,
    /// How long a sender waits for the settlement before it is told to try again.
    pub answer_timeout: Duration,
    /// What a sender is told to wait before it tries again; whole seconds, at least one.
    pub retry_after: Duration,
}

impl Config {
    pub fn new(listen: SocketAddr) -> Self {
        Config {
            listen,
            signature: None,
            key_header: None,
            body_limit: 1024 * 1024,
            in_flight: 256,
            connections: 512,
            headers: 100,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            retry_after: Duration::from_secs(1),
        }
    }
}

impl Default for Config {
    /// Loopback, port 8901.
    fn default() -> Self {
        Config::new((Ipv4Addr::LOCALHOST, 8901).into())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} for webhooks; is another program using it?")]
    Bind {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("`{0}` is not a webhook path: write `/name` or `/name/name`, of letters, digits, `-`, `_`, `.` and `~`")]
    Path(String),
    #[error("the webhook path `{0}` has a route already")]
    Taken(String),
}

pub struct Listener {
    shared: Arc<Shared>,
    address: SocketAddr,
    stopping: watch::Sender<bool>,
    server: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

struct Shared {
    config: Config,
    rules: Rules,
    paths: Mutex<HashMap<String, Arc<Endpoint>>>,
    generations: AtomicU64,
}

impl Listener {
    /// Binds and serves from now on; paths without a route are not found.
    pub async fn bind(config: Config, reporter: Reporter) -> Result<Self, Error> {
        let failed = |source| Error::Bind { address: config.listen, source };
        let socket = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let secret_headers = config.signature.iter().map(|signature| signature.header.clone()).collect();
        let rules = Rules { key_header: config.key_header.clone(), secret_headers };
        let shared = Arc::new(Shared { config, rules, paths: Mutex::default(), generations: AtomicU64::new(1) });
        let (stopping, stopped) = watch::channel(false);
        let server = tokio::spawn(serve(socket, Arc::clone(&shared), stopped));
        tracing::info!(%address, "listening for webhooks");
        reporter.ready();
        Ok(Listener { shared, address, stopping, server: Mutex::new(Some(server)) })
    }

    /// Where it listens, with the port that the system chose where the configuration says 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Subscribes to a path and everything below it that has no route of its own. After the source is closed its
    /// path goes on answering 503, so that no sender gives up, until another source takes it.
    pub fn source(&self, path: &str) -> Result<Source, Error> {
        if !well_formed(path) {
            return Err(Error::Path(path.to_owned()));
        }
        let mut paths = self.shared.paths();
        if paths.get(path).is_some_and(|endpoint| endpoint.refusal() != Some(Answer::Closed)) {
            return Err(Error::Taken(path.to_owned()));
        }
        let generation = self.shared.generations.fetch_add(1, Ordering::Relaxed);
        let (endpoint, queued) = Endpoint::new(generation, self.shared.config.in_flight);
        paths.insert(path.to_owned(), Arc::clone(&endpoint));
        Ok(Source::new(endpoint, queued))
    }

    /// Stops listening, and ends connections once their answers are out.
    pub async fn close(&self) {
        self.stopping.send_replace(true);
        let server = self.server.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(server) = server
            && let Err(error) = server.await
        {
            tracing::error!(error = %error, "webhook server ended badly");
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(server) = self.server.lock().unwrap_or_else(|e| e.into_inner()).take() {
            server.abort();
        }
    }
}

fn well_formed(path: &str) -> bool {
    let name = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
        !part.is_empty() && part.chars().all(plain) && part != "." && part != ".."
    };
    path == "/" || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(name))
}

async fn serve(socket: TcpListener, shared: Arc<Shared>, stopped: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(shared.config.connections));
    let mut connections = JoinSet::new();
    let mut stop = stopped.clone();
    loop {
        let accepted = async {
            let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
            (slot, socket.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = told(&mut stop) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
                connections.spawn(async move {
                    converse(stream, shared, stopped).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: some are given back as connections end.
                tracing::warn!(error = %error, "cannot accept a webhook connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(socket);
    if timeout(CLOSE_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(connections = connections.len(), "webhook connections cut at shutdown");
    }
}

/// Waits for the word to stop. A listener that is gone is a reason as well.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await.is_ok();
}

async fn converse(stream: TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    // Answers are small and final: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.header_timeout)
        .max_headers(shared.config.headers)
        .max_buf_size(HEAD_LIMIT);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "webhook connection ended early");
    }
}

impl Shared {
    fn paths(&self) -> MutexGuard<'_, HashMap<String, Arc<Endpoint>>> {
        self.paths.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The subscribed path that is nearest above this one, its endpoint, and what follows it.
    fn find(&self, path: &str) -> Option<(String, Arc<Endpoint>, String)> {
        let paths = self.paths();
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        let mut above = trimmed;
        loop {
            let wanted = if above.is_empty() { "/" } else { above };
            if let Some(endpoint) = paths.get(wanted) {
                let rest = trimmed[above.len()..].trim_start_matches('/');
                return Some((wanted.to_owned(), Arc::clone(endpoint), rest.to_owned()));
            }
            above = &above[..above.rfind('/')?];
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.deliver(request).await.respond(self.config.retry_after)
    }

    async fn deliver(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let Some((path, endpoint, rest)) = self.find(head.uri.path()) else {
            return Answer::UnknownPath;
        };
        if head.method != Method::POST {
            return Answer::NotPost;
        }
        // Before the body, so that a sender in vain does not transmit it.
        if let Some(refusal) = endpoint.refusal() {
            return refusal;
        }
        let body = match self.read(body).await {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        if self.config.signature.as_ref().is_some_and(|signature| !signature.verify(&head.headers, &body)) {
            return Answer::BadSignature;
        }
        let message = self.rules.message(&path, &rest, &head.headers, body);
        drop(head);
        let answered = match endpoint.enqueue(message) {
            Ok(answered) => answered,
            Err(refusal) => return refusal,
        };
        match timeout(self.config.answer_timeout, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Closed,
            Err(_) => Answer::StillRunning,
        }
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, Answer> {
        let limit = self.config.body_limit;
        if body.size_hint().lower() > limit as u64 {
            return Err(Answer::TooLarge);
        }
        match timeout(self.config.body_timeout, Limited::new(body, limit).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Answer::TooLarge),
            Ok(Err(_)) => Err(Answer::Broken),
            Err(_) => Err(Answer::TooSlow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_checked() {
        for good in ["/", "/orders", "/orders/v1.2", "/a~b_c-d"] {
            assert!(well_formed(good), "{good}");
        }
        for bad in ["", "orders", "/orders/", "//", "/a//b", "/a?b", "/a#b", "/ä", "/a b", "/..", "/a/./b"] {
            assert!(!well_formed(bad), "{bad}");
        }
    }

    #[test]
    fn the_nearest_path_above_takes_a_request() {
        let shared = |paths: &[&str]| Shared {
            config: Config::default(),
            rules: Rules::default(),
            paths: Mutex::new(paths.iter().map(|p| ((*p).to_owned(), Endpoint::new(1, 1).0)).collect()),
            generations: AtomicU64::new(2),
        };
        let find = |shared: &Shared, path: &str| shared.find(path).map(|(path, _, rest)| (path, rest));
        let found = |path: &str, rest: &str| Some((path.to_owned(), rest.to_owned()));
        let some = shared(&["/orders", "/orders/eu"]);
        assert_eq!(find(&some, "/orders"), found("/orders", ""));
        assert_eq!(find(&some, "/orders/"), found("/orders", ""));
        assert_eq!(find(&some, "/orders/us/paid"), found("/orders", "us/paid"));
        assert_eq!(find(&some, "/orders/eu/paid"), found("/orders/eu", "paid"));
        assert_eq!(find(&some, "/orders/europe"), found("/orders", "europe"));
        assert_eq!(find(&some, "/ordersx"), None);
        assert_eq!(find(&some, "/"), None);
        assert_eq!(find(&some, "*"), None);
        assert_eq!(find(&shared(&["/"]), "/a/b"), found("/", "a/b"));
        assert_eq!(find(&shared(&["/"]), "/"), found("/", ""));
    }
}
