//! What differs between two images: what a broker must look at after it applied records or a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::image::{Image, Topic};
use super::record::{ConfigResource, Record};
use crate::ids::{BrokerId, TopicId, TopicPartition};

/// What was created, changed or removed; the new state is in the newer image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Brokers that registered, changed or left, or whose endpoints changed.
    pub brokers: BTreeSet<BrokerId>,
    /// Topics that are new.
    pub new_topics: BTreeSet<TopicId>,
    /// Topics that are gone, with the names they had: their data may be deleted.
    pub removed_topics: BTreeMap<TopicId, String>,
    /// Partitions that are new or whose state changed.
    pub partitions: BTreeSet<TopicPartition>,
    /// Resources whose configs changed, except those of removed topics.
    pub configs: BTreeSet<ConfigResource>,
}

impl Changes {
    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Notes what `record` changes. `before` is the image that it has not been applied to yet.
    pub fn note(&mut self, before: &Image, record: &Record) {
        match record {
            Record::RegisterBroker { broker, .. }
            | Record::UnregisterBroker { broker }
            | Record::BrokerState { broker, .. }
            | Record::BrokerEndpoints { broker, .. } => {
                self.brokers.insert(*broker);
            }
            Record::Topic { topic_id, .. } => {
                self.new_topics.insert(*topic_id);
            }
            Record::RemoveTopic { topic_id } => {
                if let Some(topic) = before.topic(*topic_id) {
                    self.remove(topic);
                }
            }
            Record::Partition {
                topic_id,
                partition,
                ..
            } => {
                let partition = TopicPartition::new(*topic_id, *partition);
                self.partitions.insert(partition);
            }
            Record::Config { resource, .. } => {
                self.configs.insert(resource.clone());
            }
            Record::ClusterId { .. }
            | Record::ProducerIds { .. }
            | Record::Voter { .. }
            | Record::VoterLog { .. }
            | Record::RemoveVoter { .. }
            | Record::InviteVoter { .. }
            | Record::NoOp => {}
        }
    }

    /// What leads from `old` to `new`; for a snapshot that replaces an image.
    pub fn between(old: &Image, new: &Image) -> Self {
        let mut changes = Self::default();
        changes.compare_brokers(old, new);
        for (id, topic) in old.shared_topics() {
            if new.topic(*id).is_none() {
                changes.remove(topic);
            }
        }
        for (id, topic) in new.shared_topics() {
            match old.shared_topics().get(id) {
                Some(before) if Arc::ptr_eq(before, topic) => {}
                before => changes.compare_topic(before.map(Arc::as_ref), topic),
            }
        }
        for (resource, configs) in old.configured() {
            if new.configs(resource) != configs && !changes.is_of_removed_topic(new, resource) {
                changes.configs.insert(resource.clone());
            }
        }
        for (resource, configs) in new.configured() {
            if old.configs(resource) != configs {
                changes.configs.insert(resource.clone());
            }
        }
        changes
    }

    fn compare_brokers(&mut self, old: &Image, new: &Image) {
        let ids = old.known_brokers().chain(new.known_brokers());
        for id in ids.collect::<BTreeSet<_>>() {
            if old.broker(id) != new.broker(id) || old.endpoints(id) != new.endpoints(id) {
                self.brokers.insert(id);
            }
        }
    }

    fn compare_topic(&mut self, before: Option<&Topic>, topic: &Topic) {
        if before.is_none() {
            self.new_topics.insert(topic.id);
        }
        for (index, state) in topic.partitions.iter().enumerate() {
            let same = before.is_some_and(|before| before.partitions.get(index) == Some(state));
            if !same {
                // Partition counts are far below i32::MAX: the controller limits them.
                let partition = TopicPartition::new(topic.id, index as i32);
                self.partitions.insert(partition);
            }
        }
    }

    fn is_of_removed_topic(&self, new: &Image, resource: &ConfigResource) -> bool {
        match resource {
            ConfigResource::Topic(name) => new.topic_by_name(name).is_none(),
            ConfigResource::Broker(_) => false,
        }
    }

    fn remove(&mut self, topic: &Topic) {
        self.new_topics.remove(&topic.id);
        self.partitions
            .retain(|partition| partition.topic_id != topic.id);
        self.configs
            .remove(&ConfigResource::Topic(topic.name.clone()));
        self.removed_topics.insert(topic.id, topic.name.clone());
    }
}
