//! Topics get more partitions; the placement goes on where it stopped.

use std::collections::BTreeSet;

use super::election::partition_record;
use super::topics::{PARTITIONS_PER_REQUEST_MAX, is_internal_topic};
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::BrokerId;
use crate::metadata::{Record, Topic};
use crate::placement;

/// A topic that is to have more partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePartitions {
    /// Its name.
    pub topic: String,
    /// How many partitions it is to have in all.
    pub count: i32,
    /// The replicas of each new partition; `None` to let the controller place them.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

impl Controller {
    /// Adds partitions; replies for each topic in order. With `validate_only` nothing is recorded.
    pub fn create_partitions(
        &self,
        topics: &[CreatePartitions],
        validate_only: bool,
    ) -> Decision<Vec<Result<(), ApiError>>> {
        let mut records = Vec::new();
        let mut reply = Vec::new();
        let mut seen = BTreeSet::new();
        for request in topics {
            if seen.insert(&request.topic) {
                reply.push(self.add_partitions(request, &mut records));
            } else {
                let message = format!("Topic '{}' is named twice in the request.", request.topic);
                reply.push(Err(ApiError::new(ErrorKind::InvalidRequest, message)));
            }
        }
        if validate_only {
            records.clear();
        }
        Decision { records, reply }
    }

    fn add_partitions(
        &self,
        request: &CreatePartitions,
        records: &mut Vec<Record>,
    ) -> Result<(), ApiError> {
        let topic = self.image.topic_by_name(&request.topic);
        let topic = topic.ok_or(ErrorKind::UnknownTopicOrPartition)?;
        let existing = topic.partitions.len();
        let refuse = |kind, message: String| Err(ApiError::new(kind, message));
        if is_internal_topic(&topic.name) {
            let message = format!(
                "Topic '{}' belongs to the brokers and keeps its partitions.",
                topic.name
            );
            return refuse(ErrorKind::InvalidRequest, message);
        }
        let count = usize::try_from(request.count).unwrap_or(0);
        if count == existing {
            let message = format!("Topic '{}' already has {existing} partitions.", topic.name);
            return refuse(ErrorKind::InvalidPartitions, message);
        }
        if count < existing {
            let message = format!(
                "Topic '{}' has {existing} partitions; {} would not be an increase.",
                topic.name, request.count
            );
            return refuse(ErrorKind::InvalidPartitions, message);
        }
        if count - existing + records.len() > PARTITIONS_PER_REQUEST_MAX {
            let message =
                format!("A request creates at most {PARTITIONS_PER_REQUEST_MAX} partitions.");
            return refuse(ErrorKind::PolicyViolation, message);
        }
        let replica_lists = match &request.assignments {
            Some(assignments) => self
                .check_assignments(topic, assignments, count - existing)?
                .to_vec(),
            None => self.place_partitions(topic, count - existing)?,
        };
        let mut added = Vec::new();
        for (index, replicas) in (existing..).zip(replica_lists) {
            let state = self.new_partition(replicas).map_err(|_| {
                let message =
                    "None of the replicas of a new partition would be on an active broker.";
                ApiError::new(ErrorKind::InvalidReplicaAssignment, message)
            })?;
            // `count` came as an i32.
            added.push(partition_record(topic.id, index as i32, state));
        }
        records.extend(added);
        Ok(())
    }

    fn check_assignments<'a>(
        &self,
        topic: &Topic,
        assignments: &'a [Vec<BrokerId>],
        added: usize,
    ) -> Result<&'a [Vec<BrokerId>], ApiError> {
        let refuse =
            |message: String| Err(ApiError::new(ErrorKind::InvalidReplicaAssignment, message));
        if assignments.len() != added {
            let message = format!(
                "{added} new partitions need as many assignments, not {}.",
                assignments.len()
            );
            return refuse(message);
        }
        let replication_factor = topic
            .partitions
            .first()
            .map_or(0, |state| state.target_replicas().len());
        for replicas in assignments {
            self.check_replicas(replicas)?;
            if replicas.len() != replication_factor {
                let message = format!(
                    "New partitions of topic '{}' need {replication_factor} replicas.",
                    topic.name
                );
                return refuse(message);
            }
        }
        Ok(assignments)
    }

    fn place_partitions(
        &self,
        topic: &Topic,
        added: usize,
    ) -> Result<Vec<Vec<BrokerId>>, ApiError> {
        let partition_0 = topic
            .partitions
            .first()
            .map(|state| state.target_replicas());
        let partition_0 = partition_0.unwrap_or_default();
        let replication_factor = partition_0.len();
        let brokers = self.placement_brokers(replication_factor);
        placement::place_more(
            &brokers,
            &partition_0,
            topic.partitions.len(),
            added,
            replication_factor,
        )
        .map_err(|error| ApiError::new(ErrorKind::InvalidReplicationFactor, error.to_string()))
    }
}
