//! OffsetDelete: committed offsets of partitions go, unless members are subscribed to the topic.

use std::collections::VecDeque;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::OffsetDelete;
use taffrail_core::metadata::Image;
use taffrail_protocol::messages::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestTopic,
};
use taffrail_protocol::messages::offset_delete_response::{
    OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

use crate::access::{Operation, access_of};
use crate::api::topics;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::{code_of, optional_code};

/// Handles an OffsetDelete request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let image = broker.cluster.image();
    let may_read = |name: &str| topics::allows(&broker, &context.principal, Operation::Read, name);
    // For each partition of the request: refused here, or the next result of the coordinator.
    let mut refused = VecDeque::new();
    let mut wanted = Vec::new();
    for topic in &request.topics {
        let errors = check(&image, may_read(&topic.name), topic);
        let known = topic.partitions.iter().zip(&errors);
        let known = known.filter(|(_, error)| error.is_none());
        let known: Vec<i32> = known
            .map(|(partition, _)| partition.partition_index)
            .collect();
        wanted.push((topic.name.clone(), known));
        refused.extend(errors);
    }
    match delete(&broker, &context, &request.group_id, wanted).await {
        Ok(results) => OffsetDeleteResponse {
            topics: told(request.topics, refused, results.into()),
            ..OffsetDeleteResponse::default()
        },
        Err(error) => OffsetDeleteResponse {
            error_code: code_of(error).code(),
            ..OffsetDeleteResponse::default()
        },
    }
}

/// For each partition of a topic whether it is refused.
fn check(
    image: &Image,
    may_read: bool,
    topic: &OffsetDeleteRequestTopic,
) -> Vec<Option<ErrorKind>> {
    let found = image.topic_by_name(&topic.name);
    let count = found.map_or(0, |found| found.partitions.len());
    let refusal = |index: i32| match usize::try_from(index) {
        _ if !may_read => Some(ErrorKind::TopicAuthorizationFailed),
        Ok(index) if index < count => None,
        Ok(_) | Err(_) => Some(ErrorKind::UnknownTopicOrPartition),
    };
    let indexes = topic
        .partitions
        .iter()
        .map(|partition| partition.partition_index);
    indexes.map(refusal).collect()
}

async fn delete<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    group_id: &str,
    topics: Vec<(String, Vec<i32>)>,
) -> Result<Vec<Option<ErrorKind>>, ErrorKind> {
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), group_id)
    {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    let shard = broker.groups.shard_of(&broker.cluster.image(), group_id)?;
    let request = OffsetDelete {
        group_id: group_id.to_owned(),
        topics,
    };
    let reply = shard.decide(broker, |turn| {
        turn.coordinator.handle_offset_delete(&request)
    })?;
    shard.committed(broker, reply).await?
}

fn told(
    topics: Vec<OffsetDeleteRequestTopic>,
    mut refused: VecDeque<Option<ErrorKind>>,
    mut results: VecDeque<Option<ErrorKind>>,
) -> Vec<OffsetDeleteResponseTopic> {
    let mut next = || match refused.pop_front().flatten() {
        Some(error) => Some(error),
        None => results.pop_front().flatten(),
    };
    let mut topic_told = |topic: OffsetDeleteRequestTopic| OffsetDeleteResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetDeleteResponsePartition {
                partition_index: partition.partition_index,
                error_code: optional_code(next()),
            })
            .collect(),
    };
    topics.into_iter().map(&mut topic_told).collect()
}
