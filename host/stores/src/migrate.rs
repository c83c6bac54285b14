//! The host's own tables: numbered SQL files, embedded, applied once each and in order.

use std::borrow::Cow;

use sqlx::migrate::{Migration, MigrationType, Migrator};

use crate::fault;

/// Where the database keeps what was applied. A table of our own, since applications that use sqlx keep theirs
/// in its default.
pub(crate) const TABLE: &str = "ackwright_migrations";

/// One numbered file of `migrations/<database>/`.
pub(crate) struct Step {
    pub version: i64,
    pub name: &'static str,
    pub sql: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Open(#[from] crate::OpenError),
    #[error("the database cannot be reached to bring its tables up to date")]
    Connect(#[source] ackwright_core::store::Error),
    #[error("the tables of the host cannot be read")]
    Unreadable(#[source] fault::Source),
    #[error("a migration failed; it was rolled back, the ones before it stay")]
    Failed(#[source] sqlx::migrate::MigrateError),
    #[error("migration {0} was applied from another text: the database belongs to another version of ackwright")]
    Differs(String),
}

/// The host's own tables could not be read.
pub(crate) fn unreadable(error: sqlx::Error) -> Error {
    Error::Unreadable(fault::plain(error.into()))
}

/// A migrator over embedded steps.
pub(crate) fn migrator(steps: &[Step]) -> Migrator {
    let migrations = steps
        .iter()
        .map(|step| {
            Migration::new(
                step.version,
                Cow::Borrowed(step.name),
                MigrationType::Simple,
                sqlx::SqlStr::from_static(step.sql),
                false,
            )
        })
        .collect();
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.dangerous_set_table_name(TABLE);
    // A newer host may have been here; what this one needs is what it checks.
    migrator.set_ignore_missing(true);
    migrator
}

/// Names of the steps that `applied` (version and checksum) lacks.
pub(crate) fn missing(migrator: &Migrator, applied: &[(i64, Vec<u8>)]) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for step in migrator.iter() {
        let name = format!("{:04}_{}", step.version, step.description);
        match applied.iter().find(|(version, _)| *version == step.version) {
            None => missing.push(name),
            Some((_, checksum)) if checksum.as_slice() != &*step.checksum => return Err(Error::Differs(name)),
            Some(_) => {}
        }
    }
    Ok(missing)
}
