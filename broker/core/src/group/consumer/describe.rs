//! A group as ConsumerGroupDescribe and ListGroups show it.

use std::fmt;

use super::Partitions;
use super::assignment::{Held, MemberState};
use super::group::ConsumerGroup;
use super::record::MemberMetadata;

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerGroupState {
    /// It has no members.
    Empty,
    /// There must be a new target assignment.
    Assigning,
    /// Not all members have got to the target.
    Reconciling,
    /// All have.
    Stable,
}

impl fmt::Display for ConsumerGroupState {
    /// Kafka's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        })
    }
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConsumerGroup {
    /// How far it is.
    pub state: ConsumerGroupState,
    /// The group's epoch.
    pub epoch: i32,
    /// The epoch of its target assignment.
    pub target_epoch: i32,
    /// The assignor's name.
    pub assignor: &'static str,
    /// In the order of their ids.
    pub members: Vec<DescribedConsumer>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConsumer {
    /// Its id.
    pub member_id: String,
    /// Its epoch.
    pub member_epoch: i32,
    /// What it said of itself.
    pub metadata: MemberMetadata,
    /// What it has.
    pub assigned: Partitions,
    /// What it is to have.
    pub target: Partitions,
}

impl ConsumerGroup {
    /// How far the group is.
    pub fn state(&self) -> ConsumerGroupState {
        if self.members.is_empty() {
            return ConsumerGroupState::Empty;
        }
        if self.group.epoch > self.target_epoch {
            return ConsumerGroupState::Assigning;
        }
        let is_there = |id: &String| {
            let current = self.current.get(id);
            current.is_some_and(|current| {
                current.state == MemberState::Stable && current.member_epoch == self.target_epoch
            })
        };
        if self.members.keys().all(is_there) {
            ConsumerGroupState::Stable
        } else {
            ConsumerGroupState::Reconciling
        }
    }

    /// The whole group.
    pub fn describe(&self) -> DescribedConsumerGroup {
        let members = self.members.iter().map(|(id, metadata)| {
            let current = self.current.get(id).cloned().unwrap_or_default();
            DescribedConsumer {
                member_id: id.clone(),
                member_epoch: current.member_epoch,
                metadata: metadata.clone(),
                assigned: partitions(&current.assigned),
                target: self.targets.get(id).cloned().unwrap_or_default(),
            }
        });
        DescribedConsumerGroup {
            state: self.state(),
            epoch: self.group.epoch,
            target_epoch: self.target_epoch,
            assignor: self.assignor_with(None, None).name(),
            members: members.collect(),
        }
    }
}

/// Without the epochs.
pub(super) fn partitions(held: &Held) -> Partitions {
    let held = held.iter();
    held.map(|(topic, some)| (*topic, some.keys().copied().collect()))
        .collect()
}
