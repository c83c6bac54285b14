//! What went wrong with a run, in terms that operators group by.

use std::fmt::Write;
use std::time::Duration;

use ackwright_core::effect;
use ackwright_core::handler::{Class, Failure};
use ackwright_core::key::Identity;
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::bindings::ackwright::handler::types as wit;
use crate::log::cut;
use crate::state::{State, Stop};

/// The longest code, reason and detail that are kept, in bytes.
const CODE: usize = 200;
const REASON: usize = 4 << 10;
const DETAIL: usize = 16 << 10;
/// The longest identity, in bytes of all parts together, and its most parts.
const IDENTITY: usize = 64 << 10;
const PARTS: usize = 64;

/// What `handle` returned.
pub(crate) fn declared(failure: wit::Failure) -> Failure {
    match failure {
        wit::Failure::Rejected(rejection) => rejected(rejection),
        wit::Failure::Retry(delay) => Failure {
            class: Class::Retry { after: delay.after_ms.map(|ms| Duration::from_millis(ms.into())) },
            code: code("retry", &delay.code),
            reason: cut(&delay.reason, REASON).into(),
            detail: None,
        },
    }
}

pub(crate) fn rejected(rejection: wit::Rejection) -> Failure {
    Failure {
        class: Class::Rejected,
        code: code("rejected", &rejection.code),
        reason: cut(&rejection.reason, REASON).into(),
        detail: None,
    }
}

fn code(prefix: &str, of_guest: &str) -> String {
    format!("{prefix}:{}", cut(of_guest, CODE))
}

/// A host call failed. `Unavailable` is no failure of the message; the caller has sorted it out.
pub(crate) fn doomed(error: &effect::Error) -> Failure {
    let (class, code) = match error {
        effect::Error::Denied(denied) => (Class::Denied, denied.code()),
        effect::Error::Invalid { code, .. } => (Class::Rejected, code.clone()),
        effect::Error::Unavailable(_) => (Class::Retry { after: None }, "retry:unavailable".into()),
    };
    Failure { class, code, reason: cut(&error.to_string(), REASON).into(), detail: None }
}

/// An identity that can be a key: not empty, not endless.
pub(crate) fn bounded(identity: Identity) -> Result<Identity, Failure> {
    let refuse =
        |reason: String| Err(Failure { class: Class::Rejected, code: "invalid:identity".into(), reason, detail: None });
    let parts = identity.business_key.len();
    let bytes = identity.event_type.len()
        + identity.order_key.as_ref().map_or(0, String::len)
        + identity.business_key.iter().map(String::len).sum::<usize>();
    if identity.event_type.is_empty() {
        refuse("identify returned an empty event type".into())
    } else if identity.business_key.iter().all(String::is_empty) {
        refuse("identify returned an empty business key, which would make all messages duplicates of one".into())
    } else if parts > PARTS {
        refuse(format!("identify returned a business key of {parts} parts; the most is {PARTS}"))
    } else if bytes > IDENTITY {
        refuse(format!("identify returned an identity of {bytes} bytes; the most is {IDENTITY}"))
    } else {
        Ok(identity)
    }
}

/// `identify` said something else than before about the same message.
pub(crate) fn unstable(first: &Identity, again: Result<Identity, Failure>) -> Failure {
    let again = match again {
        Ok(identity) => {
            let order = |i: &Identity| i.order_key.as_ref().map_or_else(String::new, |k| format!(" in order of {k:?}"));
            format!("{}{} first, then {}{}", first.label(), order(first), identity.label(), order(&identity))
        }
        Err(failure) => match failure.class {
            // It could not run at all: that is the better report.
            Class::Trapped | Class::Denied => return failure,
            Class::Rejected | Class::Retry { .. } => {
                format!("{} first, then it was refused: {}: {}", first.label(), failure.code, failure.reason)
            }
        },
    };
    Failure {
        class: Class::Trapped,
        code: "unstable:key".into(),
        reason: cut(&format!("identify returned {again}; a dedup key must be the same on every run"), REASON).into(),
        detail: None,
    }
}

/// The clock ran out.
pub(crate) fn late(state: &State) -> Failure {
    let reason = format!(
        "the plugin did not finish within {:?}, host calls included (limits.wall of this plugin)",
        state.version.limits.wall
    );
    Failure { class: Class::Trapped, code: "limit:wall".into(), reason, detail: detail(None, state, None) }
}

