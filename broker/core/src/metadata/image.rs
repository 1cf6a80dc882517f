//! The state that the metadata log's records add up to.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::contradiction::Contradiction;
use super::record::{ConfigResource, Listener, Partition, Record};
use crate::ids::{BrokerEpoch, BrokerId, DirectoryId, Incarnation, TopicId, TopicPartition};

/// The cluster's metadata at one index of the metadata log. Cheap to clone: topics are shared until they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Image {
    cluster_id: Option<String>,
    voters: BTreeMap<BrokerId, Voter>,
    /// How far the metadata logs of voters have been; behind that by a little.
    voter_logs: BTreeMap<BrokerId, i64>,
    /// About brokers that do not vote.
    voter_intents: BTreeMap<BrokerId, VoterIntent>,
    brokers: BTreeMap<BrokerId, Broker>,
    endpoints: BTreeMap<BrokerId, Endpoints>,
    topics: BTreeMap<TopicId, Arc<Topic>>,
    topic_ids: BTreeMap<String, TopicId>,
    configs: BTreeMap<ConfigResource, BTreeMap<String, String>>,
    next_producer_id: i64,
}

/// A broker that votes on the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Voter {
    /// The log directory that holds its metadata log, as far as it is known.
    pub directory: Option<DirectoryId>,
    /// The index since which that is so.
    pub since: i64,
}

/// What somebody decided about a broker that does not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoterIntent {
    /// It was taken out of the voters, and is not taken in again by itself.
    Removed {
        /// The index since which that is so.
        since: i64,
    },
    /// It shall vote, once it has the log.
    Invited {
        /// The log directory that holds its metadata log.
        directory: Option<DirectoryId>,
        /// The index since which that is so.
        since: i64,
        /// The index at which it was taken out of the voters before; -1 if it was not.
        removed: i64,
    },
}

impl VoterIntent {
    /// The index at which it was taken out of the voters; -1 if it was not.
    pub fn removed(self) -> i64 {
        let (Self::Removed { since: removed } | Self::Invited { removed, .. }) = self;
        removed
    }
}

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broker {
    /// Its id.
    pub id: BrokerId,
    /// Its registration.
    pub epoch: BrokerEpoch,
    /// The process that registered.
    pub incarnation: Incarnation,
    /// Its log directories, sorted.
    pub directories: Vec<DirectoryId>,
    /// The addresses of its own configuration; `Image::listeners` has what holds.
    pub listeners: Vec<Listener>,
    /// The rack of its own configuration; `Image::rack` has what holds.
    pub rack: Option<String>,
    /// Leads nothing, in no ISR, not told to clients.
    pub fenced: bool,
    /// Asked to leave: leads nothing new, joins no ISR.
    pub in_controlled_shutdown: bool,
}

impl Broker {
    /// Whether it may lead and be in an ISR.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }
}

/// What the operator set for a broker from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// Overrides the rack of the registration.
    pub rack: Option<String>,
    /// Override the registration's listeners of the same names.
    pub listeners: Vec<Listener>,
}

/// A topic and the state of its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// Its partitions by index.
    pub partitions: Vec<Partition>,
}

impl Image {
    /// Applies one record that this process decided.
    ///
    /// # Panics
    /// When it contradicts the image: a controller that has lost an invariant stops rather than go on.
    pub fn apply(&mut self, record: &Record) {
        if let Err(contradiction) = self.try_apply(record) {
            panic!("decided what cannot be: {contradiction}");
        }
    }

