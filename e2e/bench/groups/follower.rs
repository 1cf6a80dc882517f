//! A member in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use taffrail_e2e::process::Process;
use taffrail_e2e::tools::sibling;

use super::told::Told;

/// A running member; it is killed when it is dropped.
pub(crate) struct Follower {
    process: Process,
    output: PathBuf,
}

impl Follower {
    /// Starts a member that writes what it tells into `folder`.
    pub(crate) fn start(bootstrap: &str, group: &str, index: usize, folder: &Path) -> Result<Self> {
        let mut command = Command::new(sibling("taffrail-e2e-client")?);
        command.args([
            "follow",
            "--bootstrap",
            bootstrap,
            "--topic",
            group,
            "--group",
            group,
        ]);
        let output = folder.join(format!("member-{index}.out"));
        let log = folder.join(format!("member-{index}.log"));
        let name = format!("member {index}");
        let process = Process::spawn_printing(&name, &mut command, &output, &log)?;
        Ok(Self { process, output })
    }

    /// What it told so far.
    pub(crate) fn told(&mut self) -> Result<Told> {
        self.process.must_run()?;
        let text = fs::read_to_string(&self.output);
        Told::parse(&text.with_context(|| format!("cannot read {}", self.output.display()))?)
    }

    /// kill -9.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill()
    }
}
