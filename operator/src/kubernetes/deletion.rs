//! What is left to do for a Cluster that is being deleted or is gone: nothing but taking off finalizers, after what
//! they stand for is done.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::PropagationPolicy;
use taffrail_crds::{Cluster, Topic};

use super::cache::key_of;
use super::context::Context;
use super::finalizer::{self, Change};
use super::news::{self, News};
use super::objects::is_owned_by;
use super::pass::{Live, clusterless, set_finalizers, write_cluster_status, write_topic_statuses};
use super::queue::Outcome;
use crate::object::ObjectKey;
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
    let well = write_topic_statuses(context, clusterless(&topics, key)).await;
    if failed || !well {
        (Outcome::Failed, wrote)
    } else if topics.is_empty() {
        (Outcome::Gone, wrote)
    } else {
        // A Cluster of this name, or another Topic, is an event.
        (Outcome::Converged, wrote)
    }
}

/// The Cluster is being deleted: its claims too, if it says so.
pub(super) async fn clean_up(
    context: &Context,
    cluster: &Cluster,
    key: &ObjectKey,
    topics: &[Arc<Topic>],
) -> (Outcome, bool) {
    let (failed, mut wrote) = free(context, topics).await;
    let has = cluster
        .finalizers()
        .iter()
        .any(|name| name == finalizer::STORAGE);
    if !has {
        // What else it has is for others to take off.
        return (outcome(failed, true), wrote);
    }
    let live = Live::of(&context.caches, key, false);
    let pods_gone = live.stateful_set.is_none() && live.pods.is_empty();
    let change = finalizer::of_cluster(
        has,
        true,
        cluster.spec.storage.deletion_policy,
        pods_gone && live.claims.is_empty(),
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
        let standing: Vec<_> = live
            .claims
            .iter()
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
            .collect();
        let mut well = true;
        if !standing.is_empty() {
            wrote = true;
            for claim in &standing {
                well &= delete(context, *claim).await;
            }
            let told = News {
                regarding: kube::Resource::object_ref(cluster, &()),
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
        let names: Vec<String> = live.claims.iter().map(ResourceExt::name_any).collect();
        (
            format!("claims are being deleted: {}", names.join(", ")),
            well,
        )
    } else {
        let mut well = true;
        if let Some(set) = live.stateful_set.as_ref().filter(|set| {
            set.metadata.deletion_timestamp.is_none()
                && cluster
                    .uid()
                    .is_some_and(|uid| is_owned_by(&set.metadata, &uid))
        }) {
            wrote = true;
            well = delete(context, set).await;
        }
        let names: Vec<String> = live.pods.iter().map(ResourceExt::name_any).collect();
        (format!("brokers stop: {}", names.join(", ")), well)
    };
    let old = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let status = deleting_cluster(&waits_for, generation, &old, Timestamp::now());
    let well = write_cluster_status(context, cluster, &status).await && well;
    (outcome(failed || !well, false), wrote)
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
