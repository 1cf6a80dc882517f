//! The state of a group: what its records say, who has which partition, and until when members must be heard of.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::TopicId;
use crate::time::Instant;

use super::Partitions;
use super::assignment::{CurrentAssignment, Held, MemberState};
use super::assignor::Assignor;
use super::record::{ConsumerRecord, GroupEpoch, MemberMetadata};

/// Limits; Kafka's names in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// How long a member may be silent (`group.consumer.session.timeout.ms`).
    pub session_timeout: Duration,
    /// Members of a group (`group.consumer.max.size`; here Kafka has no limit).
    pub group_size_max: usize,
}

impl Default for ConsumerSettings {
    /// Kafka's defaults, but for the limit of classic groups.
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(45),
            group_size_max: 10_000,
        }
    }
}

/// One consumer group; the default is one of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroup {
    pub(super) group: GroupEpoch,
    pub(super) target_epoch: i32,
    pub(super) members: BTreeMap<String, MemberMetadata>,
    pub(super) targets: BTreeMap<String, Partitions>,
    pub(super) current: BTreeMap<String, CurrentAssignment>,
    /// Who has each partition, or is to give it up.
    owners: BTreeMap<TopicId, BTreeMap<i32, String>>,
    /// The member of each instance id.
    instances: BTreeMap<String, String>,
    /// Whether the group's epoch is known to be of the topics as they are now.
    pub(super) topics_checked: bool,
    /// Until when each member must be heard of.
    pub(super) sessions: BTreeMap<String, Instant>,
    /// Until when each member that is to give up partitions must have done so.
    pub(super) revocations: BTreeMap<String, Instant>,
}

impl ConsumerGroup {
    /// Takes a record that is in the log.
    pub fn apply(&mut self, record: &ConsumerRecord) {
        match record {
            ConsumerRecord::Group(epoch) => self.group = epoch.unwrap_or_default(),
            ConsumerRecord::TargetEpoch(epoch) => self.target_epoch = epoch.unwrap_or_default(),
            ConsumerRecord::Member(id, metadata) => {
                self.note_instance(id, metadata.as_ref());
                set(&mut self.members, id, metadata);
            }
            ConsumerRecord::Target(id, partitions) => set(&mut self.targets, id, partitions),
            ConsumerRecord::Current(id, current) => {
                let before = self.current.get(id).cloned();
                self.disown(id, before.as_ref());
                self.own(id, current.as_ref());
                set(&mut self.current, id, current);
                if current.is_none() {
                    self.sessions.remove(id);
                    self.revocations.remove(id);
                }
            }
        }
    }

    /// The log has been read to its end: every member has a whole session from now on.
    pub fn handle_loaded(&mut self, now: Instant, settings: &ConsumerSettings) {
        self.topics_checked = false;
        for (id, metadata) in self.members.clone() {
            self.sessions
                .insert(id.clone(), now + settings.session_timeout);
            if let Some(state) = self.current.get(&id).map(|current| current.state) {
                self.watch_revocation(now, &id, &metadata, state, true);
            }
        }
    }

    /// A topic came, went or grew; the next heartbeat looks whether that concerns the group.
    pub fn handle_topics_changed(&mut self) {
        self.topics_checked = false;
    }

    /// The records that put out members that were silent, or kept partitions, for too long.
    pub fn handle_time(&mut self, now: Instant) -> Vec<ConsumerRecord> {
        let deadlines = self.sessions.iter().chain(&self.revocations);
        let late = deadlines.filter(|(_, until)| **until <= now);
        let mut late: Vec<String> = late.map(|(id, _)| id.clone()).collect();
        late.sort_unstable();
        late.dedup();
        self.without(&late)
    }

