//! DescribeLogDirs: the log directories of this broker, what is in them and how much room is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::describe_log_dirs_request::{
    DescribableLogDirTopic, DescribeLogDirsRequest,
};
use taffrail_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// Handles a DescribeLogDirs request.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), "")
    {
        return DescribeLogDirsResponse {
            error_code: ErrorCode::ClusterAuthorizationFailed.code(),
            ..DescribeLogDirsResponse::default()
        };
    }
    let asked = request.topics.as_deref().map(by_topic);
    let wanted = |topic: &str, partition: i32| {
        let asked = asked.as_ref();
        asked.is_none_or(|asked| asked.get(topic).is_some_and(|of| of.contains(&partition)))
    };
    let mut by_directory: BTreeMap<_, BTreeMap<String, Vec<DescribeLogDirsPartition>>> =
        BTreeMap::new();
    for partition in broker.partitions() {
        if !wanted(&partition.topic, partition.id.partition) {
            continue;
        }
        let Some((path, size)) = partition.placement() else {
            continue;
        };
        let lag = partition.numbers(broker.env.now()).map_or(0, |numbers| {
            (numbers.high_watermark - numbers.log_end_offset).max(0)
        });
        by_directory
            .entry(path)
            .or_default()
            .entry(partition.topic.to_string())
            .or_default()
            .push(entry(partition.id.partition, size, lag, false));
        if let Some(copy) = partition.copy_numbers() {
            by_directory
                .entry(copy.directory)
                .or_default()
                .entry(partition.topic.to_string())
                .or_default()
                .push(entry(partition.id.partition, copy.size, copy.lag, true));
        }
    }
    let unusable = broker.replication.unusable_directories().iter();
    let unusable = unusable.map(|directory| DescribeLogDirsResult {
        error_code: ErrorCode::KafkaStorageError.code(),
        log_dir: directory.path.clone(),
        ..DescribeLogDirsResult::default()
    });
    let results = broker
        .replication
        .directories()
        .iter()
        .map(|directory| {
            let log_dir = directory.path().display().to_string();
            if directory.offline().is_some() {
                let error_code = ErrorCode::KafkaStorageError.code();
                return DescribeLogDirsResult {
                    error_code,
                    log_dir,
                    ..DescribeLogDirsResult::default()
                };
            }
            let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            let space = directory.space().ok();
            DescribeLogDirsResult {
                log_dir,
                topics: by_directory
                    .remove(directory.path())
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(name, partitions)| DescribeLogDirsTopic { name, partitions })
                    .collect(),
                total_bytes: space.map_or(-1, |space| bytes(space.total)),
                usable_bytes: space.map_or(-1, |space| bytes(space.usable)),
                ..DescribeLogDirsResult::default()
            }
        })
        .chain(unusable)
        .collect();
    DescribeLogDirsResponse {
        results,
        ..DescribeLogDirsResponse::default()
    }
}

/// The partitions that are asked for, of whatever topic; replicas are many, and so may these be.
fn by_topic(topics: &[DescribableLogDirTopic]) -> BTreeMap<&str, BTreeSet<i32>> {
    let mut asked: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for topic in topics {
        asked
            .entry(&topic.topic)
            .or_default()
            .extend(&topic.partitions);
    }
    asked
}

fn entry(
    partition: i32,
    size: u64,
    offset_lag: i64,
    is_future_key: bool,
) -> DescribeLogDirsPartition {
    DescribeLogDirsPartition {
        partition_index: partition,
        partition_size: i64::try_from(size).unwrap_or(i64::MAX),
        offset_lag,
        is_future_key,
    }
}
