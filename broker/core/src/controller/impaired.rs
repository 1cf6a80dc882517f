//! Replicas that their own broker reports as unfit, with every heartbeat: those of a failed log directory, those with
//! damage in their log, and followers that find no room. The broker goes on with all its others (KIP-112, KIP-858).
//!
//! | reported | leaves the ISR, and with it leadership | keeps its place in the ELR | may lead | may join the ISR |
//! |---|---|---|---|---|
//! | `Offline` | always | no | no | no |
//! | `Damaged` | where another member may lead | no | as the last one left | no |
//! | `Full` | as a follower | yes | yes | no |
//!
//! What is reported is not replicated: a new controller learns it with the next heartbeat, and until then lets no replica of
//! that broker join.
//!
//! A damaged replica drops committed records once nobody counts on it, so nobody may begin to count on it meanwhile: neither
//! its leader, whose request to take it back may be under way, nor a controller that knows nothing of the damage. Its report
//! is therefore noted by a record, with a new partition epoch, also where it changes nothing. The requests before it are out
//! of date then, and whoever becomes controller later begins behind that record: reports made before the damage do not count
//! for it, being made without it.

use super::Controller;
use super::brokers::Heartbeat;
use super::election::{Change, Rules, partition_record};
use super::session::ReportTaken;
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
    pub(super) fn take_report(&mut self, broker: &Broker, heartbeat: &Heartbeat) -> Vec<Record> {
        let report = &heartbeat.report;
        let is_current = heartbeat.metadata_index >= self.first_index;
        let taken = self.sessions.take_report(broker.id, report, is_current);
        let fit_again: Vec<TopicPartition> = match taken {
            ReportTaken::Next(before) => before.into_keys().collect(),
            // Nobody knows what this broker told the controller before this one.
            ReportTaken::First => {
                let all = self.image.partitions();
                all.filter(|(_, state)| state.replicas.contains(&broker.id))
                    .map(|(partition, _)| partition)
                    .collect()
            }
            ReportTaken::TooLate => return Vec::new(),
        };
        let leaderless = |partition: &TopicPartition| {
            let state = self.image.partition(*partition);
            state.is_some_and(|state| state.leader.is_none())
                && !report.impaired.contains_key(partition)
        };
        let elected = fit_again
            .into_iter()
            .filter(leaderless)
            .filter_map(|partition| self.change_one(partition, |_| {}));
        let mut records: Vec<Record> = elected.collect();
        for (partition, impairment) in &report.impaired {
            records.extend(self.exclude(broker.id, *partition, *impairment));
        }
        records
    }

    /// Whether a broker reported that nothing of its replica can be used.
    pub(super) fn is_offline(&self, broker: BrokerId, partition: TopicPartition) -> bool {
        self.sessions.impairment(broker, partition) == Some(Impairment::Offline)
    }

    /// Whether nothing keeps a broker's replica out of the ISR, and that is known.
    pub(super) fn is_known_fit(&self, broker: BrokerId, partition: TopicPartition) -> bool {
        self.sessions.has_current_report(broker)
            && self.sessions.impairment(broker, partition).is_none()
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
        &mut self,
        broker: BrokerId,
        partition: TopicPartition,
        impairment: Impairment,
    ) -> Option<Record> {
        let state = self.image.partition(partition)?;
        let in_isr = state.isr.contains(&broker);
        let is_counted_on = in_isr || state.elr.contains(&broker);
        let other_leads = || {
            let mut others = state.isr.iter().filter(|id| **id != broker);
            others.any(|id| self.image.is_active(*id) && !self.is_offline(*id, partition))
        };
        let (leaves, unclean) = match impairment {
            Impairment::Offline => (is_counted_on, true),
            Impairment::Damaged if !is_counted_on => {
                return self.note_damage(broker, partition);
            }
            Impairment::Damaged => (other_leads(), true),
            Impairment::Full => (
                in_isr && state.leader != Some(broker) && other_leads(),
                false,
            ),
        };
        if !leaves {
            return None;
        }
        let record = self.change_one(partition, |change| {
            change.isr.retain(|id| *id != broker);
            change.unclean = unclean.then_some(broker);
        })?;
        if let (Impairment::Damaged, Record::Partition { state, .. }) = (impairment, &record) {
            self.sessions.mark(broker, partition, state.partition_epoch);
        }
        Some(record)
    }

    /// The record that notes the damage of a replica that nobody counts on, until it is applied.
    fn note_damage(&mut self, broker: BrokerId, partition: TopicPartition) -> Option<Record> {
        let mut state = self.image.partition(partition)?.clone();
        let marked = self.sessions.marked(broker, partition);
        if marked.is_some_and(|marked| marked <= state.partition_epoch) {
            return None;
        }
        state.partition_epoch.0 += 1;
        self.sessions.mark(broker, partition, state.partition_epoch);
        let (topic_id, partition) = (partition.topic_id, partition.partition);
        Some(partition_record(topic_id, partition, state))
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
