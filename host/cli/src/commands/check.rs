//! `ackwright check`: configuration, plugins, grants and tables, every mistake at once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ackwright_core::catalog::Catalog;
use serde::Serialize;

use super::Outcome;
use crate::config::{self, Loaded, mistake};
use crate::output::{chain, colours, counted, print, print_json, short, table};
use crate::wiring::{databases, plugins};

/// For one database to answer; a check does not wait as `run` does.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default, Serialize)]
struct Report {
    ok: bool,
    mistakes: Vec<mistake::Plain>,
    plugins: Vec<Plugin>,
    databases: Vec<Database>,
}

#[derive(Serialize)]
struct Plugin {
    name: String,
    digest: Option<String>,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Database {
    name: String,
    reached: bool,
    tables: Option<usize>,
    missing_migrations: Vec<String>,
    faults: Vec<String>,
}

pub async fn check(path: &Path, offline: bool, json: bool) -> anyhow::Result<Outcome> {
    let mut report = Report::default();
    let loaded = match config::load(path) {
        Ok(loaded) => loaded,
        Err(bad) => {
            report.mistakes = bad.plain();
            if json {
                print_json(&report)?;
            } else {
                eprint!("{}", bad.render(colours(&std::io::stderr())));
            }
            return Ok(Outcome::Misused);
        }
    };
    report.mistakes = loaded.report.plain();
    if !json && !report.mistakes.is_empty() {
        eprint!("{}", loaded.report.render(colours(&std::io::stderr())));
    }
    check_plugins(&loaded, &mut report).await?;
    if !offline {
        check_databases(&loaded, &mut report).await;
    }
    let faults = report.plugins.iter().map(|p| p.faults.len()).sum::<usize>()
        + report.databases.iter().map(|d| d.faults.len()).sum::<usize>();
    report.ok = faults == 0;
    if json {
        print_json(&report)?;
    } else {
        print(&human(&loaded, &report, offline))?;
    }
    Ok(if report.ok { Outcome::Done } else { Outcome::Unmet })
}

async fn check_plugins(loaded: &Loaded, report: &mut Report) -> anyhow::Result<()> {
    let engine = plugins::engine(&loaded.config)?;
    for (name, plugin) in &loaded.config.plugins {
        let (digest, faults) = match plugins::load(&engine, name, plugin).await {
            Ok(plugin) => (Some(plugin.inspection().digest.clone()), Vec::new()),
            Err(error) => (None, vec![chain(&error)]),
        };
        report.plugins.push(Plugin { name: name.clone(), digest, faults });
    }
    Ok(())
}

async fn check_databases(loaded: &Loaded, report: &mut Report) {
    for (name, database) in &loaded.config.databases {
        let mut found = Database {
            name: name.clone(),
            reached: false,
            tables: None,
            missing_migrations: Vec::new(),
            faults: Vec::new(),
        };
        let looked = tokio::time::timeout(PATIENCE, async {
            let store = databases::open(database)?;
            let catalog = store.catalog().await?;
            anyhow::Ok((catalog, databases::pending(database).await?))
        });
        match looked.await {
            Err(_) => found.faults.push(format!("database.{name} does not answer; --offline leaves it out")),
            Ok(Err(error)) => found.faults.push(format!("database.{name}: {}", chain(&error))),
            Ok(Ok((catalog, pending))) => {
                found.reached = true;
                found.tables = Some(catalog.tables().count());
                if !pending.is_empty() && !database.migrate {
                    found.faults.push(format!(
                        "database.{name} lacks the tables of this host ({}); run `ackwright migrate`",
                        pending.join(", ")
                    ));
                }
                found.missing_migrations = pending;
                found.faults.extend(grants(loaded, name, &catalog));
            }
        }
        report.databases.push(found);
    }
}

/// Grants of the plugins that run on this database, against its tables.
fn grants(loaded: &Loaded, database: &str, catalog: &Arc<Catalog>) -> Vec<String> {
    let routes = loaded.config.routes.values().filter(|route| route.database.value == database);
    let mut names: Vec<&str> = routes.flat_map(|route| &route.rules).map(|rule| rule.plugin.value.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut faults = Vec::new();
    for name in names {
        let grants = &loaded.config.plugins[name].grants;
        if let Err(mistakes) = ackwright_core::access::Access::resolve(grants, Arc::clone(catalog)) {
            faults.extend(mistakes.into_iter().map(|m| format!("plugin.{name} on database.{database}: {m}")));
        }
    }
    faults
}

fn human(loaded: &Loaded, report: &Report, offline: bool) -> String {
    let state = |faults: &[String]| if faults.is_empty() { "ok".to_owned() } else { "FAULT".to_owned() };
    let mut rows = vec![[
        "config".to_owned(),
        loaded.report.source.path.display().to_string(),
        "ok".to_owned(),
        counted(loaded.config.routes.len(), "route"),
    ]];
    rows.extend(report.plugins.iter().map(|p| {
        let detail = p.digest.as_deref().map_or_else(String::new, |digest| format!("digest {}", short(digest, 12)));
        ["plugin".into(), p.name.clone(), state(&p.faults), detail]
    }));
    rows.extend(report.databases.iter().map(|d| {
        let detail = match d.tables {
            None => "not reached".to_owned(),
            Some(tables) if d.missing_migrations.is_empty() => counted(tables, "table"),
            Some(tables) => {
                format!("{}, {} to apply", counted(tables, "table"), counted(d.missing_migrations.len(), "migration"))
            }
        };
        ["database".into(), d.name.clone(), state(&d.faults), detail]
    }));
    if offline {
        rows.extend(
            loaded.config.databases.keys().map(|n| ["database".into(), n.clone(), "-".into(), "not asked".into()]),
        );
    }
    let mut text = table(["what", "name", "state", "detail"], rows);
    let faults: Vec<&String> =
        report.plugins.iter().flat_map(|p| &p.faults).chain(report.databases.iter().flat_map(|d| &d.faults)).collect();
    for fault in faults {
        text.push_str(&format!("\n\nerror: {fault}"));
    }
    text
}
