//! The world as the operator saw it in one pass. Holds facts only: no wishes, no connections.

use std::collections::BTreeMap;

use serde::Serialize;
use taffrail_crds::DeletionPolicy;

use crate::object::ObjectKey;

/// Everything a plan is made from, beside the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// Brokers that exist as processes or pods, whether they run at this moment or not.
    pub brokers: BTreeMap<i32, ObservedBroker>,
    /// What the brokers say.
    pub kafka: ObservedKafka,
    /// Topics that the operator looks after, by topic name, as it remembers them.
    pub managed: BTreeMap<String, ManagedTopic>,
    /// Kafka's ids of the topics that Topic objects were seen to have, by object: a topic of the same name with another
    /// id is not theirs.
    pub recorded: BTreeMap<ObjectKey, String>,
    /// Brokers that vote on the cluster's metadata.
    pub voters: Vec<i32>,
}

/// A broker from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedBroker {
    /// Configuration that it was started with, without what the operator adds itself.
    pub config: BTreeMap<String, String>,
    /// Volumes that it was started with.
    pub volumes: Vec<String>,
    /// In what else it differs from what is wanted, as phrases: "the image changes from a to b". Empty where there is
    /// nothing else to differ in.
    pub outdated: Vec<String>,
    /// Whether it says that it serves clients.
    pub ready: bool,
    /// Whether nothing of it serves, as far as anyone can tell: stopping it costs nothing. One that merely did not
    /// answer in time is neither ready nor down.
    pub down: bool,
    /// Whether it says that it may be stopped without a partition losing its last spare replica; none if it did not
    /// say.
    pub safe_to_stop: Option<bool>,
}

/// What the brokers say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ObservedKafka {
    /// There has never been a broker, so there is nothing to know.
    #[default]
    Absent,
    /// No broker answers. What exists is unknown: absence here is no reason to create or delete anything.
    Unreachable {
        /// Why, for a message.
        why: String,
    },
    /// A broker answered.
    Answered(KafkaWorld),
}

impl ObservedKafka {
    /// What a broker answered, if one did.
    pub fn answered(&self) -> Option<&KafkaWorld> {
        match self {
            Self::Absent | Self::Unreachable { .. } => None,
            Self::Answered(world) => Some(world),
        }
    }

    /// The world, if it is known. A cluster that never was has an empty one.
    pub fn world(&self) -> Option<KafkaWorld> {
        match self {
            Self::Absent => Some(KafkaWorld {
                authoritative: true,
                ..KafkaWorld::default()
            }),
            Self::Unreachable { .. } => None,
            Self::Answered(world) => Some(world.clone()),
        }
    }
}

/// Brokers, topics and reassignments as one broker answered them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KafkaWorld {
    /// Whether the active controller answered, which led the quorum before and after. Any other broker may be behind, or
    /// not know anything yet: that something is missing from its answer is no reason to make or remove it.
    pub authoritative: bool,
    /// Kafka's cluster id.
    pub cluster_id: Option<String>,
    /// The active controller.
    pub controller: Option<i32>,
    /// Brokers that have registered, fenced ones included.
    pub brokers: BTreeMap<i32, RegisteredBroker>,
    /// Topics by name, internal ones included.
    pub topics: BTreeMap<String, ObservedTopic>,
}

/// A broker that has registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RegisteredBroker {
    /// Where clients are told to find it.
    pub host: String,
    /// Port for clients.
    pub port: i32,
    /// Its rack.
    pub rack: Option<String>,
    /// Whether the controller keeps it out of leadership, because it is down or not caught up.
    pub fenced: bool,
}

/// A topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedTopic {
    /// Kafka's topic id in base64.
    pub topic_id: String,
    /// Whether it belongs to the brokers themselves.
    pub internal: bool,
    /// Partitions by index.
    pub partitions: BTreeMap<i32, ObservedPartition>,
    /// The configs that are set on the topic itself; none if they were not asked for.
    pub config: Option<BTreeMap<String, String>>,
}

/// A partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedPartition {
    /// The broker that leads it.
    pub leader: Option<i32>,
    /// Assigned replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Replicas in sync.
    pub isr: Vec<i32>,
    /// The replicas that it is being moved to, if it is.
    pub moves_to: Option<Vec<i32>>,
}

/// A topic that the operator made or adopted for a Topic object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedTopic {
    /// The Topic object.
    pub object: ObjectKey,
    /// Kafka's topic id, once the topic was seen: a topic of the same name with another id is not ours to delete.
    pub topic_id: Option<String>,
    /// What the object last said should become of it.
    pub deletion_policy: DeletionPolicy,
}
