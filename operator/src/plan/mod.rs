//! What has to be done so that the world becomes as the spec says, in order, each step with its reason. Pure:
//! `Valid + Observed -> Plan`. The plan of a converged world is empty.
//!
//! Brokers come first, since topics live on them; topics that need a broker that is not there yet wait and say so.
//! At most one broker is taken down at a time, and at most `MOVES_MAX` partitions move at a time. What was begun before and goes
//! on by itself is told beside the steps.

mod brokers;
mod replicas;
mod show;
mod topics;
mod under_way;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::object::ObjectKey;
use crate::observed::Observed;
use crate::refusal::Refusal;
use crate::validate::Valid;

pub use show::show;
pub(crate) use topics::replaced;
pub use under_way::UnderWay;

/// Partitions that may be moving between brokers at a time: each copies a whole replica, and copying competes with
/// clients for disks. With 16 and replicas of 10 GiB at most 160 GiB are under way.
pub const MOVES_MAX: usize = 16;

/// What to do and what is not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Steps in order.
    pub steps: Vec<PlannedStep>,
    /// What is refused or waits, by Topic object.
    pub topics: BTreeMap<ObjectKey, Vec<Refusal>>,
    /// What is refused or waits of the Cluster.
    pub cluster: Vec<Refusal>,
    /// What was begun before and has not ended.
    #[serde(rename = "underWay")]
    pub under_way: Vec<UnderWay>,
}

/// A step and why it is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedStep {
    /// What to do.
    #[serde(flatten)]
    pub step: Step,
    /// Why, as a phrase: "the topic does not exist".
    pub reason: String,
}

/// One change of the world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "step",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Step {
    /// Bring a broker into being, with disks, address and configuration.
    CreateBroker {
        /// Its id.
        broker: i32,
    },
    /// Restart a broker with the wanted configuration and volumes.
    UpdateBroker {
        /// Its id.
        broker: i32,
    },
    /// Stop a broker for good. Its disks stay.
    RemoveBroker {
        /// Its id.
        broker: i32,
    },
    /// Create a topic with exactly these replicas.
    CreateTopic {
        /// The Topic object.
        object: ObjectKey,
        /// Topic name.
        name: String,
        /// Replicas of partition 0, 1, …, the preferred leader first.
        assignments: Vec<Vec<i32>>,
        /// Its configuration.
        config: BTreeMap<String, String>,
    },
    /// Add partitions to a topic.
    AddPartitions {
        /// The Topic object.
        object: ObjectKey,
        /// Topic name.
        name: String,
        /// Partitions that exist, so the index of the first new one.
        existing: usize,
        /// Replicas of the new partitions.
        assignments: Vec<Vec<i32>>,
    },
    /// Set (a value) or remove (none) configs of a topic.
    AlterTopicConfig {
        /// The Topic object.
        object: ObjectKey,
        /// Topic name.
        name: String,
        /// Names and values.
        changes: BTreeMap<String, Option<String>>,
    },
    /// Give partitions other replicas.
    Reassign {
        /// The Topic object.
        object: ObjectKey,
        /// Topic name.
        name: String,
        /// Replicas by partition, the preferred leader first.
        moves: BTreeMap<i32, Vec<i32>>,
    },
    /// Delete a topic with its records.
    DeleteTopic {
        /// The Topic object that was removed.
        object: ObjectKey,
        /// Topic name.
        name: String,
        /// Kafka's topic id; a topic of another id under the same name is left alone.
        topic_id: String,
    },
    /// Look after a topic no longer, and leave it as it is.
    ReleaseTopic {
        /// The Topic object that was removed.
        object: ObjectKey,
        /// Topic name.
        name: String,
    },
}

impl Step {
    /// The Topic object whose concern the step is; none if it is the Cluster's.
    pub fn object(&self) -> Option<&ObjectKey> {
        match self {
            Self::CreateBroker { .. } | Self::UpdateBroker { .. } | Self::RemoveBroker { .. } => {
                None
            }
            Self::CreateTopic { object, .. }
            | Self::AddPartitions { object, .. }
            | Self::AlterTopicConfig { object, .. }
            | Self::Reassign { object, .. }
            | Self::DeleteTopic { object, .. }
            | Self::ReleaseTopic { object, .. } => Some(object),
        }
    }
}

impl Plan {
    fn step(&mut self, step: Step, reason: impl Into<String>) {
        self.steps.push(PlannedStep {
            step,
            reason: reason.into(),
        });
    }

    pub(crate) fn goes_on(&mut self, object: Option<ObjectKey>, message: String) {
        self.under_way.push(UnderWay { object, message });
    }

    fn refuse_topic(&mut self, object: &ObjectKey, refusal: Refusal) {
        self.topics.entry(object.clone()).or_default().push(refusal);
    }

    /// All refusals, those of the Cluster first.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        self.cluster.iter().chain(self.topics.values().flatten())
    }
}

/// Plans for a Cluster and its Topics.
pub fn plan(valid: &Valid, observed: &Observed) -> Plan {
    let mut plan = Plan {
        topics: valid.refusals.clone(),
        cluster: valid.cluster_refusals.clone(),
        ..Plan::default()
    };
    if !valid.cluster.paused {
        brokers::plan(valid, observed, &mut plan);
        topics::plan(valid, observed, &mut plan);
    }
    under_way::find(valid, observed, &mut plan);
    plan
}
