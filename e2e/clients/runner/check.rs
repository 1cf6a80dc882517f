//! What a client's steps left in the cluster, looked at by another client.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, TopicPartitionList};
use taffrail_e2e::admin::Admin;
use taffrail_e2e::java::parse_line;
use taffrail_e2e::python;
use taffrail_e2e::read::read_all;
use taffrail_e2e::tools::repository;

/// Partitions of the data topic, and the records in it after all steps.
const PARTITIONS: i32 = 3;
const RECORDS: usize = 300;
const MORE: usize = 30;
/// The keys go round.
const KEYS: usize = 30;
/// What the step "configs" sets.
const RETENTION: &str = "7654321";
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Who reads data back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// For clients that are not librdkafka.
    Librdkafka,
    /// For those that are.
    KafkaPython,
}

/// One client's topics and group.
pub(crate) struct Traces<'a> {
    bootstrap: &'a str,
    prefix: &'a str,
    reader: Reader,
    admin: Admin,
}

impl<'a> Traces<'a> {
    pub(crate) fn new(bootstrap: &'a str, prefix: &'a str, reader: Reader) -> Result<Self> {
        Ok(Self {
            bootstrap,
            prefix,
            reader,
            admin: Admin::connect(bootstrap)?,
        })
    }

    /// Whether a step that passed left what it should. Every step has run by then.
    pub(crate) fn check(&self, step: &str) -> Result<()> {
        match step {
            "create" => self.created(),
            "produce" => self.produced(),
            "resume" => self.committed(),
            "configs" => self.configured(),
            "partitions" => self.partitions(&self.topic("admin"), 4),
            "delete-records" => self.records_deleted(),
            "delete-topic" => self.topic_deleted(),
            _ => Ok(()),
        }
    }

    fn created(&self) -> Result<()> {
        self.partitions(&self.topic("data"), usize::try_from(PARTITIONS)?)
    }

    fn partitions(&self, topic: &str, count: usize) -> Result<()> {
        let found = self.admin.partitions(topic)?;
        ensure!(
            found.len() == count,
            "{} partitions, not {count}",
            found.len()
        );
        ensure!(
            found.iter().all(|partition| partition.replicas.len() == 3),
            "not three replicas each: {found:?}"
        );
        Ok(())
    }

    /// Each record once, with its key, and those of a partition in the order in which they were sent.
    fn produced(&self) -> Result<()> {
        let mut found: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        let mut take = |partition: i32, key: &[u8], value: &[u8]| -> Result<()> {
            let number: usize = std::str::from_utf8(value)?
                .trim_start_matches('v')
                .parse()
                .context("a value that nobody sent")?;
            let expected = format!("k{}", number % KEYS);
            ensure!(key == expected.as_bytes(), "v{number} has another key");
            found.entry(partition).or_default().push(number);
            Ok(())
        };
        let topic = self.topic("data");
        match self.reader {
            Reader::Librdkafka => {
                let mut result = Ok(());
                read_all(self.bootstrap, &topic, |record| {
                    if result.is_ok() {
                        result = take(record.partition, record.key, record.value);
                    }
                })?;
                result?;
            }
            Reader::KafkaPython => {
                let total: i64 = self.ends()?.values().sum();
                let plain =
                    python::consumer(self.bootstrap, &topic, None, usize::try_from(total)?)?;
                // The environment of the matrix has every codec.
                let python = repository().join(".tools/clients/python/bin/python");
                let mut command = Command::new(python);
                command.args(plain.get_args());
                let output = python::output(command, "kafka-python")?;
                let lines = output.split(|byte| *byte == b'\n');
                for line in lines.filter(|line| !line.is_empty()) {
                    let (partition, _, key, value) = parse_line(line)?;
                    take(partition, key, value)?;
                }
            }
        }
        for (partition, numbers) in &found {
            ensure!(
                numbers.is_sorted_by(|a, b| a < b),
                "partition {partition} is not in the order of its records"
            );
        }
        let mut all: Vec<usize> = found.into_values().flatten().collect();
        all.sort_unstable();
        // What the step "resume" sent is judged by that step.
        all.retain(|number| *number < RECORDS);
        ensure!(
            all.iter().copied().eq(0..RECORDS),
            "{} records, not {RECORDS}, each once",
            all.len()
        );
        Ok(())
    }

    /// The group has committed the end of each partition, with what "resume" sent.
    fn committed(&self) -> Result<()> {
        let consumer = self.consumer()?;
        let mut places = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            places.add_partition(&self.topic("data"), partition);
        }
        let committed = consumer.committed_offsets(places, REQUEST_LIMIT)?;
        let ends = self.ends()?;
        for place in committed.elements() {
            let (partition, offset) = (place.partition(), place.offset().to_raw());
            let end = ends.get(&partition).copied();
            ensure!(
                offset == end,
                "partition {partition} is committed at {offset:?}, its end is {end:?}"
            );
        }
        let total: i64 = ends.values().sum();
        let expected = i64::try_from(RECORDS + MORE)?;
        ensure!(total == expected, "{total} records, not {expected}");
        Ok(())
    }

    /// The end of each partition of the data topic.
    fn ends(&self) -> Result<BTreeMap<i32, i64>> {
        let consumer = self.consumer()?;
        (0..PARTITIONS)
            .map(|partition| {
                let (_, end) =
                    consumer.fetch_watermarks(&self.topic("data"), partition, REQUEST_LIMIT)?;
                Ok((partition, end))
            })
            .collect()
    }

    /// A consumer that never joins the group it is named after.
    fn consumer(&self) -> Result<BaseConsumer> {
        Ok(ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap)
            .set("group.id", self.topic("group"))
            .set("log_level", "0")
            .create()?)
    }

    fn configured(&self) -> Result<()> {
        let value = self
            .admin
            .topic_config(&self.topic("admin"), "retention.ms")?
            .context("there is no retention.ms")?;
        ensure!(value == RETENTION, "retention.ms is {value}");
        Ok(())
    }

    fn records_deleted(&self) -> Result<()> {
        let consumer = self.consumer()?;
        let (start, end) = consumer.fetch_watermarks(&self.topic("admin"), 0, REQUEST_LIMIT)?;
        ensure!(
            (start, end) == (5, 20),
            "offsets {start} to {end}, not 5 to 20"
        );
        Ok(())
    }

    fn topic_deleted(&self) -> Result<()> {
        let topics = self.admin.topics()?;
        ensure!(!topics.contains(&self.topic("gone")), "it is still there");
        Ok(())
    }

    fn topic(&self, role: &str) -> String {
        format!("{}-{role}", self.prefix)
    }
}
