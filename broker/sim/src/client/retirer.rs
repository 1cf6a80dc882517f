//! Somebody who moves all replicas away from a broker that is to leave, as often as new ones come to it.

use std::time::Duration;

use taffrail_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use taffrail_protocol::messages::metadata_request::MetadataRequest;

use super::{Client, ClientEnv, PATIENCE};
use crate::faults::Leaving;

/// Every partition has so many.
const REPLICAS: usize = 3;
/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(700);

/// Moves replicas until it is told to stop.
pub(crate) async fn retire(env: ClientEnv, leaving: Leaving) {
    let mut client = Client::new(env.clone());
    while !env.is_stopping() {
        if let Some(broker) = leaving.broker() {
            move_away(&mut client, broker as i32).await;
        }
        env.executor.sleep(PAUSE).await;
    }
}

/// What does not succeed is tried again at the next look.
async fn move_away(client: &mut Client, leaving: i32) {
    let request = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    let Ok((response, _)) = client.call_any(&request, 12, PATIENCE).await else {
        return;
    };
    let brokers: Vec<i32> = (response.brokers.iter())
        .map(|broker| broker.node_id)
        .filter(|broker| *broker != leaving)
        .collect();
    let mut topics = Vec::new();
    for topic in &response.topics {
        let mut partitions = Vec::new();
        for partition in &topic.partitions {
            if !partition.replica_nodes.contains(&leaving) {
                continue;
            }
            let mut replicas = partition.replica_nodes.clone();
            replicas.retain(|broker| *broker != leaving);
            replicas.truncate(REPLICAS);
            let mut others = brokers.clone();
            others.retain(|broker| !replicas.contains(broker));
            while replicas.len() < REPLICAS && !others.is_empty() {
                let index = client.env.below(others.len() as u64) as usize;
                replicas.push(others.swap_remove(index));
            }
            if replicas.len() == REPLICAS {
                partitions.push(ReassignablePartition {
                    partition_index: partition.partition_index,
                    replicas: Some(replicas),
                });
            }
        }
        if let Some(name) = topic.name.clone()
            && !partitions.is_empty()
        {
            topics.push(ReassignableTopic { name, partitions });
        }
    }
    if topics.is_empty() {
        return;
    }
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: 3_000,
        topics,
        ..AlterPartitionReassignmentsRequest::default()
    };
    let answer = client.call_any(&request, 1, PATIENCE).await;
    tracing::debug!(leaving, moved = ?answer.map(|(response, _)| response), "moves replicas away");
}
