//! Partitions move to other replicas, step by step (KIP-455).
//!
//! A reassignment records the union of old and new replicas, the new ones first. New replicas catch up as followers and join
//! the ISR by AlterPartition; once every target replica is in the ISR, the same change drops the replicas to remove.
//! A new target may replace one in progress; cancelling goes back to the replicas that there were before.

use std::collections::BTreeSet;

use super::election::{Change, partition_record};
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{BrokerId, TopicPartition};
use crate::metadata::{Image, Partition, Record};

/// Where a partition is to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    /// Which partition.
    pub partition: TopicPartition,
    /// Its replicas afterwards, the preferred leader first; `None` cancels the reassignment in progress.
    pub replicas: Option<Vec<BrokerId>>,
}

/// A reassignment in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OngoingReassignment {
    /// Which partition.
    pub partition: TopicPartition,
    /// Old and new replicas.
    pub replicas: Vec<BrokerId>,
    /// Of these, the new ones.
    pub adding: Vec<BrokerId>,
    /// Of these, those that go.
    pub removing: Vec<BrokerId>,
}

impl OngoingReassignment {
    /// The reassignments in progress, of these partitions or of all.
    pub fn list(image: &Image, partitions: Option<&[TopicPartition]>) -> Vec<Self> {
        let ongoing = |partition: TopicPartition, state: &Partition| {
            state.is_reassigning().then(|| Self {
                partition,
                replicas: state.replicas.clone(),
                adding: state.adding.clone(),
                removing: state.removing.clone(),
            })
        };
        match partitions {
            Some(partitions) => {
                let known = partitions
                    .iter()
                    .filter_map(|id| Some((*id, image.partition(*id)?)));
                known.filter_map(|(id, state)| ongoing(id, state)).collect()
            }
            None => image
                .partitions()
                .filter_map(|(id, state)| ongoing(id, state))
                .collect(),
        }
    }
}

impl Controller {
    /// Starts and cancels reassignments; replies for each in order.
    pub fn reassign_partitions(
        &self,
        requests: &[Reassignment],
    ) -> Decision<Vec<Result<(), ApiError>>> {
        let mut records = Vec::new();
        let mut reply = Vec::new();
        let mut seen = BTreeSet::new();
        for request in requests {
            let result = if seen.insert(request.partition) {
                self.reassign(request)
            } else {
                let message = "A partition is named twice in the request.";
                Err(ApiError::new(ErrorKind::InvalidRequest, message))
            };
            reply.push(result.map(|changed| records.extend(changed)));
        }
        Decision { records, reply }
    }

    fn reassign(&self, request: &Reassignment) -> Result<Option<Record>, ApiError> {
        let partition = request.partition;
        let (topic, old) = self
            .partition_of(partition)
            .ok_or(ErrorKind::UnknownTopicOrPartition)?;
        let may_lead = |id| self.image.is_active(id);
        let mut change = self.change(partition, old, self.rules(&self.image, topic, &may_lead));
        match &request.replicas {
            Some(target) => {
                self.check_replicas(target)?;
                set_target(&mut change, old, target);
            }
            None => cancel(&mut change, old)?,
        }
        let next = change.next();
        Ok(next.map(|state| partition_record(partition.topic_id, partition.partition, state)))
    }
}

fn set_target(change: &mut Change<'_>, old: &Partition, target: &[BrokerId]) {
    let before = |id: &BrokerId| old.replicas.contains(id) && !old.adding.contains(id);
    change.adding = target.iter().copied().filter(|id| !before(id)).collect();
    change.removing = old
        .replicas
        .iter()
        .copied()
        .filter(|id| !target.contains(id))
        .collect();
    change.replicas = [target, &change.removing].concat();
}

fn cancel(change: &mut Change<'_>, old: &Partition) -> Result<(), ApiError> {
    if !old.is_reassigning() {
        return Err(ErrorKind::NoReassignmentInProgress.into());
    }
    let stays = |id: &BrokerId| !old.adding.contains(id);
    change.replicas.retain(stays);
    change.isr.retain(stays);
    change.adding.clear();
    change.removing.clear();
    if change.isr.is_empty() && !old.isr.is_empty() {
        let message =
            "Only replicas that the reassignment adds are in sync; it cannot be cancelled.";
        return Err(ApiError::new(ErrorKind::InvalidReplicaAssignment, message));
    }
    Ok(())
}
