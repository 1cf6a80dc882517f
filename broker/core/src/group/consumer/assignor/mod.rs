//! The assignors that run on the coordinator (KIP-848): `uniform` and `range`.

mod range;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use super::Partitions;
use crate::error::ErrorKind;
use crate::ids::TopicId;

/// How partitions are given to the members of a group; a member names it, or the group's first one is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Every member has as many partitions as the others, as far as their subscriptions allow it, and those that have been its own stay
    /// with it (`UniformAssignor`).
    Uniform,
    /// Each topic by itself, in ranges: what has the same number in topics of the same size goes to the same member (`RangeAssignor`).
    Range,
}

impl Assignor {
    /// The first is the default (`group.consumer.assignors`).
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Range];

    /// The name on the wire and in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// Says which partitions each of `members` is to have. `topics` has the number of partitions of each topic; a topic that is not in
    /// it has none.
    pub fn assign(
        self,
        members: &[Subscriber],
        topics: &BTreeMap<TopicId, i32>,
    ) -> BTreeMap<String, Partitions> {
        let assigned = match self {
            Self::Uniform => uniform::assign(members, topics),
            Self::Range => range::assign(members, topics),
        };
        let ids = members.iter().map(|member| member.id.clone());
        ids.zip(assigned).collect()
    }
}

impl FromStr for Assignor {
    type Err = ErrorKind;

    fn from_str(name: &str) -> Result<Self, ErrorKind> {
        let mut all = Self::ALL.into_iter();
        all.find(|assignor| assignor.name() == name)
            .ok_or(ErrorKind::UnsupportedAssignor)
    }
}

/// A member as an assignor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// The member's id.
    pub id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// What it subscribes to.
    pub topics: BTreeSet<TopicId>,
    /// What it was to have until now.
    pub assigned: Partitions,
}

/// The indexes of the members that subscribe to each topic, ascending.
fn subscribers(members: &[Subscriber]) -> BTreeMap<TopicId, Vec<usize>> {
    let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        for topic in &member.topics {
            subscribers.entry(*topic).or_default().push(index);
        }
    }
    subscribers
}

#[cfg(test)]
mod tests;
