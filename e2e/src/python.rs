//! The pure-Python client and the reference parser of Prometheus text, run by the environment of `make tools`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tools;

/// kafka-python reading a topic, printing `partition TAB offset TAB key TAB value`. Without a group it assigns all partitions and ends at `records`.
pub fn consumer(
    bootstrap: &str,
    topic: &str,
    group: Option<&str>,
    records: usize,
) -> Result<Command> {
    let mut command = tools::python("consume.py")?;
    command.args([
        "--bootstrap",
        bootstrap,
        "--topic",
        topic,
        "--records",
        &records.to_string(),
    ]);
    if let Some(group) = group {
        command.args(["--group", group]);
    }
    Ok(command)
}

/// Sends a file of `key TAB value` lines with acks=all.
pub fn produce(bootstrap: &str, topic: &str, file: &Path, codec: &str) -> Result<()> {
    let mut command = tools::python("produce.py")?;
    command
        .args([
            "--bootstrap",
            bootstrap,
            "--topic",
            topic,
            "--codec",
            codec,
            "--file",
        ])
        .arg(file);
    output(command, "the Python producer")?;
    Ok(())
}

/// Scrapes a metrics page and gives its families as `name TAB type TAB samples`, one a line, or the parser's complaint.
pub fn parse_metrics(url: &str) -> Result<String> {
    let mut command = tools::python("parse_metrics.py")?;
    command.arg(url);
    Ok(String::from_utf8(output(command, "the metrics parser")?)?)
}

/// Runs to the end and gives the standard output, or fails with the standard error.
pub fn output(mut command: Command, name: &str) -> Result<Vec<u8>> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output.stdout)
}
