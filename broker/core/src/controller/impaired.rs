//! Replicas that their own broker reports as unfit, with every heartbeat: those of a failed log directory, those with
//! damage in their log, and followers that find no room. The broker goes on with all its others (KIP-112, KIP-858).
//!
//! | reported | leaves the ISR, and with it leadership | keeps its place in the ELR | may lead | may join the ISR |
//! |---|---|---|---|---|
//! | `Offline` | always | no | no | no |
//! | `Damaged` | where another member may lead | no | as the last one left | no |
//! | `Full` | as a follower | yes | yes | no |
//!
//! What is reported is not replicated: a new controller learns it with the next heartbeat.

use super::Controller;
use super::election::{Change, Rules, partition_record};
use crate::ids::{BrokerId, TopicPartition};
use crate::metadata::{Broker, Partition, Record, Topic};

/// Why a broker reports one of its replicas, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Impairment {
    /// Its log directory failed, or it could not be made: nothing of it can be read or written.
    Offline,
    /// A part of its log is damaged, or is being fetched anew: it lacks what was committed.
    Damaged,
    /// It is whole, but there is no room for more.
    Full,
}

/// Replicas of one broker and what is wrong with each.
pub type Impaired = std::collections::BTreeMap<TopicPartition, Impairment>;

impl Controller {
    /// Takes what a broker reports into account: its unfit replicas leave ISRs and leadership, and partitions without a
    /// leader whose replica is fit again get one. All in one decision.
    pub(super) fn take_impaired(&mut self, broker: &Broker, impaired: &Impaired) -> Vec<Record> {
        let before = self.sessions.replace_impaired(broker.id, impaired.clone());
        let fit_again: Vec<TopicPartition> = match before {
            Some(before) => before.into_keys().collect(),
            // Nobody knows what this broker told the controller before this one.
            None => {
                let all = self.image.partitions();
                all.filter(|(_, state)| state.replicas.contains(&broker.id))
                    .map(|(partition, _)| partition)
                    .collect()
            }
        };
        let leaderless = |partition: &TopicPartition| {
            let state = self.image.partition(*partition);
            state.is_some_and(|state| state.leader.is_none()) && !impaired.contains_key(partition)
        };
        let elected = fit_again
            .into_iter()
            .filter(leaderless)
            .filter_map(|partition| self.change_one(partition, |_| {}));
        let excluded = impaired
            .iter()
            .filter_map(|(partition, impairment)| self.exclude(broker.id, *partition, *impairment));
        elected.chain(excluded).collect()
    }

    /// Whether a broker reported that nothing of its replica can be used.
    pub(super) fn is_offline(&self, broker: BrokerId, partition: TopicPartition) -> bool {
        self.sessions.impairment(broker, partition) == Some(Impairment::Offline)
    }

    /// Whether a broker reported anything that keeps its replica out of the ISR.
    pub(super) fn is_impaired(&self, broker: BrokerId, partition: TopicPartition) -> bool {
        self.sessions.impairment(broker, partition).is_some()
    }

    /// A change of a partition, in which replicas that are offline may not lead.
    pub(super) fn change<'a>(
        &self,
        partition: TopicPartition,
        old: &'a Partition,
        rules: Rules<'a>,
    ) -> Change<'a> {
        let mut change = Change::new(old, rules);
        change.offline = old
            .replicas
            .iter()
            .copied()
            .filter(|id| self.is_offline(*id, partition))
            .collect();
        change
    }

    fn exclude(
        &self,
        broker: BrokerId,
        partition: TopicPartition,
        impairment: Impairment,
    ) -> Option<Record> {
        let state = self.image.partition(partition)?;
        let in_isr = state.isr.contains(&broker);
        let in_elr = state.elr.contains(&broker);
        let other_leads = || {
            let mut others = state.isr.iter().filter(|id| **id != broker);
            others.any(|id| self.image.is_active(*id) && !self.is_offline(*id, partition))
        };
        let (leaves, unclean) = match impairment {
            Impairment::Offline => (in_isr || in_elr, true),
            Impairment::Damaged => ((in_isr || in_elr) && other_leads(), true),
            Impairment::Full => (
                in_isr && state.leader != Some(broker) && other_leads(),
                false,
            ),
        };
        if !leaves {
            return None;
        }
        self.change_one(partition, |change| {
            change.isr.retain(|id| *id != broker);
            change.unclean = unclean.then_some(broker);
        })
    }

    fn change_one(
        &self,
        partition: TopicPartition,
        adjust: impl FnOnce(&mut Change<'_>),
    ) -> Option<Record> {
        let (topic, old): (&Topic, &Partition) = self.partition_of(partition)?;
        let may_lead = |id| self.image.is_active(id);
        let mut change = self.change(partition, old, self.rules(&self.image, topic, &may_lead));
        adjust(&mut change);
        let next = change.next()?;
        Some(partition_record(
            partition.topic_id,
            partition.partition,
            next,
        ))
    }
}