    /// Applies one record, whoever it comes from. A record about something that is not there changes nothing, and neither does
    /// one that is refused.
    pub fn try_apply(&mut self, record: &Record) -> Result<(), Contradiction> {
        match record {
            Record::ClusterId { cluster_id } => self.cluster_id = Some(cluster_id.clone()),
            Record::RegisterBroker {
                broker,
                epoch,
                incarnation,
                directories,
                listeners,
                rack,
                fenced,
            } => {
                let registered = Broker {
                    id: *broker,
                    epoch: *epoch,
                    incarnation: *incarnation,
                    directories: directories.clone(),
                    listeners: listeners.clone(),
                    rack: rack.clone(),
                    fenced: *fenced,
                    in_controlled_shutdown: false,
                };
                self.brokers.insert(*broker, registered);
            }
            Record::UnregisterBroker { broker } => {
                self.brokers.remove(broker);
                self.endpoints.remove(broker);
            }
            Record::BrokerState {
                broker,
                epoch,
                fenced,
                in_controlled_shutdown,
            } => {
                if let Some(broker) = self.brokers.get_mut(broker)
                    && broker.epoch == *epoch
                {
                    broker.fenced = *fenced;
                    broker.in_controlled_shutdown = *in_controlled_shutdown;
                }
            }
            Record::BrokerEndpoints {
                broker,
                rack,
                listeners,
            } => {
                let endpoints = Endpoints {
                    rack: rack.clone(),
                    listeners: listeners.clone(),
                };
                self.endpoints.insert(*broker, endpoints);
            }
            Record::Topic { topic_id, name } => self.add_topic(*topic_id, name)?,
            Record::RemoveTopic { topic_id } => self.remove_topic(*topic_id),
            Record::Partition {
                topic_id,
                partition,
                state,
            } => self.set_partition(*topic_id, *partition, state)?,
            Record::Config {
                resource,
                name,
                value,
            } => self.set_config(resource, name, value.as_deref()),
            Record::ProducerIds { next } => {
                self.next_producer_id = self.next_producer_id.max(*next)
            }
            Record::Voter {
                broker,
                directory,
                since,
            } => {
                let voter = Voter {
                    directory: *directory,
                    since: *since,
                };
                self.voters.insert(*broker, voter);
                // Another disk, of which nothing is known yet.
                self.voter_logs.remove(broker);
                self.voter_intents.remove(broker);
            }
            Record::VoterLog { broker, end } => {
                if self.voters.contains_key(broker) {
                    self.voter_logs.insert(*broker, *end);
                }
            }
            Record::RemoveVoter { broker, since } => {
                self.voters.remove(broker);
                self.voter_logs.remove(broker);
                let removed = VoterIntent::Removed { since: *since };
                self.voter_intents.insert(*broker, removed);
            }
            Record::InviteVoter {
                broker,
                directory,
                since,
                removed,
            } => {
                let invited = VoterIntent::Invited {
                    directory: *directory,
                    since: *since,
                    removed: *removed,
                };
                self.voter_intents.insert(*broker, invited);
            }
            Record::NoOp => {}
        }
        Ok(())
    }

    /// Whether this record, applied next, elects a leader without proof that it has every acknowledged record.
    pub fn is_election_without_proof(&self, record: &Record) -> bool {
        let Record::Partition {
            topic_id,
            partition,
            state,
        } = record
        else {
            return false;
        };
        let id = TopicPartition::new(*topic_id, *partition);
        state.elects_without_proof(self.partition(id))
    }

