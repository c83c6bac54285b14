//! The binary as users run it, without any server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn ackwright(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ackwright")).args(arguments).current_dir(folder).output().unwrap()
}

fn traced(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ackwright"))
        .args(arguments)
        .current_dir(folder)
        .env("ACKWRIGHT_LOG", "trace")
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const REST: &str = r#"
[broker.hooks]
kind = "webhook"
listen = "127.0.0.1:8080"

[plugin.coupon]
path = "coupon.wasm"

[route.coupon]
broker = "hooks"
path = "/orders"
database = "main"
plugins = [{ use = "coupon" }]
"#;

fn folder_with(url: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!("[database.main]\nurl = '{url}'\n{REST}");
    std::fs::write(folder.path().join("ackwright.toml"), toml).unwrap();
    folder
}

#[test]
fn help_of_every_command_has_examples_and_exit_codes_are_documented() {
    let folder = tempfile::tempdir().unwrap();
    let help = text(&ackwright(folder.path(), &["--help"]).stdout);
    assert!(help.contains("Exit codes:") && help.contains("130"), "{help}");
    let commands: [&[&str]; 9] = [
        &["run"],
        &["check"],
        &["migrate"],
        &["inspect"],
        &["inbox", "show"],
        &["outbox", "list"],
        &["parked", "list"],
        &["parked", "show"],
        &["demo"],
    ];
    for command in commands {
        let output = ackwright(folder.path(), &[command, &["--help"]].concat());
        assert!(text(&output.stdout).contains("Examples:"), "{command:?} has no examples");
    }
}

#[test]
fn a_missing_configuration_is_named_and_ends_with_two() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["run", "check", "migrate"] {
        let output = ackwright(folder.path(), &[command]);
        assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("ackwright.toml") && said.contains("--config"), "{said}");
    }
    assert_eq!(ackwright(folder.path(), &["no-such-command"]).status.code(), Some(2));
}

#[test]
fn inspect_says_what_a_file_is_that_is_no_plugin() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.wasm"), "#!/bin/sh\n").unwrap();
    // A core module without any metadata: the magic number and the version.
    std::fs::write(folder.path().join("b.wasm"), b"\0asm\x01\0\0\0").unwrap();
    for (file, wanted) in [("a.wasm", "not a WebAssembly file"), ("b.wasm", "metadata"), ("c.wasm", "cannot be read")] {
        let output = ackwright(folder.path(), &["inspect", file]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("error: ") && said.contains(file) && said.contains(wanted), "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn check_reports_a_plugin_that_is_not_there_beside_all_else() {
    let folder = folder_with("sqlite:app.db");
    let output = ackwright(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("coupon.wasm cannot be read"), "{said}");
    assert!(said.contains("run `ackwright migrate`"), "the database was not looked at: {said}");
    let output = ackwright(folder.path(), &["check", "--json", "--offline"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert_eq!(report["plugins"][0]["name"], "coupon");
    assert_eq!(report["databases"], serde_json::json!([]));
}

#[test]
fn migrate_applies_once_and_the_tables_can_be_listed() {
    let folder = folder_with("sqlite:app.db");
    let run = |arguments: &[&str]| {
        let output = ackwright(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        text(&output.stdout)
    };
    assert!(run(&["migrate", "--dry-run"]).contains("would apply"));
    assert!(run(&["migrate"]).contains("main: applied"));
    assert_eq!(run(&["migrate"]).trim(), "main: up to date");
    assert_eq!(run(&["migrate", "--json"]).split_whitespace().collect::<String>(), {
        r#"[{"database":"main","applied":true,"migrations":[]}]"#
    });
    assert_eq!(run(&["outbox", "list", "--json"]).trim(), "[]");
    assert_eq!(run(&["parked", "list", "--json", "--state", "waiting"]).trim(), "[]");
    assert!(run(&["parked", "list"]).contains("no message is parked"));
    // Nothing found is no success for a script.
    let missing = ackwright(folder.path(), &["inbox", "show", "nothing"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    let unknown = ackwright(folder.path(), &["migrate", "--database", "mian"]);
    assert!(text(&unknown.stderr).contains("it has main"), "{unknown:?}");
    let key = "00000000-0000-0000-0000-000000000000";
    let shown = ackwright(folder.path(), &["parked", "show", key]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(text(&shown.stderr).contains(key), "{shown:?}");
}

/// Asks every client for its password in clear text, then hangs up.
fn curious_postgres() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = [0; 8];
            // An SSLRequest is answered with "no", the start-up message follows it.
            if stream.read_exact(&mut first).is_ok() && first[4..8] == 80_877_103_u32.to_be_bytes() {
                let _ = stream.write_all(b"N");
            }
            let _ = stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3]);
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    port
}

#[test]
fn c02_no_password_is_printed_at_trace_level_whatever_is_wrong_with_the_url() {
    let port = curious_postgres();
    let urls = [
        "postgres://app:hunter2-pw@127.0.0.1:1/app".to_owned(),
        format!("postgres://app:hunter2-pw@127.0.0.1:{port}/app"),
        format!("postgres://app:hunter2%2Dpw@127.0.0.1:{port}/app?sslmode=disable"),
        "postgres://app:hunter2-pw@:host:port/app".to_owned(),
        "postgres://app:hunter2/pw@127.0.0.1:1/app".to_owned(),
        "postgres://app:hunter2#pw@127.0.0.1:1/app".to_owned(),
        "postgres://app@127.0.0.1:1/app?password=hunter2-pw".to_owned(),
        "pg://app:hunter2-pw@127.0.0.1:1/app".to_owned(),
        "sqlite://app:hunter2-pw@/no/such/folder.db".to_owned(),
    ];
    for url in urls {
        let folder = folder_with(&url);
        for arguments in [&["check"][..], &["check", "--json"], &["migrate"], &["outbox", "list"]] {
            let said = traced(folder.path(), arguments);
            assert!(!said.contains("hunter2"), "{url} {arguments:?}:\n{said}");
        }
    }
}

#[test]
fn colours_are_for_terminals() {
    let folder = folder_with("sqlite:app.db");
    std::fs::write(folder.path().join("ackwright.toml"), "[hots]\n").unwrap();
    let output = ackwright(folder.path(), &["check"]);
    assert!(!output.stderr.contains(&0x1b), "{}", text(&output.stderr));
}
