//! README.md says what is true: its configurations are accepted, its handler is the plugin's, its tables are whole.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use ackwright_core::telemetry::Count;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The code blocks of README.md in this language.
fn blocks(language: &str) -> Vec<String> {
    let readme = read("README.md");
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in readme.lines() {
        match &mut open {
            Some(block) if line == "```" => {
                blocks.push(std::mem::take(block));
                open = None;
            }
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
            None if line.strip_prefix("```") == Some(language) => open = Some(String::new()),
            None => {}
        }
    }
    blocks
}

#[test]
fn every_configuration_of_the_readme_passes_the_check() {
    let plugin = root().join("target/plugins/coupon.wasm");
    assert!(plugin.is_file(), "there is no {}: `cargo xtask plugins` builds it", plugin.display());
    let configurations = blocks("toml");
    assert_eq!(configurations.len(), 2, "one for servers, one without");
    for toml in configurations {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("target/plugins")).unwrap();
        std::fs::copy(&plugin, folder.path().join("target/plugins/coupon.wasm")).unwrap();
        std::fs::write(folder.path().join("ackwright.toml"), &toml).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_ackwright"))
            .args(["check", "--offline"])
            .current_dir(folder.path())
            .env("DATABASE_URL", "postgres://user:password@localhost:5432/shop")
            .env("AMQP_URL", "amqp://guest:guest@localhost:5672")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{toml}\n{said}{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

#[test]
fn the_handler_of_the_readme_is_the_coupon_plugin() {
    let source = read("plugins/coupon/src/lib.rs");
    let start = source.find("use ackwright_sdk").expect("it uses the SDK");
    let end = source.find("#[cfg(test)]").expect("it has tests");
    assert_eq!(blocks("rust"), [format!("{}\n", source[start..end].trim_end())]);
}

/// Keys as the configuration reads them, by the calls that take them.
fn keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for file in ["host/cli/src/config/sections.rs", "host/cli/src/config/flow.rs"] {
        let source = read(file);
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for call in ["optional(\"", "required(\"", "take(\"", "side(\"", "time(\"", "count(\"", "condition(\""] {
            let after = code.split(call).skip(1);
            keys.extend(after.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    assert!(keys.len() > 50, "the calls have other names now: {keys:?}");
    keys
}

#[test]
fn every_key_and_every_metric_is_in_the_readme() {
    let readme = read("README.md");
    let words: BTreeSet<&str> =
        readme.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let missing: Vec<String> = keys().into_iter().filter(|key| !words.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "keys that README.md does not explain: {missing:?}");
    let missing: Vec<&str> = Count::ALL.iter().map(|count| count.name()).filter(|name| !words.contains(name)).collect();
    assert!(missing.is_empty(), "metrics that README.md does not list: {missing:?}");
}
