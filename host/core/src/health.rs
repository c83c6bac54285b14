//! Who is fit to work: what `/readyz` and status show.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use serde::Serialize;

/// All conditions of the host. Components report into it; nobody waits on it.
#[derive(Clone, Debug, Default)]
pub struct Health {
    conditions: Arc<RwLock<BTreeMap<String, Condition>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    pub ready: bool,
    /// Why not, or what is worth knowing. Never holds a secret.
    pub detail: String,
}

/// One component's handle: `broker.events`, `database.main`, `route.coupon`.
#[derive(Clone, Debug)]
pub struct Reporter {
    health: Health,
    name: String,
}

impl Health {
    /// Registers a component, not ready until it says so.
    pub fn component(&self, name: impl Into<String>) -> Reporter {
        let reporter = Reporter { health: self.clone(), name: name.into() };
        reporter.set(false, "starting");
        reporter
    }

    pub fn ready(&self) -> bool {
        self.snapshot().values().all(|c| c.ready)
    }

    pub fn snapshot(&self) -> BTreeMap<String, Condition> {
        // A poisoned lock still holds whole conditions: each is replaced in one step.
        self.conditions.read().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Reporter {
    pub fn ready(&self) {
        self.set(true, "ok");
    }

    /// Fit to work, with something worth knowing.
    pub fn ready_but(&self, what: impl Into<String>) {
        self.set(true, what);
    }

    pub fn down(&self, why: impl Into<String>) {
        self.set(false, why);
    }

    fn set(&self, ready: bool, detail: impl Into<String>) {
        let mut conditions = self.health.conditions.write().unwrap_or_else(|e| e.into_inner());
        conditions.insert(self.name.clone(), Condition { ready, detail: detail.into() });
    }
}
