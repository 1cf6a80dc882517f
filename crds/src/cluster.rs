//! The Cluster kind: a set of brokers, their disks, addresses and configuration.

// KubeSchema derives from a copy of each struct inside a function, where `pub` cannot reach out.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements, Toleration,
    TopologySpreadConstraint,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::config_value::ConfigValue;

/// What the cluster should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "taffrail.io",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    singular = "cluster",
    shortname = "tfc",
    category = "taffrail",
    namespaced,
    status = "ClusterStatus",
    derive = "PartialEq",
    doc = "A cluster of Taffrail brokers that any Kafka client can use.",
    scale(
        spec_replicas_path = ".spec.brokers",
        status_replicas_path = ".status.brokers",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Brokers",
        type_ = "integer",
        json_path = ".status.brokers",
        description = "Brokers that exist"
    ),
    printcolumn(
        name = "Ready-Brokers",
        type_ = "integer",
        json_path = ".status.readyBrokers",
        description = "Brokers that serve clients"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Controller",
        type_ = "integer",
        json_path = ".status.controller",
        priority = 1
    ),
    printcolumn(
        name = "Under-Replicated",
        type_ = "integer",
        json_path = ".status.underReplicatedPartitions",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    validation = Rule::new("self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must start with a letter, hold only lower-case letters, digits and '-', and have at most 40 characters, because pods and Services are named after it and their names end at 63")
        .reason(Reason::FieldValueInvalid),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(oldSelf.clusterId) || (has(self.clusterId) && self.clusterId == oldSelf.clusterId)")
        .message("clusterId is immutable once it is set: it is written on every disk of the cluster")
        .field_path(".clusterId")
        .reason(Reason::FieldValueForbidden)
)]
pub struct ClusterSpec {
    /// Number of brokers. Broker ids are 0 to brokers-1. Brokers 0 to 2 vote on the cluster's metadata (broker 0
    /// alone while there are one or two). A broker that still holds replicas is not removed.
    #[schemars(range(min = 1, max = 1000))]
    pub brokers: i32,

    /// Kafka's cluster id: 16 bytes in URL-safe base64, which is 22 characters. Set it to adopt disks of an earlier
    /// cluster; otherwise it is derived from metadata.uid. Immutable once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{21}[AQgw]$"))]
    pub cluster_id: Option<String>,

    /// The disks of each broker.
    pub storage: Storage,

    /// Where clients connect. Without a list there is one listener named internal on port 9092, reachable from
    /// inside Kubernetes.
    #[serde(default = "default_listeners")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.all(a, self.exists_one(b, b.port == a.port))")
            .message("each listener needs a port of its own")
            .reason(Reason::FieldValueInvalid),
    )]
    pub listeners: Vec<Listener>,

    /// Spreads the replicas of each partition over racks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<Rack>,

    /// Broker configuration in Kafka's names, for example min.insync.replicas. Values may be strings, numbers or
    /// booleans. Unknown names, and those that the operator sets itself, are refused in the Ready condition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub config: BTreeMap<String, ConfigValue>,

    /// Settings of the brokers' pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,

    /// While true, the operator observes and reports but changes nothing.
    #[serde(default)]
    pub paused: bool,
}

/// The disks of each broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// One log directory each. Volumes may be added and grown, never shrunk.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("oldSelf.all(o, self.all(v, v.name != o.name || quantity(v.size).compareTo(quantity(o.size)) >= 0))")
            .message("a volume can grow but not shrink: no storage system takes space back from a disk in use")
            .reason(Reason::FieldValueForbidden),
        validation = Rule::new("oldSelf.all(o, self.all(v, v.name != o.name || (has(v.storageClassName) == has(o.storageClassName) && (!has(v.storageClassName) || v.storageClassName == o.storageClassName))))")
            .message("storageClassName of an existing volume is immutable: add a volume of the other class instead")
            .reason(Reason::FieldValueForbidden),
    )]
    pub volumes: Vec<Volume>,

    /// What becomes of the disks when the Cluster is deleted: Retain keeps them, Delete deletes them.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// One disk of each broker, which holds one log directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name of the volume, unique within the cluster.
    #[schemars(
        length(min = 1, max = 15),
        regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,

    /// Size as a Kubernetes quantity, for example 10Gi.
    #[schemars(
        length(min = 1, max = 32),
        regex(pattern = "^[1-9][0-9]*(\\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$")
    )]
    pub size: String,

    /// StorageClass of the claims. Without it the default class of the Kubernetes cluster is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
}

