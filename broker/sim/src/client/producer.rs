//! A producer with acks=all that sends one batch at a time to each partition and repeats it until it is acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::Records;
use taffrail_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use taffrail_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use taffrail_protocol::records::RecordBatchBuilder;

use super::{Client, ClientEnv, PATIENCE, is_transient};
use crate::history::{Event, PartitionName};

/// How long a broker may wait for replicas.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// Most records of a batch, and most bytes that fill a record up.
const RECORDS_MAX: u64 = 4;
const FILLING_MAX: u64 = 900;
/// Records of every batch, and bytes of every record, where all are alike.
const UNIFORM_RECORDS: u64 = 2;
const UNIFORM_BYTES: usize = 300;
/// How many of a hundred requests arrive twice.
const REPEATS_PERCENT: u64 = 10;
/// How often a batch is sent to a topic that comes and goes.
const PASSING_TRIES_MAX: u32 = 3;

/// Who produces and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producing {
    /// Tells the producers of a simulation apart.
    pub number: u32,
    /// Whether it numbers what it sends, so that brokers recognise what they have.
    pub idempotent: bool,
    /// Whether all batches are of the same size.
    pub uniform: bool,
    /// Longest pause between two batches, in milliseconds.
    pub pause_ms_max: u64,
}

struct Producer {
    client: Client,
    env: ClientEnv,
    producing: Producing,
    /// Producer id and epoch.
    id: Option<(i64, i16)>,
    sequences: BTreeMap<i32, i32>,
    sent: u64,
}

/// Produces until it is told to stop; the last batch is still brought home, unless its topic comes and goes.
pub(crate) async fn produce(env: ClientEnv, producing: Producing) {
    let mut producer = Producer {
        client: Client::new(env.clone()),
        env,
        producing,
        id: None,
        sequences: BTreeMap::new(),
        sent: 0,
    };
    while !producer.env.is_stopping() {
        if producing.idempotent && producer.id.is_none() {
            producer.ask_for_id().await;
            continue;
        }
        let partition = producer.env.below(producer.env.partitions as u64) as i32;
        if !producer.send(partition).await {
            return;
        }
        producer.env.pause(producing.pause_ms_max).await;
    }
}

impl Producer {
    async fn ask_for_id(&mut self) {
        let request = InitProducerIdRequest {
            transactional_id: None,
            ..InitProducerIdRequest::default()
        };
        match self.client.call_any(&request, 4, PATIENCE).await {
            Ok((response, _)) if response.error_code == 0 => {
                self.id = Some((response.producer_id, response.producer_epoch));
            }
            Ok((response, _)) if !is_transient(response.error_code) => {
                self.env.refused(
                    format!("{} a producer id", self.name()),
                    response.error_code,
                );
                self.env.pause(1000).await;
            }
            Ok(_) | Err(_) => self.env.pause(200).await,
        }
    }

    fn name(&self) -> String {
        format!("producer {}", self.producing.number)
    }

    /// Sends one batch until it is acknowledged; false if that can never be.
    async fn send(&mut self, partition: i32) -> bool {
        let uniform = self.producing.uniform;
        let count = if uniform {
            UNIFORM_RECORDS
        } else {
            1 + self.env.below(RECORDS_MAX)
        };
        let mut values = Vec::new();
        for _ in 0..count {
            let text = format!("{}-{partition}-{};", self.producing.number, self.sent);
            let mut value = text.into_bytes();
            let length = if uniform {
                UNIFORM_BYTES
            } else {
                value.len() + self.env.below(FILLING_MAX) as usize
            };
            value.resize(length, b'x');
            values.push(value);
            self.sent += 1;
        }
        let sequence = *self.sequences.entry(partition).or_insert(0);
        let batch = self.batch(sequence, &values);
        for tries in 1.. {
            let answer = self.try_send(partition, &batch).await;
            match answer {
                Ok((name, offset)) => {
                    self.sequences.insert(partition, sequence + count as i32);
                    self.env.history.push(Event::Acknowledged {
                        producer: self.producing.number,
                        idempotent: self.producing.idempotent,
                        partition: name,
                        offset,
                        values,
                    });
                    return true;
                }
                Err(None) => {}
                Err(Some(code)) if is_transient(code) => {}
                Err(Some(code)) => {
                    let what = format!("{} a batch for partition {partition}", self.name());
                    self.env.refused(what, code);
                    return false;
                }
            }
            self.client.forget(partition);
            if self.env.passing && tries >= PASSING_TRIES_MAX {
                return true;
            }
            self.env.pause(150).await;
        }
        true
    }

    fn batch(&self, sequence: i32, values: &[Vec<u8>]) -> Vec<u8> {
        let wall_ms = 1_700_000_000_000 + (self.env.executor.now().0 / 1_000_000) as i64;
        let mut builder = RecordBatchBuilder::new(0, wall_ms);
        if let Some((id, epoch)) = self.id {
            builder = builder.producer(id, epoch, sequence);
        }
        for value in values {
            builder.push(None, Some(value), &[]);
        }
        builder.build()
    }

    /// Where it went and the base offset; or the error code; or nothing if there was no answer.
    async fn try_send(
        &mut self,
        partition: i32,
        batch: &[u8],
    ) -> Result<(PartitionName, i64), Option<i16>> {
        let leader = self.client.leader(partition).await.ok_or(None)?;
        let name = self.client.name(partition);
        let by_id = self.env.passing || self.env.chance(50);
        let version = if by_id { 13 } else { 9 };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: TIMEOUT.as_millis() as i32,
            topic_data: vec![TopicProduceData {
                name: self.env.topic.to_owned(),
                topic_id: self.client.topic_id,
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: Records::Inline(batch.to_vec()),
                }],
            }],
            ..ProduceRequest::default()
        };
        if self.env.repeats && self.env.chance(REPEATS_PERCENT) {
            self.client.repeat(&leader.address, &request, version);
        }
        let called = self
            .client
            .call(&leader.address, &request, version, PATIENCE);
        let (response, _) = called.await.map_err(|_| None)?;
        let answer = (response.responses.first())
            .and_then(|topic| topic.partition_responses.first())
            .ok_or(Some(ErrorCode::UnknownServerError.code()))?;
        match answer.error_code {
            0 => Ok((name, answer.base_offset)),
            code => Err(Some(code)),
        }
    }
}
