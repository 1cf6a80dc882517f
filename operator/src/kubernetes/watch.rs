//! Keeps the caches as the API server says, and marks the Clusters that an event concerns. It decides nothing.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use taffrail_crds::{Cluster, Topic};
use tokio::time::sleep;

use super::cache::{Cache, Scope, key_of};
use super::dirty::Dirty;
use super::objects::CLUSTER_LABEL;
use crate::metrics::Metrics;
use crate::object::ObjectKey;

/// Selects what is made for Clusters.
const OURS: &str = "app.kubernetes.io/managed-by=taffrail-operator";

/// How long a kind that may not be watched is left alone.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(120);

/// The objects of all kinds that are watched.
#[derive(Debug)]
pub(super) struct Caches {
    pub(super) clusters: Cache<Cluster>,
    pub(super) topics: Cache<Topic>,
    pub(super) stateful_sets: Cache<StatefulSet>,
    pub(super) pods: Cache<Pod>,
    pub(super) services: Cache<Service>,
    pub(super) config_maps: Cache<ConfigMap>,
    pub(super) claims: Cache<PersistentVolumeClaim>,
    pub(super) service_accounts: Cache<ServiceAccount>,
    pub(super) disruption_budgets: Cache<PodDisruptionBudget>,
    /// Unavailable where the operator may not read nodes.
    pub(super) nodes: Cache<Node>,
}

impl Caches {
    /// Empty caches for these namespaces; none stands for all.
    pub(super) fn new(scopes: &[Scope]) -> Self {
        Self {
            clusters: Cache::new(scopes),
            topics: Cache::new(scopes),
            stateful_sets: Cache::new(scopes),
            pods: Cache::new(scopes),
            services: Cache::new(scopes),
            config_maps: Cache::new(scopes),
            claims: Cache::new(scopes),
            service_accounts: Cache::new(scopes),
            disruption_budgets: Cache::new(scopes),
            nodes: Cache::new(&[None]),
        }
    }

    /// Whether all objects of a namespace, and the nodes, were listed: with less, what is there would look as if it was not.
    pub(super) fn are_complete_for(&self, namespace: &str) -> bool {
        let kinds = [
            self.clusters.is_complete_for(namespace),
            self.topics.is_complete_for(namespace),
            self.stateful_sets.is_complete_for(namespace),
            self.pods.is_complete_for(namespace),
            self.services.is_complete_for(namespace),
            self.config_maps.is_complete_for(namespace),
            self.claims.is_complete_for(namespace),
            self.service_accounts.is_complete_for(namespace),
            self.disruption_budgets.is_complete_for(namespace),
            self.nodes.is_complete_for(namespace),
        ];
        kinds.into_iter().all(|complete| complete)
    }

    /// What was not listed yet: kinds by the namespace that they are watched in.
    pub(super) fn missing(&self) -> BTreeMap<Scope, Vec<&'static str>> {
        let kinds = [
            ("clusters", self.clusters.waiting()),
            ("topics", self.topics.waiting()),
            ("statefulsets", self.stateful_sets.waiting()),
            ("pods", self.pods.waiting()),
            ("services", self.services.waiting()),
            ("configmaps", self.config_maps.waiting()),
            ("persistentvolumeclaims", self.claims.waiting()),
            ("serviceaccounts", self.service_accounts.waiting()),
            ("poddisruptionbudgets", self.disruption_budgets.waiting()),
            ("nodes", self.nodes.waiting()),
        ];
        let mut missing: BTreeMap<Scope, Vec<&'static str>> = BTreeMap::new();
        for (kind, scopes) in kinds {
            for scope in scopes {
                missing.entry(scope).or_default().push(kind);
            }
        }
        missing
    }
}

