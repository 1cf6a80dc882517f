//! AlterPartition: a leader proposes a new ISR, compare-and-set on the epochs (KIP-497, KIP-841, KIP-903).
//!
//! | the request's | against ours | answer |
//! |---|---|---|
//! | leader or partition epoch | higher | `NotController`: another controller knows more, ask there |
//! | leader epoch | lower | `FencedLeaderEpoch` |
//! | sender | not the leader | `InvalidRequest` |
//! | ISR | the same | the state as it is: the answer to an earlier request was lost |
//! | partition epoch | lower | `InvalidUpdateVersion` |
//! | ISR | not part of the replicas, or without the leader | `InvalidRequest` |
//! | a member | unknown, fenced, shutting down, of another epoch, or new and reported as unfit | `IneligibleReplica` |
//!
//! A change that completes a reassignment may move the leader away; it is recorded and answered `NewLeaderElected`.

use std::collections::BTreeSet;

use super::election::partition_record;
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition};
use crate::metadata::{Partition, Record};

/// What one broker proposes for partitions that it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartitions {
    /// The leader.
    pub broker: BrokerId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// One or more partitions.
    pub partitions: Vec<AlterPartition>,
}

/// What a leader proposes for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartition {
    /// Which partition.
    pub partition: TopicPartition,
    /// The epoch it leads in.
    pub leader_epoch: LeaderEpoch,
    /// The state that the proposal starts from.
    pub partition_epoch: PartitionEpoch,
    /// The members of the new ISR, each with the registration under which it fetched; epoch -1 is not compared.
    pub new_isr: Vec<(BrokerId, BrokerEpoch)>,
}

/// The answer about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlteredPartition {
    /// Which partition.
    pub partition: TopicPartition,
    /// Its state from now on, or why it does not change.
    pub result: Result<Partition, ErrorKind>,
}

impl Controller {
    /// Changes ISRs as their leader proposes; replies for each partition in order.
    pub fn alter_partitions(
        &self,
        request: &AlterPartitions,
    ) -> Decision<Result<Vec<AlteredPartition>, ApiError>> {
        if let Err(kind) = self.check_epoch(request.broker, request.broker_epoch) {
            return Decision::reply(Err(kind.into()));
        }
        let mut records = Vec::new();
        let mut reply = Vec::new();
        let mut seen = BTreeSet::new();
        for proposal in &request.partitions {
            let result = if seen.insert(proposal.partition) {
                self.alter_partition(request.broker, proposal, &mut records)
            } else {
                Err(ErrorKind::InvalidRequest)
            };
            reply.push(AlteredPartition {
                partition: proposal.partition,
                result,
            });
        }
        Decision {
            records,
            reply: Ok(reply),
        }
    }

    fn alter_partition(
        &self,
        broker: BrokerId,
        proposal: &AlterPartition,
        records: &mut Vec<Record>,
    ) -> Result<Partition, ErrorKind> {
        let partition = proposal.partition;
        let topic = self.image.topic(partition.topic_id);
        let topic = topic.ok_or(ErrorKind::UnknownTopicId)?;
        let old = self.image.partition(partition);
        let old = old.ok_or(ErrorKind::UnknownTopicOrPartition)?;
        if proposal.leader_epoch > old.leader_epoch
            || proposal.partition_epoch > old.partition_epoch
        {
            return Err(ErrorKind::NotController);
        }
        if proposal.leader_epoch < old.leader_epoch {
            return Err(ErrorKind::FencedLeaderEpoch);
        }
        if old.leader != Some(broker) {
            return Err(ErrorKind::InvalidRequest);
        }
        let isr: Vec<_> = proposal.new_isr.iter().map(|(id, _)| *id).collect();
        let members: BTreeSet<_> = isr.iter().collect();
        if members == old.isr.iter().collect() && members.len() == isr.len() {
            return Ok(old.clone());
        }
        if proposal.partition_epoch < old.partition_epoch {
            return Err(ErrorKind::InvalidUpdateVersion);
        }
        let of_replicas = isr.iter().all(|id| old.replicas.contains(id));
        if !of_replicas || members.len() != isr.len() || !isr.contains(&broker) {
            return Err(ErrorKind::InvalidRequest);
        }
        if !proposal
            .new_isr
            .iter()
            .all(|(id, epoch)| self.may_be_in_isr(*id, *epoch, partition, old))
        {
            return Err(ErrorKind::IneligibleReplica);
        }
        let may_lead = |id| self.image.is_active(id);
        let mut change = self.change(partition, old, self.rules(&self.image, topic, &may_lead));
        change.isr = isr;
        let mut next = change.next().unwrap_or_else(|| old.clone());
        if next != *old {
            // A leader that asks for an ISR change has recovered what it could.
            next.recovering = false;
            records.push(partition_record(
                partition.topic_id,
                partition.partition,
                next.clone(),
            ));
        }
        if next.leader != Some(broker) {
            return Err(ErrorKind::NewLeaderElected);
        }
        Ok(next)
    }

    fn may_be_in_isr(
        &self,
        id: BrokerId,
        epoch: BrokerEpoch,
        partition: TopicPartition,
        old: &Partition,
    ) -> bool {
        #[cfg(feature = "mutants")]
        if taffrail_mutants::is_planted(taffrail_mutants::Mutant::JoinWithoutBrokerEpoch) {
            return self.image.is_active(id);
        }
        let broker = self.image.broker(id);
        let joins = !old.isr.contains(&id);
        broker.is_some_and(|broker| broker.is_active() && (epoch.0 == -1 || broker.epoch == epoch))
            && (!joins || self.is_known_fit(id, partition))
    }
}
