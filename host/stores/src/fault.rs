//! Errors that say what was attempted and never hold a URL.

use ackwright_core::store;

/// A store cannot be opened as configured.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the URL of the database has the unknown scheme {0:?}: use postgres:// or sqlite://")]
    Scheme(String),
    #[error("the URL of the database cannot be read: write it as {expected}")]
    Url { expected: &'static str },
}

/// The database did not answer within the host's own limit.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the database within {0:?}")]
pub(crate) struct Late(pub std::time::Duration);

/// A call that was cut off, or that found its connection gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the transaction is gone: its connection was lost, or an earlier call on it was cut off")]
    Gone,
    #[error("the transaction failed before and can only be rolled back")]
    Failed,
    #[error("the database answered with something that the host cannot read: {0}")]
    Answer(String),
}

/// What the database said, without the line of its own source code that the driver adds.
#[derive(Debug, thiserror::Error)]
#[error("the database says: {0}")]
pub struct Said(String);

/// The error as it is shown: one that the database sent speaks for itself.
pub(crate) fn plain(source: Source) -> Source {
    match source.downcast::<sqlx::Error>() {
        Ok(error) => match *error {
            sqlx::Error::Database(said) => Box::new(Said(said.message().to_owned())),
            other => Box::new(other),
        },
        Err(source) => source,
    }
}

/// Where an error came from.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn lost(attempted: impl Into<String>, source: impl Into<Source>) -> store::Error {
    store::Error { attempted: attempted.into(), lost: true, conflict: false, source: plain(source.into()) }
}

pub(crate) fn system(attempted: impl Into<String>, source: impl Into<Source>) -> store::Error {
    store::Error { attempted: attempted.into(), lost: false, conflict: false, source: plain(source.into()) }
}

pub(crate) fn conflict(attempted: impl Into<String>, source: impl Into<Source>) -> store::Error {
    store::Error { attempted: attempted.into(), lost: false, conflict: true, source: plain(source.into()) }
}