    /// Applies records that this process decided, in order; panics as `apply` does.
    pub fn apply_all<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            self.apply(record);
        }
    }

    /// Applies records in order, whoever they come from. After a refusal those before it are in the image.
    pub fn try_apply_all<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<(), Contradiction> {
        records
            .into_iter()
            .try_for_each(|record| self.try_apply(record))
    }

    /// The image that these records, the whole of a snapshot or a log, build.
    pub fn replay<'a>(
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<Self, Contradiction> {
        let mut image = Self::default();
        image.try_apply_all(records)?;
        Ok(image)
    }

    /// The records that rebuild this image, in a stable order.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = Vec::new();
        if let Some(cluster_id) = &self.cluster_id {
            records.push(Record::ClusterId {
                cluster_id: cluster_id.clone(),
            });
        }
        for (broker, voter) in &self.voters {
            records.push(Record::Voter {
                broker: *broker,
                directory: voter.directory,
                since: voter.since,
            });
        }
        for (broker, end) in &self.voter_logs {
            records.push(Record::VoterLog {
                broker: *broker,
                end: *end,
            });
        }
        for (broker, intent) in &self.voter_intents {
            records.push(match intent {
                VoterIntent::Removed { since } => Record::RemoveVoter {
                    broker: *broker,
                    since: *since,
                },
                VoterIntent::Invited {
                    directory,
                    since,
                    removed,
                } => Record::InviteVoter {
                    broker: *broker,
                    directory: *directory,
                    since: *since,
                    removed: *removed,
                },
            });
        }
        for broker in self.brokers.values() {
            records.push(Record::RegisterBroker {
                broker: broker.id,
                epoch: broker.epoch,
                incarnation: broker.incarnation,
                directories: broker.directories.clone(),
                listeners: broker.listeners.clone(),
                rack: broker.rack.clone(),
                fenced: broker.fenced,
            });
            if broker.in_controlled_shutdown {
                records.push(Record::BrokerState {
                    broker: broker.id,
                    epoch: broker.epoch,
                    fenced: broker.fenced,
                    in_controlled_shutdown: true,
                });
            }
        }
        for (broker, endpoints) in &self.endpoints {
            records.push(Record::BrokerEndpoints {
                broker: *broker,
                rack: endpoints.rack.clone(),
                listeners: endpoints.listeners.clone(),
            });
        }
        for topic in self.topics.values() {
            records.push(Record::Topic {
                topic_id: topic.id,
                name: topic.name.clone(),
            });
            for (partition, state) in (0..).zip(&topic.partitions) {
                records.push(Record::Partition {
                    topic_id: topic.id,
                    partition,
                    state: state.clone(),
                });
            }
        }
        for (resource, configs) in &self.configs {
            for (name, value) in configs {
                records.push(Record::Config {
                    resource: resource.clone(),
                    name: name.clone(),
                    value: Some(value.clone()),
                });
            }
        }
        if self.next_producer_id > 0 {
            records.push(Record::ProducerIds {
                next: self.next_producer_id,
            });
        }
        records
    }

    /// A number that two images share only if they are, in all likelihood, the same; stable between processes.
    pub fn hash(&self) -> u64 {
        let mut hasher = Fnv1a(0xcbf2_9ce4_8422_2325);
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    /// The cluster's id, once the first controller wrote it.
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// What is recorded of a voter.
    pub fn voter(&self, id: BrokerId) -> Option<Voter> {
        self.voters.get(&id).copied()
    }

    /// All recorded voters by id; none before the first controller wrote them.
    pub fn voters(&self) -> impl Iterator<Item = (BrokerId, Voter)> {
        self.voters.iter().map(|(id, voter)| (*id, *voter))
    }

    /// The last index that the metadata log of a voter is known to have had on its disk.
    pub fn voter_log_end(&self, id: BrokerId) -> Option<i64> {
        self.voter_logs.get(&id).copied()
    }

    /// What somebody decided about a broker that does not vote.
    pub fn voter_intent(&self, id: BrokerId) -> Option<VoterIntent> {
        self.voter_intents.get(&id).copied()
    }

    /// A registered broker.
    pub fn broker(&self, id: BrokerId) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// All registered brokers by id.
    pub fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.brokers.values()
    }

    /// Whether a broker is registered and may lead and be in an ISR.
    pub fn is_active(&self, id: BrokerId) -> bool {
        self.broker(id).is_some_and(Broker::is_active)
    }

    /// What the operator set for a broker from outside.
    pub fn endpoints(&self, id: BrokerId) -> Option<&Endpoints> {
        self.endpoints.get(&id)
    }

    /// Everything that the operator set, by broker id.
    pub fn all_endpoints(&self) -> impl Iterator<Item = (BrokerId, &Endpoints)> {
        self.endpoints.iter().map(|(id, set)| (*id, set))
    }

    /// The rack that holds for a broker: the operator's word over its own.
    pub fn rack(&self, id: BrokerId) -> Option<&str> {
        let set = self.endpoints.get(&id).and_then(|set| set.rack.as_deref());
        set.or_else(|| self.broker(id)?.rack.as_deref())
    }

    /// The listeners that hold for a broker, by name: the operator's word over its own.
    pub fn listeners(&self, id: BrokerId) -> Vec<&Listener> {
        let mut by_name = BTreeMap::new();
        let own = self.broker(id).map(|broker| &broker.listeners);
        let set = self.endpoints.get(&id).map(|set| &set.listeners);
        for listener in own.into_iter().chain(set).flatten() {
            by_name.insert(listener.name.as_str(), listener);
        }
        by_name.into_values().collect()
    }

    /// Where a broker is reached under this listener name.
    pub fn listener(&self, id: BrokerId, name: &str) -> Option<&Listener> {
        let find = |listeners: &'_ [Listener]| listeners.iter().position(|l| l.name == name);
        if let Some(set) = self.endpoints.get(&id)
            && let Some(index) = find(&set.listeners)
        {
            return set.listeners.get(index);
        }
        let own = &self.broker(id)?.listeners;
        own.get(find(own)?)
    }

    pub(super) fn known_brokers(&self) -> impl Iterator<Item = BrokerId> {
        self.brokers.keys().chain(self.endpoints.keys()).copied()
    }

    /// A topic by id.
    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(&id).map(Arc::as_ref)
    }

    /// A topic by name.
    pub fn topic_by_name(&self, name: &str) -> Option<&Topic> {
        self.topic(*self.topic_ids.get(name)?)
    }

    /// All topics by name.
    pub fn topics_by_name(&self) -> impl Iterator<Item = &Topic> {
        self.topic_ids.values().filter_map(|id| self.topic(*id))
    }

    /// All topics by id.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.values().map(Arc::as_ref)
    }

    pub(super) fn shared_topics(&self) -> &BTreeMap<TopicId, Arc<Topic>> {
        &self.topics
    }

    /// The state of a partition.
    pub fn partition(&self, partition: TopicPartition) -> Option<&Partition> {
        let index = usize::try_from(partition.partition).ok()?;
        self.topic(partition.topic_id)?.partitions.get(index)
    }

    /// All partitions by topic id and index.
    pub fn partitions(&self) -> impl Iterator<Item = (TopicPartition, &Partition)> {
        self.topics().flat_map(|topic| {
            let indexed = (0..).zip(&topic.partitions);
            indexed.map(|(index, state)| (TopicPartition::new(topic.id, index), state))
        })
    }

    /// The configs set on exactly this resource, by name; other layers are not looked at.
    pub fn configs(&self, resource: &ConfigResource) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.configs.get(resource).unwrap_or(&NONE)
    }

    /// All resources that have configs.
    pub fn configured(&self) -> impl Iterator<Item = (&ConfigResource, &BTreeMap<String, String>)> {
        self.configs.iter()
    }

    /// The first producer id that was not given out.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    fn add_topic(&mut self, topic_id: TopicId, name: &str) -> Result<(), Contradiction> {
        let name = name.to_owned();
        if let Some(holder) = self.topic(topic_id) {
            let holder = holder.name.clone();
            return Err(Contradiction::TopicIdTaken {
                topic_id,
                name,
                holder,
            });
        }
        if let Some(&holder) = self.topic_ids.get(&name) {
            return Err(Contradiction::TopicNameTaken {
                topic_id,
                name,
                holder,
            });
        }
        self.topic_ids.insert(name.clone(), topic_id);
        let topic = Topic {
            id: topic_id,
            name,
            partitions: Vec::new(),
        };
        self.topics.insert(topic_id, Arc::new(topic));
        Ok(())
    }

    fn remove_topic(&mut self, topic_id: TopicId) {
        if let Some(topic) = self.topics.remove(&topic_id) {
            self.topic_ids.remove(&topic.name);
            self.configs
                .remove(&ConfigResource::Topic(topic.name.clone()));
        }
    }

    fn set_partition(
        &mut self,
        topic_id: TopicId,
        index: i32,
        state: &Partition,
    ) -> Result<(), Contradiction> {
        let partition = TopicPartition::new(topic_id, index);
        if let Err(rule) = state.check_invariants() {
            return Err(Contradiction::PartitionInvariant {
                partition,
                rule,
                state: Box::new(state.clone()),
            });
        }
        let Some(topic) = self.topics.get_mut(&topic_id) else {
            return Ok(());
        };
        let partitions = topic.partitions.len();
        let index = usize::try_from(index).ok();
        let Some(index) = index.filter(|index| *index <= partitions) else {
            return Err(Contradiction::PartitionGap {
                partition,
                partitions,
            });
        };
        if let Some(before) = topic.partitions.get(index)
            && (before.leader_epoch > state.leader_epoch
                || before.partition_epoch > state.partition_epoch)
        {
            return Err(Contradiction::PartitionEpochs {
                partition,
                before: Box::new(before.clone()),
                state: Box::new(state.clone()),
            });
        }
        let partitions = &mut Arc::make_mut(topic).partitions;
        match partitions.get_mut(index) {
            Some(before) => *before = state.clone(),
            None => partitions.push(state.clone()),
        }
        Ok(())
    }

    fn set_config(&mut self, resource: &ConfigResource, name: &str, value: Option<&str>) {
        match value {
            Some(value) => {
                let configs = self.configs.entry(resource.clone()).or_default();
                configs.insert(name.to_owned(), value.to_owned());
            }
            None => {
                if let Some(configs) = self.configs.get_mut(resource) {
                    configs.remove(name);
                    if configs.is_empty() {
                        self.configs.remove(resource);
                    }
                }
            }
        }
    }
}

/// FNV-1a, 64 bits: the standard library's default hasher promises no stable result.
struct Fnv1a(u64);

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
