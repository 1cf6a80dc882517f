//! The layers that a value can come from, which one wins, and what may be written into each.

use super::definition::{ConfigMap, Definition, Update, ValueType};
use super::describe::ConfigSource;
use super::error::{ConfigError, ConfigErrors};
use super::hint::topic_hint;
use super::value::ConfigValue;
use super::{broker_definition, topic_definition};

/// Longest value of a config: a list with the replicas of ten thousand partitions takes 200 to 300 KB, all else some bytes. Each is
/// kept in the metadata, and copied where it is described.
const VALUE_BYTES_MAX: usize = 512 << 10;

static EMPTY: ConfigMap = ConfigMap::new();

/// A broker's configs by origin. A topic's own map stands above all of them.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// From the broker's file and environment.
    pub file: &'a ConfigMap,
    /// Committed for every broker.
    pub cluster: &'a ConfigMap,
    /// Committed for this broker; wins over both others.
    pub broker: &'a ConfigMap,
}

impl<'a> Layers<'a> {
    /// Only a file.
    pub fn of_file(file: &'a ConfigMap) -> Layers<'a> {
        Layers {
            file,
            cluster: &EMPTY,
            broker: &EMPTY,
        }
    }

    /// Nothing but defaults.
    pub fn none() -> Layers<'static> {
        Layers {
            file: &EMPTY,
            cluster: &EMPTY,
            broker: &EMPTY,
        }
    }

    /// The layers that have a value for `name`, strongest first.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = (ConfigSource, &'a str)> {
        [
            (ConfigSource::DynamicBroker, self.broker),
            (ConfigSource::DynamicCluster, self.cluster),
            (ConfigSource::StaticBroker, self.file),
        ]
        .into_iter()
        .filter_map(move |(source, map)| map.get(name).map(|value| (source, value.as_str())))
    }
}

/// The value of a broker config, without its default.
pub(super) fn broker_value(definition: &Definition, layers: &Layers<'_>) -> Option<String> {
    layers
        .values(definition.name)
        .next()
        .map(|(_, value)| value.to_string())
}

/// The value of a topic config, without its default: the topic's own, else that of the first broker synonym that is set.
pub(super) fn topic_value(
    definition: &Definition,
    layers: &Layers<'_>,
    topic: &ConfigMap,
) -> Option<String> {
    topic_value_with_source(definition, layers, topic).map(|(_, value)| value)
}

pub(super) fn topic_value_with_source(
    definition: &Definition,
    layers: &Layers<'_>,
    topic: &ConfigMap,
) -> Option<(ConfigSource, String)> {
    if let Some(value) = topic.get(definition.name) {
        return Some((ConfigSource::DynamicTopic, value.clone()));
    }
    definition.synonyms.iter().find_map(|synonym| {
        let (source, value) = layers.values(synonym.name).next()?;
        Some((source, multiplied(value, synonym.multiplier)))
    })
}

/// Hours and minutes become milliseconds; a negative one means "no limit" and stays -1.
fn multiplied(value: &str, multiplier: i64) -> String {
    match value.trim().parse::<i64>() {
        Ok(number) if number < 0 && multiplier != 1 => "-1".to_string(),
        Ok(number) if multiplier != 1 => number.saturating_mul(multiplier).to_string(),
        Ok(_) | Err(_) => value.to_string(),
    }
}

/// Checks one topic config.
pub fn check_topic_value(name: &str, value: &str) -> Result<(), ConfigError> {
    let definition = topic_definition(name).ok_or_else(|| ConfigError::Unknown {
        name: name.to_string(),
        hint: topic_hint(name),
    })?;
    check_value(definition, value)
}

/// So many of the configs that are wrong are told at once; there are some dozens in all. For each that is unknown all names are
/// compared with it, and a request may bring as many as fit into it.
const ERRORS_MAX: usize = 100;

/// Checks a topic's whole map, the values against each other included, and reports what is wrong, up to 100 configs of it.
pub fn check_topic(topic: &ConfigMap) -> Result<(), ConfigErrors> {
    let mut errors: Vec<ConfigError> = topic
        .iter()
        .filter_map(|(name, value)| check_topic_value(name, value).err())
        .take(ERRORS_MAX)
        .collect();
    let number = |name: &str| {
        topic
            .get(name)
            .and_then(|value| value.trim().parse::<i64>().ok())
    };
    if let (Some(least), Some(most)) = (
        number("min.compaction.lag.ms"),
        number("max.compaction.lag.ms"),
    ) && least > most
    {
        errors.push(ConfigError::Conflict {
            name: "min.compaction.lag.ms".to_string(),
            value: least.to_string(),
            reason: format!("is more than max.compaction.lag.ms, {most}"),
        });
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ConfigErrors(errors))
    }
}

/// Checks one config that is to be committed for one broker (`one_broker`) or for the cluster.
pub fn check_broker_dynamic(name: &str, value: &str, one_broker: bool) -> Result<(), ConfigError> {
    let definition = broker_definition(name).ok_or_else(|| ConfigError::Unknown {
        name: name.to_string(),
        hint: None,
    })?;
    let refused = |reason: &str| {
        Err(ConfigError::NotDynamic {
            name: name.to_string(),
            reason: reason.to_string(),
        })
    };
    match definition.update {
        Update::ReadOnly => refused("is set in the broker's file and read at its start"),
        Update::ClusterOnly if one_broker => {
            refused("is set for the whole cluster, not for one broker")
        }
        Update::ClusterOnly | Update::Dynamic => check_value(definition, value),
    }
}

/// Checks a value against the definition's type and bounds.
pub(super) fn check_value(definition: &Definition, value: &str) -> Result<(), ConfigError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(ConfigError::TooLong {
            name: definition.name.to_string(),
            bytes: value.len(),
            most: VALUE_BYTES_MAX,
        });
    }
    match definition.value_type {
        ValueType::Boolean => definition.parse::<bool>(value).map(drop),
        ValueType::String => definition.parse::<String>(value).map(drop),
        ValueType::Int => definition.parse::<i32>(value).map(drop),
        ValueType::Short => definition.parse::<i16>(value).map(drop),
        ValueType::Long => definition.parse::<i64>(value).map(drop),
        ValueType::Double => definition.parse::<f64>(value).map(drop),
        ValueType::List => definition.parse::<Vec<String>>(value).map(drop),
    }
}

/// Whether text reads as the type, for values whose bounds do not matter.
pub(super) fn reads_as<T: ConfigValue>(text: &str) -> Option<T> {
    T::parse(text.trim())
}
