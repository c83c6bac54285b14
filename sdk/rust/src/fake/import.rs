//! The imports of the contract as the fake host serves them, with the signatures of the generated ones.

use super::{CURRENT, Host, Outcome, Stage};

/// Lends the current host to an import.
///
/// # Panics
/// Outside of `Host::deliver` and its like: there is no host to answer.
fn host<T>(import: &str, body: impl FnOnce(&mut Host) -> T) -> T {
    CURRENT.with_borrow_mut(|current| match current {
        Some(host) => body(host),
        None => panic!("{import} was called outside of fake::Host::deliver, identify and enter"),
    })
}

/// The same for what `identify` may not call.
fn transactional<T>(import: &str, body: impl FnOnce(&mut Host) -> T) -> T {
    let result = host(import, |host| {
        if host.run.stage == Stage::Identify {
            let why = format!("{import} was called from identify, which sees the message alone");
            host.run.doomed.get_or_insert(Outcome::Invalid(why.clone()));
            return Err(why);
        }
        Ok(body(host))
    });
    result.unwrap_or_else(|why| panic!("{why}"))
}

pub mod log {
    use super::super::Line;
    use crate::log::Level;

    pub fn log(level: Level, message: &str, fields: &[(String, String)]) {
        super::CURRENT.with_borrow_mut(|current| match current {
            Some(host) => host.lines.push(Line { level, message: message.into(), fields: fields.to_vec() }),
            // Tests of a handler's parts need no host only because they log.
            None => eprintln!("{level:?} {message} {fields:?}"),
        });
    }
}

pub mod settings {
    pub fn get(name: &str) -> Option<String> {
        super::host("settings.get", |host| match host.settings.get(name)? {
            serde_json::Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })
    }

    pub fn json() -> String {
        super::host("settings.json", |host| host.settings.to_string())
    }
}

pub mod context {
    use crate::bindings::ackwright::handler::context::DeliveryContext;

    pub fn current() -> DeliveryContext {
        super::transactional("context.current", |host| host.context.clone())
    }
}

pub mod outbox {
    use super::super::Outcome;
    use crate::outbox::{Error, Outgoing};

    pub fn emit(message: &Outgoing) -> Result<String, Error> {
        super::transactional("outbox.emit", |host| {
            let result = host.emit(message);
            if let Err(error) = &result {
                host.run.doomed.get_or_insert(match error {
                    Error::Denied(why) => Outcome::Denied(why.clone()),
                    Error::Invalid(why) => Outcome::Invalid(why.clone()),
                });
            }
            result
        })
    }
}

pub mod store {
    use super::super::{Host, Outcome};
    use crate::store::{Error, GuardFailure};
    use crate::{Field, Value};

    fn call<T>(import: &str, body: impl FnOnce(&mut Host) -> Result<T, Error>) -> Result<T, Error> {
        super::transactional(import, |host| {
            let result = body(host);
            if let Err(error) = &result {
                host.run.doomed.get_or_insert(match error {
                    Error::Denied(why) => Outcome::Denied(why.clone()),
                    Error::Invalid(why) => Outcome::Invalid(why.clone()),
                    Error::Unavailable(why) => Outcome::Retry(crate::retry("unavailable", why)),
                });
            }
            result
        })
    }

    pub fn get(table: &str, key: &[Field]) -> Result<Option<Vec<Field>>, Error> {
        call("store.get", |host| host.open(table, false)?.get(key))
    }

    pub fn get_for_update(table: &str, key: &[Field]) -> Result<Option<Vec<Field>>, Error> {
        call("store.get-for-update", |host| host.open(table, false)?.get(key))
    }

    pub fn query(sql: &str, parameters: &[Value]) -> Result<Vec<Vec<Field>>, Error> {
        call("store.query", |host| match host.queries.get(sql) {
            Some(answer) => Ok(answer(parameters)),
            None => Err(Error::Invalid(format!("the fake host has no answer to {sql:?}: add Host::answer_query"))),
        })
    }

    pub fn execute(sql: &str, parameters: &[Value]) -> Result<u64, Error> {
        call("store.execute", |host| match host.executes.get(sql) {
            Some(answer) => Ok(answer(parameters)),
            None => Err(Error::Invalid(format!("the fake host has no answer to {sql:?}: add Host::answer_execute"))),
        })
    }

    pub fn insert(table: &str, row: &[Field]) -> Result<(), Error> {
        call("store.insert", |host| host.open(table, true)?.insert(row))
    }

    pub fn insert_if_absent(table: &str, key: &[String], row: &[Field]) -> Result<(), Error> {
        call("store.insert-if-absent", |host| host.open(table, true)?.insert_if_absent(key, row))
    }

    pub fn upsert(table: &str, key: &[String], row: &[Field]) -> Result<(), Error> {
        call("store.upsert", |host| host.open(table, true)?.upsert(key, row))
    }

    pub fn upsert_if_newer(table: &str, key: &[String], version: &str, row: &[Field]) -> Result<(), Error> {
        call("store.upsert-if-newer", |host| host.open(table, true)?.upsert_if_newer(key, version, row))
    }

    pub fn update(table: &str, key: &[Field], set: &[Field], otherwise: &GuardFailure) -> Result<(), Error> {
        call("store.update", |host| host.open(table, true)?.update(key, set, otherwise))
    }

    pub fn add(
        table: &str,
        key: &[Field],
        amounts: &[Field],
        floor: Option<&Value>,
        otherwise: &GuardFailure,
    ) -> Result<(), Error> {
        call("store.add", |host| host.open(table, true)?.add(key, amounts, floor, otherwise))
    }

    pub fn delete(table: &str, key: &[Field]) -> Result<(), Error> {
        call("store.delete", |host| host.open(table, true)?.delete(key))
    }
}
