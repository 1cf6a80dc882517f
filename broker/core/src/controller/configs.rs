//! Configs of topics and brokers are set, removed, appended to and subtracted from (KIP-339).

use std::collections::{BTreeMap, BTreeSet};

use super::election::partition_record;
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::TopicPartition;
use crate::metadata::{ConfigResource, Image, Record, Topic};

/// Changes of the configs of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterConfigs {
    /// Of what.
    pub resource: ConfigResource,
    /// Each names another config.
    pub changes: Vec<ConfigChange>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The config's name.
    pub name: String,
    /// What to do with it.
    pub operation: ConfigOperation,
}

/// What to do with a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Give it this value.
    Set(String),
    /// Remove it, so that the next layer's value holds.
    Delete,
    /// Add these comma-separated values to those of a list, or of its default.
    Append(String),
    /// Take them out.
    Subtract(String),
}

/// What the definitions of configs say, which are not this module's business.
pub struct ConfigRules<'a> {
    /// Whether a config's value is a list.
    pub is_list: &'a dyn Fn(&ConfigResource, &str) -> bool,
    /// The value that holds if the resource does not set the config.
    pub default: &'a dyn Fn(&ConfigResource, &str) -> Option<String>,
    /// Refuses what a resource would be configured with.
    pub check: &'a ConfigCheck<'a>,
}

/// Judges all configs that a resource would have, by name.
pub type ConfigCheck<'a> =
    dyn Fn(&ConfigResource, &BTreeMap<String, String>) -> Result<(), ApiError> + 'a;

/// Configs that the controller itself goes by: a change may elect leaders or empty ELRs.
const CONTROLLER_CONFIGS: [&str; 2] = ["min.insync.replicas", "unclean.leader.election.enable"];

impl Controller {
    /// Alters configs; replies for each resource in order. All changes of a resource are made, or none. With
    /// `validate_only` nothing is recorded.
    pub fn alter_configs(
        &self,
        requests: &[AlterConfigs],
        rules: &ConfigRules<'_>,
        validate_only: bool,
    ) -> Decision<Vec<Result<(), ApiError>>> {
        let mut records = Vec::new();
        let mut reply = Vec::new();
        let mut seen = BTreeSet::new();
        for request in requests {
            let result = if seen.insert(&request.resource) {
                self.altered(request, rules)
            } else {
                let message = "A resource is named twice in the request.";
                Err(ApiError::new(ErrorKind::InvalidRequest, message))
            };
            reply.push(result.map(|changed| records.extend(changed)));
        }
        if validate_only {
            records.clear();
        }
        records.extend(self.consequences(&records));
        Decision { records, reply }
    }

    fn altered(
        &self,
        request: &AlterConfigs,
        rules: &ConfigRules<'_>,
    ) -> Result<Vec<Record>, ApiError> {
        let resource = &request.resource;
        self.check_resource(resource)?;
        let before = self.image.configs(resource);
        let mut after = before.clone();
        let mut names = BTreeSet::new();
        for ConfigChange { name, operation } in &request.changes {
            if !names.insert(name) {
                let message = format!("Config {name} is named twice for one resource.");
                return Err(ApiError::new(ErrorKind::InvalidRequest, message));
            }
            match operation {
                ConfigOperation::Set(value) => {
                    after.insert(name.clone(), value.clone());
                }
                ConfigOperation::Delete => {
                    after.remove(name);
                }
                ConfigOperation::Append(values) | ConfigOperation::Subtract(values) => {
                    if !(rules.is_list)(resource, name) {
                        let message = format!("Config {name} is not a list.");
                        return Err(ApiError::new(ErrorKind::InvalidConfig, message));
                    }
                    let current = before.get(name).cloned();
                    let current = current.or_else(|| (rules.default)(resource, name));
                    let current = current.unwrap_or_default();
                    let value = match operation {
                        ConfigOperation::Append(_) => appended(&current, values),
                        _ => subtracted(&current, values),
                    };
                    after.insert(name.clone(), value);
                }
            }
        }
        (rules.check)(resource, &after)?;
        let changed = names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name));
        let records = changed.map(|name| Record::Config {
            resource: resource.clone(),
            name: name.clone(),
            value: after.get(name).cloned(),
        });
        Ok(records.collect())
    }

    fn check_resource(&self, resource: &ConfigResource) -> Result<(), ApiError> {
        match resource {
            ConfigResource::Topic(name) if self.image.topic_by_name(name).is_none() => {
                let message = format!("Topic '{name}' does not exist.");
                Err(ApiError::new(ErrorKind::UnknownTopicOrPartition, message))
            }
            ConfigResource::Broker(Some(id)) if self.image.broker(*id).is_none() => {
                let message = format!("Broker {id} is not registered.");
                Err(ApiError::new(ErrorKind::BrokerIdNotRegistered, message))
            }
            ConfigResource::Topic(_) | ConfigResource::Broker(_) => Ok(()),
        }
    }

    /// The partitions that change because configs do.
    fn consequences(&self, changed: &[Record]) -> Vec<Record> {
        let mut topics: BTreeSet<&str> = BTreeSet::new();
        for record in changed {
            match record {
                Record::Config { resource, name, .. }
                    if CONTROLLER_CONFIGS.contains(&name.as_str()) =>
                {
                    match resource {
                        ConfigResource::Topic(topic) => {
                            topics.insert(topic);
                        }
                        ConfigResource::Broker(None) => {
                            topics.extend(self.image.topics().map(|topic| topic.name.as_str()));
                        }
                        ConfigResource::Broker(Some(_)) => {}
                    }
                }
                _ => {}
            }
        }
        if topics.is_empty() {
            return Vec::new();
        }
        let mut after = self.image.clone();
        after.apply_all(changed);
        let topics = topics
            .into_iter()
            .filter_map(|name| self.image.topic_by_name(name));
        topics
            .flat_map(|topic| self.reconsider(&after, topic))
            .collect()
    }

    /// The partitions that this controller's configuration makes something else of: the one before may have gone by another
    /// `min.insync.replicas`, or allowed no unclean elections.
    pub(super) fn reconsider_all(&self) -> Vec<Record> {
        let topics = self.image.topics();
        topics
            .flat_map(|topic| self.reconsider(&self.image, topic))
            .collect()
    }

    fn reconsider(&self, after: &Image, topic: &Topic) -> Vec<Record> {
        let may_lead = |id| self.image.is_active(id);
        let rules = self.rules(after, topic, &may_lead);
        let indexed = (0..).zip(&topic.partitions);
        let changed = indexed.filter_map(|(index, old)| {
            let partition = TopicPartition::new(topic.id, index);
            let state = self.change(partition, old, rules).next()?;
            Some(partition_record(topic.id, index, state))
        });
        changed.collect()
    }
}

fn values(list: &str) -> Vec<&str> {
    list.split(',')
        .map(str::trim)
        .filter(|value| !value.is_empty())
        .collect()
}

fn appended(current: &str, added: &str) -> String {
    let mut all = values(current);
    let mut there: BTreeSet<&str> = all.iter().copied().collect();
    all.extend(
        values(added)
            .into_iter()
            .filter(|value| there.insert(value)),
    );
    all.join(",")
}

fn subtracted(current: &str, taken: &str) -> String {
    let taken: BTreeSet<&str> = values(taken).into_iter().collect();
    let mut all = values(current);
    all.retain(|value| !taken.contains(value));
    all.join(",")
}
