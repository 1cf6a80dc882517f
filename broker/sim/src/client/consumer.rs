//! A consumer that reads every partition in turn from where it stopped, now and then again from the start, and asks
//! where the partitions end.

use std::collections::BTreeMap;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use taffrail_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use taffrail_protocol::records::{BATCH_HEADER_LENGTH, Batches, RecordIter, crc_matches};

use super::{Client, ClientEnv, Leader, PATIENCE, is_transient};
use crate::history::{Event, PartitionName};

/// How long a broker may wait for records, in milliseconds.
const WAIT_MS: i32 = 300;
/// ListOffsets timestamp of the end.
const LATEST: i64 = -1;
/// Bytes of one answer: several batches, so that cuts within one occur.
const BYTES_MAX: i32 = 4096;

/// How far ahead of all leaders the epoch is that a question names now and then.
const EPOCHS_AHEAD: i32 = 1_000;

/// Longest pause between two questions.
const PAUSE_MS_MAX: u64 = 60;

struct Consumer {
    client: Client,
    env: ClientEnv,
    positions: BTreeMap<PartitionName, i64>,
}

/// Consumes until it is told to stop.
pub(crate) async fn consume(env: ClientEnv) {
    let mut consumer = Consumer {
        client: Client::new(env.clone()),
        env,
        positions: BTreeMap::new(),
    };
    while !consumer.env.is_stopping() {
        let partition = consumer.env.below(consumer.env.partitions as u64) as i32;
        if consumer.env.chance(1) {
            consumer.positions.clear();
        }
        let Some(leader) = consumer.client.leader(partition).await else {
            consumer.env.pause(200).await;
            continue;
        };
        let asks_end = !consumer.env.passing && consumer.env.chance(20);
        let succeeded = if asks_end {
            consumer.ask_end(partition, &leader).await
        } else {
            consumer.fetch(partition, &leader).await
        };
        if !succeeded {
            consumer.client.forget(partition);
            consumer.env.pause(150).await;
        }
        consumer.env.pause(PAUSE_MS_MAX).await;
    }
}

impl Consumer {
    async fn fetch(&mut self, partition: i32, leader: &Leader) -> bool {
        let name = self.client.name(partition);
        let position = self.positions.get(&name).copied().unwrap_or(0);
        let by_id = self.env.passing || self.env.chance(50);
        let version = if by_id { 16 } else { 12 };
        let asked = self.env.history.len();
        let request = FetchRequest {
            max_wait_ms: WAIT_MS,
            min_bytes: 1,
            max_bytes: BYTES_MAX,
            topics: vec![FetchTopic {
                topic: self.env.topic.to_owned(),
                topic_id: self.client.topic_id,
                partitions: vec![FetchPartition {
                    partition,
                    current_leader_epoch: leader.epoch,
                    fetch_offset: position,
                    partition_max_bytes: BYTES_MAX,
                    ..FetchPartition::default()
                }],
            }],
            ..FetchRequest::default()
        };
        let called = self
            .client
            .call(&leader.address, &request, version, PATIENCE);
        let Ok((response, frame)) = called.await else {
            return false;
        };
        let answer = (response.responses.first()).and_then(|topic| topic.partitions.first());
        let (0, Some(answer)) = (response.error_code, answer) else {
            let refused = !is_transient(response.error_code) && response.error_code != 0;
            if refused {
                self.env
                    .refused(format!("a fetch of {name}"), response.error_code);
            }
            return false;
        };
        if answer.error_code != 0 {
            if answer.error_code == ErrorCode::OffsetOutOfRange.code() {
                self.positions
                    .insert(name.clone(), answer.log_start_offset.max(0));
                self.env.history.push(Event::OutOfRange {
                    partition: name,
                    leader_epoch: leader.epoch,
                    log_start_offset: answer.log_start_offset,
                    position,
                });
            } else if !is_transient(answer.error_code) {
                self.env
                    .refused(format!("a fetch of {name}"), answer.error_code);
            }
            return false;
        }
        let bytes = answer.records.bytes(&frame).unwrap_or_default();
        let records = match records_of(bytes, position) {
            Ok(records) => records,
            Err(_) if self.env.rot => return false,
            Err(error) => {
                let what = format!("records of {name} from {position} on: {error}");
                let error = "unreadable".to_owned();
                self.env.history.push(Event::Refused { what, error });
                return false;
            }
        };
        if let Some((last, _)) = records.last() {
            self.positions.insert(name.clone(), last + 1);
        }
        self.env.history.push(Event::Fetched {
            partition: name,
            leader_epoch: leader.epoch,
            asked,
            position,
            high_watermark: answer.high_watermark,
            records,
        });
        true
    }

    async fn ask_end(&mut self, partition: i32, leader: &Leader) -> bool {
        let asked = self.env.history.len();
        let ahead = self.env.chance(10);
        let leader_epoch = leader.epoch + if ahead { EPOCHS_AHEAD } else { 0 };
        let request = ListOffsetsRequest {
            topics: vec![ListOffsetsTopic {
                name: self.env.topic.to_owned(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: partition,
                    current_leader_epoch: leader_epoch,
                    timestamp: LATEST,
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let called = self.client.call(&leader.address, &request, 7, PATIENCE);
        let Ok((response, _)) = called.await else {
            return false;
        };
        let answer = (response.topics.first()).and_then(|topic| topic.partitions.first());
        let Some(answer) = answer else { return false };
        if ahead {
            if answer.error_code == 0 {
                self.env.history.push(Event::Unfenced {
                    partition: self.client.name(partition),
                    leader_epoch,
                });
            }
            return answer.error_code == ErrorCode::UnknownLeaderEpoch.code();
        }
        if answer.error_code != 0 {
            if !is_transient(answer.error_code) {
                self.env
                    .refused(format!("the end of {partition}"), answer.error_code);
            }
            return false;
        }
        self.env.history.push(Event::EndOffset {
            partition: self.client.name(partition),
            leader_epoch: leader.epoch,
            asked,
            offset: answer.offset,
        });
        true
    }
}

/// Offsets and values from `position` on; a batch that is cut off at the end counts for nothing, as clients have it.
pub(super) fn records_of(bytes: &[u8], position: i64) -> Result<Vec<(i64, Vec<u8>)>, String> {
    let mut records = Vec::new();
    for batch in Batches::new(bytes) {
        let Ok((header, range)) = batch else { break };
        if !crc_matches(&bytes[range.clone()]) {
            return Err(format!(
                "the batch at offset {} is damaged",
                header.base_offset
            ));
        }
        let body = &bytes[range][BATCH_HEADER_LENGTH..];
        for record in RecordIter::new(&header, body) {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset >= position {
                records.push((record.offset, record.value.unwrap_or_default().to_vec()));
            }
        }
    }
    Ok(records)
}
