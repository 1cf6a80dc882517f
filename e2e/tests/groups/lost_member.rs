//! A group of three that loses a member half-way still reads every line of a text, each as it was written. `E2E_LINES=1000000` takes
//! a longer text than `make test` has time for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use taffrail_e2e::cluster::Cluster;
use taffrail_e2e::process::{Process, tail};
use taffrail_e2e::text::{Checker, Text};
use taffrail_e2e::tools::number;
use taffrail_e2e::wait::{wait_for, wait_until};
use taffrail_e2e::{java, python};

const PARTITIONS: i32 = 6;
const MEMBERS: usize = 3;
/// Session timeout (the Java client's default is 45 s), a rebalance, and two busy cores.
const LIMIT: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug)]
enum Client {
    Librdkafka,
    Java,
    Python,
}

#[test]
fn librdkafka_group_that_loses_a_member_reads_every_line() -> Result<()> {
    check(Client::Librdkafka, number("E2E_LINES", 200_000))
}

#[test]
fn java_group_that_loses_a_member_reads_every_line() -> Result<()> {
    check(Client::Java, number("E2E_LINES", 50_000))
}

#[test]
fn python_group_that_loses_a_member_reads_every_line() -> Result<()> {
    check(Client::Python, number("E2E_LINES", 50_000))
}

fn check(client: Client, lines: usize) -> Result<()> {
    let cluster = Cluster::of(3)?;
    let (topic, group) = ("text", "readers");
    cluster.admin()?.create_topic(topic, PARTITIONS, 3, &[])?;
    let text = Text::of(lines)?;
    let folder = tempfile::tempdir()?;
    let mut members = Vec::new();
    for index in 0..MEMBERS {
        members.push(Member::start(
            client,
            &cluster,
            topic,
            group,
            index,
            folder.path(),
        )?);
    }

    // The first half is there before all are members, so that each of them is half-way when one is lost.
    text.produce(&cluster.bootstrap(), topic, 0, lines / 2, &[])?;
    wait_until("each member to read something", LIMIT, || {
        // A share is given once all have joined; who came late gets records only from what is produced then.
        text.produce(&cluster.bootstrap(), topic, 0, 100, &[])?;
        Ok(members.iter().all(|m| m.printed_bytes() > 0))
    })?;
    let lost = members.remove(0);
    let lost_output = lost.kill()?;
    text.produce(&cluster.bootstrap(), topic, lines / 2, lines, &[])?;

    let mut outputs: Vec<PathBuf> = members.iter().map(|m| m.output.clone()).collect();
    outputs.push(lost_output);
    let limit = LIMIT + Duration::from_secs(lines as u64 / 5_000);
    let result = wait_for("the two that are left to read all the rest", limit, || {
        let mut checker = text.checker();
        for output in &outputs {
            take(output, &mut checker)?;
        }
        checker.covered().map(Some)
    });
    if let Err(error) = result {
        let logs: Vec<String> = members.iter().map(|m| tail(m.process.log(), 10)).collect();
        return Err(error.context(format!("members said:\n{}", logs.join("\n--\n"))));
    }
    drop(members);
    cluster.finish();
    Ok(())
}

/// A member in a process of its own, with what it read in a file.
struct Member {
    process: Process,
    output: PathBuf,
}

impl Member {
    fn start(
        client: Client,
        cluster: &Cluster,
        topic: &str,
        group: &str,
        index: usize,
        folder: &Path,
    ) -> Result<Self> {
        let bootstrap = cluster.bootstrap();
        let mut command = match client {
            Client::Librdkafka => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_taffrail-e2e-client"));
                command.args([
                    "member",
                    "--bootstrap",
                    &bootstrap,
                    "--topic",
                    topic,
                    "--group",
                    group,
                ]);
                command
            }
            Client::Java => {
                let mut command = java::console_consumer(&bootstrap, topic)?;
                command.args(["--group", group, "--from-beginning"]);
                for property in [
                    "session.timeout.ms=6000",
                    "heartbeat.interval.ms=1000",
                    "auto.commit.interval.ms=500",
                ] {
                    command.args(["--command-property", property]);
                }
                command
            }
            Client::Python => python::consumer(&bootstrap, topic, Some(group), 0)?,
        };
        let output = folder.join(format!("member-{index}.out"));
        let log = folder.join(format!("member-{index}.log"));
        let process =
            Process::spawn_printing(&format!("member {index}"), &mut command, &output, &log)?;
        Ok(Self { process, output })
    }

    fn printed_bytes(&self) -> u64 {
        fs::metadata(&self.output).map_or(0, |m| m.len())
    }

    /// kill -9; gives the file with what it had read.
    fn kill(mut self) -> Result<PathBuf> {
        self.process.kill()?;
        Ok(self.output)
    }
}

/// Checks each whole line of a member's output; the last one may be cut off by the kill, or still be on its way.
fn take(output: &Path, checker: &mut Checker<'_>) -> Result<()> {
    let printed = fs::read(output).with_context(|| format!("cannot read {}", output.display()))?;
    let whole = printed
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    for line in printed[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let (_, _, key, value) = java::parse_line(line)?;
        checker.in_any_order(key, value)?;
    }
    Ok(())
}
