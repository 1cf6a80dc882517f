//! What the caches hold of one Cluster, and where its brokers are asked.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Service};
use kube::Resource;

use super::super::cache::Cache;
use super::super::objects::{CLUSTER_LABEL, INTERNAL_PORT, METRICS_PORT, Names, broker_id};
use super::super::watch::Caches;
use crate::health::Addresses;
use crate::object::ObjectKey;

/// The objects of one Cluster as they are, whoever owns them.
#[derive(Clone, Debug, Default)]
pub(in crate::kubernetes) struct Live {
    pub(in crate::kubernetes) stateful_set: Option<StatefulSet>,
    pub(in crate::kubernetes) pods: Vec<Pod>,
    pub(in crate::kubernetes) services: BTreeMap<String, Service>,
    pub(in crate::kubernetes) config_maps: BTreeMap<String, ConfigMap>,
    pub(in crate::kubernetes) claims: Vec<PersistentVolumeClaim>,
    pub(in crate::kubernetes) nodes: BTreeMap<String, Node>,
}

impl Live {
    /// What the caches hold; nodes only if they are needed.
    pub(in crate::kubernetes) fn of(caches: &Caches, key: &ObjectKey, nodes: bool) -> Self {
        let set = ObjectKey::new(Some(&key.namespace), Some(&Names::new(key).brokers()));
        Self {
            stateful_set: caches
                .stateful_sets
                .get(&set)
                .map(|set| set.as_ref().clone()),
            pods: labelled(&caches.pods, key),
            services: by_name(labelled(&caches.services, key)),
            config_maps: by_name(labelled(&caches.config_maps, key)),
            claims: labelled(&caches.claims, key),
            nodes: if nodes {
                by_name(owned(caches.nodes.all()))
            } else {
                BTreeMap::new()
            },
        }
    }

    /// Pods that the StatefulSet has, or that wait for one that is being made anew.
    pub(super) fn replicas(&self) -> i32 {
        let set = self.stateful_set.as_ref();
        let wanted = set.and_then(|set| set.spec.replicas);
        let standing = self.pods.iter().filter_map(broker_id).max();
        wanted.unwrap_or_else(|| standing.map_or(0, |id| id.saturating_add(1)))
    }

    /// Where the brokers whose pods run are asked.
    pub(super) fn addresses(&self) -> BTreeMap<i32, Addresses> {
        let mut addresses = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| is_standing(pod)) {
            if let (Some(broker), Some(ip)) = (broker_id(pod), ip(pod)) {
                // The port of the brokers themselves serves clients too, tells of brokers that clients are not told of,
                // and stays where it is whatever the spec says.
                let client = SocketAddr::new(ip, INTERNAL_PORT);
                let http = SocketAddr::new(ip, METRICS_PORT);
                addresses.insert(broker, Addresses { client, http });
            }
        }
        addresses
    }

    /// A broker's pod.
    pub(super) fn pod(&self, broker: i32) -> Option<&Pod> {
        self.pods.iter().find(|pod| broker_id(pod) == Some(broker))
    }
}

/// Whether a pod is there to stay.
pub(super) fn is_standing(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
}

fn ip(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

fn labelled<K: Resource + Clone>(cache: &Cache<K>, key: &ObjectKey) -> Vec<K> {
    let mut objects = owned(cache.in_namespace(&key.namespace));
    objects.retain(|object| {
        let labels = object.meta().labels.as_ref();
        labels.and_then(|labels| labels.get(CLUSTER_LABEL)) == Some(&key.name)
    });
    objects
}

fn owned<K: Clone>(objects: Vec<std::sync::Arc<K>>) -> Vec<K> {
    objects
        .into_iter()
        .map(|object| object.as_ref().clone())
        .collect()
}

fn by_name<K: Resource>(objects: Vec<K>) -> BTreeMap<String, K> {
    objects
        .into_iter()
        .map(|object| (object.meta().name.clone().unwrap_or_default(), object))
        .collect()
}
