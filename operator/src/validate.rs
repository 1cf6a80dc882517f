//! From admitted objects to validated ones: what can be judged without looking at the world. Sync and pure.

use std::collections::BTreeMap;

use taffrail_core::config::{BrokerConfig, ConfigMap, broker_definition, check_topic};
use taffrail_crds::{Cluster, ConfigValue, DeletionPolicy, Listener, Topic};

use crate::object::{ObjectKey, derived_cluster_id};
use crate::refusal::{Concern, Reason, Refusal};

/// Broker configs that the operator writes itself. Setting them would break what it has set up.
pub(crate) const OPERATOR_CONFIGS: &[&str] = &[
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "cluster.id",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "process.roles",
    "taffrail.metrics.listener",
    "taffrail.rack.required",
];

/// What someone asked for: a Cluster and the Topics around it.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The Cluster.
    pub cluster: Cluster,
    /// Its UID.
    pub cluster_uid: String,
    /// Why an update of the Cluster was refused, if one was; `cluster` is then the object before it.
    pub cluster_update_refused: Option<String>,
    /// Topics of all Clusters.
    pub topics: Vec<TopicIntent>,
}

/// One Topic object.
#[derive(Clone, Debug)]
pub struct TopicIntent {
    /// The object.
    pub topic: Topic,
    /// Its UID.
    pub uid: String,
    /// Orders Topics by age, the oldest first: seconds in Kubernetes, a counter elsewhere.
    pub created: i64,
    /// Why an update of the object was refused, if one was; `topic` is then the object before it.
    pub update_refused: Option<String>,
}

/// A Cluster that can be planned for.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidCluster {
    /// Namespace and name.
    pub key: ObjectKey,
    /// metadata.generation, where there is one.
    pub generation: Option<i64>,
    /// Kafka's cluster id.
    pub cluster_id: String,
    /// Number of brokers.
    pub brokers: i32,
    /// Volume names, each a log directory.
    pub volumes: Vec<String>,
    /// Listeners for clients; at least one.
    pub listeners: Vec<Listener>,
    /// Whether replicas are spread over racks.
    pub racks: bool,
    /// Broker configuration, or why it is refused. While refused, brokers keep the one they have.
    pub config: Result<ConfigMap, Refusal>,
    /// Whether only observation is wanted.
    pub paused: bool,
}

/// A Topic that can be planned for.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidTopic {
    /// Namespace and name.
    pub key: ObjectKey,
    /// metadata.generation, where there is one.
    pub generation: Option<i64>,
    /// Decides where partition 0 starts.
    pub uid: String,
    /// Name for Kafka clients.
    pub name: String,
    /// Number of partitions, at least 1.
    pub partitions: usize,
    /// Replicas of each partition, at least 1.
    pub replication_factor: usize,
    /// Topic configuration, or why it is refused.
    pub config: Result<ConfigMap, Refusal>,
    /// What becomes of the topic when the object goes.
    pub deletion_policy: DeletionPolicy,
}

/// All that was asked for, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Valid {
    /// The Cluster.
    pub cluster: ValidCluster,
    /// What is refused of the Cluster.
    pub cluster_refusals: Vec<Refusal>,
    /// Topics that may be reconciled, by object.
    pub topics: Vec<ValidTopic>,
    /// Topics that may not, and those with a part that may not: all refusals by object.
    pub refusals: BTreeMap<ObjectKey, Vec<Refusal>>,
    /// Topics that claim a topic name of this Cluster, whether they got it or not: their topics are not deleted.
    pub claimed: BTreeMap<String, ObjectKey>,
}

/// Judges an intent. Topics of other Clusters are left out, those of no known Cluster are refused.
pub fn validate(intent: &Intent, known_clusters: &[ObjectKey]) -> Valid {
    let cluster = validate_cluster(&intent.cluster, &intent.cluster_uid);
    let update = intent.cluster_update_refused.as_deref().map(update_refused);
    let cluster_refusals = update
        .into_iter()
        .chain(cluster.config.as_ref().err().cloned())
        .collect();
    let mut valid = Valid {
        cluster,
        cluster_refusals,
        topics: Vec::new(),
        refusals: BTreeMap::new(),
        claimed: BTreeMap::new(),
    };
    let mut by_age: Vec<&TopicIntent> = intent.topics.iter().collect();
    by_age.sort_by_key(|topic| (topic.created, key_of_topic(&topic.topic)));
    for topic in by_age {
        validate_topic(topic, known_clusters, &mut valid);
    }
    valid.topics.sort_by(|a, b| a.key.cmp(&b.key));
    valid
}

/// Namespace and name of a Cluster object.
pub fn key_of_cluster(cluster: &Cluster) -> ObjectKey {
    ObjectKey::new(
        cluster.metadata.namespace.as_deref(),
        cluster.metadata.name.as_deref(),
    )
}

/// Namespace and name of a Topic object.
pub fn key_of_topic(topic: &Topic) -> ObjectKey {
    ObjectKey::new(
        topic.metadata.namespace.as_deref(),
        topic.metadata.name.as_deref(),
    )
}

/// The topic's name for Kafka clients.
pub fn topic_name(topic: &Topic) -> &str {
    topic
        .spec
        .topic_name
        .as_deref()
        .or(topic.metadata.name.as_deref())
        .unwrap_or_default()
}