/// Starts all watches as tasks of the runtime.
pub(super) fn start(
    client: &Client,
    scopes: &[Scope],
    caches: &Arc<Caches>,
    dirty: &Arc<Dirty>,
    metrics: &Metrics,
) {
    let watches = Watches {
        client,
        scopes,
        caches,
        dirty,
        metrics,
    };
    watches.of_own_kind(
        |caches| &caches.clusters,
        |cluster| Some(key_of(cluster)),
        |cluster| cluster.status.as_ref()?.observed_generation,
    );
    watches.of_own_kind(
        |caches| &caches.topics,
        cluster_of_topic,
        |topic| topic.status.as_ref()?.observed_generation,
    );
    watches.of_kind(|caches| &caches.stateful_sets, Some(OURS), cluster_of_label);
    watches.of_kind(|caches| &caches.pods, Some(OURS), cluster_of_label);
    watches.of_kind(|caches| &caches.services, Some(OURS), cluster_of_label);
    watches.of_kind(|caches| &caches.config_maps, Some(OURS), cluster_of_label);
    watches.of_kind(|caches| &caches.claims, Some(OURS), cluster_of_label);
    watches.of_kind(
        |caches| &caches.service_accounts,
        Some(OURS),
        cluster_of_label,
    );
    watches.of_kind(
        |caches| &caches.disruption_budgets,
        Some(OURS),
        cluster_of_label,
    );
    tokio::spawn(watch_nodes(
        Api::all(client.clone()),
        Arc::clone(caches),
        Arc::clone(dirty),
        metrics.clone(),
    ));
}

/// The Cluster that a Topic names.
pub(super) fn cluster_of_topic(topic: &Topic) -> Option<ObjectKey> {
    Some(ObjectKey::new(
        topic.metadata.namespace.as_deref(),
        Some(&topic.spec.cluster_ref.name),
    ))
}

fn cluster_of_label<K: Resource>(object: &K) -> Option<ObjectKey> {
    let cluster = object.meta().labels.as_ref()?.get(CLUSTER_LABEL)?;
    Some(ObjectKey::new(
        object.meta().namespace.as_deref(),
        Some(cluster),
    ))
}

struct Watches<'a> {
    client: &'a Client,
    scopes: &'a [Scope],
    caches: &'a Arc<Caches>,
    dirty: &'a Arc<Dirty>,
    metrics: &'a Metrics,
}

impl Watches<'_> {
    /// Objects whose status other controllers write: each change of them counts.
    fn of_kind<K>(
        &self,
        cache: fn(&Caches) -> &Cache<K>,
        labels: Option<&str>,
        cluster_of: fn(&K) -> Option<ObjectKey>,
    ) where
        K: super::api::Kind,
    {
        self.watch(cache, labels, cluster_of, |_, _| true);
    }

    /// Objects whose status the operator writes itself: it must not wake itself up by that. `observed` is the generation
    /// that the status was computed for.
    fn of_own_kind<K>(
        &self,
        cache: fn(&Caches) -> &Cache<K>,
        cluster_of: fn(&K) -> Option<ObjectKey>,
        observed: fn(&K) -> Option<i64>,
    ) where
        K: super::api::Kind,
    {
        self.watch(cache, None, cluster_of, move |object, before| {
            asks(object, observed(object), before)
        });
    }

    fn watch<K>(
        &self,
        cache: fn(&Caches) -> &Cache<K>,
        labels: Option<&str>,
        cluster_of: fn(&K) -> Option<ObjectKey>,
        counts: impl Fn(&K, Option<&K>) -> bool + Copy + Send + Sync + 'static,
    ) where
        K: super::api::Kind,
    {
        for scope in self.scopes {
            let api = match scope {
                Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                None => Api::all(self.client.clone()),
            };
            let config = watcher::Config {
                label_selector: labels.map(str::to_owned),
                ..watcher::Config::default()
            };
            let (caches, dirty) = (Arc::clone(self.caches), Arc::clone(self.dirty));
            let (scope, metrics) = (scope.clone(), self.metrics.clone());
            tokio::spawn(async move {
                let target = Target {
                    cache: cache(&caches),
                    scope: &scope,
                    metrics: &metrics,
                };
                let marked = |object: &K, before: Option<&K>| {
                    if counts(object, before)
                        && let Some(key) = cluster_of(object)
                    {
                        dirty.mark(key);
                    }
                };
                loop {
                    target.follow(api.clone(), config.clone(), marked).await;
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
    }
}

/// Nodes concern every Cluster, but only by their labels and addresses. An operator that may not read them goes on
/// without.
async fn watch_nodes(api: Api<Node>, caches: Arc<Caches>, dirty: Arc<Dirty>, metrics: Metrics) {
    let target = Target {
        cache: &caches.nodes,
        scope: &None,
        metrics: &metrics,
    };
    let told = |node: &Node| {
        let addresses = node
            .status
            .as_ref()
            .and_then(|status| status.addresses.clone());
        (node.metadata.labels.clone(), addresses)
    };
    loop {
        let marked = |node: &Node, before: Option<&Node>| {
            if before.map(told) != Some(told(node)) || node.metadata.deletion_timestamp.is_some() {
                for cluster in caches.clusters.all() {
                    dirty.mark(key_of(cluster.as_ref()));
                }
            }
        };
        let config = watcher::Config::default();
        if let Some(forbidden) = target.follow(api.clone(), config, marked).await {
            tracing::info!(
                reason = forbidden,
                "nodes cannot be read: racks and NodePort addresses are not available"
            );
            caches.nodes.set_unavailable(&None, forbidden);
            sleep(FORBIDDEN_PAUSE).await;
        }
    }
}

struct Target<'a, K> {
    cache: &'a Cache<K>,
    scope: &'a Scope,
    metrics: &'a Metrics,
}

impl<K> Target<'_, K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Takes events until the watch is forbidden; says by what then.
    async fn follow(
        &self,
        api: Api<K>,
        config: watcher::Config,
        marked: impl Fn(&K, Option<&K>),
    ) -> Option<String> {
        let stream = watch_objects(api, config).default_backoff();
        let mut stream = std::pin::pin!(stream);
        let mut listed = Vec::new();
        let mut complained = false;
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => {
                    self.metrics.api_request("list", &K::kind(&()));
                    listed.clear();
                }
                Ok(Event::InitApply(object)) => listed.push(slim(object)),
                Ok(Event::InitDone) => {
                    complained = false;
                    self.metrics.api_request("watch", &K::kind(&()));
                    for object in self.cache.replace(self.scope, std::mem::take(&mut listed)) {
                        marked(&object, None);
                    }
                }
                Ok(Event::Apply(object)) => {
                    let object = slim(object);
                    let copy = object.clone();
                    let before = self.cache.told(object);
                    marked(&copy, before.as_deref());
                }
                Ok(Event::Delete(object)) => {
                    self.cache.remove(&object);
                    marked(&object, None);
                }
                Err(error) => {
                    if let Some(why) = forbidden(&error)
                        && K::kind(&()) == "Node"
                    {
                        return Some(why);
                    }
                    // Repeated at every attempt otherwise, which are up to 30 s apart.
                    if !complained {
                        tracing::warn!(kind = %K::kind(&()), scope = self.scope.as_deref().unwrap_or("all"), %error, "cannot watch");
                    }
                    complained = true;
                }
            }
        }
        None
    }
}

