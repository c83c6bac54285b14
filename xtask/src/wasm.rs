//! Builds the plugins and the guests of the tests for WebAssembly, and sets up the toolchain that this takes.
//!
//! Two routes lead to a standard library for the target: rustup's, and where rustup cannot fetch one, Debian's
//! compiler with its sources, from which a private sysroot is built once. Guests compile as ordinary stable Rust on
//! both.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::debian;

const TARGET: &str = "wasm32-unknown-unknown";

/// Forces one route, for tests of this file: `rustup` or `debian`.
const ROUTE: &str = "ACKWRIGHT_WASM_TOOLCHAIN";

const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld-22"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_LINKER: &str = "/usr/bin/wasm-ld-22";

/// Where the plugins are put, from the repository's root.
pub const OUT: &str = "target/plugins";

/// Workspaces whose `cdylib` crates become `target/plugins/<crate>.wasm`: the examples, and the guests of the tests.
pub const WORKSPACES: [&str; 2] = [EXAMPLES, "tests/guests"];
const EXAMPLES: &str = "plugins";

/// Builds everything in `plugins/` and `tests/guests/`; returns the paths of the `.wasm` files by crate name.
pub fn build(root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    build_workspaces(root, &WORKSPACES)
}

/// Builds `plugins/` alone, which is what runs outside of tests.
pub fn build_examples(root: &Path) -> Result<()> {
    build_workspaces(root, &[EXAMPLES]).map(drop).context("building the plugins failed")
}

fn build_workspaces(root: &Path, workspaces: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let toolchain = Toolchain::set_up(root)?;
    let out = root.join(OUT);
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;

    let mut built = BTreeMap::new();
    for workspace in workspaces {
        for (name, artifact) in toolchain.build(&root.join(workspace))? {
            let wasm = out.join(format!("{name}.wasm"));
            put(&artifact, &wasm)?;
            built.insert(name, wasm);
        }
    }
    Ok(built)
}

/// Replaces the file whole, and only where the bytes differ: a running host watches these files.
fn put(from: &Path, to: &Path) -> Result<()> {
    let new = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    let part = to.with_extension("wasm.part");
    fs::write(&part, new).with_context(|| format!("write {}", part.display()))?;
    fs::rename(&part, to).with_context(|| format!("move {} to {}", part.display(), to.display()))
}

/// How guests are compiled on this machine.
struct Toolchain {
    cargo: PathBuf,
    environment: Vec<(&'static str, String)>,
    /// Apart from the host's build, so that neither waits for the other's lock, and apart for each route.
    target_dir: PathBuf,
}

impl Toolchain {
    fn set_up(root: &Path) -> Result<Self> {
        let rustup = || {
            rustup_has_target(root).then(|| Toolchain {
                cargo: "cargo".into(),
                environment: Vec::new(),
                target_dir: root.join("target/wasm/rustup"),
            })
        };
        match std::env::var(ROUTE).as_deref() {
            Ok("debian") => Toolchain::debian(root),
            Ok("rustup") => rustup().with_context(|| format!("rustup has no target {TARGET} and could not add it")),
            Ok(other) => bail!("{ROUTE}={other}: it takes rustup or debian"),
            Err(_) => match rustup() {
                Some(toolchain) => Ok(toolchain),
                None => Toolchain::debian(root),
            },
        }
    }

    fn debian(root: &Path) -> Result<Self> {
        install_debian_packages()?;
        let sysroot = debian_sysroot(root)?;
        Ok(Toolchain {
            cargo: DEBIAN_CARGO.into(),
            environment: vec![
                ("RUSTC", DEBIAN_RUSTC.into()),
                ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", DEBIAN_LINKER.into()),
                ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", format!("--sysroot={}", sysroot.display())),
            ],
            target_dir: root.join("target/wasm/debian"),
        })
    }

    /// Builds one workspace; returns the crates that are plugins with their artifacts.
    fn build(&self, workspace: &Path) -> Result<Vec<(String, PathBuf)>> {
        let mut cargo = clean_command(&self.cargo);
        cargo
            .args(["build", "--release", "--workspace", "--target", TARGET, "--message-format=json-render-diagnostics"])
            .arg("--target-dir")
            .arg(&self.target_dir)
            .current_dir(workspace)
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let output = cargo.output().with_context(|| format!("start {cargo:?}"))?;
        ensure!(output.status.success(), "building the plugins in {} failed, see above", workspace.display());

        let mut artifacts = Vec::new();
        for line in output.stdout.split(|b| *b == b'\n').filter(|line| line.starts_with(b"{")) {
            let message: serde_json::Value = serde_json::from_slice(line).context("read cargo's build messages")?;
            let is_cdylib =
                message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == "cdylib"));
            if message["reason"] != "compiler-artifact" || !is_cdylib {
                continue;
            }
            let name = message["target"]["name"].as_str().context("a build message names no target")?;
            let wasm = message["filenames"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|file| file.as_str())
                .find(|file| file.ends_with(".wasm"))
                .with_context(|| format!("crate {name} gave no .wasm file"))?;
            artifacts.push((name.replace('_', "-"), PathBuf::from(wasm)));
        }
        ensure!(!artifacts.is_empty(), "no plugin in {}: no crate there has crate-type cdylib", workspace.display());
        Ok(artifacts)
    }
}

