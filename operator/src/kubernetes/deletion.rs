//! What is left to do for a Cluster that is being deleted or is gone: nothing but taking off finalizers, after what
//! they stand for is done.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::PropagationPolicy;
use kube::{Resource, ResourceExt};
use taffrail_crds::{Cluster, Topic, TopicStatus};

use super::cache::key_of;
use super::context::Context;
use super::finalizer::{self, Change};
use super::identity::Mark;
use super::news::{self, News};
use super::objects::{Names, broker_id, claim_broker, is_owned_by};
use super::pass::{Live, clusterless, set_finalizers, write_cluster_status, write_topic_statuses};
use super::queue::Outcome;
use crate::object::{ObjectKey, derived_cluster_id};
use crate::refusal::Reason;
use crate::status::deleting_cluster;

/// There is no such Cluster: its Topics say so and are free to go.
pub(super) async fn without_cluster(
    context: &Context,
    key: &ObjectKey,
    topics: &[Arc<Topic>],
) -> (Outcome, bool) {
    let (failed, wrote) = free(context, topics).await;
    let topics: Vec<Arc<Topic>> = topics
        .iter()
        .filter_map(|topic| context.caches.topics.get(&key_of(topic.as_ref())))
        .collect();
    let statuses = clusterless(&topics, key);
    let news = statuses
        .iter()
        .filter_map(|(topic, status)| lost(topic, status));
    let news = news.collect();
    let well = write_topic_statuses(context, statuses).await;
    news::tell(&context.writer, news).await;
    if failed || !well {
        (Outcome::Failed, wrote)
    } else if topics.is_empty() {
        (Outcome::Gone, wrote)
    } else {
        // A Cluster of this name, or another Topic, is an event.
        (Outcome::Converged, wrote)
    }
}

/// What is told of a Topic whose Cluster is not there, unless its status says so already.
fn lost(topic: &Topic, status: &TopicStatus) -> Option<News> {
    let ready = |status: &TopicStatus| {
        let mut conditions = status.conditions.iter();
        conditions
            .find(|condition| condition.type_ == "Ready")
            .cloned()
    };
    let now = ready(status)?;
    let before = topic.status.as_ref().and_then(ready);
    let known = before.is_some_and(|before| before.reason == now.reason);
    (!known).then(|| News {
        regarding: topic.object_ref(&()),
        related: None,
        severity: super::api::Severity::Warning,
        reason: Reason::ClusterNotFound.word(),
        action: "Reconcile",
        note: now.message,
    })
}

/// The Cluster is being deleted: its claims too, if it says so.
pub(super) async fn clean_up(
    context: &Context,
    cluster: &Cluster,
    key: &ObjectKey,
    topics: &[Arc<Topic>],
) -> (Outcome, bool) {
    let has = cluster
        .finalizers()
        .iter()
        .any(|name| name == finalizer::STORAGE);
    // A namespace that goes takes all of it along, paused or not.
    if has && cluster.spec.paused && !context.writer.is_namespace_going(&key.namespace).await {
        let waits_for = "spec.paused is true: neither brokers nor claims are deleted";
        let well = say(context, cluster, waits_for).await;
        let outcome = if well {
            Outcome::Refused
        } else {
            Outcome::Failed
        };
        return (outcome, false);
    }
    let (failed, mut wrote) = free(context, topics).await;
    if !has {
        // What else it has is for others to take off.
        return (outcome(failed, true), wrote);
    }
    let live = Live::of(&context.caches, key, false);
    let remains = Remains::of(cluster, key, &live);
    let pods_gone = remains.stateful_set.is_none() && remains.pods.is_empty();
    let change = finalizer::of_cluster(
        has,
        true,
        cluster.spec.storage.deletion_policy,
        pods_gone && remains.claims.is_empty(),
    );
    if change == Change::Remove {
        let list = finalizer::changed(cluster.finalizers(), finalizer::STORAGE, change);
        return match context.writer.set_finalizers(cluster, &list).await {
            Ok(_) => (outcome(failed, true), true),
            Err(error) if error.is_not_found() => (outcome(failed, true), wrote),
            Err(error) => {
                tracing::warn!(cluster = %key, %error, "the finalizer cannot be taken off");
                (Outcome::Failed, wrote)
            }
        };
    }
    let (waits_for, well) = if pods_gone {
        let standing = standing(&remains.claims);
        let mut well = true;
        if !standing.is_empty() {
            wrote = true;
            for claim in &standing {
                well &= delete(context, *claim).await;
            }
            let told = News {
                regarding: cluster.object_ref(&()),
                related: None,
                severity: super::api::Severity::Normal,
                reason: "ClaimsDeleted",
                action: "DeleteClaims",
                note: format!(
                    "delete {} claims: storage.deletionPolicy is Delete",
                    standing.len()
                ),
            };
            news::tell(&context.writer, vec![told]).await;
        }
        (
            format!("claims are being deleted: {}", names(&remains.claims)),
            well,
        )
    } else {
        let mut well = true;
        if let Some(set) = remains
            .stateful_set
            .filter(|set| set.metadata.deletion_timestamp.is_none())
        {
            wrote = true;
            well = delete(context, set).await;
        }
        for pod in remains.orphans() {
            wrote = true;
            well &= delete(context, pod).await;
        }
        (format!("brokers stop: {}", names(&remains.pods)), well)
    };
    let well = say(context, cluster, &waits_for).await && well;
    (outcome(failed || !well, false), wrote)
}

