//! How one Taffrail broker is configured and started.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cluster::Member;
use crate::tools::binary;

/// Up to this many brokers vote: three, or one.
pub const VOTERS_MAX: usize = 3;

/// Where one broker listens, each as `host:port`.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// For clients.
    pub client: String,
    /// For other brokers.
    pub internal: String,
    /// For metrics and probes.
    pub metrics: String,
}

/// Who a broker is.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Its id.
    pub id: usize,
    /// Its cluster.
    pub cluster_id: &'a str,
    /// Its log directory.
    pub data: &'a Path,
}

/// Writes `broker.properties` into each member's folder.
pub fn configure(members: &[Member], cluster_id: &str, config: &[(String, String)]) -> Result<()> {
    let voting = if members.len() >= VOTERS_MAX {
        VOTERS_MAX
    } else {
        1
    };
    let addresses: Vec<Addresses> = members
        .iter()
        .map(|member| Addresses {
            client: member.client.address(),
            internal: member.internal.address(),
            metrics: member.metrics.address(),
        })
        .collect();
    let voters: Vec<(usize, &str)> = members
        .iter()
        .zip(&addresses)
        .take(voting)
        .map(|(member, addresses)| (member.id, addresses.internal.as_str()))
        .collect();
    for (member, addresses) in members.iter().zip(&addresses) {
        let identity = Identity {
            id: member.id,
            cluster_id,
            data: &member.data(),
        };
        let mut text = properties(identity, addresses, &voters)?;
        for (name, value) in config {
            writeln!(text, "{name}={value}")?;
        }
        fs::write(member.folder.join("broker.properties"), text)?;
    }
    Ok(())
}

/// The properties that every broker needs; `voters` are ids with addresses for other brokers.
pub fn properties(
    identity: Identity<'_>,
    addresses: &Addresses,
    voters: &[(usize, &str)],
) -> Result<String> {
    let (client, internal) = (&addresses.client, &addresses.internal);
    let voters: Vec<String> = voters
        .iter()
        .map(|(id, address)| format!("{id}@{address}"))
        .collect();
    let mut text = String::new();
    writeln!(text, "node.id={}", identity.id)?;
    writeln!(text, "cluster.id={}", identity.cluster_id)?;
    writeln!(text, "log.dirs={}", identity.data.display())?;
    writeln!(text, "listeners=INTERNAL://{internal},CLIENT://{client}")?;
    writeln!(
        text,
        "advertised.listeners=INTERNAL://{internal},CLIENT://{client}"
    )?;
    writeln!(text, "inter.broker.listener.name=INTERNAL")?;
    writeln!(text, "controller.quorum.voters={}", voters.join(","))?;
    writeln!(text, "taffrail.metrics.listener={}", addresses.metrics)?;
    Ok(text)
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