/// Whether the toolchain of this project has the target's standard library, after having asked rustup to add it.
fn rustup_has_target(root: &Path) -> bool {
    if rustc_has_target(root) {
        return true;
    }
    eprintln!("adding the target {TARGET} with rustup");
    let added = clean_command("rustup").args(["target", "add", TARGET]).current_dir(root).status();
    matches!(added, Ok(status) if status.success()) && rustc_has_target(root)
}

fn rustc_has_target(root: &Path) -> bool {
    let printed =
        clean_command("rustc").args(["--print", "target-libdir", "--target", TARGET]).current_dir(root).output();
    printed.is_ok_and(|printed| {
        let folder = PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim());
        printed.status.success() && folder.is_dir()
    })
}

fn install_debian_packages() -> Result<()> {
    let there = [DEBIAN_RUSTC, DEBIAN_CARGO, DEBIAN_LINKER].iter().all(|file| Path::new(file).exists());
    if there && debian_sources().is_ok() {
        return Ok(());
    }
    debian::install(&DEBIAN_PACKAGES)?;
    debian_sources().map(drop).context("use Debian's compiler after installing it")
}

fn debian_sources() -> Result<PathBuf> {
    let sources = PathBuf::from(printed(Command::new(DEBIAN_RUSTC).args(["--print", "sysroot"]))?)
        .join("lib/rustlib/src/rust/library/std");
    ensure!(sources.is_dir(), "the standard library's sources are not at {}", sources.display());
    Ok(sources)
}

/// The standard library built for the target with Debian's compiler, in a sysroot of our own. Built once for each
/// compiler version.
fn debian_sysroot(root: &Path) -> Result<PathBuf> {
    let version = printed(Command::new(DEBIAN_RUSTC).arg("--version"))?;
    let host_sysroot = PathBuf::from(printed(Command::new(DEBIAN_RUSTC).args(["--print", "sysroot"]))?);
    let host_triple = printed(Command::new(DEBIAN_RUSTC).args(["--print", "host-tuple"]))?;

    let base = root.join("target/wasm/sysroot");
    let (done, sysroot) = (base.join("version"), base.join("tree"));
    if fs::read_to_string(&done).is_ok_and(|built| built == version) {
        return Ok(sysroot);
    }
    eprintln!("building the standard library for {TARGET} with Debian's {version} (once, about a minute)");
    if base.exists() {
        fs::remove_dir_all(&base).with_context(|| format!("remove {}", base.display()))?;
    }
    let seed = base.join("seed");
    write(&seed.join("Cargo.toml"), SEED_MANIFEST)?;
    write(&seed.join("src/lib.rs"), "")?;
    run(clean_command(DEBIAN_CARGO)
        .args(["build", "--release", "--target", TARGET, "-Zbuild-std=std,panic_abort", "--target-dir", "out"])
        .current_dir(&seed)
        .env("RUSTC", DEBIAN_RUSTC)
        .env("RUSTC_BOOTSTRAP", "1")
        // Without bitcode in the standard library, guests cannot be optimised across crates.
        .env("RUSTFLAGS", "-Cembed-bitcode=yes"))?;

    let libraries = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    fs::create_dir_all(&libraries).with_context(|| format!("create {}", libraries.display()))?;
    let compiled = seed.join("out").join(TARGET).join("release/deps");
    for entry in fs::read_dir(&compiled).with_context(|| format!("list {}", compiled.display()))? {
        let file = entry?.path();
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.ends_with(".rlib") && !name.starts_with("libackwright_seed") {
            fs::copy(&file, libraries.join(name)).with_context(|| format!("copy {}", file.display()))?;
        }
    }
    // Procedural macros run on this machine and need its own standard library.
    let own = sysroot.join("lib/rustlib").join(&host_triple);
    std::os::unix::fs::symlink(host_sysroot.join("lib/rustlib").join(&host_triple), &own)
        .with_context(|| format!("link {}", own.display()))?;
    fs::remove_dir_all(&seed).with_context(|| format!("remove {}", seed.display()))?;
    write(&done, &version)?;
    Ok(sysroot)
}

const SEED_MANIFEST: &str = "\
[package]
name = \"ackwright-seed\"
version = \"0.0.0\"
edition = \"2021\"

[workspace]

[profile.release]
panic = \"abort\"
";

/// A command without what the cargo that runs us has set for our own build.
fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "RUSTC", "CARGO"] {
        command.env_remove(name);
    }
    command
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(file, text).with_context(|| format!("write {}", file.display()))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout).with_context(|| format!("read what {command:?} printed"))?.trim().into())
}
