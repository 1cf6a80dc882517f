//! What one member has, and its way from there to what it is to have (KIP-848; Kafka's `CurrentAssignmentBuilder`).
//!
//! A member is told to give up first, and stays in its epoch until it reports that it did. Then it goes to the target's epoch and gets what
//! is free; what others have not given up yet it gets with a later heartbeat. So a partition never belongs to two members, and nobody waits
//! for more than what it is to get.

use std::collections::{BTreeMap, BTreeSet};

use super::Partitions;
use crate::ids::TopicId;

/// Partitions by topic, each with the member epoch in which its owner got it; no topic is without any.
pub type Held = BTreeMap<TopicId, BTreeMap<i32, i32>>;

/// Where a member is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has what its epoch's target says.
    Stable,
    /// It is to give up partitions, and has not said that it did.
    UnrevokedPartitions,
    /// It is in the target's epoch, and others have partitions that it is to get.
    UnreleasedPartitions,
}

/// What a member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentAssignment {
    /// Where it is.
    pub state: MemberState,
    /// The epoch that it must name in its next heartbeat.
    pub member_epoch: i32,
    /// The epoch before its last step: a member that did not get the answer of that step names this one.
    pub previous_member_epoch: i32,
    /// What it may use.
    pub assigned: Held,
    /// What it is to give up, and may have until it says otherwise.
    pub pending_revocation: Held,
}

/// What a member is to have.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The epoch of the group's target assignment.
    pub epoch: i32,
    /// The member's part of it.
    pub partitions: &'a Partitions,
    /// What the member subscribes to now: its part of the target may be older.
    pub subscribed: &'a BTreeSet<TopicId>,
}

/// What a heartbeat said.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    /// What the member has; a heartbeat that does not say it says nothing about what was given up.
    pub owned: Option<&'a Partitions>,
    /// Whether the subscription is another than before.
    pub subscription_changed: bool,
}

impl CurrentAssignment {
    /// A new member's, that has nothing and takes its first step towards any target.
    pub fn new() -> Self {
        Self {
            state: MemberState::Stable,
            member_epoch: 0,
            previous_member_epoch: 0,
            assigned: Held::new(),
            pending_revocation: Held::new(),
        }
    }

    /// The member's next step, or nothing if there is none now. `others_have` says whether another member has a partition, be it that it is
    /// to give it up.
    pub fn next(
        &self,
        target: Target<'_>,
        reported: Reported<'_>,
        others_have: impl Fn(TopicId, i32) -> bool,
    ) -> Option<Self> {
        let waits = match self.state {
            MemberState::Stable => self.member_epoch == target.epoch,
            MemberState::UnrevokedPartitions => has_any(&self.pending_revocation, reported.owned),
            MemberState::UnreleasedPartitions => false,
        };
        let next = if !waits {
            self.towards(target, reported, others_have)
        } else if reported.subscription_changed {
            self.without_unsubscribed(target, reported)
        } else {
            return None;
        };
        (next != *self).then_some(next)
    }

    fn towards(
        &self,
        target: Target<'_>,
        reported: Reported<'_>,
        others_have: impl Fn(TopicId, i32) -> bool,
    ) -> Self {
        let is_target = |topic: TopicId, partition: i32| {
            let partitions = target.partitions.get(&topic);
            target.subscribed.contains(&topic)
                && partitions.is_some_and(|partitions| partitions.contains(&partition))
        };
        let (mut assigned, pending_revocation) = split(&self.assigned, is_target);
        if has_any(&pending_revocation, reported.owned) {
            return Self {
                state: MemberState::UnrevokedPartitions,
                assigned,
                pending_revocation,
                ..self.at(self.member_epoch)
            };
        }
        let mut unreleased = false;
        for (topic, partitions) in target.partitions {
            if !target.subscribed.contains(topic) {
                continue;
            }
            for partition in partitions {
                let has = assigned.get(topic);
                if has.is_some_and(|has| has.contains_key(partition)) {
                    continue;
                }
                if others_have(*topic, *partition) {
                    unreleased = true;
                } else {
                    let has = assigned.entry(*topic).or_default();
                    has.insert(*partition, target.epoch);
                }
            }
        }
        let state = if unreleased {
            MemberState::UnreleasedPartitions
        } else {
            MemberState::Stable
        };
        Self {
            state,
            assigned,
            pending_revocation: Held::new(),
            ..self.at(target.epoch)
        }
    }

    /// Takes away at once what is subscribed to no more, though there is no new target yet.
    fn without_unsubscribed(&self, target: Target<'_>, reported: Reported<'_>) -> Self {
        let subscribed = |topic: TopicId, _| target.subscribed.contains(&topic);
        let (assigned, lost) = split(&self.assigned, subscribed);
        if lost.is_empty() {
            return self.clone();
        }
        let mut pending_revocation = self.pending_revocation.clone();
        for (topic, partitions) in lost {
            let pending = pending_revocation.entry(topic).or_default();
            pending.extend(partitions);
        }
        if has_any(&pending_revocation, reported.owned) {
            Self {
                state: MemberState::UnrevokedPartitions,
                assigned,
                pending_revocation,
                ..self.at(self.member_epoch)
            }
        } else {
            Self {
                assigned,
                ..self.at(self.member_epoch)
            }
        }
    }

    fn at(&self, member_epoch: i32) -> Self {
        Self {
            member_epoch,
            previous_member_epoch: self.member_epoch,
            ..self.clone()
        }
    }
}

impl Default for CurrentAssignment {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a member that reports `owned` may have any of `held`.
fn has_any(held: &Held, owned: Option<&Partitions>) -> bool {
    let Some(owned) = owned else {
        return !held.is_empty();
    };
    owned.iter().any(|(topic, partitions)| {
        let held = held.get(topic);
        held.is_some_and(|held| partitions.iter().any(|one| held.contains_key(one)))
    })
}

/// What stays and what goes.
fn split(held: &Held, stays: impl Fn(TopicId, i32) -> bool) -> (Held, Held) {
    let (mut staying, mut going) = (Held::new(), Held::new());
    for (topic, partitions) in held {
        for (partition, epoch) in partitions {
            let side = if stays(*topic, *partition) {
                &mut staying
            } else {
                &mut going
            };
            let side = side.entry(*topic).or_default();
            side.insert(*partition, *epoch);
        }
    }
    (staying, going)
}

#[cfg(test)]
mod tests;
