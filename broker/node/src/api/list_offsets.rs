//! ListOffsets: offsets by timestamp or by name (earliest, latest, largest timestamp).

use std::collections::BTreeSet;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::{LeaderEpoch, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_log::OffsetSpec;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest};
use taffrail_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};

use crate::access::access_of;
use crate::broker::Broker;
use crate::connection::ListenerKind;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;
use crate::partition::{Fetcher, Isolation};

/// First version that tells the leader epoch of what was found.
const LEADER_EPOCH_VERSION: i16 = 4;
/// First version whose clients know OFFSET_NOT_AVAILABLE.
const OFFSET_NOT_AVAILABLE_VERSION: i16 = 5;
/// The `replica_id` of a debugging consumer that may see up to the log end (Kafka's `DEBUGGING_CONSUMER_ID`).
const DEBUGGING_CONSUMER: i32 = -2;

/// Handles a ListOffsets request. A partition that is named more than once is refused, as in Kafka: each lookup may cost the
/// reading of batches.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let image = broker.cluster.image();
    let sees_all = context.kind == ListenerKind::Internal && request.replica_id >= 0
        || request.replica_id == DEBUGGING_CONSUMER;
    let isolation = Isolation::from_wire(request.isolation_level);
    let repeated = repeated(&request);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let asked = Asked {
                image: &image,
                topic: &topic.name,
                partition,
                sees_all,
                isolation,
            };
            let found = if repeated.contains(&(topic.name.as_str(), partition.partition_index)) {
                Err(ErrorKind::InvalidRequest)
            } else {
                find(&broker, &context, &asked).await
            };
            partitions.push(answer(&context, partition.partition_index, found));
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions,
        });
    }
    ListOffsetsResponse {
        topics,
        ..ListOffsetsResponse::default()
    }
}

/// The partitions that a request names more than once.
fn repeated(request: &ListOffsetsRequest) -> BTreeSet<(&str, i32)> {
    let mut seen = BTreeSet::new();
    let named = request.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| (topic.name.as_str(), partition.partition_index))
    });
    named.filter(|partition| !seen.insert(*partition)).collect()
}

struct Asked<'a> {
    image: &'a Image,
    topic: &'a str,
    partition: &'a ListOffsetsPartition,
    sees_all: bool,
    isolation: Isolation,
}

/// Timestamp, offset and leader epoch, -1 each where there is none.
type Found = (i64, i64, i32);

fn answer(
    context: &RequestContext,
    partition_index: i32,
    found: Result<Found, ErrorKind>,
) -> ListOffsetsPartitionResponse {
    match found {
        Ok((timestamp, offset, leader_epoch)) => ListOffsetsPartitionResponse {
            partition_index,
            error_code: ErrorCode::None.code(),
            timestamp,
            offset,
            leader_epoch: if context.version >= LEADER_EPOCH_VERSION {
                leader_epoch
            } else {
                -1
            },
        },
        Err(error) => {
            let error = match error {
                ErrorKind::OffsetNotAvailable if context.version < OFFSET_NOT_AVAILABLE_VERSION => {
                    ErrorKind::LeaderNotAvailable
                }
                other => other,
            };
            ListOffsetsPartitionResponse {
                partition_index,
                error_code: code_of(error).code(),
                timestamp: -1,
                offset: -1,
                leader_epoch: -1,
            }
        }
    }
}

async fn find<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    asked: &Asked<'_>,
) -> Result<Found, ErrorKind> {
    let topic = asked
        .image
        .topic_by_name(asked.topic)
        .ok_or(ErrorKind::UnknownTopicOrPartition)?;
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), asked.topic)
    {
        return Err(ErrorKind::TopicAuthorizationFailed);
    }
    let id = TopicPartition::new(topic.id, asked.partition.partition_index);
    asked
        .image
        .partition(id)
        .ok_or(ErrorKind::UnknownTopicOrPartition)?;
    let partition = broker.partition(id).ok_or(ErrorKind::NotLeaderOrFollower)?;
    let spec =
        OffsetSpec::from_wire(asked.partition.timestamp).ok_or(ErrorKind::UnsupportedVersion)?;
    let fetcher = if asked.sees_all {
        Fetcher::Follower {
            broker: broker.id,
            broker_epoch: None,
        }
    } else {
        Fetcher::Consumer(asked.isolation)
    };
    let wire_epoch = asked.partition.current_leader_epoch;
    let expected = (wire_epoch >= 0).then_some(LeaderEpoch(wire_epoch));
    let lookup = partition.offset_for(&broker.env, &broker.searches, spec, fetcher, expected);
    let (found, leader_epoch) = lookup.await?;
    Ok(match found {
        Some(found) => (found.timestamp, found.offset, leader_epoch.0),
        None => (-1, -1, -1),
    })
}
