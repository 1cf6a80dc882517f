//! Reads a topic from its start to its end when all is over, as a new consumer would.

use std::collections::BTreeMap;

use taffrail_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use taffrail_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};

use super::consumer::records_of;
use super::{Client, ClientEnv, Leader, PATIENCE, error_name};
use crate::history::PartitionName;

/// ListOffsets timestamps.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// Bytes of one answer.
const BYTES_MAX: i32 = 64 << 10;
/// Answers that may be without use: whoever leads may change once more.
const TRIES_MAX: u32 = 50;

/// What is in a partition.
#[derive(Debug)]
pub(crate) struct ReadBack {
    /// Where it starts.
    pub start: i64,
    /// All of its records, by offset.
    pub records: BTreeMap<i64, Vec<u8>>,
}

/// Reads every partition of the client's topic.
pub(crate) async fn read_back(env: ClientEnv) -> Result<BTreeMap<PartitionName, ReadBack>, String> {
    let mut reader = Reader {
        client: Client::new(env.clone()),
        failures: 0,
        env,
    };
    let mut found = BTreeMap::new();
    for partition in 0..reader.env.partitions {
        let start = reader.offset(partition, EARLIEST).await?;
        let end = reader.offset(partition, LATEST).await?;
        let mut next = start;
        let mut records = BTreeMap::new();
        while next < end {
            let more = reader.fetch(partition, next).await?;
            next = more.last().map_or(next, |(offset, _)| offset + 1);
            records.extend(more);
        }
        found.insert(reader.client.name(partition), ReadBack { start, records });
    }
    Ok(found)
}

struct Reader {
    client: Client,
    env: ClientEnv,
    failures: u32,
}

impl Reader {
    async fn leader(&mut self, partition: i32) -> Result<Leader, String> {
        loop {
            if let Some(leader) = self.client.leader(partition).await {
                return Ok(leader);
            }
            self.failed(partition, "nobody leads").await?;
        }
    }

    /// Counts what went wrong, and waits a little.
    async fn failed(&mut self, partition: i32, reason: &str) -> Result<(), String> {
        self.failures += 1;
        if self.failures > TRIES_MAX {
            return Err(format!("partition {partition}: {reason}"));
        }
        self.client.forget(partition);
        self.env.pause(300).await;
        Ok(())
    }

    async fn offset(&mut self, partition: i32, timestamp: i64) -> Result<i64, String> {
        loop {
            let leader = self.leader(partition).await?;
            let request = ListOffsetsRequest {
                topics: vec![ListOffsetsTopic {
                    name: self.env.topic.to_owned(),
                    partitions: vec![ListOffsetsPartition {
                        partition_index: partition,
                        current_leader_epoch: leader.epoch,
                        timestamp,
                    }],
                }],
                ..ListOffsetsRequest::default()
            };
            let called = self
                .client
                .call(&leader.address, &request, 7, PATIENCE)
                .await;
            let reason = match called {
                Ok((response, _)) => {
                    let topic = response.topics.first();
                    match topic.and_then(|topic| topic.partitions.first()) {
                        Some(answer) if answer.error_code == 0 => return Ok(answer.offset),
                        Some(answer) => error_name(answer.error_code),
                        None => "an empty answer".to_owned(),
                    }
                }
                Err(error) => error.to_string(),
            };
            self.failed(partition, &reason).await?;
        }
    }

    async fn fetch(&mut self, partition: i32, offset: i64) -> Result<Vec<(i64, Vec<u8>)>, String> {
        loop {
            let leader = self.leader(partition).await?;
            let request = FetchRequest {
                max_bytes: BYTES_MAX,
                topics: vec![FetchTopic {
                    topic_id: self.client.topic_id,
                    partitions: vec![FetchPartition {
                        partition,
                        current_leader_epoch: leader.epoch,
                        fetch_offset: offset,
                        partition_max_bytes: BYTES_MAX,
                        ..FetchPartition::default()
                    }],
                    ..FetchTopic::default()
                }],
                ..FetchRequest::default()
            };
            let called = self
                .client
                .call(&leader.address, &request, 16, PATIENCE)
                .await;
            let reason = match called {
                Ok((response, frame)) => {
                    let topic = response.responses.first();
                    match topic.and_then(|topic| topic.partitions.first()) {
                        Some(answer) if answer.error_code == 0 => {
                            let bytes = answer.records.bytes(&frame).unwrap_or_default();
                            let records = records_of(bytes, offset)?;
                            if !records.is_empty() {
                                return Ok(records);
                            }
                            "nothing before the end".to_owned()
                        }
                        Some(answer) => error_name(answer.error_code),
                        None => error_name(response.error_code),
                    }
                }
                Err(error) => error.to_string(),
            };
            self.failed(partition, &reason).await?;
        }
    }
}
