//! OffsetFetch: the offsets that a group committed; all of them, or those of some partitions, for one group or several.

mod answer;
mod certain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{Decision, FetchedTopic, WantedOffsets};
use taffrail_core::ids::TopicId;
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;
use taffrail_protocol::Uuid;
use taffrail_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use taffrail_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup,
};

use self::answer::{answered, old_topics, refused};
use self::certain::{Looked, Needed, Question, as_retriable};
use super::soon::shard_soon;
use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;

/// First version with several groups.
const BATCH_VERSION: i16 = 8;
/// First version that names topics by id.
const TOPIC_ID_VERSION: i16 = 10;
/// First version with an error of the whole.
const ERROR_VERSION: i16 = 2;

/// Groups, topics and partitions that one request may name. Kafka's largest clusters have a million partitions, and a group
/// asks for those that it reads. With the answer each takes some 150 bytes.
const NAMES_MAX: usize = 1_000_000;

/// What is wanted of a group: all, or some partitions of topics.
type Wanted = Option<Vec<WantedOffsets>>;

/// Handles an OffsetFetch request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let asked = Question::now(&broker);
    if context.version >= BATCH_VERSION {
        return OffsetFetchResponse {
            groups: fetch_groups(&broker, &context, asked, request.groups).await,
            ..OffsetFetchResponse::default()
        };
    }
    let topics = request.topics.iter().flatten();
    let named = topics.map(|topic| 1 + topic.partition_indexes.len());
    let too_many = named.sum::<usize>() > NAMES_MAX;
    let wanted: Wanted = request.topics.filter(|_| !too_many).map(|topics| {
        each_once(topics.into_iter().map(|topic| WantedOffsets {
            topic: topic.name,
            topic_id: TopicId::ZERO,
            partitions: topic.partition_indexes,
        }))
    });
    let fetched = if too_many {
        Err(ErrorKind::InvalidRequest)
    } else {
        fetch(
            &broker,
            &context,
            asked,
            &request.group_id,
            wanted.as_deref(),
        )
        .await
    };
    match fetched {
        Ok(topics) => OffsetFetchResponse {
            topics: old_topics(topics),
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

/// One group of a request with several.
struct AskedGroup<E: Env> {
    group_id: String,
    wanted: Wanted,
    /// Topics whose ids nobody knows.
    unknown: Vec<(Uuid, Vec<i32>)>,
    looked: Result<Looked<E>, ErrorKind>,
}

/// Looks for all groups, and has their proofs begin, before anything is waited for, so that a coordinator that has to wait holds up none
/// of the others.
async fn fetch_groups<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    asked: Question,
    groups: Vec<OffsetFetchRequestGroup>,
) -> Vec<OffsetFetchResponseGroup> {
    let image = broker.cluster.image();
    let by_id = context.version >= TOPIC_ID_VERSION;
    let too_many = names_in(&groups) > NAMES_MAX;
    let mut named = BTreeSet::new();
    let mut looked_for = Vec::with_capacity(groups.len());
    for group in groups {
        // What a group has may be large, and is told once.
        let (wanted, unknown, looked) = if too_many || !named.insert(group.group_id.clone()) {
            (None, Vec::new(), Err(ErrorKind::InvalidRequest))
        } else {
            let (wanted, unknown) = wanted_of(&image, by_id, group.topics);
            let group_id = &group.group_id;
            let looked = look(broker, context, asked.at, group_id, wanted.as_deref()).await;
            (wanted, unknown, looked)
        };
        looked_for.push(AskedGroup {
            group_id: group.group_id,
            wanted,
            unknown,
            looked,
        });
    }
    let begun = needed_by(&looked_for).begin(asked);
    for group in &mut looked_for {
        if matches!(&group.looked, Err(error) if may_begin(*error)) {
            let (group_id, wanted) = (&group.group_id, group.wanted.as_deref());
            group.looked = look(broker, context, asked.begins_by, group_id, wanted).await;
        }
    }
    let certain = needed_by(&looked_for).wait(broker, asked).await;
    drop(begun);
    let answer = |group: AskedGroup<E>| {
        let found = group.looked.and_then(|looked| {
            certain.of(&looked)?;
            Ok(looked.found.reply)
        });
        answered(&image, by_id, group.group_id, group.unknown, found)
    };
    looked_for.into_iter().map(answer).collect()
}

fn needed_by<E: Env>(groups: &[AskedGroup<E>]) -> Needed<E> {
    Needed::of(groups.iter().filter_map(|group| group.looked.as_ref().ok()))
}

/// Whether the coordinator may be about to begin.
fn may_begin(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::CoordinatorLoadInProgress | ErrorKind::NotCoordinator
    )
}