    /// When to ask [`ConsumerGroup::handle_time`] again.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.sessions.values().chain(self.revocations.values());
        deadlines.min().copied()
    }

    /// Whether a member may commit an offset of a partition, whose topic id is known (KIP-848, KIP-1251): in its own epoch, or in an older
    /// one in which it already had the partition.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownMemberId`], and [`ErrorKind::StaleMemberEpoch`], after which the member tries again with its epoch of then.
    pub fn check_commit(
        &self,
        member_id: &str,
        member_epoch: i32,
        topic: TopicId,
        partition: i32,
    ) -> Result<(), ErrorKind> {
        // Of somebody who is in no group, like an admin client.
        if member_epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let current = self.member(member_id)?;
        let held = [&current.assigned, &current.pending_revocation];
        let mut since = held
            .into_iter()
            .filter_map(|held| held.get(&topic)?.get(&partition));
        let is_current = member_epoch == current.member_epoch;
        let had_it = member_epoch < current.member_epoch
            && since.next().is_some_and(|epoch| member_epoch >= *epoch);
        if is_current || had_it {
            Ok(())
        } else {
            Err(ErrorKind::StaleMemberEpoch)
        }
    }

    /// Whether somebody may read the group's offsets; without a member id anybody may.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownMemberId`] and [`ErrorKind::StaleMemberEpoch`].
    pub fn check_fetch(&self, member_id: Option<&str>, member_epoch: i32) -> Result<(), ErrorKind> {
        let Some(member_id) = member_id else {
            return match member_epoch {
                i32::MIN..0 => Ok(()),
                _ => Err(ErrorKind::UnknownMemberId),
            };
        };
        if self.member(member_id)?.member_epoch == member_epoch {
            Ok(())
        } else {
            Err(ErrorKind::StaleMemberEpoch)
        }
    }

    pub(super) fn member(&self, id: &str) -> Result<&CurrentAssignment, ErrorKind> {
        let current = self.members.get(id).and_then(|_| self.current.get(id));
        current.ok_or(ErrorKind::UnknownMemberId)
    }

    /// The static member with an instance id.
    pub(super) fn of_instance(&self, instance: &str) -> Option<&str> {
        self.instances.get(instance).map(String::as_str)
    }

    /// Whether another member than this one has a partition.
    pub(super) fn others_have(&self, id: &str, topic: TopicId, partition: i32) -> bool {
        let owner = self
            .owners
            .get(&topic)
            .and_then(|owners| owners.get(&partition));
        owner.is_some_and(|owner| owner != id)
    }

    /// The assignor that most members would like to have, of whom one may just say so, perhaps in the place of another.
    pub(super) fn assignor_with(
        &self,
        updated: Option<(&str, &MemberMetadata)>,
        replaced: Option<&str>,
    ) -> Assignor {
        let others = self.members.iter();
        let others = others.filter(|(id, _)| {
            updated.is_none_or(|(other, _)| *id != other) && replaced != Some(id.as_str())
        });
        let all = others
            .map(|(_, metadata)| metadata)
            .chain(updated.map(|(_, metadata)| metadata));
        let mut votes = [0; Assignor::ALL.len()];
        for metadata in all {
            let named = metadata.server_assignor.as_deref();
            let place = Assignor::ALL
                .iter()
                .position(|one| Some(one.name()) == named);
            if let Some(place) = place {
                votes[place] += 1;
            }
        }
        // Of as many votes the first in the list.
        let best = (0..votes.len()).rev().max_by_key(|place| votes[*place]);
        Assignor::ALL[best.unwrap_or(0)]
    }

    /// The records of a group without these members; nothing if there are none.
    pub(super) fn without(&self, ids: &[String]) -> Vec<ConsumerRecord> {
        let mut records = Vec::new();
        for id in ids {
            records.push(ConsumerRecord::Current(id.clone(), None));
            if self.targets.contains_key(id) {
                records.push(ConsumerRecord::Target(id.clone(), None));
            }
            records.push(ConsumerRecord::Member(id.clone(), None));
        }
        if !ids.is_empty() {
            records.push(ConsumerRecord::Group(Some(GroupEpoch {
                epoch: self.group.epoch.saturating_add(1),
                ..self.group
            })));
        }
        records
    }

    /// Gives a member that is to give up partitions its rebalance timeout to do so, from when it was first told of these.
    pub(super) fn watch_revocation(
        &mut self,
        now: Instant,
        id: &str,
        metadata: &MemberMetadata,
        state: MemberState,
        is_new: bool,
    ) {
        if state != MemberState::UnrevokedPartitions {
            self.revocations.remove(id);
        } else if is_new {
            let timeout = u64::try_from(metadata.rebalance_timeout_ms).unwrap_or(0);
            let until = now + Duration::from_millis(timeout);
            self.revocations.insert(id.to_owned(), until);
        }
    }

    fn note_instance(&mut self, id: &str, metadata: Option<&MemberMetadata>) {
        let before = self.members.get(id);
        if let Some(instance) = before.and_then(|before| before.instance_id.as_deref())
            && self
                .instances
                .get(instance)
                .is_some_and(|owner| owner == id)
        {
            self.instances.remove(instance);
        }
        if let Some(instance) = metadata.and_then(|metadata| metadata.instance_id.clone()) {
            self.instances.insert(instance, id.to_owned());
        }
    }

    fn disown(&mut self, id: &str, current: Option<&CurrentAssignment>) {
        for (topic, partition) in every_partition(current) {
            if let Some(owners) = self.owners.get_mut(&topic) {
                if owners.get(&partition).is_some_and(|owner| owner == id) {
                    owners.remove(&partition);
                }
                if owners.is_empty() {
                    self.owners.remove(&topic);
                }
            }
        }
    }

    fn own(&mut self, id: &str, current: Option<&CurrentAssignment>) {
        for (topic, partition) in every_partition(current) {
            let owners = self.owners.entry(topic).or_default();
            owners.insert(partition, id.to_owned());
        }
    }
}

fn every_partition(
    current: Option<&CurrentAssignment>,
) -> impl Iterator<Item = (TopicId, i32)> + '_ {
    let held = current
        .into_iter()
        .flat_map(|current| [&current.assigned, &current.pending_revocation]);
    held.flat_map(Held::iter)
        .flat_map(|(topic, some)| some.keys().map(|partition| (*topic, *partition)))
}

fn set<V: Clone>(map: &mut BTreeMap<String, V>, id: &str, value: &Option<V>) {
    match value {
        Some(value) => {
            map.insert(id.to_owned(), value.clone());
        }
        None => {
            map.remove(id);
        }
    }
}
