//! Topics are created, placed if the request does not say where, and deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::election::partition_record;
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{BrokerId, TopicId};
use crate::metadata::{ConfigResource, Partition, Record, Topic};
use crate::placement::{self, PlacementBroker};

/// Kafka's limit on partitions in one request (`ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`): at about 100 bytes a record the
/// entry stays near 1 MB.
pub(super) const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;

/// `<name>-<partition>` must fit in a file name of 255 bytes (`org.apache.kafka.common.internals.Topic`).
const NAME_LENGTH_MAX: usize = 249;

/// A topic to create. Configs were validated by the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopic {
    /// Its name.
    pub name: String,
    /// Its id, drawn by the caller.
    pub topic_id: TopicId,
    /// How many partitions; -1 for the default, or with assignments.
    pub partitions: i32,
    /// How many replicas of each; -1 for the default, or with assignments.
    pub replication_factor: i16,
    /// The replicas of each partition by index, the preferred leader first; empty to let the controller place them.
    pub assignments: Vec<(i32, Vec<BrokerId>)>,
    /// Configs to set on it.
    pub configs: Vec<(String, String)>,
    /// Where placement starts in the ring, drawn by the caller; unused with assignments.
    pub start: usize,
    /// The shift of its followers, drawn by the caller; unused with assignments.
    pub shift: usize,
}

/// A topic that was created, or that would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id.
    pub topic_id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
    /// How many replicas each has.
    pub replication_factor: i16,
}

/// A topic by name or by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicSelector {
    /// By name.
    Name(String),
    /// By id.
    Id(TopicId),
}

/// Whether a topic belongs to the brokers; such a topic is not deleted and keeps its number of partitions.
pub fn is_internal_topic(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__cluster_metadata"
    )
}

impl Controller {
    /// Creates topics; replies for each in order. A refused topic does not keep the others from being created. With
    /// `validate_only` nothing is recorded.
    pub fn create_topics(
        &self,
        topics: &[CreateTopic],
        validate_only: bool,
    ) -> Decision<Vec<Result<CreatedTopic, ApiError>>> {
        let mut batch = Batch::default();
        let reply = topics
            .iter()
            .map(|topic| self.create_topic(topic, &mut batch))
            .collect();
        let records = if validate_only {
            Vec::new()
        } else {
            batch.records
        };
        Decision { records, reply }
    }

    /// Deletes topics with their configs; replies the id and name of each in order. One that is named more than once, be it by
    /// name and by id, is left alone: Kafka's `ControllerApis.deleteTopics` takes such a request for a mistake.
    pub fn delete_topics(
        &self,
        topics: &[TopicSelector],
    ) -> Decision<Vec<Result<(TopicId, String), ApiError>>> {
        let mut named = BTreeSet::new();
        let found = topics
            .iter()
            .filter_map(|selector| self.find(selector).ok());
        let again = found.filter(|topic| !named.insert(topic.id));
        let repeated: BTreeSet<TopicId> = again.map(|topic| topic.id).collect();
        let mut records = Vec::new();
        let mut delete = |selector: &TopicSelector| {
            let topic = self.find(selector)?;
            if is_internal_topic(&topic.name) {
                let message = format!(
                    "Topic '{}' belongs to the brokers and cannot be deleted.",
                    topic.name
                );
                return Err(ApiError::new(ErrorKind::InvalidRequest, message));
            }
            if repeated.contains(&topic.id) {
                let message = format!("Topic '{}' is named twice in the request.", topic.name);
                return Err(ApiError::new(ErrorKind::InvalidRequest, message));
            }
            records.push(Record::RemoveTopic { topic_id: topic.id });
            Ok((topic.id, topic.name.clone()))
        };
        let reply = topics.iter().map(&mut delete).collect();
        Decision { records, reply }
    }

    fn find(&self, selector: &TopicSelector) -> Result<&Topic, ErrorKind> {
        match selector {
            TopicSelector::Name(name) => {
                let topic = self.image.topic_by_name(name);
                topic.ok_or(ErrorKind::UnknownTopicOrPartition)
            }
            TopicSelector::Id(id) => self.image.topic(*id).ok_or(ErrorKind::UnknownTopicId),
        }
    }

