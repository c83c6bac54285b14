//! Every kind of mistake in a configuration, as `.toml` and `.err` pairs in `tests/config/`.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p ackwright --test config_errors` writes the `.err` files anew.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

fn check(file: &Path) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_ackwright"))
        .args(["check", "--offline", "--config"])
        .arg(file.file_name().unwrap())
        .current_dir(folder())
        .env_clear()
        .env("AW_DATABASE", "postgres://app:hunter2-pw@db.internal/app")
        .env("AW_NOT_A_DURATION", "hunter2-word")
        .env("AW_EMPTY", "")
        .output()
        .unwrap()
}

fn fixtures() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    assert!(files.len() >= 20, "the fixtures are gone: {files:?}");
    files
}

#[test]
fn c01_every_kind_of_mistake_is_reported_as_its_snapshot_says() {
    let mut differing = Vec::new();
    for file in fixtures() {
        let output = check(&file);
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = file.with_extension("err");
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&expected, &said).unwrap();
        }
        let wanted = std::fs::read_to_string(&expected).unwrap_or_default();
        if said != wanted {
            differing.push(format!("== {}\n-- expected\n{wanted}\n-- found\n{said}", file.display()));
        }
        let warnings_only = !said.contains("error: ");
        assert_eq!(output.status.code() == Some(2), !warnings_only, "{}: {:?}", file.display(), output.status);
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn c02_no_mistake_shows_a_secret() {
    for file in fixtures() {
        let output = check(&file);
        let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("hunter2"), "{}:\n{said}", file.display());
    }
}

#[test]
fn mistakes_are_there_for_scripts_too() {
    let output = Command::new(env!("CARGO_BIN_EXE_ackwright"))
        .args(["check", "--offline", "--json", "--config", "unknown-key.toml"])
        .current_dir(folder())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    let first = &report["mistakes"][0];
    assert_eq!(first["severity"], "error");
    assert_eq!((first["line"].as_u64(), first["column"].as_u64()), (Some(2), Some(1)));
    assert_eq!(first["label"], "did you mean `drain_timeout`?");
}
