//! What went wrong, told by SQLite's extended result code and never by the words of a message.

use ackwright_core::store::{ApplyError, Error, ReadError, Refusal};

/// Primary result codes, from <https://www.sqlite.org/rescode.html>.
mod code {
    pub const ERROR: i32 = 1;
    pub const ABORT: i32 = 4;
    pub const BUSY: i32 = 5;
    pub const LOCKED: i32 = 6;
    pub const INTERRUPT: i32 = 9;
    pub const SCHEMA: i32 = 17;
    pub const TOO_BIG: i32 = 18;
    pub const CONSTRAINT: i32 = 19;
    pub const MISMATCH: i32 = 20;

    pub const CONSTRAINT_CHECK: i32 = CONSTRAINT | 1 << 8;
    pub const CONSTRAINT_FOREIGN_KEY: i32 = CONSTRAINT | 3 << 8;
    pub const CONSTRAINT_NOT_NULL: i32 = CONSTRAINT | 5 << 8;
    pub const CONSTRAINT_PRIMARY_KEY: i32 = CONSTRAINT | 6 << 8;
    pub const CONSTRAINT_TRIGGER: i32 = CONSTRAINT | 7 << 8;
    pub const CONSTRAINT_UNIQUE: i32 = CONSTRAINT | 8 << 8;
    pub const CONSTRAINT_ROW_ID: i32 = CONSTRAINT | 10 << 8;
    pub const CONSTRAINT_DATATYPE: i32 = CONSTRAINT | 12 << 8;
}

pub(super) enum Fault {
    /// A constraint or the size of a value: the effects are to blame.
    Refused(Refusal),
    /// SQLite cannot compile or evaluate the statement: a table went missing, or plugin SQL failed.
    Sql { code: i32, reason: String, error: sqlx::Error },
    /// The database itself.
    System(Error),
}

pub(super) fn classify(error: sqlx::Error, attempted: impl FnOnce() -> String) -> Fault {
    let Some((code, message)) = reported(&error) else {
        // No answer of SQLite's: the worker thread ended or the driver could not read the row.
        return Fault::System(failed(attempted(), true, false, error));
    };
    match code & 0xff {
        code::CONSTRAINT => Fault::Refused(constraint(code, &message)),
        code::TOO_BIG => {
            Fault::Refused(data("data:too-big", format!("a value or row is too big for SQLite: {message}")))
        }
        code::MISMATCH => Fault::Refused(data("data:mismatch", message)),
        code::ERROR => Fault::Sql { code, reason: message, error },
        code::BUSY | code::LOCKED | code::SCHEMA => Fault::System(failed(attempted(), false, true, error)),
        // An interrupted statement may have ended the transaction, so the connection starts afresh.
        code::ABORT | code::INTERRUPT => Fault::System(failed(attempted(), true, true, error)),
        // Disk full, I/O error, corruption, no permission, out of memory and the rest.
        _ => Fault::System(failed(attempted(), true, false, error)),
    }
}

/// For the host's own statements, which no message can make fail.
pub(super) fn system(error: sqlx::Error, attempted: impl Into<String>) -> Error {
    let attempted = attempted.into();
    match classify(error, || attempted.clone()) {
        Fault::System(error) => error,
        Fault::Sql { error, .. } => {
            failed(format!("{attempted}: is the schema there? `ackwright migrate` makes it"), false, false, error)
        }
        Fault::Refused(refusal) => failed(attempted, false, false, refusal.reason),
    }
}

pub(super) fn failed(
    attempted: impl Into<String>,
    lost: bool,
    conflict: bool,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error { attempted: attempted.into(), lost, conflict, source: crate::fault::plain(source.into()) }
}

/// A call outside a transaction: `begin` was not called, or the connection was lost since.
pub(super) fn no_transaction(attempted: &str) -> Error {
    failed(attempted, true, false, "no transaction is open; it ended with the connection or was never begun")
}

pub(super) fn data(code: &str, reason: String) -> Refusal {
    Refusal { code: code.into(), reason, retry: false, guard: None, suspects: Vec::new() }
}

/// Whether SQLite refused a COMMIT and the transaction is still open, so that a rollback ends it.
pub(super) fn commit_refused(error: &sqlx::Error) -> bool {
    reported(error).is_some_and(|(code, _)| matches!(code & 0xff, code::BUSY | code::LOCKED | code::CONSTRAINT))
}

fn reported(error: &sqlx::Error) -> Option<(i32, String)> {
    let database = error.as_database_error()?;
    let code = database.code()?.parse().ok()?;
    Some((code, database.message().to_owned()))
}

/// The class comes from the code; only the constraint's name has to be read from the message, which SQLite writes
/// as "<class> constraint failed: <name>" in every locale.
fn constraint(code: i32, message: &str) -> Refusal {
    let name = message.split_once(": ").map(|(_, name)| name.replace(", ", ","));
    let (name, retry) = match code {
        code::CONSTRAINT_FOREIGN_KEY => (Some("foreign-key".to_owned()), true),
        code::CONSTRAINT_TRIGGER => (Some("trigger".to_owned()), false),
        code::CONSTRAINT_DATATYPE => (message.rsplit_once(' ').map(|(_, column)| column.to_owned()), false),
        code::CONSTRAINT_CHECK
        | code::CONSTRAINT_NOT_NULL
        | code::CONSTRAINT_PRIMARY_KEY
        | code::CONSTRAINT_UNIQUE
        | code::CONSTRAINT_ROW_ID => (name, false),
        _ => (name, false),
    };
    Refusal {
        code: format!("constraint:{}", name.unwrap_or_else(|| code.to_string())),
        reason: message.into(),
        retry,
        guard: None,
        suspects: Vec::new(),
    }
}

/// Whether the connection must not be used any more.
pub(super) trait Lost {
    fn lost(&self) -> bool;
}

impl Lost for Error {
    fn lost(&self) -> bool {
        self.lost
    }
}

impl Lost for ApplyError {
    fn lost(&self) -> bool {
        match self {
            ApplyError::Refused(_) => false,
            ApplyError::System(error) => error.lost,
        }
    }
}

impl Lost for ReadError {
    fn lost(&self) -> bool {
        match self {
            ReadError::Invalid(_) => false,
            ReadError::System(error) => error.lost,
        }
    }
}
