//! A Cluster's brokers, as their clients in a pod see them.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::admin::Partition;
use crate::kubernetes::client::Client;
use crate::kubernetes::kinds::CLUSTER;
use crate::kubernetes::load::PodLoad;
use crate::kubernetes::namespace::{LOOK_EVERY, Namespace};
use crate::text::Text;
use crate::wait::wait_for_every;

/// Key and value as kcat prints and reads them.
const FORMAT: &str = "%k\t%s\n";

/// The brokers of the Cluster `demo` in a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Kafka<'a> {
    namespace: &'a Namespace,
    client: &'a Client,
}

impl<'a> Kafka<'a> {
    /// Nothing is sent before the first call.
    pub fn of(namespace: &'a Namespace, client: &'a Client) -> Self {
        Self { namespace, client }
    }

    /// Where clients inside of Kubernetes start.
    pub fn bootstrap(&self) -> String {
        format!(
            "{CLUSTER}-bootstrap.{}.svc.cluster.local:9092",
            self.namespace.name()
        )
    }

    /// kcat with these words on these brokers.
    pub fn kcat(&self, words: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let bootstrap = self.bootstrap();
        let mut all = vec!["-b", &bootstrap];
        all.extend(words);
        self.client.kcat(&all, input)
    }

    /// What `kcat -L` says, as JSON.
    pub fn metadata(&self) -> Result<Value> {
        Ok(serde_json::from_slice(
            &self.kcat(&["-L", "-J", "-m", "10"], &[])?,
        )?)
    }

    /// The names of all topics.
    pub fn topics(&self) -> Result<Vec<String>> {
        let metadata = self.metadata()?;
        let topics = metadata["topics"].as_array().into_iter().flatten();
        Ok(topics
            .filter_map(|topic| topic["topic"].as_str().map(str::to_owned))
            .collect())
    }

    /// A topic's partitions in order.
    pub fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        let metadata = self.metadata()?;
        let topics = metadata["topics"].as_array();
        let found = topics
            .into_iter()
            .flatten()
            .find(|found| found["topic"] == topic)
            .with_context(|| format!("there is no topic {topic}"))?;
        let partitions = found["partitions"]
            .as_array()
            .context("a topic without partitions")?;
        let mut partitions = partitions
            .iter()
            .map(partition)
            .collect::<Result<Vec<Partition>>>()?;
        partitions.sort_by_key(|partition| partition.partition);
        Ok(partitions)
    }

    /// Waits until `topic` has that many partitions, each with a leader and that many replicas in sync.
    pub fn wait_in_sync(
        &self,
        topic: &str,
        partitions: usize,
        in_sync: usize,
        limit: Duration,
    ) -> Result<Vec<Partition>> {
        wait_for_every(
            LOOK_EVERY,
            &format!("{partitions} partitions of {topic} with {in_sync} replicas in sync"),
            limit,
            || {
                let found = self.partitions(topic)?;
                let ready = found.len() == partitions
                    && found
                        .iter()
                        .all(|p| p.leader >= 0 && p.isr.len() == in_sync);
                if ready {
                    Ok(Some(found))
                } else {
                    Err(anyhow!("{found:?}"))
                }
            },
        )
    }

    /// Produces lines `from..to` of a text with acks=all.
    pub fn produce(&self, topic: &str, text: &Text, from: usize, to: usize) -> Result<()> {
        self.kcat(&produce_words(topic), &text.keyed(from, to))?;
        Ok(())
    }

    /// Fails unless the topic holds exactly the first `count` lines of a text.
    pub fn must_hold(&self, topic: &str, text: &Text, count: usize) -> Result<()> {
        let read = self.kcat(&consume_words(topic), &[])?;
        must_be(text, count, &read)
    }

    /// Starts a steady load that accounts for every record; each may wait `limit` for its acknowledgement.
    pub fn load(&self, topic: &str, partitions: usize, limit: Duration) -> Result<PodLoad> {
        let mut command = self.client.program();
        command
            .args(["load", "--bootstrap", &self.bootstrap(), "--topic", topic])
            .args(["--partitions", &partitions.to_string()])
            .args(["--limit", &limit.as_secs().to_string()]);
        PodLoad::start(command)
    }
}

/// The words with which kcat produces `key TAB line` from standard input, acknowledged by all.
pub fn produce_words(topic: &str) -> Vec<&str> {
    vec![
        "-P",
        "-t",
        topic,
        "-K",
        "\t",
        "-X",
        "acks=all",
        "-X",
        "enable.idempotence=true",
    ]
}

/// The words with which kcat reads a topic from its start to its end.
pub fn consume_words(topic: &str) -> Vec<&str> {
    vec![
        "-C",
        "-q",
        "-e",
        "-t",
        topic,
        "-o",
        "beginning",
        "-f",
        FORMAT,
    ]
}

/// Fails unless what a consumer printed is exactly the first `count` lines, each once, in any order of partitions.
pub fn must_be(text: &Text, count: usize, read: &[u8]) -> Result<()> {
    let mut lines: Vec<&[u8]> = read.split_inclusive(|byte| *byte == b'\n').collect();
    // The key leads each line, in eight digits.
    lines.sort_unstable();
    let expected = text.keyed(0, count);
    let mut wanted = expected.split_inclusive(|byte| *byte == b'\n');
    for (n, line) in lines.iter().enumerate() {
        let wanted = wanted.next().unwrap_or_default();
        ensure!(
            *line == wanted,
            "of {} lines read, line {n} is {:?} and not {:?}",
            lines.len(),
            String::from_utf8_lossy(line),
            String::from_utf8_lossy(wanted)
        );
    }
    ensure!(
        lines.len() == count,
        "{} lines were read and not {count}",
        lines.len()
    );
    Ok(())
}

fn partition(found: &Value) -> Result<Partition> {
    let id = |value: &Value| -> Result<i32> {
        let id = value.as_i64().with_context(|| format!("{found}"))?;
        Ok(i32::try_from(id)?)
    };
    let ids = |value: &Value| -> Result<Vec<i32>> {
        let list = value.as_array().with_context(|| format!("{found}"))?;
        list.iter().map(|replica| id(&replica["id"])).collect()
    };
    let mut isr = ids(&found["isrs"])?;
    isr.sort_unstable();
    Ok(Partition {
        partition: id(&found["partition"])?,
        leader: id(&found["leader"])?,
        replicas: ids(&found["replicas"])?,
        isr,
    })
}
