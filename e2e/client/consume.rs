//! Reads a topic by `assign` from its start, once or several times, and measures from the first record of a pass to its last.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::Offset;
use serde_json::json;

use crate::Target;

/// Nothing for this long is an error.
const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// The `consume` command.
#[derive(clap::Args)]
pub(crate) struct Consume {
    #[command(flatten)]
    target: Target,
    /// How many partitions the topic has.
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// How many records to read.
    #[arg(long)]
    count: u64,
    /// How many times to read them.
    #[arg(long, default_value_t = 1)]
    passes: u64,
}

impl Consume {
    /// Prints messages, bytes and seconds.
    pub(crate) fn run(&self) -> Result<()> {
        let consumer: BaseConsumer = self
            .target
            .config()
            .set("group.id", "bench-reads-by-assign")
            .set("enable.auto.commit", "false")
            .set("queued.min.messages", "1000000")
            .create()?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..self.partitions {
            assignment.add_partition_offset(&self.target.topic, partition, Offset::Beginning)?;
        }
        let (mut count, mut bytes, mut taken) = (0u64, 0u64, Duration::ZERO);
        for pass in 1..=self.passes {
            consumer.assign(&assignment)?;
            let first = consumer.poll(IDLE_LIMIT).context("no first record")??;
            bytes += first.payload_len() as u64;
            count += 1;
            drop(first);
            let start = Instant::now();
            while count < self.count * pass {
                let Some(message) = consumer.poll(IDLE_LIMIT) else {
                    bail!("only {count} of {} records came", self.count * pass)
                };
                bytes += message?.payload_len() as u64;
                count += 1;
            }
            taken += start.elapsed();
        }
        println!(
            "{}",
            json!({ "messages": count, "bytes": bytes, "seconds": taken.as_secs_f64() })
        );
        Ok(())
    }
}
