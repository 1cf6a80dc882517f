//! Elections that someone asks for, and the regular return of leadership to preferred replicas.

use super::election::{Change, Preference, partition_record};
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{BrokerId, TopicPartition};
use crate::metadata::{Partition, Record};

/// Kafka's limit of elections in one decision (`ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE`): 1,000 partition records of
/// about 100 bytes are a small entry.
const REBALANCED_PARTITIONS_MAX: usize = 1000;

/// Who shall lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionType {
    /// The first replica of the assignment, if it is in the ISR and active.
    Preferred,
    /// Any active replica, where nobody leads; what was acknowledged may be lost.
    Unclean,
}

/// One result for each partition that was asked about.
pub type LeaderElections = Vec<(TopicPartition, Result<(), ApiError>)>;

impl Controller {
    /// Elects leaders for these partitions, or wherever it is needed if `None`; then partitions that need no election are
    /// left out of the reply.
    pub fn elect_leaders(
        &self,
        election: ElectionType,
        partitions: Option<&[TopicPartition]>,
    ) -> Decision<LeaderElections> {
        let mut records = Vec::new();
        let mut reply = Vec::new();
        match partitions {
            Some(partitions) => {
                for partition in partitions {
                    let result = self.elect_leader(election, *partition, &mut records);
                    reply.push((*partition, result));
                }
            }
            None => {
                for (partition, _) in self.image.partitions() {
                    let result = self.elect_leader(election, partition, &mut records);
                    let needless =
                        matches!(&result, Err(error) if error.kind == ErrorKind::ElectionNotNeeded);
                    if !needless {
                        reply.push((partition, result));
                    }
                }
            }
        }
        Decision { records, reply }
    }

    /// Gives leadership back to preferred replicas that could lead, up to a limit.
    pub(super) fn rebalance_leaders(&self) -> Decision<()> {
        let is_out_of_place = |state: &Partition| {
            let preferred = state.replicas.first();
            let could_lead = |id: &BrokerId| state.isr.contains(id) && self.image.is_active(*id);
            state.leader.as_ref() != preferred && preferred.is_some_and(could_lead)
        };
        let out_of_place = self
            .image
            .partitions()
            .filter(|(_, state)| is_out_of_place(state));
        let mut records = Vec::new();
        for (partition, _) in out_of_place.take(REBALANCED_PARTITIONS_MAX) {
            // A refusal means that there is nothing to do after all.
            let _ = self.elect_leader(ElectionType::Preferred, partition, &mut records);
        }
        Decision { records, reply: () }
    }

    fn elect_leader(
        &self,
        election: ElectionType,
        partition: TopicPartition,
        records: &mut Vec<Record>,
    ) -> Result<(), ApiError> {
        let (topic, old) = self.partition_of(partition).ok_or_else(|| {
            let message = format!("There is no partition {partition}.");
            ApiError::new(ErrorKind::UnknownTopicOrPartition, message)
        })?;
        let needless = match election {
            ElectionType::Preferred => {
                old.leader.is_some() && old.leader.as_ref() == old.replicas.first()
            }
            ElectionType::Unclean => old.leader.is_some(),
        };
        if needless {
            return Err(ErrorKind::ElectionNotNeeded.into());
        }
        let may_lead = |id| self.image.is_active(id);
        let mut change = Change::new(old, self.rules(&self.image, topic, &may_lead));
        change.preference = match election {
            ElectionType::Preferred => Preference::First,
            ElectionType::Unclean => Preference::Anyone,
        };
        let next = change.next().unwrap_or_else(|| old.clone());
        let elected = match election {
            ElectionType::Preferred => next.leader.as_ref() == next.replicas.first(),
            ElectionType::Unclean => next.leader.is_some(),
        };
        if !elected {
            return Err(match election {
                ElectionType::Preferred => ErrorKind::PreferredLeaderNotAvailable.into(),
                ElectionType::Unclean => ErrorKind::EligibleLeadersNotAvailable.into(),
            });
        }
        records.push(partition_record(
            partition.topic_id,
            partition.partition,
            next,
        ));
        Ok(())
    }
}
