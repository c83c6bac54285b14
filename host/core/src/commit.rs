//! Commit: the only commit site of the program.
//!
//! **Invariant:** `Committed` is made here alone, after the database said so; a lost answer is `InDoubt` and
//! settles nothing.

use crate::store::{CommitError, Error, Refusal, Session};

/// The batch's transaction is in the database.
#[derive(Debug)]
pub struct Committed {
    _private: (),
}

/// The message's record was in the inbox before this batch came, committed by an earlier transaction.
#[derive(Debug)]
pub struct Duplicate {
    _private: (),
}

/// Evidence that a repeat of the message would find its record.
pub trait Proof: sealed::Sealed {}

impl Proof for Committed {}
impl Proof for Duplicate {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Committed {}
    impl Sealed for super::Duplicate {}
}

#[derive(Debug)]
pub enum Verdict {
    Committed(Committed),
    RolledBack(Error),
    Refused(Refusal),
    InDoubt(Error),
}

#[expect(clippy::disallowed_methods, reason = "this is the one commit site")]
pub(crate) async fn commit(session: &mut dyn Session) -> Verdict {
    match session.commit().await {
        Ok(()) => Verdict::Committed(Committed { _private: () }),
        Err(CommitError::RolledBack(error)) => Verdict::RolledBack(error),
        Err(CommitError::Refused(refusal)) => Verdict::Refused(refusal),
        Err(CommitError::InDoubt(error)) => Verdict::InDoubt(error),
    }
}

/// A claim has looked at the inbox and its transaction has ended.
///
/// A claim sees committed rows only: it waits for, or fails on, a row of a transaction still open. So what it
/// found was there before, whatever became of its own transaction.
#[derive(Debug)]
pub struct Looked {
    _private: (),
}

pub(crate) fn looked() -> Looked {
    Looked { _private: () }
}

pub(crate) fn duplicate(_looked: &Looked) -> Duplicate {
    Duplicate { _private: () }
}
