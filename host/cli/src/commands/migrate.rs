//! `ackwright migrate`.

use anyhow::Context;
use serde::Serialize;

use super::{Outcome, chosen};
use crate::config::Loaded;
use crate::output::{print, print_json};
use crate::wiring::databases;

#[derive(Serialize)]
struct Report {
    database: String,
    applied: bool,
    migrations: Vec<String>,
}

pub async fn migrate(loaded: &Loaded, only: Option<&str>, dry_run: bool, json: bool) -> anyhow::Result<Outcome> {
    let mut reports = Vec::new();
    for name in chosen(loaded, only)? {
        let database = &loaded.config.databases[&name];
        let migrations = if dry_run { databases::pending(database).await } else { databases::migrate(database).await };
        let migrations = migrations.with_context(|| format!("database {name:?} cannot be migrated"))?;
        if !json {
            let what = if dry_run { "would apply" } else { "applied" };
            if migrations.is_empty() {
                print(&format!("{name}: up to date"))?;
            }
            for migration in &migrations {
                print(&format!("{name}: {what} {migration}"))?;
            }
        }
        reports.push(Report { database: name, applied: !dry_run, migrations });
    }
    if json {
        print_json(&reports)?;
    }
    Ok(Outcome::Done)
}