/// Whether more than the status of an object changed. A status of another generation than the object's counts too: the
/// change may have come with the answer to a write of ours, which is in the cache already.
fn asks<K: Resource>(object: &K, observed: Option<i64>, before: Option<&K>) -> bool {
    let asked = |object: &K| {
        let meta = object.meta();
        (
            meta.uid.clone(),
            meta.generation,
            meta.deletion_timestamp.clone(),
            meta.finalizers.clone(),
            meta.labels.clone(),
        )
    };
    observed != object.meta().generation
        || before.is_none_or(|before| asked(before) != asked(object))
}

/// Leaves out what is large and never looked at.
fn slim<K: Resource>(mut object: K) -> K {
    object.managed_fields_mut().clear();
    object
}

fn forbidden(error: &watcher::Error) -> Option<String> {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    (status.code == 403).then(|| status.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn own_status_writes_do_not_count() {
        let topic = |metadata: Value, observed: i64| -> Topic {
            serde_json::from_value(json!({
                "apiVersion": "taffrail.io/v1alpha1", "kind": "Topic",
                "metadata": metadata,
                "spec": {"clusterRef": {"name": "demo"}, "partitions": 1, "replicationFactor": 1},
                "status": {"observedGeneration": observed},
            }))
            .expect("a Topic")
        };
        let before = topic(json!({"name": "a", "generation": 2}), 1);
        for (metadata, observed, expected) in [
            (json!({"name": "a", "generation": 2}), 2, false),
            (json!({"name": "a", "generation": 3}), 3, true),
            // Changed while a pass over the older generation ran.
            (json!({"name": "a", "generation": 2}), 1, true),
            (
                json!({"name": "a", "generation": 2, "labels": {"a": "b"}}),
                2,
                true,
            ),
            (
                json!({"name": "a", "generation": 2, "finalizers": ["a"]}),
                2,
                true,
            ),
            (
                json!({"name": "a", "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
                2,
                true,
            ),
        ] {
            let object = topic(metadata, observed);
            assert_eq!(
                asks(&object, Some(observed), Some(&before)),
                expected,
                "{object:?}"
            );
            assert!(
                asks(&object, Some(observed), None),
                "seen for the first time"
            );
        }
    }
}
