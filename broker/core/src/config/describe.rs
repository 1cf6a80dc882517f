//! What DescribeConfigs tells of a topic or a broker: each config with its value, where that comes from and what else was set.

use super::definition::{ConfigMap, Definition, Update, ValueType};
use super::layers::{Layers, broker_value, topic_value_with_source};
use super::{BROKER_CONFIGS, TOPIC_CONFIGS, broker_definition};

/// Where a value comes from, with the numbers that DescribeConfigs sends (`DescribeConfigsResponse.ConfigSource`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set on the topic.
    DynamicTopic = 1,
    /// Committed for the broker.
    DynamicBroker = 2,
    /// Committed for every broker.
    DynamicCluster = 3,
    /// In the broker's file or environment.
    StaticBroker = 4,
    /// Nobody set it.
    Default = 5,
}

/// One value that was set somewhere, the winner included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The name under which it was set.
    pub name: String,
    /// Its text.
    pub value: Option<String>,
    /// Where.
    pub source: ConfigSource,
}

/// One config of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: &'static str,
    /// The value that holds; none if it is not set and that has a meaning.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether it cannot be changed through the admin API.
    pub read_only: bool,
    /// Its type.
    pub value_type: ValueType,
    /// What it does.
    pub doc: &'static str,
    /// Every value that was set, strongest first, and the default last.
    pub synonyms: Vec<ConfigSynonym>,
}

/// Every config of a topic, by name.
pub fn describe_topic(layers: &Layers<'_>, topic: &ConfigMap) -> Vec<ConfigEntry> {
    sorted(TOPIC_CONFIGS.iter().map(|definition| {
        let (source, value) = match topic_value_with_source(definition, layers, topic) {
            Some((source, value)) => (source, Some(value)),
            None => (
                ConfigSource::Default,
                definition.default.map(str::to_string),
            ),
        };
        let mut synonyms: Vec<ConfigSynonym> = topic
            .get(definition.name)
            .map(|value| synonym(definition.name, value, ConfigSource::DynamicTopic))
            .into_iter()
            .collect();
        for broker in definition.synonyms {
            synonyms.extend(
                layers
                    .values(broker.name)
                    .map(|(source, value)| synonym(broker.name, value, source)),
            );
            if let Some(default) =
                broker_definition(broker.name).and_then(|definition| definition.default)
            {
                synonyms.push(synonym(broker.name, default, ConfigSource::Default));
            }
        }
        entry(definition, value, source, false, synonyms)
    }))
}

/// Every config of a broker, by name.
pub fn describe_broker(layers: &Layers<'_>) -> Vec<ConfigEntry> {
    sorted(BROKER_CONFIGS.iter().map(|definition| {
        let mut synonyms: Vec<ConfigSynonym> = layers
            .values(definition.name)
            .map(|(source, value)| synonym(definition.name, value, source))
            .collect();
        let source = synonyms
            .first()
            .map_or(ConfigSource::Default, |synonym| synonym.source);
        let value = broker_value(definition, layers).or(definition.default.map(str::to_string));
        if let Some(default) = definition.default {
            synonyms.push(synonym(definition.name, default, ConfigSource::Default));
        }
        entry(
            definition,
            value,
            source,
            definition.update == Update::ReadOnly,
            synonyms,
        )
    }))
}

fn sorted(entries: impl Iterator<Item = Option<ConfigEntry>>) -> Vec<ConfigEntry> {
    let mut entries: Vec<ConfigEntry> = entries.flatten().collect();
    entries.sort_by_key(|entry| entry.name);
    entries
}

fn synonym(name: &str, value: &str, source: ConfigSource) -> ConfigSynonym {
    ConfigSynonym {
        name: name.to_string(),
        value: Some(value.to_string()),
        source,
    }
}

/// Internal configs are shown only where somebody set one.
fn entry(
    definition: &Definition,
    value: Option<String>,
    source: ConfigSource,
    read_only: bool,
    synonyms: Vec<ConfigSynonym>,
) -> Option<ConfigEntry> {
    if definition.internal && source == ConfigSource::Default {
        return None;
    }
    Some(ConfigEntry {
        name: definition.name,
        value,
        source,
        read_only,
        value_type: definition.value_type,
        doc: definition.doc,
        synonyms,
    })
}
