//! Reads a topic by `assign` from its start and measures from the first record to the last.

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
        consumer.assign(&assignment)?;
        let queue = consumer.poll(IDLE_LIMIT).context("no first record")??;
        let (mut count, mut bytes) = (1u64, queue.payload_len() as u64);
        drop(queue);
        let start = Instant::now();
        while count < self.count {
            let Some(message) = consumer.poll(IDLE_LIMIT) else {
                bail!("only {count} of {} records came", self.count)
            };
            bytes += message?.payload_len() as u64;
            count += 1;
        }
        println!(
            "{}",
            json!({ "messages": count, "bytes": bytes, "seconds": start.elapsed().as_secs_f64() })
        );
        Ok(())
    }
}
