//! What the caches hold of one Cluster, and where its brokers are asked.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Service};
use kube::Resource;

use super::super::cache::Cache;
use super::super::objects::{
    CLUSTER_LABEL, INTERNAL_PORT, METRICS_PORT, Names, broker_id, claim_broker,
};
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

    /// One more than the highest broker that has a claim.
    pub(in crate::kubernetes) fn brokers_with_claims(&self) -> i32 {
        let brokers = self.claims.iter().filter_map(claim_broker);
        brokers.max().map_or(0, |highest| highest.saturating_add(1))
    }

    /// Pods that the StatefulSet has. Without one, those that wait for one that is being made anew, and those whose claims
    /// are left: each of them may hold the last replica of something, which only brokers that run can tell.
    pub(super) fn replicas(&self) -> i32 {
        let set = self.stateful_set.as_ref();
        let wanted = set.and_then(|set| set.spec.replicas);
        let pods = self.pods.iter().filter_map(broker_id);
        let claims = self.claims.iter().filter_map(claim_broker);
        let left = pods.chain(claims).max();
        wanted.unwrap_or_else(|| left.map_or(0, |id| id.saturating_add(1)))
    }

    /// Where the brokers whose pods run are asked.
    pub(super) fn addresses(&self) -> BTreeMap<i32, Addresses> {
        let mut addresses = BTreeMap::new();
        let running = |pod: &&Pod| is_standing(pod) && is_running(pod);
        for pod in self.pods.iter().filter(running) {
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

/// Whether a pod's address is still its own: one that ended, by eviction say, keeps naming an address that another pod may
/// have by now.
fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Running")
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn without_a_stateful_set_pods_and_claims_are_counted() {
        let check = |set: Option<i32>, pods: &[&str], claims: &[&str], expected: i32| {
            let named = |name: &&str| json!({"metadata": {"name": name, "labels": {CLUSTER_LABEL: "demo"}}});
            let spec = json!({"replicas": set, "selector": {}, "template": {}});
            let live = Live {
                stateful_set: set
                    .map(|_| serde_json::from_value(json!({"spec": spec})).expect("a set")),
                pods: pods
                    .iter()
                    .map(|name| serde_json::from_value(named(name)).expect("a pod"))
                    .collect(),
                claims: claims
                    .iter()
                    .map(|name| serde_json::from_value(named(name)).expect("a claim"))
                    .collect(),
                ..Live::default()
            };
            assert_eq!(live.replicas(), expected, "{set:?} {pods:?} {claims:?}");
        };
        check(None, &[], &[], 0);
        check(Some(3), &["demo-broker-4"], &["a-demo-broker-5"], 3);
        check(None, &["demo-broker-0", "demo-broker-2"], &[], 3);
        // Applied again with fewer brokers than have data.
        check(None, &[], &["a-demo-broker-0", "a-demo-broker-4"], 5);
        check(None, &["demo-broker-0"], &["a-demo-broker-1"], 2);
        check(
            None,
            &[],
            &["a-demo-broker-x", "demo-broker-7", "a-other-broker-7"],
            0,
        );
    }

    #[test]
    fn only_pods_that_run_are_asked() {
        for (status, goes, expected) in [
            (
                json!({"phase": "Running", "podIP": "10.0.0.1"}),
                false,
                true,
            ),
            (
                json!({"phase": "Running", "podIP": "10.0.0.1"}),
                true,
                false,
            ),
            (json!({"phase": "Running"}), false, false),
            (json!({"phase": "Pending"}), false, false),
            (
                json!({"phase": "Failed", "podIP": "10.0.0.1"}),
                false,
                false,
            ),
            (
                json!({"phase": "Succeeded", "podIP": "10.0.0.1"}),
                false,
                false,
            ),
            (json!({}), false, false),
        ] {
            let deleted = goes.then_some("2026-01-01T00:00:00Z");
            let metadata = json!({"name": "demo-broker-0", "deletionTimestamp": deleted});
            let pod = json!({"metadata": metadata, "status": status});
            let live = Live {
                pods: vec![serde_json::from_value(pod).expect("a pod")],
                ..Live::default()
            };
            assert_eq!(
                live.addresses().contains_key(&0),
                expected,
                "{status} {goes}"
            );
        }
    }
}
