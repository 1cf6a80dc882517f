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

/// Declares the reasons, so that their words, their meanings and the list of all of them cannot differ.
macro_rules! reasons {
    ($($(#[doc = $meaning:literal])+ $name:ident => $transient:literal,)+) => {
        /// Why something is not as the spec says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Reason {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Reason {
            /// All of them, by name.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Whether the state passes by itself, as opposed to one that someone has to do something about.
            pub fn is_transient(self) -> bool {
                match self {
                    $(Self::$name => $transient,)+
                }
            }

            /// The word in conditions and metric labels.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it means, as a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim_ascii(),)+
                }
            }
        }
    };
}

reasons! {
    /// A broker, the API server or a step refused with an error that the message gives.
    ApplyFailed => false,
    /// A broker that should go still holds replicas.
    BrokerHoldsReplicas => false,
    /// A broker that should go votes on the cluster's metadata, and of those that vote there are never fewer again.
    BrokerVotes => false,
    /// Brokers have not all started or registered yet.
    BrokersStarting => true,
    /// No broker answers.
    BrokersUnreachable => true,
    /// The disks under this name hold the data of another cluster.
    ClusterIdMismatch => false,
    /// The Topic names a Cluster that is not there.
    ClusterNotFound => false,
    /// The object is being deleted; the message says what that waits for.
    Deleting => true,
    /// Brokers have no rack yet, which they wait for, or no address at which clients outside reach them.
    EndpointsPending => true,
    /// The spec has fewer partitions than the topic.
    FewerPartitions => false,
    /// Neither the Cluster nor the operator names a container image for brokers.
    ImageMissing => false,
    /// A config name or value is wrong.
    InvalidConfig => false,
    /// Another object has the name of one that the Cluster needs.
    NameTaken => false,
    /// The operator may not read nodes, which racks and NodePort addresses come from.
    NodesUnreadable => false,
    /// Brokers cannot be restarted at this moment without partitions becoming unavailable.
    NotSafeToStop => true,
    /// A broker's container ends or cannot start; the message gives its last words.
    PodFailing => false,
    /// A broker's pod finds no node.
    PodUnschedulable => false,
    /// The change is under way.
    Progressing => true,
    /// A part of the spec is left out because it would break what the operator sets up.
    SettingIgnored => false,
    /// More replicas are asked for than there are brokers.
    TooFewBrokers => false,
    /// An older Topic claims the same topic name.
    TopicNameTaken => false,
    /// Somebody deleted the topic and made another one of its name.
    TopicReplaced => false,
    /// The update breaks a rule of the schema, so the object before it stays in force.
    UpdateRefused => false,
    /// The volumes of a broker would change in a way that loses data.
    VolumeInUse => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sorted_words_with_a_meaning() {
        let words: Vec<&str> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        assert!(words.is_sorted(), "{words:?}");
        for reason in Reason::ALL {
            let meaning = reason.meaning();
            assert!(
                meaning.ends_with('.') && !meaning.starts_with(' '),
                "{meaning}"
            );
        }
    }
}
