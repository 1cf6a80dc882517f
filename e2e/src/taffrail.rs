//! How one Taffrail broker is configured and started.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cluster::Member;
use crate::tools::binary;

/// Up to this many brokers vote: three, or one.
const VOTERS_MAX: usize = 3;

/// Writes `broker.properties` into each member's folder.
pub fn configure(members: &[Member], cluster_id: &str, config: &[(String, String)]) -> Result<()> {
    let voting = if members.len() >= VOTERS_MAX {
        VOTERS_MAX
    } else {
        1
    };
    let voters: Vec<String> = members
        .iter()
        .take(voting)
        .map(|m| format!("{}@{}", m.id, m.internal.address()))
        .collect();
    for member in members {
        let (client, internal) = (member.client.address(), member.internal.address());
        let mut text = String::new();
        writeln!(text, "node.id={}", member.id)?;
        writeln!(text, "cluster.id={cluster_id}")?;
        writeln!(text, "log.dirs={}", member.data().display())?;
        writeln!(text, "listeners=INTERNAL://{internal},CLIENT://{client}")?;
        writeln!(
            text,
            "advertised.listeners=INTERNAL://{internal},CLIENT://{client}"
        )?;
        writeln!(text, "inter.broker.listener.name=INTERNAL")?;
        writeln!(text, "controller.quorum.voters={}", voters.join(","))?;
        writeln!(
            text,
            "taffrail.metrics.listener={}",
            member.metrics.address()
        )?;
        for (name, value) in config {
            writeln!(text, "{name}={value}")?;
        }
        fs::write(member.folder.join("broker.properties"), text)?;
    }
    Ok(())
}

/// The command that runs the broker of that folder.
pub fn command(folder: &Path) -> Result<Command> {
    let mut command = Command::new(binary("taffrail-broker")?);
    command
        .arg("--config")
        .arg(folder.join("broker.properties"))
        .current_dir(folder);
    Ok(command)
}
