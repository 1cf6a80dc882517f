//! The answer of a Fetch: partitions by topic, the places where records will be, and the file ranges that go there.

use std::collections::BTreeMap;

use taffrail_core::fetch_session::{PartitionKey, TopicKey};
use taffrail_core::ids::{BrokerId, TopicId, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_log::{Disk, FileRange};
use taffrail_protocol::frame::encode_response;
use taffrail_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData,
};
use taffrail_protocol::{ErrorCode, Records, Uuid};

use crate::api::leader_hints::LeaderHints;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;
use crate::partition::ReadResult;
use crate::response::{Handled, Response, ResponseFile};

/// First version whose answer may name the leader's address (KIP-951).
const LEADER_HINT_VERSION: i16 = 16;

type Range<E> = FileRange<<<E as Env>::Disk as Disk>::File>;

/// The answer while it is put together: partitions by topic, and the file ranges that belong to them.
pub(super) struct FetchAnswer<E: Env> {
    context: RequestContext,
    topics: Vec<FetchableTopicResponse>,
    topic_indexes: BTreeMap<TopicKey, usize>,
    ranges: Vec<Vec<Option<Range<E>>>>,
    endpoints: Vec<NodeEndpoint>,
}

impl<E: Env> FetchAnswer<E> {
    pub(super) fn new(context: &RequestContext) -> Self {
        Self {
            context: context.clone(),
            topics: Vec::new(),
            topic_indexes: BTreeMap::new(),
            ranges: Vec::new(),
            endpoints: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, key: &PartitionKey, read: ReadResult<E>) {
        let index = match self.topic_indexes.get(&key.topic) {
            Some(index) => *index,
            None => {
                let mut topic = FetchableTopicResponse::default();
                match &key.topic {
                    TopicKey::Id(id) => topic.topic_id = Uuid(id.0),
                    TopicKey::Name(name) => topic.topic = name.to_string(),
                }
                self.topics.push(topic);
                self.ranges.push(Vec::new());
                self.topic_indexes
                    .insert(key.topic.clone(), self.topics.len() - 1);
                self.topics.len() - 1
            }
        };
        let mut data = PartitionData {
            partition_index: key.partition,
            error_code: read.error.map_or(ErrorCode::None, code_of).code(),
            high_watermark: read.high_watermark,
            last_stable_offset: read.last_stable_offset,
            log_start_offset: read.log_start_offset,
            preferred_read_replica: read.preferred_read_replica.map_or(-1, |id| id.0),
            // Never null: some clients cannot read that, also with an error (KAFKA-18646).
            records: Records::Hole(read.range.as_ref().map_or(0, |range| range.length)),
            ..PartitionData::default()
        };
        data.aborted_transactions = read.aborted.map(|aborted| {
            aborted
                .iter()
                .map(|aborted| AbortedTransaction {
                    producer_id: aborted.producer_id,
                    first_offset: aborted.first_offset,
                })
                .collect()
        });
        if let Some(diverging) = read.diverging {
            data.diverging_epoch = EpochEndOffset {
                epoch: diverging.epoch.0,
                end_offset: diverging.end_offset,
            };
        }
        self.topics[index].partitions.push(data);
        self.ranges[index].push(read.range);
    }

    /// Tells clients that came to the wrong broker where the leader is (KIP-951).
    pub(super) fn add_leader_hints(&mut self, image: &Image, me: BrokerId) {
        if self.context.version < LEADER_HINT_VERSION {
            return;
        }
        let mut hints = LeaderHints::default();
        for topic in &mut self.topics {
            let topic_id = TopicId(topic.topic_id.0);
            for partition in &mut topic.partitions {
                let id = TopicPartition::new(topic_id, partition.partition_index);
                let error = partition.error_code;
                let hint = if error == ErrorCode::NotLeaderOrFollower.code() {
                    hints.other_leader_of(image, id, me)
                } else if error == ErrorCode::FencedLeaderEpoch.code() {
                    // Whoever asks with an old epoch may have come to the right broker.
                    hints.leader_of(image, id)
                } else {
                    None
                };
                if let Some((leader, epoch)) = hint {
                    partition.current_leader = LeaderIdAndEpoch {
                        leader_id: leader.0,
                        leader_epoch: epoch.0,
                    };
                }
            }
        }
        let endpoints = hints.endpoints(image, &self.context.listener).into_iter();
        self.endpoints = endpoints
            .map(|found| NodeEndpoint {
                node_id: found.node_id,
                host: found.host,
                port: found.port,
                rack: found.rack,
            })
            .collect();
    }

    pub(super) fn encode(self, session_id: i32) -> Handled<E> {
        let response = FetchResponse {
            session_id,
            responses: self.topics,
            node_endpoints: self.endpoints,
            ..FetchResponse::default()
        };
        let context = &self.context;
        let writer = match encode_response(
            context.correlation_id,
            context.api,
            context.version,
            &response,
        ) {
            Ok(writer) => writer,
            Err(error) => return Handled::Close(format!("Fetch response: {error}")),
        };
        let ranges = self.ranges.into_iter().flatten().flatten();
        let holes = writer.holes.iter().filter(|hole| hole.length > 0);
        let files = holes
            .zip(ranges)
            .map(|(hole, range)| ResponseFile {
                position: hole.position,
                range,
            })
            .collect();
        Handled::Ready(Response {
            buffer: writer.buf,
            files,
        })
    }
}
