//! The clients: how each one's program is started, and one run of it.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use taffrail_e2e::process::{Process, tail};
use taffrail_e2e::tools::{java, repository};
use taffrail_e2e::wait::wait_for;

use crate::check::{self, Reader};
use crate::step::{Line, Outcome, STEPS, TOOLS};

/// A heap for programs that send some hundred records.
const HEAP: &[&str] = &["-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// The client that has steps of its own.
pub(crate) const TOOLS_ROW: &str = "Kafka's command-line tools 4.4";

/// One client of the matrix.
pub(crate) struct Client {
    pub(crate) name: &'static str,
    /// Who reads back what it left: a client that shares no code with it.
    reader: Reader,
    steps: Vec<&'static str>,
    command: Command,
}

/// What came of a client's run.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) outcomes: BTreeMap<&'static str, Outcome>,
    pub(crate) took: Duration,
}

impl Row {
    /// The outcomes that a green run may not have.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.outcomes
            .iter()
            .filter(|(step, outcome)| outcome.fails(step))
            .map(|(step, outcome)| (*step, outcome))
    }
}

/// Every client, ready to be run.
pub(crate) fn all() -> Result<Vec<Client>> {
    let here = repository().join("e2e/clients");
    let installed = repository().join(".tools/clients");
    let python = |script: &str| {
        let mut command = Command::new(installed.join("python/bin/python"));
        command.arg(here.join("python").join(script));
        command
    };
    let go = |name: &str| Command::new(installed.join("go").join(name));
    let shell = |script: &str| -> Result<Command> {
        let mut command = Command::new("bash");
        command.arg(here.join("shell").join(script));
        Ok(command)
    };
    let mut java_new = java(HEAP)?;
    java_new.arg(here.join("java/Client.java"));
    let mut node = Command::new("node");
    node.arg(here.join("node/client.js"))
        .env("NODE_PATH", installed.join("node/node_modules"));
    let list = [
        ("Java kafka-clients 4.4", Reader::Librdkafka, java_new),
        (
            "Java kafka-clients 3.9",
            Reader::Librdkafka,
            old_java(&installed, &here),
        ),
        (
            "confluent-kafka (librdkafka)",
            Reader::KafkaPython,
            python("confluent.py"),
        ),
        ("kcat (librdkafka)", Reader::KafkaPython, shell("kcat.sh")?),
        (
            "kafka-python",
            Reader::Librdkafka,
            python("kafka_python.py"),
        ),
        ("aiokafka", Reader::Librdkafka, python("aio.py")),
        ("franz-go", Reader::Librdkafka, go("franz")),
        ("sarama", Reader::Librdkafka, go("sarama")),
        ("segmentio kafka-go", Reader::Librdkafka, go("segmentio")),
        ("kafkajs", Reader::Librdkafka, node),
        (TOOLS_ROW, Reader::Librdkafka, shell("tools.sh")?),
    ];
    Ok(list
        .into_iter()
        .map(|(name, reader, command)| Client {
            name,
            reader,
            steps: if name == TOOLS_ROW {
                [&STEPS[..], &TOOLS[..]].concat()
            } else {
                STEPS.to_vec()
            },
            command,
        })
        .collect())
}

fn old_java(installed: &Path, here: &Path) -> Command {
    let program = env::var_os("JAVA_HOME").map_or_else(
        || PathBuf::from("java"),
        |home| PathBuf::from(home).join("bin/java"),
    );
    let mut command = Command::new(program);
    command
        .args(HEAP)
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
        .arg("-cp")
        .arg(format!("{}/*", installed.join("java-3.9").display()))
        .arg(here.join("java/Client.java"));
    command
}

impl Client {
    /// Runs the program and judges what it said and what it left.
    pub(crate) fn run(&self, bootstrap: &str, limit: Duration) -> Result<Row> {
        let prefix: String = self
            .name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let folder = tempfile::Builder::new()
            .prefix("taffrail-clients-")
            .tempdir()?;
        let (output, log) = (folder.path().join("output"), folder.path().join("log"));
        let mut command = Command::new(self.command.get_program());
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command
            .args(["--bootstrap", bootstrap, "--prefix", &prefix])
            .args(["--steps", &self.steps.join(",")])
            .env(
                "TAFFRAIL_KAFKA_LIBS",
                repository().join(".tools/kafka/libs"),
            )
            .current_dir(folder.path());
        let start = Instant::now();
        let mut process = Process::spawn_printing(self.name, &mut command, &output, &log)?;
        let ended = wait_for(self.name, limit, || process.ended());
        let took = start.elapsed();
        drop(process);
        let mut outcomes = said(&fs::read_to_string(&output).unwrap_or_default());
        let silence = match ended {
            Ok(status) => format!("the program ended ({status}) without a word of it"),
            Err(_) => format!("nothing within {} s", limit.as_secs()),
        };
        for step in self.steps.iter().copied() {
            outcomes
                .entry(step)
                .or_insert_with(|| Outcome::Failed(silence.clone()));
        }
        let row = Row {
            name: self.name,
            outcomes,
            took,
        };
        if row.failures().next().is_some() {
            eprintln!("---- {} ----\n{}", self.name, tail(&log, 60));
        }
        self.judge(bootstrap, &prefix, row)
    }

    /// A step that passed by the program's word fails if its traces say otherwise.
    fn judge(&self, bootstrap: &str, prefix: &str, mut row: Row) -> Result<Row> {
        let traces = check::Traces::new(bootstrap, prefix, self.reader)?;
        for (step, outcome) in &mut row.outcomes {
            if let Outcome::Passed(_) = outcome
                && let Err(error) = traces.check(step)
            {
                *outcome = Outcome::Failed(format!("read back by another client: {error:#}"));
            }
        }
        Ok(row)
    }
}

/// The outcomes in a program's output; lines that are none are the client's chatter.
fn said(output: &str) -> BTreeMap<&'static str, Outcome> {
    output
        .lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter_map(|line| {
            let mut known = STEPS.into_iter().chain(TOOLS);
            let step = known.find(|step| *step == line.step)?;
            Some((step, Outcome::from(line)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chatter_and_unknown_steps_are_no_outcomes() {
        let found = said(
            "hello\n{\"step\":\"produce\",\"ok\":true,\"detail\":\"none\"}\n{\"step\":\"dance\",\"ok\":true,\"detail\":\"\"}\n",
        );
        assert_eq!(
            found,
            BTreeMap::from([("produce", Outcome::Passed("none".into()))])
        );
    }
}
