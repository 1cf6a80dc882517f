//! DescribeQuorum: who keeps the metadata, and how far each voter is (KIP-595). Only the leader knows.

use std::mem::replace;
use std::sync::Arc;

use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::{Image, VoterIntent};
use taffrail_core::raft::VoterProgress;
use taffrail_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use taffrail_protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse};

use taffrail_protocol::{ErrorCode, Uuid};

use super::topics;
use crate::broker::Broker;
use crate::cluster::{QuorumProgress, Undecided};
use crate::dispatch::RequestContext;
use crate::env::Env;

/// The name by which Kafka's tools ask for the metadata log.
const METADATA_TOPIC: &str = "__cluster_metadata";
/// The request names no timeout.
const TIMEOUT_MS: i32 = 5_000;

/// Asks the active controller.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    let deadline = topics::deadline(&broker, TIMEOUT_MS);
    match broker
        .cluster
        .call_controller(&context, &request, deadline)
        .await
    {
        Ok(answer) => answer,
        Err(error) => DescribeQuorumResponse {
            error_code: error.code().code(),
            error_message: Some(error.to_string()),
            ..DescribeQuorumResponse::default()
        },
    }
}

/// What the leader of the quorum answers. Versions before 2 cannot name the nodes.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    version: i16,
    request: DescribeQuorumRequest,
) -> Result<DescribeQuorumResponse, Undecided> {
    let progress = broker.cluster.quorum_progress().await?;
    let mut told = false;
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            let is_metadata = topic.topic_name == METADATA_TOPIC && partition.partition_index == 0;
            // Once is enough, however often it is asked for.
            if is_metadata && !replace(&mut told, true) {
                described(&broker, version, &progress)
            } else {
                PartitionData {
                    partition_index: partition.partition_index,
                    error_code: ErrorCode::UnknownTopicOrPartition.code(),
                    ..PartitionData::default()
                }
            }
        });
        TopicData {
            partitions: partitions.collect(),
            topic_name: topic.topic_name,
        }
    });
    Ok(DescribeQuorumResponse {
        topics: topics.collect(),
        nodes: if version >= 2 {
            nodes(&broker)
        } else {
            Vec::new()
        },
        ..DescribeQuorumResponse::default()
    })
}

fn described<E: Env>(broker: &Broker<E>, version: i16, progress: &QuorumProgress) -> PartitionData {
    let offset = |index: u64| i64::try_from(index).unwrap_or(i64::MAX);
    let now = broker.env.wall_ms();
    let image = broker.cluster.image();
    let replica = |voter: &VoterProgress| ReplicaState {
        replica_id: voter.voter.0,
        replica_directory_id: if version >= 2 {
            directory(&image, voter.voter)
        } else {
            Uuid::ZERO
        },
        // Raft indexes are inclusive, Kafka's end offset is the next one.
        log_end_offset: offset(voter.matched + 1),
        last_fetch_timestamp: if voter.recently_active { now } else { -1 },
        last_caught_up_timestamp: if voter.matched >= progress.commit_index {
            now
        } else {
            -1
        },
    };
    let (voters, learners): (Vec<_>, Vec<_>) =
        progress.voters.iter().partition(|progress| progress.votes);
    PartitionData {
        leader_id: broker.id.0,
        leader_epoch: i32::try_from(progress.term).unwrap_or(i32::MAX),
        high_watermark: offset(progress.commit_index + 1),
        current_voters: voters.into_iter().map(replica).collect(),
        observers: learners.into_iter().map(replica).collect(),
        ..PartitionData::default()
    }
}

/// The directory that is recorded for a voter, or with which a learner was asked for.
fn directory(image: &Image, voter: BrokerId) -> Uuid {
    let recorded = match (image.voter(voter), image.voter_intent(voter)) {
        (Some(voter), _) => voter.directory,
        (None, Some(VoterIntent::Invited { directory, .. })) => directory,
        (None, Some(VoterIntent::Removed { .. }) | None) => None,
    };
    recorded.map_or(Uuid::ZERO, |directory| Uuid(directory.0))
}

fn nodes<E: Env>(broker: &Broker<E>) -> Vec<Node> {
    let image = broker.cluster.image();
    let name = &broker.config.inter_broker_listener_name;
    let node = |id: &taffrail_core::ids::BrokerId| {
        let listener = image.listener(*id, name);
        let listeners = listener.map(|listener| Listener {
            name: listener.name.clone(),
            host: listener.host.clone(),
            port: listener.port,
        });
        Node {
            node_id: id.0,
            listeners: listeners.into_iter().collect(),
        }
    };
    broker.cluster.voters().iter().map(node).collect()
}
