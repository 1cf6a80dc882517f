//! DescribeTopicPartitions: partitions with their eligible leaders, in pages (KIP-966).

use std::sync::Arc;

use taffrail_core::metadata::{Image, Partition, Topic};
use taffrail_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use taffrail_protocol::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};
use taffrail_protocol::{ErrorCode, Uuid};

use super::topics::{self, TOPIC_OPERATIONS};
use crate::broker::Broker;
use crate::cluster::endpoints::{ids, offline_replicas};
use crate::dispatch::RequestContext;
use crate::env::Env;

/// Answers one page.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let limit = request
        .response_partition_limit
        .min(broker.config.max_request_partition_size_limit)
        .max(1);
    let image = broker.cluster.image();
    let may_describe = |name: &str| topics::may_describe(broker, &context.principal, name);
    page(&image, request, limit, may_describe)
}

/// The topics asked for, all if none, by name from the cursor on, up to `limit` partitions.
fn page(
    image: &Image,
    request: DescribeTopicPartitionsRequest,
    limit: i32,
    may_describe: impl Fn(&str) -> bool,
) -> DescribeTopicPartitionsResponse {
    let all = request.topics.is_empty();
    let mut names: Vec<String> = if all {
        let names = image.topics_by_name().map(|topic| topic.name.clone());
        names.filter(|name| may_describe(name)).collect()
    } else {
        request.topics.into_iter().map(|topic| topic.name).collect()
    };
    names.sort_unstable();
    names.dedup();
    let (from_topic, from_partition) = request.cursor.map_or((String::new(), 0), |cursor| {
        (cursor.topic_name, cursor.partition_index.max(0))
    });
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut left = usize::try_from(limit).unwrap_or(1);
    for name in names.into_iter().filter(|name| *name >= from_topic) {
        if left == 0 {
            response.next_cursor = Some(Cursor {
                topic_name: name,
                partition_index: 0,
            });
            break;
        }
        if !may_describe(&name) {
            response
                .topics
                .push(failed(name, ErrorCode::TopicAuthorizationFailed));
            continue;
        }
        let Some(topic) = image.topic_by_name(&name) else {
            let legal = topics::is_legal(&name);
            let code = if legal {
                ErrorCode::UnknownTopicOrPartition
            } else {
                ErrorCode::InvalidTopicException
            };
            response.topics.push(failed(name, code));
            continue;
        };
        let first = if name == from_topic {
            usize::try_from(from_partition).unwrap_or(0)
        } else {
            0
        };
        let end = topic.partitions.len().min(first.saturating_add(left));
        left -= end.saturating_sub(first);
        response
            .topics
            .push(described(image, topic, first..end.max(first)));
        if end < topic.partitions.len() {
            let partition_index = i32::try_from(end).unwrap_or(i32::MAX);
            response.next_cursor = Some(Cursor {
                topic_name: name,
                partition_index,
            });
            break;
        }
    }
    response
}

fn failed(name: String, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: code.code(),
        is_internal: topics::is_internal(&name),
        name: Some(name),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn described(
    image: &Image,
    topic: &Topic,
    range: std::ops::Range<usize>,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = (0..)
        .zip(&topic.partitions)
        .skip(range.start)
        .take(range.len());
    DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(topic.name.clone()),
        topic_id: Uuid(topic.id.0),
        is_internal: topics::is_internal(&topic.name),
        partitions: partitions
            .map(|(index, state)| partition(image, index, state))
            .collect(),
        topic_authorized_operations: TOPIC_OPERATIONS,
    }
}

fn partition(
    image: &Image,
    index: i32,
    state: &Partition,
) -> DescribeTopicPartitionsResponsePartition {
    let error = if state.leader.is_some() {
        ErrorCode::None
    } else {
        ErrorCode::LeaderNotAvailable
    };
    DescribeTopicPartitionsResponsePartition {
        error_code: error.code(),
        partition_index: index,
        leader_id: state.leader.map_or(-1, |leader| leader.0),
        leader_epoch: state.leader_epoch.0,
        replica_nodes: ids(&state.replicas),
        isr_nodes: ids(&state.isr),
        eligible_leader_replicas: Some(ids(&state.elr)),
        last_known_elr: Some(
            state
                .last_known_leader
                .iter()
                .map(|leader| leader.0)
                .collect(),
        ),
        offline_replicas: offline_replicas(image, state),
    }
}

#[cfg(test)]
mod tests {
    use taffrail_core::ids::{BrokerId, TopicId};
    use taffrail_core::metadata::Record;
    use taffrail_protocol::messages::describe_topic_partitions_request::{
        Cursor as RequestCursor, TopicRequest,
    };

    use super::*;

    fn image() -> Image {
        let mut image = Image::default();
        for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
            let topic_id = TopicId([id; 16]);
            image.apply(&Record::Topic {
                topic_id,
                name: name.into(),
            });
            for partition in 0..3 {
                let state = Partition {
                    replicas: vec![BrokerId(1)],
                    ..Partition::default()
                };
                image.apply(&Record::Partition {
                    topic_id,
                    partition,
                    state,
                });
            }
        }
        image
    }

    fn check(
        asked: &[&str],
        cursor: Option<(&str, i32)>,
        limit: i32,
        expected: &[&str],
        next: Option<(&str, i32)>,
    ) {
        let topics = asked
            .iter()
            .map(|name| TopicRequest {
                name: (*name).into(),
            })
            .collect();
        let cursor = cursor.map(|(name, index)| RequestCursor {
            topic_name: name.into(),
            partition_index: index,
        });
        let request = DescribeTopicPartitionsRequest {
            topics,
            cursor,
            response_partition_limit: limit,
        };
        let response = page(&image(), request, limit, |_| true);
        let found: Vec<String> = response
            .topics
            .iter()
            .map(|topic| {
                let indexes: String = topic
                    .partitions
                    .iter()
                    .map(|p| p.partition_index.to_string())
                    .collect();
                format!("{}{indexes}", topic.name.as_deref().unwrap_or("?"))
            })
            .collect();
        assert_eq!(found, expected);
        let cursor = response
            .next_cursor
            .map(|cursor| (cursor.topic_name, cursor.partition_index));
        assert_eq!(
            cursor.as_ref().map(|(name, index)| (name.as_str(), *index)),
            next
        );
    }

    #[test]
    fn pages_follow_each_other_by_cursor() {
        check(&[], None, 100, &["a012", "b012", "c012"], None);
        check(&[], None, 4, &["a012", "b0"], Some(("b", 1)));
        check(&[], Some(("b", 1)), 4, &["b12", "c01"], Some(("c", 2)));
        check(&[], Some(("c", 2)), 4, &["c2"], None);
        check(&[], None, 3, &["a012"], Some(("b", 0)));
    }

    #[test]
    fn topics_are_sorted_and_unknown_ones_are_told() {
        check(
            &["c", "a", "x", "a"],
            None,
            100,
            &["a012", "c012", "x"],
            None,
        );
        check(&["b"], Some(("b", 7)), 100, &["b"], None);
    }
}
