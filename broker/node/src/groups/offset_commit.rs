//! OffsetCommit: how far a group has come, acknowledged when it is replicated.

use std::collections::VecDeque;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{CommitPartition, OffsetCommit};
use taffrail_core::ids::TopicId;
use taffrail_core::metadata::{Image, Topic};
use taffrail_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestTopic,
};
use taffrail_protocol::messages::offset_commit_response::{
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};

use super::soon::{begins_by, shard_soon};
use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::optional_code;

/// First version that names topics by id.
const TOPIC_ID_VERSION: i16 = 10;
/// First version whose clients know GROUP_ID_NOT_FOUND.
const GROUP_ID_NOT_FOUND_VERSION: i16 = 9;

/// Handles an OffsetCommit request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    mut request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let image = broker.cluster.image();
    let mut offsets = Vec::new();
    // For each partition of the request: refused here, or the next result of the coordinator.
    let mut refused = VecDeque::new();
    for topic in &mut request.topics {
        let found = find_topic(&image, context.version, topic);
        let name: Arc<str> = found.map_or_else(|_| "".into(), |found| found.name.as_str().into());
        for partition in &mut topic.partitions {
            let known = found.and_then(|found| {
                let index = usize::try_from(partition.partition_index)
                    .map_err(|_| ErrorKind::UnknownTopicOrPartition)?;
                found
                    .partitions
                    .get(index)
                    .map(|_| found)
                    .ok_or(ErrorKind::UnknownTopicOrPartition)
            });
            refused.push_back(known.err());
            if let Ok(found) = known {
                offsets.push(CommitPartition {
                    topic: Arc::clone(&name),
                    topic_id: found.id,
                    partition: partition.partition_index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.take(),
                });
            }
        }
    }
    let count = offsets.len();
    let committed = commit(&broker, &context, &request, offsets).await;
    let mut results: VecDeque<Option<ErrorKind>> = match committed {
        Ok(results) => results.into(),
        Err(error) => vec![Some(error); count].into(),
    };
    let mut next = || match refused.pop_front().flatten() {
        Some(error) => Some(error),
        None => results.pop_front().flatten(),
    };
    let topics = request
        .topics
        .iter()
        .map(|topic| OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| OffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: optional_code(next()),
                })
                .collect(),
        })
        .collect();
    OffsetCommitResponse {
        topics,
        ..OffsetCommitResponse::default()
    }
}

fn find_topic<'a>(
    image: &'a Image,
    version: i16,
    topic: &OffsetCommitRequestTopic,
) -> Result<&'a Topic, ErrorKind> {
    if version >= TOPIC_ID_VERSION {
        image
            .topic(TopicId(topic.topic_id.0))
            .ok_or(ErrorKind::UnknownTopicId)
    } else {
        image
            .topic_by_name(&topic.name)
            .ok_or(ErrorKind::UnknownTopicOrPartition)
    }
}

async fn commit<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: &OffsetCommitRequest,
    offsets: Vec<CommitPartition>,
) -> Result<Vec<Option<ErrorKind>>, ErrorKind> {
    if !broker.authorizer.allows(
        &context.principal,
        access_of(context.api),
        &request.group_id,
    ) {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    let shard = shard_soon(broker, &request.group_id, begins_by(broker)).await?;
    let commit = OffsetCommit {
        group_id: request.group_id.as_str().into(),
        generation: request.generation_id_or_member_epoch,
        member_id: request.member_id.clone(),
        group_instance_id: request.group_instance_id.clone(),
        retention_time_ms: (request.retention_time_ms >= 0).then_some(request.retention_time_ms),
        knows_group_id_not_found: context.version >= GROUP_ID_NOT_FOUND_VERSION,
        offsets,
    };
    let reply = shard.decide(broker, |turn| {
        turn.coordinator
            .handle_offset_commit(turn.now, turn.wall_ms, &commit)
    })?;
    shard.committed(broker, reply).await
}
