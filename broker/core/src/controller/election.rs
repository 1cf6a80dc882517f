//! The next state of a partition: who leads, who is in the ISR and the ELR, and whether a reassignment is complete.
//!
//! A change starts from the old state and says what is different; `next` then follows one order, whatever the change was:
//!
//! 1. A reassignment completes when every target replica is in the new ISR. Removed replicas leave all lists.
//! 2. Who was in ISR or ELR and is not in the new ISR is a candidate for the ELR, except replicas that restarted without
//!    proof of a clean shutdown: those may have lost what they had acknowledged (KIP-966).
//! 3. The leader stays if it may. Otherwise leads, of those that may: the first replica of the assignment that is in the ISR; else
//!    the first in the ELR; else, with both empty, the last known leader; else, only where unclean election is allowed,
//!    the first replica. Of the last two nothing is proven, so they lead alone and `recovering`.
//! 4. An ISR of at least `min.insync.replicas` needs no ELR.
//! 5. The leader epoch grows when the leader changes or replicas are removed, never for an ISR change alone (KAFKA-15021);
//!    the partition epoch grows with every change.

use std::collections::BTreeSet;

use super::Controller;
use crate::ids::{BrokerId, TopicId, TopicPartition};
use crate::metadata::{ConfigResource, Image, Partition, Record, Topic};

/// How to choose when there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preference {
    /// The leader stays if it may.
    Stay,
    /// The first replica of the assignment leads if it may; else the leader stays.
    First,
    /// As `Stay`, and a replica that is not known to be in step may lead if nobody else can.
    Anyone,
}

/// One change of one partition, to be built up and then taken by `next`.
pub(super) struct Change<'a> {
    old: &'a Partition,
    rules: Rules<'a>,
    pub(super) preference: Preference,
    pub(super) isr: Vec<BrokerId>,
    pub(super) replicas: Vec<BrokerId>,
    pub(super) adding: Vec<BrokerId>,
    pub(super) removing: Vec<BrokerId>,
    /// A replica that restarted without proof of a clean shutdown, or is known to lack what it acknowledged.
    pub(super) unclean: Option<BrokerId>,
    /// Replicas of which nothing can be used.
    pub(super) offline: Vec<BrokerId>,
}

/// What holds for the partitions of one topic.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    /// Whether a broker may lead and be in an ISR.
    pub(super) may_lead: &'a dyn Fn(BrokerId) -> bool,
    pub(super) min_insync_replicas: usize,
    pub(super) unclean_leader_election: bool,
}

impl<'a> Change<'a> {
    pub(super) fn new(old: &'a Partition, rules: Rules<'a>) -> Self {
        Self {
            old,
            rules,
            preference: Preference::Stay,
            isr: old.isr.clone(),
            replicas: old.replicas.clone(),
            adding: old.adding.clone(),
            removing: old.removing.clone(),
            unclean: None,
            offline: Vec::new(),
        }
    }

    /// The next state, or `None` if nothing changes.
    pub(super) fn next(mut self) -> Option<Partition> {
        self.complete_reassignment();
        let replicas = &self.replicas;
        self.isr.retain(|id| replicas.contains(id));
        let mut next = Partition {
            elr: self.elr(),
            replicas: self.replicas.clone(),
            isr: self.isr.clone(),
            adding: self.adding.clone(),
            removing: self.removing.clone(),
            ..self.old.clone()
        };
        self.elect(&mut next);
        if next.isr.len() >= self.rules.min_insync_replicas.min(next.replicas.len()) {
            next.elr.clear();
        }
        next.last_known_leader = match next.leader {
            Some(_) => None,
            None => self.old.leader.or(self.old.last_known_leader),
        };
        let removes_replicas = self
            .old
            .replicas
            .iter()
            .any(|id| !next.replicas.contains(id));
        if next.leader != self.old.leader || removes_replicas {
            next.leader_epoch.0 += 1;
        }
        if next == *self.old {
            return None;
        }
        next.partition_epoch.0 += 1;
        Some(next)
    }

    fn complete_reassignment(&mut self) {
        if self.adding.is_empty() && self.removing.is_empty() {
            return;
        }
        let target = |id: &BrokerId| !self.removing.contains(id);
        let mut targets = self.replicas.iter().copied().filter(target);
        if targets.all(|id| self.isr.contains(&id)) {
            let removing = std::mem::take(&mut self.removing);
            self.replicas.retain(|id| !removing.contains(id));
            self.adding.clear();
        }
    }

    fn elr(&self) -> Vec<BrokerId> {
        let candidates: BTreeSet<_> = self.old.elr.iter().chain(&self.old.isr).copied().collect();
        let stays = |id: &BrokerId| {
            !self.isr.contains(id) && self.replicas.contains(id) && self.unclean != Some(*id)
        };
        candidates.into_iter().filter(stays).collect()
    }

