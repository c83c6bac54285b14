//! `ackwright inspect`.

use std::path::Path;

use anyhow::Context;

use super::Outcome;
use crate::output::{print, print_json};

pub fn inspect(file: &Path, json: bool) -> anyhow::Result<Outcome> {
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let found = ackwright_wasm::inspect(&bytes).with_context(|| format!("{} is no plugin", file.display()))?;
    if json {
        print_json(&found)?;
        return Ok(Outcome::Done);
    }
    let contract = match &found.contract {
        Some(version) => {
            format!("{} {version} (this host speaks {})", ackwright_wasm::PACKAGE, ackwright_wasm::CONTRACT)
        }
        None => format!("none: it exports and imports nothing of {}", ackwright_wasm::PACKAGE),
    };
    let mut lines = vec![
        format!("file      {}", file.display()),
        format!("kind      {}", found.kind),
        format!("contract  {contract}"),
        format!("size      {} bytes", found.size),
        format!("digest    {}", found.digest),
    ];
    let mut list = |title: &str, names: &[String]| {
        lines.push(if names.is_empty() { format!("{title:<9} nothing") } else { format!("{title}:") });
        lines.extend(names.iter().map(|name| format!("  {name}")));
    };
    list("exports", &found.exports);
    list("imports", &found.imports);
    print(&lines.join("\n"))?;
    Ok(Outcome::Done)
}
