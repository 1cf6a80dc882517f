//! OffsetFetch: the offsets that a group committed; all of them, or those of some partitions, for one group or several.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{Decision, FetchedOffset, WantedOffsets};
use taffrail_core::ids::TopicId;
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;
use taffrail_protocol::Uuid;
use taffrail_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup,
};
use taffrail_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::{code_of, optional_code};

/// First version with several groups.
const BATCH_VERSION: i16 = 8;
/// First version that names topics by id.
const TOPIC_ID_VERSION: i16 = 10;
/// First version with an error of the whole.
const ERROR_VERSION: i16 = 2;

/// What is wanted of a group: all, or some partitions of topics.
type Wanted = Option<Vec<WantedOffsets>>;

/// When a request came, and when it is answered at the latest: the same for all of its groups, so that what proves something for
/// one group proves it for the next, and a broker that is silent holds them up once.
#[derive(Clone, Copy)]
struct Question {
    at: Instant,
    deadline: Instant,
}

impl Question {
    fn now<E: Env>(broker: &Broker<E>) -> Self {
        let at = broker.env.now();
        Self {
            at,
            deadline: at + broker.groups.commit_timeout,
        }
    }
}

/// Handles an OffsetFetch request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let asked = Question::now(&broker);
    if context.version >= BATCH_VERSION {
        let mut groups = Vec::with_capacity(request.groups.len());
        for group in request.groups {
            groups.push(fetch_group(&broker, &context, asked, group).await);
        }
        return OffsetFetchResponse {
            groups,
            ..OffsetFetchResponse::default()
        };
    }
    let wanted: Wanted = request.topics.map(|topics| {
        topics
            .into_iter()
            .map(|topic| WantedOffsets {
                topic: topic.name,
                topic_id: TopicId::ZERO,
                partitions: topic.partition_indexes,
            })
            .collect()
    });
    let group_id = &request.group_id;
    match fetch(&broker, &context, asked, group_id, wanted.as_deref()).await {
        Ok(offsets) => OffsetFetchResponse {
            topics: old_topics(offsets),
            ..OffsetFetchResponse::default()
        },
        Err(error) => {
            // Before there was an error of the whole, every partition carried it.
            let topics = if context.version < ERROR_VERSION {
                refused(wanted.unwrap_or_default(), error)
            } else {
                Vec::new()
            };
            OffsetFetchResponse {
                topics,
                error_code: code_of(error).code(),
                ..OffsetFetchResponse::default()
            }
        }
    }
}

async fn fetch_group<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    asked: Question,
    group: OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    let image = broker.cluster.image();
    let by_id = context.version >= TOPIC_ID_VERSION;
    let mut unknown = Vec::new();
    let wanted: Wanted = group.topics.map(|topics| {
        let mut known = Vec::new();
        for topic in topics {
            if !by_id {
                known.push(WantedOffsets {
                    topic: topic.name,
                    topic_id: TopicId::ZERO,
                    partitions: topic.partition_indexes,
                });
                continue;
            }
            match image.topic(TopicId(topic.topic_id.0)) {
                Some(found) => known.push(WantedOffsets {
                    topic: found.name.clone(),
                    topic_id: found.id,
                    partitions: topic.partition_indexes,
                }),
                None => unknown.push((topic.topic_id, topic.partition_indexes)),
            }
        }
        known
    });
    let group_id = &group.group_id;
    let (offsets, error) = match fetch(broker, context, asked, group_id, wanted.as_deref()).await {
        Ok(offsets) => (offsets, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut topics = new_topics(offsets, &image, by_id);
    if error.is_none() {
        topics.extend(
            unknown
                .into_iter()
                .map(|(topic_id, partitions)| unknown_topic(topic_id, partitions)),
        );
    }
    OffsetFetchResponseGroup {
        group_id: group.group_id,
        topics,
        error_code: optional_code(error),
    }
}

async fn fetch<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    asked: Question,
    group_id: &str,
    wanted: Option<&[WantedOffsets]>,
) -> Result<Vec<FetchedOffset>, ErrorKind> {
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), group_id)
    {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    let shard = broker
        .groups
        .shard_of_any(&broker.cluster.image(), group_id)?;
    let answer = async {
        // A reply may speak of a commit that is not replicated yet, so it waits like any other.
        let reply = shard.decide_quietly(broker, |turn| Decision {
            records: Vec::new(),
            reply: turn.coordinator.fetch_offsets(group_id, wanted),
        })?;
        let offsets = shard.committed_by(broker, reply, asked.deadline).await?;
        shard
            .coordinated_until(broker, asked.at, asked.deadline)
            .await?;
        Ok(offsets)
    };
    answer.await.map_err(as_retriable)
}