    fn elect(&self, next: &mut Partition) {
        let may_lead = |id: &BrokerId| (self.rules.may_lead)(*id) && !self.offline.contains(id);
        let stays = self
            .old
            .leader
            .filter(|id| next.isr.contains(id) && may_lead(id));
        let first = next.replicas.first().copied();
        let preferred = first.filter(|id| next.isr.contains(id) && may_lead(id));
        let chosen = match self.preference {
            Preference::Stay | Preference::Anyone => stays,
            Preference::First => preferred.or(stays),
        };
        let first_of = |list: &[BrokerId]| {
            let mut replicas = next.replicas.iter().copied();
            replicas.find(|id| list.contains(id) && may_lead(id))
        };
        if let Some(leader) = chosen.or_else(|| first_of(&next.isr)) {
            self.set_leader(next, leader);
            return;
        }
        if let Some(leader) = first_of(&next.elr) {
            next.isr = vec![leader];
            next.elr.retain(|id| *id != leader);
            self.set_leader(next, leader);
            return;
        }
        let last = self.old.leader.or(self.old.last_known_leader);
        let last = last.filter(|id| next.replicas.contains(id) && may_lead(id));
        let last = last.filter(|_| next.isr.is_empty() && next.elr.is_empty());
        let allowed = self.rules.unclean_leader_election || self.preference == Preference::Anyone;
        let anyone = || first_of(&next.replicas).filter(|_| allowed);
        if let Some(leader) = last.or_else(anyone) {
            next.isr = vec![leader];
            next.elr.clear();
            next.leader = Some(leader);
            next.recovering = true;
            return;
        }
        next.leader = None;
    }

    fn set_leader(&self, next: &mut Partition, leader: BrokerId) {
        if self.old.leader != Some(leader) {
            next.recovering = false;
        }
        next.leader = Some(leader);
    }
}

/// What happened to brokers, for `Controller::change_all`.
#[derive(Default)]
pub(super) struct BrokerChanges {
    /// Fenced or shutting down from now on: out of every ISR, leading nothing.
    pub(super) leaving: BTreeSet<BrokerId>,
    /// Of these, one that restarted without proof of a clean shutdown.
    pub(super) unclean: Option<BrokerId>,
    /// Whether that one came back without a directory, so that fsyncs do not vouch for its replicas either.
    pub(super) lost_directory: bool,
    /// Unfenced from now on.
    pub(super) joining: Option<BrokerId>,
}

impl Controller {
    /// The records of every partition that a change of brokers touches.
    pub(super) fn change_all(&self, changes: &BrokerChanges) -> Vec<Record> {
        let may_lead = |id: BrokerId| {
            let active = self.image.is_active(id) || changes.joining == Some(id);
            active && !changes.leaving.contains(&id)
        };
        let mut records = Vec::new();
        for topic in self.image.topics() {
            let rules = self.rules(&self.image, topic, &may_lead);
            let unclean = changes.unclean.filter(|_| {
                changes.lost_directory || !acknowledges_after_fsync(&self.image, topic)
            });
            for (index, old) in (0..).zip(&topic.partitions) {
                let leaves = |id: &BrokerId| changes.leaving.contains(id);
                let touched = old.isr.iter().any(leaves)
                    || unclean.is_some_and(|id| old.elr.contains(&id))
                    || (old.leader.is_none()
                        && changes.joining.is_some_and(|id| old.replicas.contains(&id)));
                if !touched {
                    continue;
                }
                let partition = TopicPartition::new(topic.id, index);
                let mut change = self.change(partition, old, rules);
                change.isr.retain(|id| !leaves(id));
                change.unclean = unclean;
                records.extend(
                    change
                        .next()
                        .map(|state| partition_record(topic.id, index, state)),
                );
            }
        }
        records
    }

    /// The rules of a topic under the configs of `image`.
    pub(super) fn rules<'a>(
        &self,
        image: &Image,
        topic: &Topic,
        may_lead: &'a dyn Fn(BrokerId) -> bool,
    ) -> Rules<'a> {
        let min_insync_replicas = topic_config(image, topic, "min.insync.replicas");
        let unclean_leader_election = topic_config(image, topic, "unclean.leader.election.enable");
        Rules {
            may_lead,
            min_insync_replicas: min_insync_replicas
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(self.config.min_insync_replicas)
                .max(1),
            unclean_leader_election: unclean_leader_election
                .map_or(self.config.unclean_leader_election, |value| {
                    value.trim().eq_ignore_ascii_case("true")
                }),
        }
    }

    pub(super) fn partition_of(&self, partition: TopicPartition) -> Option<(&Topic, &Partition)> {
        let topic = self.image.topic(partition.topic_id)?;
        Some((topic, self.image.partition(partition)?))
    }
}

/// Where `taffrail.flush` is `ack`, an ISR member has on its disk all that it acknowledged, however it stopped.
fn acknowledges_after_fsync(image: &Image, topic: &Topic) -> bool {
    topic_config(image, topic, "taffrail.flush") == Some("ack")
}

/// The dynamic value of a topic config: the topic's own, or the cluster-wide default, which goes by the same name for all
/// configs that matter here.
fn topic_config<'a>(image: &'a Image, topic: &Topic, name: &str) -> Option<&'a str> {
    let own = image.configs(&ConfigResource::Topic(topic.name.clone()));
    let of_all = image.configs(&ConfigResource::Broker(None));
    own.get(name)
        .or_else(|| of_all.get(name))
        .map(String::as_str)
}

pub(super) fn partition_record(topic_id: TopicId, partition: i32, state: Partition) -> Record {
    Record::Partition {
        topic_id,
        partition,
        state,
    }
}