    /// The brokers that may get replicas, as placement sees them. Brokers that are not active are left out unless too few
    /// others are there for the replication factor.
    pub(super) fn placement_brokers(&self, replication_factor: usize) -> Vec<PlacementBroker> {
        let listens = |id: BrokerId| {
            let mut names = self.config.placement_listeners.iter();
            names.all(|name| self.image.listener(id, name).is_some())
        };
        let stands =
            |id: BrokerId| !self.config.placement_needs_rack || self.image.rack(id).is_some();
        let placeable = self
            .image
            .brokers()
            .filter(|broker| listens(broker.id) && stands(broker.id));
        let (active, inactive): (Vec<_>, Vec<_>) = placeable.partition(|broker| broker.is_active());
        let inactive = inactive
            .into_iter()
            .filter(|_| active.len() < replication_factor);
        let chosen = active.iter().copied().chain(inactive);
        let to_placement = chosen.map(|broker| PlacementBroker {
            id: broker.id,
            rack: self.image.rack(broker.id).map(str::to_owned),
        });
        to_placement.collect()
    }

    /// A new partition on these replicas: the active ones are its ISR, the first of them leads.
    pub(super) fn new_partition(&self, replicas: Vec<BrokerId>) -> Result<Partition, ErrorKind> {
        let isr: Vec<_> = replicas
            .iter()
            .copied()
            .filter(|id| self.image.is_active(*id))
            .collect();
        let leader = *isr.first().ok_or(ErrorKind::BrokerNotAvailable)?;
        Ok(Partition {
            replicas,
            isr,
            leader: Some(leader),
            ..Partition::default()
        })
    }

    /// Refuses replica lists that no partition may have.
    pub(super) fn check_replicas(&self, replicas: &[BrokerId]) -> Result<(), ApiError> {
        let refuse =
            |message: String| Err(ApiError::new(ErrorKind::InvalidReplicaAssignment, message));
        if replicas.is_empty() {
            return refuse("A partition needs at least one replica.".to_owned());
        }
        let distinct: BTreeSet<_> = replicas.iter().collect();
        if distinct.len() != replicas.len() {
            return refuse("A broker is named twice in the replicas of one partition.".to_owned());
        }
        match replicas.iter().find(|id| self.image.broker(**id).is_none()) {
            Some(unknown) => refuse(format!("Broker {unknown} is not registered.")),
            None => Ok(()),
        }
    }

    fn create_topic(
        &self,
        topic: &CreateTopic,
        batch: &mut Batch,
    ) -> Result<CreatedTopic, ApiError> {
        check_name(&topic.name)?;
        self.check_name_is_free(&topic.name, batch)?;
        if topic.topic_id.is_zero() || self.image.topic(topic.topic_id).is_some() {
            let message = format!(
                "Topic id {} cannot be given to a new topic.",
                topic.topic_id
            );
            return Err(ApiError::new(ErrorKind::InvalidRequest, message));
        }
        let replica_lists = if topic.assignments.is_empty() {
            self.place_topic(topic)?
        } else {
            self.assigned(topic)?
        };
        if batch.partitions + replica_lists.len() > PARTITIONS_PER_REQUEST_MAX {
            let message =
                format!("A request creates at most {PARTITIONS_PER_REQUEST_MAX} partitions.");
            return Err(ApiError::new(ErrorKind::PolicyViolation, message));
        }
        let replication_factor = replica_lists.first().map_or(0, Vec::len);
        let mut states = Vec::new();
        for replicas in replica_lists {
            let state = self.new_partition(replicas).map_err(|_| {
                let kind = if topic.assignments.is_empty() {
                    ErrorKind::InvalidReplicationFactor
                } else {
                    ErrorKind::InvalidReplicaAssignment
                };
                ApiError::new(
                    kind,
                    "None of the replicas of a partition would be on an active broker.",
                )
            })?;
            states.push(state);
        }
        let created = CreatedTopic {
            topic_id: topic.topic_id,
            // Both are within the limits checked above.
            partitions: states.len() as i32,
            replication_factor: replication_factor as i16,
        };
        batch.add(topic, states);
        Ok(created)
    }

    fn check_name_is_free(&self, name: &str, batch: &mut Batch) -> Result<(), ApiError> {
        if self.image.topic_by_name(name).is_some() {
            let message = format!("Topic '{name}' already exists.");
            return Err(ApiError::new(ErrorKind::TopicAlreadyExists, message));
        }
        if batch.names.contains(name) {
            let message = format!("Topic '{name}' is named twice in the request.");
            return Err(ApiError::new(ErrorKind::InvalidRequest, message));
        }
        // In metric names a dot becomes an underscore, so two such topics would be one. A name with neither is only its own.
        if !name.contains(['.', '_']) {
            return Ok(());
        }
        let folded = batch.folded.get_or_insert_with(|| {
            let existing = self.image.topics_by_name().map(|topic| &topic.name);
            let names = existing.chain(&batch.names);
            names.map(|name| (fold(name), name.clone())).collect()
        });
        match folded.get(&fold(name)) {
            Some(other) => {
                let message = format!("Topic '{name}' collides with existing topic '{other}'.");
                Err(ApiError::new(ErrorKind::InvalidTopicException, message))
            }
            None => Ok(()),
        }
    }