/// An error that clients try again after. Java's do so for two errors of this API, and COORDINATOR_NOT_AVAILABLE is not one of
/// them: it ends the consumer.
fn as_retriable(error: ErrorKind) -> ErrorKind {
    match error {
        ErrorKind::CoordinatorNotAvailable => ErrorKind::NotCoordinator,
        other => other,
    }
}

fn by_topic(offsets: Vec<FetchedOffset>) -> BTreeMap<String, Vec<FetchedOffset>> {
    let mut topics: BTreeMap<String, Vec<FetchedOffset>> = BTreeMap::new();
    for offset in offsets {
        topics.entry(offset.topic.clone()).or_default().push(offset);
    }
    topics
}

fn old_topics(offsets: Vec<FetchedOffset>) -> Vec<OffsetFetchResponseTopic> {
    let topics = by_topic(offsets).into_iter();
    topics
        .map(|(name, offsets)| OffsetFetchResponseTopic {
            name,
            partitions: offsets
                .into_iter()
                .map(|offset| OffsetFetchResponsePartition {
                    partition_index: offset.partition,
                    committed_offset: offset.offset,
                    committed_leader_epoch: offset.leader_epoch,
                    metadata: Some(offset.metadata),
                    error_code: 0,
                })
                .collect(),
        })
        .collect()
}

fn refused(wanted: Vec<WantedOffsets>, error: ErrorKind) -> Vec<OffsetFetchResponseTopic> {
    let error_code = code_of(error).code();
    let partition = |partition_index| OffsetFetchResponsePartition {
        partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code,
    };
    wanted
        .into_iter()
        .map(|wanted| OffsetFetchResponseTopic {
            name: wanted.topic,
            partitions: wanted.partitions.into_iter().map(partition).collect(),
        })
        .collect()
}

fn new_topics(
    offsets: Vec<FetchedOffset>,
    image: &Image,
    by_id: bool,
) -> Vec<OffsetFetchResponseTopics> {
    let topics = by_topic(offsets).into_iter();
    topics
        // A topic that is gone has no id that could be told.
        .filter(|(name, _)| !by_id || image.topic_by_name(name).is_some())
        .map(|(name, offsets)| OffsetFetchResponseTopics {
            topic_id: image
                .topic_by_name(&name)
                .map_or(Uuid::default(), |topic| Uuid(topic.id.0)),
            name,
            partitions: offsets
                .into_iter()
                .map(|offset| OffsetFetchResponsePartitions {
                    partition_index: offset.partition,
                    committed_offset: offset.offset,
                    committed_leader_epoch: offset.leader_epoch,
                    metadata: Some(offset.metadata),
                    error_code: 0,
                })
                .collect(),
        })
        .collect()
}

fn unknown_topic(topic_id: Uuid, partitions: Vec<i32>) -> OffsetFetchResponseTopics {
    let error_code = code_of(ErrorKind::UnknownTopicId).code();
    let partition = |partition_index| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code,
    };
    OffsetFetchResponseTopics {
        topic_id,
        partitions: partitions.into_iter().map(partition).collect(),
        ..OffsetFetchResponseTopics::default()
    }
}
