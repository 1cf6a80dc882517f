//! Leadership returns to preferred replicas by itself (`auto.leader.rebalance.enable`).
//!
//! Every interval the partitions of each preferred leader are counted. A broker that lacks more than
//! `leader.imbalance.per.broker.percentage` of the partitions it should lead gets those back that it could lead. With 10 percent
//! and 20 partitions, two that are led elsewhere stay there and three return.

use std::collections::BTreeMap;

use super::{Controller, Decision, ElectionType};
use crate::ids::{BrokerId, TopicPartition};
use crate::metadata::Partition;
use crate::time::Instant;

/// Kafka's limit of elections in one decision (`ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE`): 1,000 partition records of
/// about 100 bytes are a small entry. What is over goes with the next one, at once.
const REBALANCED_PARTITIONS_MAX: usize = 1000;

impl Controller {
    /// Elects preferred leaders where too many are missing, up to a limit; once none is, sets the time of the next look.
    pub(super) fn rebalance_leaders(&mut self, now: Instant) -> Decision<()> {
        let out_of_place = self.out_of_place();
        let mut records = Vec::new();
        for partition in out_of_place.iter().take(REBALANCED_PARTITIONS_MAX) {
            // A refusal means that there is nothing to do after all.
            let _ = self.elect_leader(ElectionType::Preferred, *partition, &mut records);
        }
        // With records it stays due: for those that are over the limit, or if these are not taken.
        if records.is_empty() {
            let interval = self.config.leader_rebalance_interval;
            self.next_rebalance = interval.map(|interval| now + interval);
        }
        Decision { records, reply: () }
    }

    fn out_of_place(&self) -> Vec<TopicPartition> {
        let mut brokers: BTreeMap<BrokerId, Share> = BTreeMap::new();
        for (_, state) in self.image.partitions() {
            if let Some(preferred) = state.replicas.first() {
                let share = brokers.entry(*preferred).or_default();
                share.preferred += 1;
                share.elsewhere += usize::from(state.leader != Some(*preferred));
            }
        }
        let percentage = self.config.leader_imbalance_percentage;
        let returns = |state: &Partition| {
            state.replicas.first().is_some_and(|preferred| {
                state.leader != Some(*preferred)
                    && state.isr.contains(preferred)
                    && self.image.is_active(*preferred)
                    && brokers
                        .get(preferred)
                        .is_some_and(|share| share.exceeds(percentage))
            })
        };
        let partitions = self.image.partitions();
        partitions
            .filter(|(_, state)| returns(state))
            .map(|(partition, _)| partition)
            .collect()
    }
}

/// The partitions whose preferred leader is one broker.
#[derive(Clone, Copy, Default)]
struct Share {
    preferred: usize,
    /// Of these, those that another leads, or nobody.
    elsewhere: usize,
}

impl Share {
    fn exceeds(self, percentage: usize) -> bool {
        self.elsewhere * 100 > self.preferred * percentage
    }
}