/// Says in the status what the deletion waits for; whether that went well.
async fn say(context: &Context, cluster: &Cluster, waits_for: &str) -> bool {
    let old = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let status = deleting_cluster(waits_for, generation, &old, Timestamp::now());
    write_cluster_status(context, cluster, &status).await
}

/// What a Cluster that is being deleted has, without what merely has its labels or its names.
struct Remains<'a> {
    stateful_set: Option<&'a StatefulSet>,
    pods: Vec<&'a Pod>,
    /// Claims with its data. Those of another cluster id were never taken up.
    claims: Vec<&'a PersistentVolumeClaim>,
}

impl<'a> Remains<'a> {
    fn of(cluster: &Cluster, key: &ObjectKey, live: &'a Live) -> Self {
        let uid = cluster.uid().unwrap_or_default();
        let set = live.stateful_set.as_ref();
        let stateful_set = set.filter(|set| is_owned_by(&set.metadata, &uid));
        let others = set.filter(|_| stateful_set.is_none());
        let others = others.and_then(|set| set.metadata.uid.as_deref());
        let is_broker = |pod: &&Pod| {
            broker_id(pod).is_some_and(|id| pod.name_any() == Names::new(key).pod(id))
                && (others.is_none() || controller(&pod.metadata) != others)
        };
        let claims = live.claims.iter();
        let claims: Vec<_> = claims
            .filter(|claim| claim_broker(claim).is_some())
            .collect();
        let id = cluster_id(cluster, &uid);
        let is_ours = |claim: &&PersistentVolumeClaim| {
            Mark::of("claim", &claim.metadata).cluster_id.as_deref() == Some(id.as_str())
        };
        Self {
            stateful_set,
            pods: live.pods.iter().filter(is_broker).collect(),
            claims: claims.into_iter().filter(is_ours).collect(),
        }
    }

    /// Pods that nobody else deletes: their StatefulSet is gone, and has left them behind.
    fn orphans(&self) -> Vec<&'a Pod> {
        if self.stateful_set.is_some() {
            return Vec::new();
        }
        let mut pods = standing(&self.pods);
        pods.retain(|pod| controller(&pod.metadata).is_none());
        pods
    }
}

/// The id that the brokers told, which is that of data that was there before and was taken up; else what the Cluster would
/// have given its own. It must not follow from the claims that are left: once its own are gone, another's are.
fn cluster_id(cluster: &Cluster, uid: &str) -> String {
    let told = cluster.status.as_ref();
    let told = told.and_then(|status| status.cluster_id.clone());
    told.or_else(|| cluster.spec.cluster_id.clone())
        .unwrap_or_else(|| derived_cluster_id(uid))
}

/// The UID of an object's controller.
fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.map(|owner| owner.uid.as_str())
}

/// Those that are not being deleted yet.
fn standing<'a, K: kube::Resource>(objects: &[&'a K]) -> Vec<&'a K> {
    let standing = objects.iter().copied();
    standing
        .filter(|object| object.meta().deletion_timestamp.is_none())
        .collect()
}

fn names<K: ResourceExt>(objects: &[&K]) -> String {
    let names: Vec<String> = objects.iter().map(|object| object.name_any()).collect();
    names.join(", ")
}

/// An operator that ends together with its namespace takes off all finalizers there: nobody else would, and what they
/// stand for goes with the namespace.
pub(super) async fn leave_namespace(context: &Context, namespace: &str) {
    if !context.writer.is_namespace_going(namespace).await {
        return;
    }
    tracing::info!(
        namespace,
        "the namespace is being deleted: finalizers are taken off"
    );
    let topics = context.caches.topics.in_namespace(namespace);
    free(context, &topics).await;
    for cluster in context.caches.clusters.in_namespace(namespace) {
        let list = finalizer::changed(cluster.finalizers(), finalizer::STORAGE, Change::Remove);
        if list.len() < cluster.finalizers().len()
            && let Err(error) = context.writer.set_finalizers(cluster.as_ref(), &list).await
        {
            tracing::warn!(cluster = %cluster.name_any(), %error, "the finalizer cannot be taken off");
        }
    }
}

