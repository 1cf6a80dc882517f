//! Elections that someone asks for.

use std::collections::BTreeSet;

use super::election::{Preference, partition_record};
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::TopicPartition;
use crate::metadata::{Partition, Record, named_with_standing};

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
    /// Elects leaders for these partitions, each once however often it is named, or wherever it is needed if `None`; then partitions
    /// that need no election are left out of the reply.
    pub fn elect_leaders(
        &self,
        election: ElectionType,
        partitions: Option<&[TopicPartition]>,
    ) -> Decision<LeaderElections> {
        let mut records = Vec::new();
        let mut reply = Vec::new();
        match partitions {
            Some(partitions) => {
                let distinct: BTreeSet<TopicPartition> = partitions.iter().copied().collect();
                for partition in &distinct {
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

    pub(super) fn elect_leader(
        &self,
        election: ElectionType,
        partition: TopicPartition,
        records: &mut Vec<Record>,
    ) -> Result<(), ApiError> {
        let (topic, old) = self
            .partition_of(partition)
            .ok_or(ErrorKind::UnknownTopicOrPartition)?;
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
        let mut change = self.change(partition, old, self.rules(&self.image, topic, &may_lead));
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
                ElectionType::Preferred => self.preferred_not_available(old),
                ElectionType::Unclean => self.nobody_available(old),
            });
        }
        records.push(partition_record(
            partition.topic_id,
            partition.partition,
            next,
        ));
        Ok(())
    }

    fn preferred_not_available(&self, state: &Partition) -> ApiError {
        let preferred = state
            .replicas
            .first()
            .copied()
            .into_iter()
            .collect::<Vec<_>>();
        let named = named_with_standing(&self.image, &preferred);
        let in_sync = preferred.iter().all(|id| state.isr.contains(id));
        let why = if in_sync { "" } else { " and not in sync" };
        let message = format!("The preferred leader is broker {named}{why}.");
        ApiError::new(ErrorKind::PreferredLeaderNotAvailable, message)
    }

    fn nobody_available(&self, state: &Partition) -> ApiError {
        let named = named_with_standing(&self.image, &state.replicas);
        let message = format!("No replica is on an active broker; they are on {named}.");
        ApiError::new(ErrorKind::EligibleLeadersNotAvailable, message)
    }
}