fn names_in(groups: &[OffsetFetchRequestGroup]) -> usize {
    let named = groups.iter().map(|group| {
        let topics = group.topics.iter().flatten();
        let named = topics.map(|topic| 1 + topic.partition_indexes.len());
        1 + named.sum::<usize>()
    });
    named.sum()
}

/// What a group asks for, by name, and the topics whose ids nobody knows.
fn wanted_of(
    image: &Image,
    by_id: bool,
    topics: Option<Vec<OffsetFetchRequestTopics>>,
) -> (Wanted, Vec<(Uuid, Vec<i32>)>) {
    let mut unknown = Vec::new();
    let wanted = topics.map(|topics| {
        let known = topics.into_iter().filter_map(|topic| {
            let partitions = topic.partition_indexes;
            if !by_id {
                return Some(WantedOffsets {
                    topic: topic.name,
                    topic_id: TopicId::ZERO,
                    partitions,
                });
            }
            let Some(found) = image.topic(TopicId(topic.topic_id.0)) else {
                unknown.push((topic.topic_id, partitions));
                return None;
            };
            Some(WantedOffsets {
                topic: found.name.clone(),
                topic_id: found.id,
                partitions,
            })
        });
        each_once(known)
    });
    (wanted, unknown)
}

/// Each topic, and each partition of it, once, in order: a request may name the same ones as often as it likes.
fn each_once(topics: impl Iterator<Item = WantedOffsets>) -> Vec<WantedOffsets> {
    let mut once: BTreeMap<String, (TopicId, BTreeSet<i32>)> = BTreeMap::new();
    for wanted in topics {
        let (_, partitions) = once
            .entry(wanted.topic)
            .or_insert_with(|| (wanted.topic_id, BTreeSet::new()));
        partitions.extend(wanted.partitions);
    }
    once.into_iter()
        .map(|(topic, (topic_id, partitions))| WantedOffsets {
            topic,
            topic_id,
            partitions: partitions.into_iter().collect(),
        })
        .collect()
}

/// The offsets of one group, once they are certain.
async fn fetch<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    asked: Question,
    group_id: &str,
    wanted: Option<&[WantedOffsets]>,
) -> Result<Vec<FetchedTopic>, ErrorKind> {
    let looked = look(broker, context, asked.begins_by, group_id, wanted).await?;
    let certain = Needed::of([&looked].into_iter()).wait(broker, asked).await;
    certain.of(&looked)?;
    Ok(looked.found.reply)
}

/// Looks what a group's coordinator has; one that is about to begin is waited for until `begins_by`.
async fn look<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    begins_by: Instant,
    group_id: &str,
    wanted: Option<&[WantedOffsets]>,
) -> Result<Looked<E>, ErrorKind> {
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), group_id)
    {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    let shard = shard_soon(broker, group_id, begins_by).await?;
    let found = shard.decide_quietly(broker, |turn| Decision {
        records: Vec::new(),
        reply: turn.coordinator.fetch_offsets(group_id, wanted),
    });
    let found = found.map_err(as_retriable)?;
    Ok(Looked { shard, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_and_partitions_are_looked_for_once() {
        let wanted = |topic: &str, partitions: &[i32]| WantedOffsets {
            topic: topic.to_owned(),
            topic_id: TopicId::ZERO,
            partitions: partitions.to_vec(),
        };
        let asked = [
            wanted("u", &[3, 3, 1]),
            wanted("t", &[-1]),
            wanted("u", &[1, 2]),
        ];
        let expected = [wanted("t", &[-1]), wanted("u", &[1, 2, 3])];
        assert_eq!(each_once(asked.into_iter()), expected);
    }
}
