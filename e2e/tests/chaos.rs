//! A short torment: some faults of each kind that this machine allows, and nothing acknowledged is lost or out of order.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use taffrail_e2e::wait::{wait_for, wait_until};

/// What can be had without root first, then a partition and a power loss of all brokers at once.
const FAULTS: &str = "kill,pause,reset,restart,isolate,power-loss-all";
/// For brokers to run, or to be gone.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_short_torment_leaves_no_anomaly() -> Result<()> {
    // What it says goes straight to the terminal: also which faults it left out, and why.
    let status = Command::new(env!("CARGO_BIN_EXE_taffrail-chaos"))
        .args(["--faults", FAULTS, "--once", "--where-possible"])
        .args(["--seed", "5", "--rate", "300"])
        .args(["--evidence", env!("CARGO_TARGET_TMPDIR")])
        .status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn a_killed_torment_takes_its_brokers_and_mounts_with_it() -> Result<()> {
    let mut torment = Command::new(env!("CARGO_BIN_EXE_taffrail-chaos"))
        .args(["--faults", "kill", "--duration", "1m"])
        .args(["--evidence", env!("CARGO_TARGET_TMPDIR")])
        .spawn()?;
    let found = wait_for("the torment to run brokers", LIMIT, || {
        let folder = folder_of(&torment)?;
        Ok(brokers_below(&folder)?.then_some(folder))
    });
    torment.kill()?;
    torment.wait()?;
    let folder = found?;
    wait_until("the brokers to be gone", LIMIT, || {
        Ok(!brokers_below(&folder)?)
    })?;
    // All that is left are files, and no file is a mount: else this would fail.
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// The folder that a torment works in.
fn folder_of(torment: &Child) -> Result<PathBuf> {
    let prefix = format!("taffrail-chaos-{}-", torment.id());
    for entry in fs::read_dir(std::env::temp_dir())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&prefix) && path.is_dir() {
            return Ok(path);
        }
    }
    None.context("it has no folder yet")
}

/// Whether some process was started with a file of this folder.
fn brokers_below(folder: &std::path::Path) -> Result<bool> {
    let folder = folder.to_string_lossy().into_owned();
    for entry in fs::read_dir("/proc")? {
        // Processes come and go meanwhile.
        let arguments = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&arguments).contains(&folder) {
            return Ok(true);
        }
    }
    Ok(false)
}
