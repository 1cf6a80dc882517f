//! AlterReplicaLogDirs: replicas of this broker move to other log directories of it (KIP-113). It is answered when the copying
//! has begun; DescribeLogDirs tells how far it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_log::LogDirectory;
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
    let wanted = wanted(request);
    let env = broker.env.clone();
    let results = env
        .run_blocking(move || {
            let mut results: BTreeMap<String, Vec<AlterReplicaLogDirPartitionResult>> =
                BTreeMap::new();
            for ((topic, partition_index), path) in wanted {
                let moved = if allowed {
                    let directory = broker.log_directory(&path);
                    directory.and_then(|to: LogDirectory<E::Disk>| {
                        broker.move_replica(&topic, partition_index, &to)
                    })
                } else {
                    Err(ErrorKind::ClusterAuthorizationFailed)
                };
                results
                    .entry(topic)
                    .or_default()
                    .push(AlterReplicaLogDirPartitionResult {
                        partition_index,
                        error_code: optional_code(moved.err()),
                    });
            }
            results
        })
        .await;
    AlterReplicaLogDirsResponse {
        throttle_time_ms: 0,
        results: results
            .into_iter()
            .map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult {
                topic_name,
                partitions,
            })
            .collect(),
    }
}

/// The directory of each replica. One that is named in several goes to the last.
fn wanted(request: AlterReplicaLogDirsRequest) -> BTreeMap<(String, i32), String> {
    let mut wanted = BTreeMap::new();
    for directory in request.dirs {
        for topic in directory.topics {
            for partition in topic.partitions {
                wanted.insert((topic.name.clone(), partition), directory.path.clone());
            }
        }
    }
    wanted
}
