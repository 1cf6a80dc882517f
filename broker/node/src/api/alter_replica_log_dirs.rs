//! AlterReplicaLogDirs: replicas of this broker move to other log directories of it (KIP-113). It is answered when the copying
//! has begun; DescribeLogDirs tells how far it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_protocol::messages::alter_replica_log_dirs_request::AlterReplicaLogDirsRequest;
use taffrail_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsResponse,
};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::optional_code;

/// Handles an AlterReplicaLogDirs request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let access = access_of(context.api);
    let allowed = broker.authorizer.allows(&context.principal, access, "");
    let env = broker.env.clone();
    let results = env
        .run_blocking(move || {
            let directories: Vec<_> = request
                .dirs
                .iter()
                .map(|directory| {
                    if allowed {
                        broker.log_directory(&directory.path)
                    } else {
                        Err(ErrorKind::ClusterAuthorizationFailed)
                    }
                })
                .collect();
            let moved = |topic: &str, partition_index: i32, directory: usize| {
                let to = directories[directory].as_ref().map_err(|error| *error);
                let moved = to.and_then(|to| broker.move_replica(topic, partition_index, to));
                AlterReplicaLogDirPartitionResult {
                    partition_index,
                    error_code: optional_code(moved.err()),
                }
            };
            let topics = wanted(&request).into_iter();
            topics
                .map(|(topic, partitions)| AlterReplicaLogDirTopicResult {
                    partitions: partitions
                        .into_iter()
                        .map(|(partition, directory)| moved(topic, partition, directory))
                        .collect(),
                    topic_name: topic.to_owned(),
                })
                .collect()
        })
        .await;
    AlterReplicaLogDirsResponse {
        throttle_time_ms: 0,
        results,
    }
}

/// The directory of each replica, by its index in the request. A replica that is named in several goes to the last.
fn wanted(request: &AlterReplicaLogDirsRequest) -> BTreeMap<&str, BTreeMap<i32, usize>> {
    let mut wanted: BTreeMap<&str, BTreeMap<i32, usize>> = BTreeMap::new();
    for (index, directory) in request.dirs.iter().enumerate() {
        for topic in &directory.topics {
            let partitions = topic.partitions.iter().map(|partition| (*partition, index));
            wanted.entry(&topic.name).or_default().extend(partitions);
        }
    }
    wanted
}