fn validate_cluster(cluster: &Cluster, uid: &str) -> ValidCluster {
    let spec = &cluster.spec;
    ValidCluster {
        key: key_of_cluster(cluster),
        generation: cluster.metadata.generation,
        cluster_id: spec
            .cluster_id
            .clone()
            .unwrap_or_else(|| derived_cluster_id(uid)),
        brokers: spec.brokers,
        volumes: spec
            .storage
            .volumes
            .iter()
            .map(|volume| volume.name.clone())
            .collect(),
        listeners: spec.listeners.clone(),
        racks: spec.rack.is_some(),
        config: broker_config(&spec.config, spec.brokers),
        paused: spec.paused,
    }
}

fn broker_config(
    config: &BTreeMap<String, ConfigValue>,
    brokers: i32,
) -> Result<ConfigMap, Refusal> {
    let (mut map, mut errors) = config_map(config);
    for name in OPERATOR_CONFIGS {
        if map.remove(*name).is_some() {
            errors.push(format!(
                "spec.config.{name}: is set by the operator; leave it out"
            ));
        }
    }
    // The rules that join several configs want a whole file, so the operator's own part is stood in for.
    let mut file = map.clone();
    file.insert("node.id".to_owned(), "0".to_owned());
    file.insert("log.dirs".to_owned(), "/".to_owned());
    if let Err(refused) = BrokerConfig::from_file(&file) {
        errors.extend(refused.0.iter().map(|error| format!("spec.config.{error}")));
    }
    if let Some(factor) = map.get("default.replication.factor")
        && factor
            .trim()
            .parse()
            .is_ok_and(|factor: i32| factor > brokers)
    {
        errors.push(format!(
            "spec.config.default.replication.factor: {factor} is larger than the number of brokers, {brokers}"
        ));
    }
    // A cluster of one or two brokers cannot hold three copies of the groups' offsets, Kafka's default.
    let offsets = "offsets.topic.replication.factor";
    if brokers < 3 && broker_definition(offsets).is_some() {
        map.entry(offsets.to_owned())
            .or_insert_with(|| brokers.to_string());
    }
    refused_if_any(map, errors)
}

fn validate_topic(intent: &TopicIntent, known_clusters: &[ObjectKey], valid: &mut Valid) {
    let topic = &intent.topic;
    let key = key_of_topic(topic);
    let cluster = ObjectKey::new(Some(&key.namespace), Some(&topic.spec.cluster_ref.name));
    let mut refusals = Vec::new();
    refusals.extend(intent.update_refused.as_deref().map(update_refused));
    if cluster != valid.cluster.key {
        if !known_clusters.contains(&cluster) {
            refusals.push(Refusal::new(
                Concern::Ready,
                Reason::ClusterNotFound,
                format!("spec.clusterRef.name: there is no Cluster {cluster}"),
            ));
            valid.refusals.insert(key, refusals);
        }
        return;
    }
    let name = topic_name(topic).to_owned();
    if let Some(owner) = valid.claimed.get(&name) {
        refusals.push(Refusal::new(
            Concern::Ready,
            Reason::TopicNameTaken,
            format!(
                "spec.topicName: Topic {owner}, which is older, has topic {name} already; choose another name"
            ),
        ));
        valid.refusals.insert(key, refusals);
        return;
    }
    valid.claimed.insert(name.clone(), key.clone());
    let (map, errors) = config_map(&topic.spec.config);
    let config = topic_config(map, errors);
    if let Err(refusal) = &config {
        refusals.push(refusal.clone());
    }
    if !refusals.is_empty() {
        valid.refusals.insert(key.clone(), refusals);
    }
    valid.topics.push(ValidTopic {
        key,
        generation: topic.metadata.generation,
        uid: intent.uid.clone(),
        name,
        // Admission bounds both from below by one.
        partitions: usize::try_from(topic.spec.partitions).unwrap_or(1),
        replication_factor: usize::try_from(topic.spec.replication_factor).unwrap_or(1),
        config,
        deletion_policy: topic.spec.deletion_policy,
    });
}

fn update_refused(message: &str) -> Refusal {
    Refusal::new(
        Concern::Ready,
        Reason::UpdateRefused,
        format!("{message}; the object before this change stays in force"),
    )
}

fn topic_config(map: ConfigMap, mut errors: Vec<String>) -> Result<ConfigMap, Refusal> {
    if let Err(refused) = check_topic(&map) {
        errors.extend(refused.0.iter().map(|error| format!("spec.config.{error}")));
    }
    refused_if_any(map, errors)
}

fn config_map(config: &BTreeMap<String, ConfigValue>) -> (ConfigMap, Vec<String>) {
    let mut map = ConfigMap::new();
    let mut errors = Vec::new();
    for (name, value) in config {
        match value.text() {
            Ok(text) => {
                map.insert(name.clone(), text);
            }
            Err(error) => errors.push(format!("spec.config.{name}: {error}")),
        }
    }
    (map, errors)
}

fn refused_if_any(map: ConfigMap, errors: Vec<String>) -> Result<ConfigMap, Refusal> {
    if errors.is_empty() {
        Ok(map)
    } else {
        Err(Refusal::new(
            Concern::Configured,
            Reason::InvalidConfig,
            errors.join("; "),
        ))
    }
}
