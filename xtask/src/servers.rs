//! PostgreSQL and RabbitMQ, whose servers the tests and the benchmark start for themselves.

use std::path::Path;

use anyhow::Result;

use crate::debian;

/// Installs what is missing.
pub fn install() -> Result<()> {
    let debian_postgres = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let postgres = debian_postgres.map(|version| version.path().join("bin/initdb")).any(|initdb| initdb.exists())
        || on_path("initdb");
    let rabbitmq = Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").exists();
    let missing: Vec<_> = [(postgres, "postgresql"), (rabbitmq, "rabbitmq-server")]
        .into_iter()
        .filter_map(|(there, package)| (!there).then_some(package))
        .collect();
    if missing.is_empty() { Ok(()) } else { debian::install(&missing) }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}
