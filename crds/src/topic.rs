//! The Topic kind: one topic of a Cluster.

// KubeSchema derives from a copy of each struct inside a function, where `pub` cannot reach out.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::DeletionPolicy;
use crate::condition::Condition;
use crate::config_value::ConfigValue;

/// What the topic should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "taffrail.io",
    version = "v1alpha1",
    kind = "Topic",
    plural = "topics",
    singular = "topic",
    shortname = "tft",
    category = "taffrail",
    namespaced,
    status = "TopicStatus",
    derive = "PartialEq",
    doc = "A topic of a Cluster.",
    selectable = ".spec.clusterRef.name",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterRef.name"
    ),
    printcolumn(
        name = "Partitions",
        type_ = "integer",
        json_path = ".status.partitions",
        description = "Partitions that exist"
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".status.replicationFactor",
        description = "Replicas that each partition has"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Topic",
        type_ = "string",
        json_path = ".status.topicName",
        description = "Name of the topic as Kafka clients use it",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    validation = Rule::new("has(self.spec.topicName) || self.metadata.name.size() <= 249")
        .message("metadata.name is the topic's name here and may have at most 249 characters; set spec.topicName to a shorter one")
        .reason(Reason::FieldValueInvalid),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.topicName) == has(oldSelf.topicName) && (!has(self.topicName) || self.topicName == oldSelf.topicName)")
        .message("topicName is immutable: a topic cannot be renamed")
        .field_path(".topicName")
        .reason(Reason::FieldValueForbidden),
)]
pub struct TopicSpec {
    /// The Cluster that holds the topic, in the same namespace. Immutable.
    #[x_kube(
        validation = Rule::new("self.name == oldSelf.name")
            .message("clusterRef is immutable: a topic cannot move to another cluster")
            .reason(Reason::FieldValueForbidden)
    )]
    pub cluster_ref: ClusterRef,

    /// Name of the topic as Kafka clients use it; metadata.name if not set. Immutable. If two Topics claim one name,
    /// the older one has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249), regex(pattern = "^[a-zA-Z0-9._-]+$"))]
    #[x_kube(
        validation = Rule::new("self != '.' && self != '..'").message("a topic cannot be named '.' or '..'"),
        validation = Rule::new("!self.startsWith('__')").message("names that start with '__' belong to the brokers"),
    )]
    pub topic_name: Option<String>,

    /// Number of partitions. It may grow, never shrink. When it grows, keys move to other partitions.
    #[schemars(range(min = 1, max = 10000))]
    #[x_kube(
        validation = Rule::new("self >= oldSelf")
            .message("partitions can be added but not removed: records would be lost and keys would move")
            .reason(Reason::FieldValueForbidden)
    )]
    pub partitions: i32,

    /// Number of brokers that hold each partition; at most the number of brokers. When it changes, the operator
    /// adds or removes replicas.
    #[schemars(range(min = 1, max = 100))]
    pub replication_factor: i32,

    /// Topic configuration in Kafka's names, for example cleanup.policy. Values may be strings, numbers or booleans.
    /// Unknown names are refused in the Ready condition. What is not listed here goes back to the cluster's default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub config: BTreeMap<String, ConfigValue>,

    /// What becomes of the topic and its records when this object is deleted: Retain keeps them, Delete deletes them.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Names a Cluster in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// metadata.name of the Cluster.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What the operator observed of a Topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicStatus {
    /// Ready: the topic is as the spec says. Placed: partitions and replicas are. Configured: the configuration is.
    /// InSync: all replicas follow their leader.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The metadata.generation that this status was computed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Kafka's topic id: 16 bytes in URL-safe base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,

    /// Name of the topic as Kafka clients use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_name: Option<String>,

    /// Partitions that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<i32>,

    /// Replicas that each partition has; the smallest number, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<i32>,

    /// For each broker id the number of partitions whose first replica it holds. This is the balance that the
    /// placement gives; who leads at this moment is in the metrics.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preferred_leaders: BTreeMap<String, i32>,
}