    fn place_topic(&self, topic: &CreateTopic) -> Result<Vec<Vec<BrokerId>>, ApiError> {
        let partitions = match topic.partitions {
            -1 => self.config.default_partitions,
            partitions => partitions,
        };
        let replication_factor = match topic.replication_factor {
            -1 => self.config.default_replication_factor,
            factor => factor,
        };
        let partitions = usize::try_from(partitions)
            .ok()
            .filter(|partitions| *partitions > 0);
        let partitions = partitions.ok_or_else(|| {
            let message = "The number of partitions must be at least 1, or -1 for the default.";
            ApiError::new(ErrorKind::InvalidPartitions, message)
        })?;
        let replication_factor = usize::try_from(replication_factor)
            .ok()
            .filter(|factor| *factor > 0);
        let replication_factor = replication_factor.ok_or_else(|| {
            let message = "The replication factor must be at least 1, or -1 for the default.";
            ApiError::new(ErrorKind::InvalidReplicationFactor, message)
        })?;
        if partitions > PARTITIONS_PER_REQUEST_MAX {
            let message =
                format!("A request creates at most {PARTITIONS_PER_REQUEST_MAX} partitions.");
            return Err(ApiError::new(ErrorKind::PolicyViolation, message));
        }
        let brokers = self.placement_brokers(replication_factor);
        let (start, shift) = (topic.start, topic.shift);
        placement::place(&brokers, 0, partitions, replication_factor, start, shift)
            .map_err(|error| ApiError::new(ErrorKind::InvalidReplicationFactor, error.to_string()))
    }

    fn assigned(&self, topic: &CreateTopic) -> Result<Vec<Vec<BrokerId>>, ApiError> {
        if topic.partitions != -1 || topic.replication_factor != -1 {
            let message =
                "With assignments, the number of partitions and the replication factor must be -1.";
            return Err(ApiError::new(ErrorKind::InvalidRequest, message));
        }
        let mut assignments: Vec<_> = topic.assignments.iter().collect();
        assignments.sort_by_key(|(partition, _)| *partition);
        let refuse =
            |message: &str| Err(ApiError::new(ErrorKind::InvalidReplicaAssignment, message));
        let consecutive = assignments
            .iter()
            .zip(0..)
            .all(|((partition, _), index)| *partition == index);
        if !consecutive {
            return refuse("Partitions must be numbered from 0 without gaps.");
        }
        let replication_factor = assignments[0].1.len();
        for (_, replicas) in &assignments {
            self.check_replicas(replicas)?;
            if replicas.len() != replication_factor {
                return refuse("All partitions must have the same number of replicas.");
            }
        }
        Ok(assignments
            .into_iter()
            .map(|(_, replicas)| replicas.clone())
            .collect())
    }
}

/// A name as metrics spell it.
fn fold(name: &str) -> String {
    name.replace('.', "_")
}

/// What the topics of one request add up to.
#[derive(Default)]
struct Batch {
    names: BTreeSet<String>,
    /// All names, those in the image too, by how metrics spell them; made when first needed, since a request may ask for as
    /// many topics as there are.
    folded: Option<BTreeMap<String, String>>,
    partitions: usize,
    records: Vec<Record>,
}

impl Batch {
    fn add(&mut self, topic: &CreateTopic, states: Vec<Partition>) {
        self.names.insert(topic.name.clone());
        if let Some(folded) = &mut self.folded {
            folded.insert(fold(&topic.name), topic.name.clone());
        }
        self.partitions += states.len();
        self.records.push(Record::Topic {
            topic_id: topic.topic_id,
            name: topic.name.clone(),
        });
        for (name, value) in &topic.configs {
            self.records.push(Record::Config {
                resource: ConfigResource::Topic(topic.name.clone()),
                name: name.clone(),
                value: Some(value.clone()),
            });
        }
        for (partition, state) in (0..).zip(states) {
            self.records
                .push(partition_record(topic.topic_id, partition, state));
        }
    }
}

fn check_name(name: &str) -> Result<(), ApiError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let message = if name.is_empty() {
        "A topic name cannot be empty.".to_owned()
    } else if name == "." || name == ".." {
        "A topic name cannot be '.' or '..'.".to_owned()
    } else if name.len() > NAME_LENGTH_MAX {
        format!(
            "A topic name has at most {NAME_LENGTH_MAX} characters, this one has {}.",
            name.len()
        )
    } else if !name.bytes().all(legal) {
        format!(
            "Topic name '{name}' has characters other than ASCII letters, digits, '.', '_' and '-'."
        )
    } else {
        return Ok(());
    };
    Err(ApiError::new(ErrorKind::InvalidTopicException, message))
}
