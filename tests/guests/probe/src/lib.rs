//! A guest that does what the message tells it: the end-to-end tests script every behaviour with a JSON body.
//!
//! A body is `{"key": "k-1", "do": [{"insert": {...}}, {"panic": "why"}]}`; see [`script::Script`] for the fields and
//! [`script::Step`] for the steps. A message whose body is no script is echoed: key and effects follow from what the
//! message holds.

use ackwright_sdk::prelude::*;

mod echo;
mod hostile;
mod literal;
mod script;

use script::Script;

struct Probe;

impl Handler for Probe {
    fn identify(message: &Message) -> Result<Identity, Rejection> {
        match Script::of(message) {
            Some(Ok(script)) => script.identify(),
            Some(Err(why)) => Err(reject("bad-script", why)),
            None => Ok(echo::identity(message)),
        }
    }

    fn handle(message: &Message) -> Result<(), Failure> {
        match Script::of(message) {
            Some(Ok(script)) => script.run(message),
            Some(Err(why)) => Err(reject("bad-script", why).into()),
            None => echo::emit(message, "events:probe.echo"),
        }
    }
}

ackwright_sdk::export!(Probe);

#[cfg(test)]
mod tests;
