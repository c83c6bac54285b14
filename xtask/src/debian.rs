//! Debian packages: installed where they are missing, as root or through sudo, without starting their services.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// `policy-rc.d` is how Debian keeps packages from starting what they install; where the machine has none, ours is
/// there for the time of the installation. What we installed shall not start with the machine later either: tests
/// start servers of their own.
const SCRIPT: &str = r#"
set -eu
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@"
if [ -d /run/systemd/system ]; then
    for package in "$@"; do
        systemctl disable --quiet "$package" 2>/dev/null || true
    done
fi
"#;

/// Installs packages with apt-get.
pub fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" and ");
    ensure!(
        Path::new("/usr/bin/apt-get").exists(),
        "{names} must be installed and this system has no apt-get: install what these Debian packages hold by hand"
    );
    eprintln!("installing {names} with apt-get");
    let id = Command::new("id").arg("-u").output().context("ask id -u who we are")?;
    let mut command = if id.stdout.trim_ascii() == b"0" {
        Command::new("sh")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--", "sh"]);
        sudo
    };
    let status = command.args(["-c", SCRIPT, "install"]).args(packages).stdout(Stdio::null()).status();
    let by_hand = format!("to do it by hand: apt-get install --no-install-recommends {}", packages.join(" "));
    let status = status.with_context(|| format!("installing {names} takes root or sudo; {by_hand}"))?;
    ensure!(status.success(), "installing {names} failed, see above; {by_hand}");
    Ok(())
}
