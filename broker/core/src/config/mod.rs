//! What a topic and a broker can be configured to do: Kafka's names, their types, bounds and defaults,
//! and how the layers (default, file, cluster-wide, per broker, per topic) become one typed value.
//! It reads maps and returns values; it never opens the file that a map came from.

mod broker;
mod definition;
mod describe;
mod error;
mod hint;
mod layers;
mod listener;
mod meaning;
mod topic;
mod value;

#[cfg(test)]
mod tests;

pub use broker::{BROKER_CONFIGS, BrokerConfig};
pub use definition::{Allowed, ConfigMap, Definition, Synonym, Update, ValueType};
pub use describe::{ConfigEntry, ConfigSource, ConfigSynonym, describe_broker, describe_topic};
pub use error::{ConfigError, ConfigErrors};
pub use layers::{Layers, check_broker_dynamic, check_topic, check_topic_value};
pub use listener::{HostPort, Listener, Voter};
pub use meaning::{canonical_broker, canonical_topic, same_meaning, same_meaning_broker};
pub use topic::{TOPIC_CONFIGS, TopicConfig};
pub use value::{
    CleanupPolicy, CompressionType, FlushPolicy, LogFormat, ReplicaSelector, ThrottledReplicas,
    TimestampType,
};

/// The definition of a topic config, if there is one of that name.
pub fn topic_definition(name: &str) -> Option<&'static Definition> {
    TOPIC_CONFIGS
        .iter()
        .find(|definition| definition.name == name)
}

/// The definition of a broker config, if there is one of that name.
pub fn broker_definition(name: &str) -> Option<&'static Definition> {
    BROKER_CONFIGS
        .iter()
        .find(|definition| definition.name == name)
}