/// A run inside the transaction asked for reads that it has: a bug of the host.
pub(crate) fn no_reads() -> Failure {
    Failure {
        class: Class::Trapped,
        code: "host:reads".into(),
        reason: "the host gave the handler no way to read; this is a bug of the host".into(),
        detail: None,
    }
}

/// The guest ended by a trap or was ended by the host.
pub(crate) fn trapped(error: &wasmtime::Error, state: &State) -> Failure {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let mut class = Class::Trapped;
    // A panic ends in `unreachable`; what its hook logged says more than that.
    let mut panic = None;
    let (code, reason) = if let Some(stop) = error.downcast_ref::<Stop>() {
        let code = match stop {
            Stop::NeedsReads => "host:reads".into(),
            Stop::Impure(call) => {
                class = Class::Denied;
                format!("denied:identify:{}", call.split('.').next().unwrap_or(call))
            }
            Stop::Memory { .. } => "limit:memory".into(),
            Stop::Time { .. } => "limit:time".into(),
        };
        (code, stop.to_string())
    } else if let Some(trap) = error.downcast_ref::<Trap>() {
        if *trap == Trap::UnreachableCodeReached {
            panic = state.log.last_error.clone().or_else(|| panic_of(state));
        }
        let reason = panic.clone().unwrap_or_else(|| trap.to_string());
        (trap_code(*trap), reason)
    } else if let Some(exit) = error.downcast_ref::<I32Exit>() {
        ("trap:exit".into(), format!("the guest called exit({})", exit.0))
    } else {
        let chain = format!("{:#}", Causes(error));
        // The engine's error for this has no type that could be asked for.
        let copied = chain.contains("fuel allocated for hostcalls has been exhausted");
        let code = if copied { "limit:copy" } else { "trap:call" };
        (code.into(), chain)
    };
    Failure {
        class,
        code,
        reason: cut(&reason, REASON).into(),
        detail: detail(backtrace, state, panic.is_none().then_some(state.log.last_error.as_deref()).flatten()),
    }
}

fn trap_code(trap: Trap) -> String {
    match trap {
        Trap::UnreachableCodeReached => "trap:unreachable".into(),
        Trap::Interrupt => "limit:time".into(),
        // Names of the engine's other traps, in kebab case.
        other => {
            let mut code = String::from("trap");
            for c in format!("{other:?}").chars() {
                if c.is_ascii_uppercase() {
                    code.push(if code == "trap" { ':' } else { '-' });
                }
                code.push(c.to_ascii_lowercase());
            }
            code
        }
    }
}

/// Where there is no panic hook but there is stderr, the default hook wrote there.
fn panic_of(state: &State) -> Option<String> {
    let tail = state.wasi.as_ref()?.stderr_tail()?;
    let at = tail.rfind("panicked at")?;
    Some(tail[at..].lines().take(2).collect::<Vec<_>>().join(" "))
}

/// The error's causes without the backtrace, which goes into the detail.
struct Causes<'a>(&'a wasmtime::Error);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut first = true;
        for cause in self.0.chain() {
            let text = cause.to_string();
            if text.starts_with("error while executing at wasm backtrace") {
                continue;
            }
            write!(f, "{}{text}", if first { "" } else { ": " })?;
            first = false;
        }
        Ok(())
    }
}

fn detail(backtrace: Option<&WasmBacktrace>, state: &State, error: Option<&str>) -> Option<String> {
    let plugin = &state.version.plugin;
    let mut text = format!("plugin {} ({})\n", plugin.name(), plugin.digest());
    // Writing to a String does not fail.
    if let Some(backtrace) = backtrace {
        let _ = writeln!(text, "{}", backtrace.to_string().trim_end());
    }
    if let Some(error) = error {
        let _ = writeln!(text, "last error logged: {error}");
    }
    if let Some(stderr) = state.wasi.as_ref().and_then(|wasi| wasi.stderr_tail()) {
        let _ = writeln!(text, "stderr:\n{stderr}");
    }
    text.truncate(text.floor_char_boundary(DETAIL));
    Some(text)
}
