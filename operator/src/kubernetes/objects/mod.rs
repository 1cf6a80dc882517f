//! The Kubernetes objects of one Cluster, as they are wanted, and what live ones say. Pure: nothing here talks to an
//! API server.

mod account;
mod claims;
mod configuration;
mod disruption;
mod labels;
mod live;
mod names;
mod pod;
mod quantity;
mod service;
mod stateful_set;
mod template;

#[cfg(test)]
pub(in crate::kubernetes) mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::{apps::v1::StatefulSet, policy::v1::PodDisruptionBudget};
use taffrail_crds::{ClusterSpec, Listener, ListenerType};

use crate::validate::ValidCluster;

pub use claims::{
    ClaimChanges, ClaimSize, claim_broker, claim_changes, claims_to_come, growing, in_live_order,
    keep_sizes,
};
pub use configuration::{config_map, config_of};
pub use labels::{CLUSTER_LABEL, FIELD_MANAGER, is_owned_by, selector, selector_labels};
pub(crate) use live::observed_brokers;
pub use live::{broker_id, config_map_of, live_config};
pub use names::Names;
pub use service::bootstrap_servers_inside;
pub(in crate::kubernetes) use stateful_set::{CLUSTER_ID_ANNOTATION, VOTERS_ANNOTATION};

/// The port that brokers use among themselves, and the operator with them.
pub const INTERNAL_PORT: u16 = 9093;

/// The port of metrics and probes.
pub const METRICS_PORT: u16 = 9404;

/// What the objects of a Cluster are made from.
#[derive(Clone, Copy, Debug)]
pub struct Blueprint<'a> {
    /// The Cluster, judged, with its volumes in the order of [`in_live_order`].
    pub cluster: &'a ValidCluster,
    /// Its spec, for what plans do not care about.
    pub spec: &'a ClusterSpec,
    /// metadata.uid of the Cluster.
    pub uid: &'a str,
    /// Configuration for brokers that start: the Cluster's, or while that is refused the one in force.
    pub config: &'a BTreeMap<String, String>,
    /// The brokers that voted on metadata when its data was made.
    pub founders: &'a [i32],
    /// The brokers that vote on metadata, or are to.
    pub voters: &'a [i32],
    /// Pods of the StatefulSet. More than `spec.brokers` while surplus brokers hold replicas.
    pub replicas: i32,
    /// Container image where the spec names none.
    pub image: &'a str,
    /// Its pull policy; none leaves it to Kubernetes.
    pub image_pull_policy: Option<&'a str>,
}

/// The objects of a Cluster, in the order in which they should be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// The brokers' identity, without any right.
    pub service_account: ServiceAccount,
    /// The brokers' configuration, immutable and named by content.
    pub config_map: ConfigMap,
    /// The headless Service, the bootstrap Services and those of single brokers.
    pub services: Vec<Service>,
    /// Keeps evictions from taking several brokers at a time.
    pub disruption_budget: PodDisruptionBudget,
    /// The brokers.
    pub stateful_set: StatefulSet,
}

/// All objects of a Cluster.
pub fn objects(blueprint: &Blueprint<'_>) -> Objects {
    Objects {
        service_account: account::service_account(blueprint),
        config_map: config_map(blueprint),
        services: service::services(blueprint),
        disruption_budget: disruption::disruption_budget(blueprint),
        stateful_set: stateful_set::stateful_set(blueprint),
    }
}

/// What of the spec is not done because it would break what the operator sets up, each as a sentence.
pub fn ignored(blueprint: &Blueprint<'_>) -> Vec<String> {
    pod::ignored(blueprint)
}

/// Listeners whose Services would take each other's names, as a sentence for a condition.
pub fn name_clash(blueprint: &Blueprint<'_>) -> Option<String> {
    service::name_clash(blueprint)
}

impl<'a> Blueprint<'a> {
    /// The names of the objects.
    pub fn names(&self) -> Names<'a> {
        Names::new(&self.cluster.key)
    }

    fn outside_listeners(&self) -> impl Iterator<Item = &'a Listener> {
        outside_listeners(&self.cluster.listeners)
    }
}

/// Listeners that clients reach from outside of Kubernetes.
pub(in crate::kubernetes) fn outside_listeners(
    listeners: &[Listener],
) -> impl Iterator<Item = &Listener> {
    listeners
        .iter()
        .filter(|listener| listener.type_ != ListenerType::Internal)
}

/// Name of the listener that brokers use among themselves. No listener of a spec can have an underscore.
const BETWEEN_BROKERS: &str = "BETWEEN_BROKERS";

/// A spec's listener in the brokers' own configuration, whose listener names are in capitals.
pub(in crate::kubernetes) fn broker_listener_name(name: &str) -> String {
    name.to_ascii_uppercase()
}