/// Takes the finalizers off Topics whose Cluster does not stay. Says whether that failed and whether anything was
/// written.
async fn free(context: &Context, topics: &[Arc<Topic>]) -> (bool, bool) {
    let with = topics
        .iter()
        .filter(|topic| {
            topic
                .finalizers()
                .iter()
                .any(|name| name == finalizer::TOPIC)
        })
        .map(|topic| (Arc::clone(topic), Change::Remove));
    let (failed, wrote) = set_finalizers(context, with.collect()).await;
    for (topic, error) in &failed {
        let error = error.as_deref().unwrap_or("the object changed");
        tracing::warn!(%topic, error, "the finalizer was not taken off");
    }
    (!failed.is_empty(), wrote)
}

async fn delete<K: super::api::Kind>(context: &Context, object: &K) -> bool {
    let deleted = context
        .writer
        .delete(object, PropagationPolicy::Background)
        .await;
    if let Err(error) = &deleted {
        tracing::warn!(kind = %K::kind(&()), name = %object.name_any(), %error, "cannot delete");
    }
    deleted.is_ok()
}

fn outcome(failed: bool, done: bool) -> Outcome {
    match (failed, done) {
        (true, _) => Outcome::Failed,
        (false, true) => Outcome::Converged,
        (false, false) => Outcome::UnderWay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn owned(name: &str, owner: Option<&str>) -> Value {
        let owner = owner.map(|uid| {
            json!([{
                "apiVersion": "v1", "kind": "Any", "name": "any", "uid": uid, "controller": true,
            }])
        });
        json!({"metadata": {"name": name, "uid": name, "ownerReferences": owner}})
    }

    fn claim(name: &str, id: &str) -> Value {
        let labels = json!({"taffrail.io/cluster": "demo"});
        let annotations = json!({"taffrail.io/cluster-id": id});
        json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}})
    }

    /// The id that the spec names, the owner of the StatefulSet, pods with their owners and claims with their ids; then
    /// the pods and claims that are the Cluster's, and the pods that have to be deleted one by one.
    fn check(
        (spec_id, told_id): (Option<&str>, Option<&str>),
        set: Option<&str>,
        pods: &[(&str, Option<&str>)],
        claims: &[(&str, &str)],
        expected: [&str; 3],
    ) {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "taffrail.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "demo", "namespace": "ns", "uid": "us"},
            "spec": {"brokers": 3, "clusterId": spec_id, "storage": {"volumes": []}},
            "status": told_id.map(|id| json!({"clusterId": id})),
        }))
        .expect("a Cluster");
        let set = set.map(|owner| {
            let mut set = owned("demo-broker", Some(owner));
            set["spec"] = json!({"selector": {}, "template": {}});
            serde_json::from_value(set).expect("a StatefulSet")
        });
        let pods = pods.iter().map(|(name, owner)| owned(name, *owner));
        let claims = claims.iter().map(|(name, id)| claim(name, id));
        let live = Live {
            stateful_set: set,
            pods: pods
                .map(|pod| serde_json::from_value(pod).expect("a pod"))
                .collect(),
            claims: claims
                .map(|claim| serde_json::from_value(claim).expect("a claim"))
                .collect(),
            ..Live::default()
        };
        let key = ObjectKey::new(Some("ns"), Some("demo"));
        let remains = Remains::of(&cluster, &key, &live);
        let found = [
            names(&remains.pods),
            names(&remains.claims),
            names(&remains.orphans()),
        ];
        assert_eq!(
            found,
            expected,
            "{pods:?} {claims:?}",
            pods = live.pods,
            claims = live.claims
        );
    }

    #[test]
    fn only_what_a_cluster_has_goes_with_it() {
        let id = derived_cluster_id("us");
        let id = id.as_str();
        let (a, b) = ("demo-broker-0", "demo-broker-1");
        let (one, two) = ("data-demo-broker-0", "data-demo-broker-1");
        check(
            (None, None),
            Some("us"),
            &[(a, Some("demo-broker")), (b, None)],
            &[(one, id)],
            ["demo-broker-0, demo-broker-1", one, ""],
        );
        // Left behind by a StatefulSet that was being made anew.
        check(
            (None, None),
            None,
            &[(a, None), ("debug", None)],
            &[],
            [a, "", a],
        );
        // Another's StatefulSet holds up nothing.
        check(
            (None, None),
            Some("them"),
            &[(a, Some("demo-broker")), (b, None)],
            &[],
            [b, "", b],
        );
        // Data that was there before the Cluster is its own once taken up, and not if it never was.
        check(
            (None, Some("old")),
            None,
            &[],
            &[(one, "old"), (two, "old")],
            ["", "data-demo-broker-0, data-demo-broker-1", ""],
        );
        let never = (None, None);
        check(never, None, &[], &[(two, "old")], ["", "", ""]);
        let asked_for = (Some("new"), None);
        check(asked_for, None, &[], &[(one, "old")], ["", "", ""]);
        check(never, None, &[], &[(one, id), (two, "old")], ["", one, ""]);
        check(
            never,
            None,
            &[],
            &[("backup", id), ("data-x-broker-0", id)],
            ["", "", ""],
        );
    }
}
