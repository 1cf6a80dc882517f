//! How one Apache Kafka broker is configured and started: the peer of the bench, and the reference that tests are proven against.
//!
//! KRaft, controller and broker in one process, with the values of the `server.properties` that Kafka ships and the JVM flags of its
//! `kafka-server-start.sh`; broker logs at WARN, so that neither peer pays for logging.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cluster::Member;
use crate::tools::java;

/// Flags of `kafka-run-class.sh` and `kafka-server-start.sh` of Kafka 4.4.
const SERVER_JVM: &[&str] = &[
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];

/// Writes `server.properties` into each member's folder and formats its log directory.
pub fn configure(members: &[Member], cluster_id: &str, config: &[(String, String)]) -> Result<()> {
    let controllers: Vec<String> = members.iter().map(|m| m.internal.address()).collect();
    let mut initial = Vec::new();
    for member in members {
        initial.push(format!(
            "{}@{}:{}",
            member.id,
            member.internal.address(),
            random_id()?
        ));
    }
    for member in members {
        let properties = member.folder.join("server.properties");
        fs::write(
            &properties,
            server_properties(member, &controllers, members.len(), config)?,
        )?;
        let output = java(&["-Xmx256M"])?
            .args(["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"])
            .arg(&properties)
            .args(["--initial-controllers", &initial.join(",")])
            .output()
            .context("cannot run Kafka's storage tool")?;
        if !output.status.success() {
            bail!(
                "Kafka's storage tool failed: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(())
}

/// The command that runs the broker of that folder.
pub fn command(folder: &Path) -> Result<Command> {
    let mut command = java(SERVER_JVM)?;
    command
        .arg("kafka.Kafka")
        .arg(folder.join("server.properties"))
        .current_dir(folder);
    Ok(command)
}

/// A random id in Kafka's spelling: 16 bytes as base64url without padding.
///
/// Only letters and digits are drawn: a leading `-` would be read as an option by Kafka's tools.
pub fn random_id() -> Result<String> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = [0u8; 21];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut id: String = bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect();
    // 22 letters hold 132 bits: the last four must be zero, and `Q` ends in four zeros.
    id.push('Q');
    Ok(id)
}

fn server_properties(
    member: &Member,
    controllers: &[String],
    brokers: usize,
    config: &[(String, String)],
) -> Result<String> {
    let (client, controller) = (member.client.address(), member.internal.address());
    let (factor, in_sync) = if brokers >= 3 { (3, 2) } else { (1, 1) };
    let mut text = format!(
        "process.roles=broker,controller
node.id={id}
controller.quorum.bootstrap.servers={quorum}
listeners=PLAINTEXT://{client},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{client},CONTROLLER://{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor={factor}
share.coordinator.state.topic.replication.factor={factor}
share.coordinator.state.topic.min.isr={in_sync}
transaction.state.log.replication.factor={factor}
transaction.state.log.min.isr={in_sync}
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
",
        id = member.id,
        quorum = controllers.join(","),
        data = member.data().display(),
    );
    for (name, value) in config {
        writeln!(text, "{name}={value}")?;
    }
    Ok(text)
}
