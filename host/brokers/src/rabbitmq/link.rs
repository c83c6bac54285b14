//! One connection to the broker, with every wait on it bounded.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::Stream;
use lapin::tcp::{AMQPUriTcpExt, OwnedTLSConfig};
use lapin::types::FrameSize;
use lapin::uri::AMQPScheme;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties, ErrorKind, Event};

use super::address::Address;

/// The longest wait for an answer of the broker.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("no answer from {address} within {time:?} while connecting")]
    Silent { address: String, time: Duration },
    #[error("connecting to {address} failed")]
    Refused {
        address: String,
        #[source]
        source: lapin::Error,
    },
}

pub(super) struct Link {
    pub(super) connection: Connection,
    socket: Socket,
}

impl Link {
    pub(super) async fn open(
        address: &Address,
        heartbeat: Duration,
        name: &str,
        tls_ca: Option<&str>,
    ) -> Result<Self, Error> {
        let mut uri = address.uri().clone();
        // The client library takes up to two and a half heartbeats to notice silence; we promise two.
        let seconds = u16::try_from(heartbeat.as_secs() * 3 / 4).unwrap_or(u16::MAX);
        uri.query.heartbeat = Some(seconds.max(1));
        let failed = |source| Error::Refused { address: address.to_string(), source };
        let runtime = lapin::runtime::default_runtime().map_err(failed)?;
        let options = ConnectionProperties::default().with_connection_name(name.into());
        let tls = Arc::new(OwnedTLSConfig { identity: None, cert_chain: tls_ca.map(str::to_owned) });
        let socket = Socket::default();
        let keep = socket.clone();
        let connect = Connection::connector(
            uri,
            runtime,
            async move |uri, runtime| {
                let host = uri.authority.host.clone();
                let secure = uri.scheme == AMQPScheme::AMQPS;
                let mut plain = uri;
                plain.scheme = AMQPScheme::AMQP;
                let stream = plain.connect_with_config_async(tls.as_ref().as_ref(), &runtime);
                let stream = tokio::time::timeout(PATIENCE, stream).await.unwrap_or_else(|_| {
                    Err(io::Error::new(io::ErrorKind::TimedOut, "the host did not take the connection in time"))
                })?;
                if let AsyncTcpStream::Plain(tcp) = &stream {
                    keep.hold(tcp.get_ref().as_fd().try_clone_to_owned()?.into());
                }
                if secure { Ok(stream.into_tls(&host, tls.as_ref().as_ref()).await?) } else { Ok(stream) }
            },
            options,
        );
        match tokio::time::timeout(PATIENCE, connect).await {
            Ok(Ok(connection)) => Ok(Link { connection, socket }),
            Ok(Err(source)) => {
                socket.cut();
                Err(failed(source))
            }
            Err(_) => {
                // Ends the client library's thread, which would wait for an answer for ever.
                socket.cut();
                Err(Error::Silent { address: address.to_string(), time: PATIENCE })
            }
        }
    }

    /// The largest frame, as negotiated.
    pub(super) fn frame_max(&self) -> FrameSize {
        self.connection.configuration().frame_max()
    }

    pub(super) fn events(&self) -> impl Stream<Item = Event> + Send + Unpin + 'static {
        self.connection.events_listener()
    }

    pub(super) fn connected(&self) -> bool {
        self.connection.status().connected()
    }

    pub(super) fn blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// Closes the connection, which also flushes the acks that were queued before.
    pub(super) async fn goodbye(&self) {
        // A broker that does not answer is left all the same.
        let _ = tokio::time::timeout(PATIENCE, self.connection.close(200, "OK".into())).await;
        self.cut();
    }

    /// Ends the connection at once.
    pub(super) fn cut(&self) {
        self.socket.cut();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

/// A second handle on the connection's socket. Shutting it down is the one way to end a connection whose other end
/// is silent: the client library has none.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Option<std::net::TcpStream>>>);

impl Socket {
    fn hold(&self, socket: std::net::TcpStream) {
        *self.lock() = Some(socket);
    }

    fn cut(&self) {
        if let Some(socket) = self.lock().take() {
            // It fails only where the other end was faster.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<std::net::TcpStream>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// What went wrong, for people: the broker's own words where it has said something.
pub(super) fn words(error: &lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(error) => format!("the broker says: {}", error.get_message()),
        ErrorKind::ParsingError(_) => {
            "a message or frame of the broker cannot be read; a message whose header names or \
             properties are not UTF-8 does this: find it with another client and remove it from the queue"
                .into()
        }
        ErrorKind::MissingHeartbeatError => "the broker has been silent for two heartbeats".into(),
        _ => error.to_string(),
    }
}

/// The whole chain of a failed opening.
pub(super) fn chain(error: &Error) -> String {
    match error {
        Error::Silent { .. } => error.to_string(),
        Error::Refused { source, .. } => format!("{error}: {}", words(source)),
    }
}
