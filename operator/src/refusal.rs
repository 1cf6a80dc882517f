//! What is refused or waits, and why: one enum that feeds condition reasons, messages and metric labels.

use std::fmt;

use serde::Serialize;

/// The part of an object that a refusal concerns; each has a condition of its own, and one failing does not stop the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Concern {
    /// The object as a whole.
    Ready,
    /// A Cluster's brokers.
    BrokersReady,
    /// Partitions and replicas of a Topic.
    Placed,
    /// The configuration of a Cluster or Topic.
    Configured,
}

impl Concern {
    /// The condition's type.
    pub fn condition(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::BrokersReady => "BrokersReady",
            Self::Placed => "Placed",
            Self::Configured => "Configured",
        }
    }
}

/// Why something is not as the spec says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Reason {
    /// A broker or step refused with an error that the message gives.
    ApplyFailed,
    /// A broker that should go still holds replicas.
    BrokerHoldsReplicas,
    /// Brokers have not all started or registered yet.
    BrokersStarting,
    /// No broker answers.
    BrokersUnreachable,
    /// The Topic names a Cluster that is not there.
    ClusterNotFound,
    /// The spec has fewer partitions than the topic.
    FewerPartitions,
    /// A config name or value is wrong.
    InvalidConfig,
    /// Brokers cannot be restarted at this moment without partitions becoming unavailable.
    NotSafeToStop,
    /// The change is under way.
    Progressing,
    /// An older Topic claims the same topic name.
    TopicNameTaken,
    /// More replicas are asked for than there are brokers.
    TooFewBrokers,
    /// The update breaks a rule of the schema, so the object before it stays in force.
    UpdateRefused,
    /// The volumes of a broker would change in a way that loses data.
    VolumeInUse,
}

impl Reason {
    /// Whether the state passes by itself, as opposed to one that someone has to do something about.
    pub fn is_transient(self) -> bool {
        match self {
            Self::BrokersStarting
            | Self::BrokersUnreachable
            | Self::NotSafeToStop
            | Self::Progressing => true,
            Self::ApplyFailed
            | Self::BrokerHoldsReplicas
            | Self::ClusterNotFound
            | Self::FewerPartitions
            | Self::InvalidConfig
            | Self::TopicNameTaken
            | Self::TooFewBrokers
            | Self::UpdateRefused
            | Self::VolumeInUse => false,
        }
    }

    /// The word in conditions and metric labels.
    pub fn word(self) -> &'static str {
        match self {
            Self::ApplyFailed => "ApplyFailed",
            Self::BrokerHoldsReplicas => "BrokerHoldsReplicas",
            Self::BrokersStarting => "BrokersStarting",
            Self::BrokersUnreachable => "BrokersUnreachable",
            Self::ClusterNotFound => "ClusterNotFound",
            Self::FewerPartitions => "FewerPartitions",
            Self::InvalidConfig => "InvalidConfig",
            Self::NotSafeToStop => "NotSafeToStop",
            Self::Progressing => "Progressing",
            Self::TopicNameTaken => "TopicNameTaken",
            Self::TooFewBrokers => "TooFewBrokers",
            Self::UpdateRefused => "UpdateRefused",
            Self::VolumeInUse => "VolumeInUse",
        }
    }
}

/// One thing that is not done, why, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The condition that it turns false.
    pub concern: Concern,
    /// Why, for programs.
    pub reason: Reason,
    /// Why and what to do, for people. Starts with the field or thing that it is about.
    pub message: String,
}

impl Refusal {
    /// A refusal from its parts.
    pub fn new(concern: Concern, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            concern,
            reason,
            message: message.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.reason.word(), self.message)
    }
}
