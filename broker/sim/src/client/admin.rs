//! Somebody who administrates: makes a topic, gives it more partitions, deletes it, makes it again under the same name;
//! moves the replicas of the other topic to other brokers and back; asks for preferred leaders.
//! What is refused is tried another time: brokers may be away, and another answer may still be under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use taffrail_protocol::messages::create_partitions_request::{
    CreatePartitionsRequest, CreatePartitionsTopic,
};
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use taffrail_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use taffrail_protocol::messages::elect_leaders_request::ElectLeadersRequest;

use super::{Client, ClientEnv};
use crate::faults::Leaving;

/// How long the brokers may take, and how long the client waits.
const TIMEOUT_MS: i32 = 3_000;
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest pause between two wishes.
const PAUSE_MS_MAX: u64 = 2_500;
/// The most partitions that the passing topic gets.
pub(crate) const PASSING_PARTITIONS_MAX: u64 = 3;

/// What is administrated.
#[derive(Clone)]
pub(crate) struct Administration {
    /// The topic that comes and goes.
    pub passing: &'static str,
    /// Its least replication factor; the most is 3.
    pub replication_min: u64,
    /// How many brokers there may be to move replicas to.
    pub brokers: u32,
    /// Who gets no more replicas.
    pub leaving: Leaving,
    /// Whether to come to an end.
    pub stopping: Arc<AtomicBool>,
}

/// Administrates until it is told to stop.
pub(crate) async fn administrate(env: ClientEnv, administration: Administration) {
    let mut admin = Admin {
        client: Client::new(env.clone()),
        env,
        administration,
    };
    while !admin.administration.stopping.load(Ordering::Relaxed) {
        let code = match admin.env.below(10) {
            0..3 => admin.create().await,
            3..5 => admin.delete().await,
            5 => admin.add_partitions().await,
            6..9 => admin.move_replicas().await,
            _ => admin.elect_preferred().await,
        };
        if code == Some(ErrorCode::UnknownServerError.code()) {
            admin.env.refused("the administrator".to_owned(), -1);
        }
        admin.env.pause(PAUSE_MS_MAX).await;
    }
}

struct Admin {
    client: Client,
    env: ClientEnv,
    administration: Administration,
}

impl Admin {
    async fn create(&mut self) -> Option<i16> {
        let spread = 4 - self.administration.replication_min;
        let replicas = self.administration.replication_min + self.env.below(spread);
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: self.administration.passing.to_owned(),
                num_partitions: 1 + self.env.below(PASSING_PARTITIONS_MAX) as i32,
                replication_factor: replicas as i16,
                ..CreatableTopic::default()
            }],
            timeout_ms: TIMEOUT_MS,
            ..CreateTopicsRequest::default()
        };
        let (response, _) = self.client.call_any(&request, 7, PATIENCE).await.ok()?;
        Some(response.topics.first()?.error_code)
    }

    async fn delete(&mut self) -> Option<i16> {
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(self.administration.passing.to_owned()),
                ..DeleteTopicState::default()
            }],
            timeout_ms: TIMEOUT_MS,
            ..DeleteTopicsRequest::default()
        };
        let (response, _) = self.client.call_any(&request, 6, PATIENCE).await.ok()?;
        Some(response.responses.first()?.error_code)
    }

    async fn add_partitions(&mut self) -> Option<i16> {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: self.administration.passing.to_owned(),
                count: PASSING_PARTITIONS_MAX as i32,
                assignments: None,
            }],
            timeout_ms: TIMEOUT_MS,
            validate_only: false,
        };
        let (response, _) = self.client.call_any(&request, 3, PATIENCE).await.ok()?;
        Some(response.results.first()?.error_code)
    }

    async fn move_replicas(&mut self) -> Option<i16> {
        let mut brokers: Vec<i32> = (0..self.administration.brokers as i32).collect();
        let leaving = self.administration.leaving.broker();
        brokers.retain(|broker| leaving != Some(*broker as usize));
        let mut replicas = Vec::new();
        for _ in 0..3 {
            let index = self.env.below(brokers.len() as u64) as usize;
            replicas.push(brokers.swap_remove(index));
        }
        let partition = self.env.below(self.env.partitions as u64) as i32;
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: TIMEOUT_MS,
            topics: vec![ReassignableTopic {
                name: self.env.topic.to_owned(),
                partitions: vec![ReassignablePartition {
                    partition_index: partition,
                    replicas: Some(replicas),
                }],
            }],
            ..AlterPartitionReassignmentsRequest::default()
        };
        let (response, _) = self.client.call_any(&request, 1, PATIENCE).await.ok()?;
        let topic = response.responses.first()?;
        Some(topic.partitions.first()?.error_code)
    }

    async fn elect_preferred(&mut self) -> Option<i16> {
        let request = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: None,
            timeout_ms: TIMEOUT_MS,
        };
        let (response, _) = self.client.call_any(&request, 2, PATIENCE).await.ok()?;
        Some(response.error_code)
    }
}
