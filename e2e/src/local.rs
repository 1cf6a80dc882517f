//! `taffrail-operator local`: a Cluster from a manifest, as the quickstart runs it, on ports of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::port::Port;
use crate::process::{Process, tail};
use crate::tools::binary;
use crate::wait::wait_until;

/// From a cold start to every broker known.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For the operator to stop all brokers after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Brokers of the manifests that tests use.
pub const BROKERS: u16 = 3;
/// From one broker's ports to the next one's, as `taffrail-operator local --help` says.
const STEP: u16 = 100;
/// From a broker's client port to its internal and its metrics port.
const OF_A_BROKER: [u16; 3] = [0, 1, METRICS];
/// From a broker's client port to its metrics port.
const METRICS: u16 = 312;
/// From the first client port to the operator's metrics port.
const OPERATOR_METRICS: u16 = 212;

/// A local run of the operator. Dropped without [`Local::finish`], it prints the end of the operator's output.
pub struct Local {
    folder: TempDir,
    ports: Vec<Port>,
    process: Option<Process>,
    passed: bool,
}

impl Local {
    /// Writes the manifest, starts the operator on it and waits for all brokers.
    pub fn start(manifest: &str) -> Result<Self> {
        let mut local = Self::begin(manifest)?;
        local.wait_ready()?;
        Ok(local)
    }

    /// Writes the manifest and starts the operator on it.
    pub fn begin(manifest: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("taffrail-local-")
            .tempdir()?;
        let mut local = Self {
            folder,
            ports: claim_ports()?,
            process: None,
            passed: false,
        };
        local.write(manifest)?;
        local.run()?;
        Ok(local)
    }

    /// Changes the manifest.
    pub fn write(&self, manifest: &str) -> Result<()> {
        // As editors do: a new file in the place of the old one.
        let new = self.folder.path().join("manifest.new");
        fs::write(&new, manifest)?;
        fs::rename(new, self.manifest())?;
        Ok(())
    }

    /// Starts the operator, which must not run.
    pub fn run(&mut self) -> Result<()> {
        let mut command = Command::new(binary("taffrail-operator")?);
        command
            .args(["local", "-f"])
            .arg(self.manifest())
            .arg("--data-dir")
            .arg(self.data())
            .arg("--broker-binary")
            .arg(binary("taffrail-broker")?)
            .args(["--base-port", &self.base().to_string()]);
        self.process = Some(Process::spawn("the operator", &mut command, &self.log())?);
        Ok(())
    }

    /// Waits until all brokers are known to clients.
    pub fn wait_ready(&mut self) -> Result<()> {
        let admin = self.admin()?;
        let process = self.process.as_mut().context("the operator does not run")?;
        wait_until("all brokers of the manifest", READY_LIMIT, || {
            process.must_run()?;
            Ok(admin.brokers()?.len() == usize::from(BROKERS))
        })
    }

    /// SIGTERM; the operator stops all brokers first.
    pub fn stop(&mut self) -> Result<Duration> {
        self.process
            .take()
            .context("the operator does not run")?
            .terminate(STOP_LIMIT)
    }

    /// The bootstrap string of all brokers.
    pub fn bootstrap(&self) -> String {
        bootstrap(self.base())
    }

    /// An admin client of this cluster.
    pub fn admin(&self) -> Result<Admin> {
        Admin::connect(&self.bootstrap())
    }

    /// What `local status -o json` says.
    pub fn status(&self) -> Result<Value> {
        let output = self.operator(&["local", "status", "-o", "json"])?;
        serde_json::from_str(&output).context("the status is no JSON")
    }

    /// What `local status` says to people.
    pub fn status_text(&self) -> Result<String> {
        self.operator(&["local", "status"])
    }

    /// Where a broker's metrics are.
    pub fn broker_metrics(&self, broker: u16) -> String {
        format!(
            "http://127.0.0.1:{}/metrics",
            self.base() + broker * STEP + METRICS
        )
    }

    /// Where the operator's metrics are.
    pub fn operator_metrics(&self) -> String {
        format!(
            "http://127.0.0.1:{}/metrics",
            self.base() + OPERATOR_METRICS
        )
    }

    /// Says that the test has passed, and stops everything.
    pub fn finish(mut self) -> Result<()> {
        if self.process.is_some() {
            self.stop()?;
        }
        self.passed = true;
        Ok(())
    }

    fn operator(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(binary("taffrail-operator")?)
            .args(arguments)
            .arg("--data-dir")
            .arg(self.data())
            .output()?;
        if !output.status.success() {
            bail!(
                "taffrail-operator {} failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The first broker's client port.
    fn base(&self) -> u16 {
        self.ports[0].number()
    }

    fn manifest(&self) -> PathBuf {
        self.folder.path().join("manifest.yaml")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("operator.log")
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Brokers are the operator's children: it is asked to stop them, not killed above their heads.
        if let Some(mut process) = self.process.take() {
            let _ = process.terminate(STOP_LIMIT);
        }
        if !self.passed {
            eprintln!(
                "---- end of the output of the operator ----\n{}",
                tail(&self.log(), 60)
            );
        }
    }
}

/// Every port of a local run, the first broker's client port first.
fn claim_ports() -> Result<Vec<Port>> {
    let of_brokers =
        (0..BROKERS).flat_map(|broker| OF_A_BROKER.map(|offset| broker * STEP + offset));
    let offsets: Vec<u16> = of_brokers.chain([OPERATOR_METRICS]).collect();
    Port::claim_block(&offsets)
}

fn bootstrap(base: u16) -> String {
    let addresses: Vec<String> = (0..BROKERS)
        .map(|broker| format!("127.0.0.1:{}", base + broker * STEP))
        .collect();
    addresses.join(",")
}