/// What becomes of data when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The data stays.
    #[default]
    Retain,
    /// The data is deleted.
    Delete,
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.type == 'Internal' || self.allowUnauthenticated")
        .message("this listener can be reached from outside of Kubernetes and has no authentication; write allowUnauthenticated: true if that is intended")
        .field_path(".allowUnauthenticated")
        .reason(Reason::FieldValueRequired),
    validation = Rule::new("self.port != 9093 && self.port != 9404")
        .message("ports 9093 (brokers among themselves) and 9404 (metrics) are taken")
        .field_path(".port")
        .reason(Reason::FieldValueForbidden),
)]
pub struct Listener {
    /// Name of the listener, unique within the cluster.
    #[schemars(
        length(min = 1, max = 15),
        regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,

    /// Port that the brokers listen on.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: i32,

    /// Internal: reachable within Kubernetes. NodePort and LoadBalancer: reachable from outside.
    #[serde(rename = "type", default)]
    pub type_: ListenerType,

    /// Says that anyone who reaches the listener may use it. Must be true for listeners reachable from outside, as
    /// long as there is no authentication.
    #[serde(default)]
    pub allow_unauthenticated: bool,
}

/// Who can reach a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ListenerType {
    /// Clients within the Kubernetes cluster.
    #[default]
    Internal,
    /// Clients that reach the nodes.
    NodePort,
    /// Clients that reach a load balancer.
    LoadBalancer,
}

/// Spreads the replicas of each partition over racks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rack {
    /// Label of the Kubernetes nodes whose value is the rack, for example topology.kubernetes.io/zone.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
}

/// Settings of the brokers' pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Container image of the brokers. Without it the operator's own version is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,

    /// CPU and memory of a broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Which nodes a broker may or should run on, and which pods beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Node taints that brokers accept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,

    /// How brokers are spread over zones or nodes. Without it they are spread over zones and nodes where possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Priority of the brokers when a node is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// User, group and similar settings of the pod. Without it the pod meets the restricted Pod Security Standard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,

    /// Environment variables of the broker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,

    /// Labels to add to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations to add to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Seconds that a broker gets to hand over its partitions and stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub termination_grace_period_seconds: Option<i64>,
}

/// What the operator observed of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Ready: all brokers serve and all is as the spec says. BrokersReady: all brokers serve. Configured: the
    /// configuration is accepted and in force.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The metadata.generation that this status was computed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Brokers that exist.
    #[serde(default)]
    pub brokers: i32,

    /// Brokers that serve clients.
    #[serde(default)]
    pub ready_brokers: i32,

    /// Broker id of the active controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<i32>,

    /// Partitions with fewer in-sync replicas than replicas. Refreshed at most once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_replicated_partitions: Option<i32>,

    /// Kafka's cluster id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,

    /// Where clients connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub listeners: Vec<ListenerStatus>,

    /// Selects the brokers' pods, for kubectl scale and autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// Where clients of one listener connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Name of the listener.
    pub name: String,
    /// Addresses to give to a Kafka client as bootstrap.servers, separated by commas.
    pub bootstrap_servers: String,
}

fn default_listeners() -> Vec<Listener> {
    vec![Listener {
        name: "internal".to_owned(),
        port: 9092,
        type_: ListenerType::Internal,
        allow_unauthenticated: false,
    }]
}
