//! Reading whole topics by `assign` through librdkafka.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::Offset;
use rdkafka::{ClientConfig, TopicPartitionList};

/// How long reading may stand still.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// A record as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Key; empty without one.
    pub key: &'a [u8],
    /// Value; empty without one.
    pub value: &'a [u8],
}

/// Reads every partition of `topic` from its start to the end it has when this is called, and gives the number of records.
pub fn read_all(bootstrap: &str, topic: &str, each: impl FnMut(Record<'_>)) -> Result<u64> {
    read_all_with(bootstrap, topic, &[], each)
}

/// The same with more settings of the consumer.
pub fn read_all_with(
    bootstrap: &str,
    topic: &str,
    settings: &[(&str, &str)],
    mut each: impl FnMut(Record<'_>),
) -> Result<u64> {
    let mut config = ClientConfig::new();
    for (name, value) in settings {
        config.set(*name, *value);
    }
    let consumer: BaseConsumer = config
        .set("bootstrap.servers", bootstrap)
        // Never joined and never committed to; librdkafka wants a name all the same.
        .set("group.id", "reads-by-assign")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true")
        .set("reconnect.backoff.max.ms", "500")
        .set("log_level", "0")
        .create()?;
    let metadata = consumer.fetch_metadata(Some(topic), IDLE_LIMIT)?;
    let partitions = metadata
        .topics()
        .first()
        .context("the topic is not in the answer")?
        .partitions()
        .len();
    let mut assignment = TopicPartitionList::new();
    // Records still to come, per partition, as the next offset and the end.
    let mut open = std::collections::BTreeMap::new();
    for partition in 0..i32::try_from(partitions)? {
        let (start, end) = consumer.fetch_watermarks(topic, partition, IDLE_LIMIT)?;
        assignment.add_partition_offset(topic, partition, Offset::Offset(start))?;
        if start < end {
            open.insert(partition, end);
        }
    }
    consumer.assign(&assignment)?;
    let mut count = 0;
    let mut progress = Instant::now();
    while !open.is_empty() {
        match consumer.poll(Duration::from_millis(200)) {
            Some(message) => {
                let message = message?;
                let (partition, offset) = (message.partition(), message.offset());
                each(Record {
                    partition,
                    offset,
                    key: message.key().unwrap_or_default(),
                    value: message.payload().unwrap_or_default(),
                });
                count += 1;
                progress = Instant::now();
                if open.get(&partition).is_some_and(|end| offset + 1 >= *end) {
                    open.remove(&partition);
                }
            }
            None if progress.elapsed() > IDLE_LIMIT => {
                bail!("reading {topic} stands still; still to come: {open:?}")
            }
            None => {}
        }
    }
    Ok(count)
}
