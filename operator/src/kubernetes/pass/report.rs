//! The end of a pass: statuses, written only where they differ, events of what began to be refused, and how soon to
//! look again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde_json::Value;
use taffrail_crds::{
    Cluster, ClusterStatus, Condition, ConditionStatus, DeletionPolicy, Topic, TopicStatus,
};

use super::super::api::Severity;
use super::super::cache::key_of;
use super::super::context::{Context, Memory};
use super::super::difference::merge_patch;
use super::super::endpoints::Outside;
use super::super::news::{self, News};
use super::super::objects::selector;
use super::super::queue::Outcome;
use super::topics::{self, PARALLEL};
use super::{COUNT_EVERY, Pass};
use crate::object::ObjectKey;
use crate::observed::Observed;
use crate::plan::Plan;
use crate::refusal::{Concern, Reason, Refusal};
use crate::status::{
    self, cluster_status, deleting_topic, is_ready, is_reworded, refused_status, topic_status,
    unseen_cluster, unseen_topic,
};
use crate::validate::Valid;

impl Pass<'_> {
    pub(super) async fn report(
        &mut self,
        valid: &Valid,
        observed: &Observed,
        plan: &Plan,
        outside: Outside,
    ) -> Outcome {
        let now = Timestamp::now();
        let mut failed = false;
        self.refresh_topics();
        let old = self.cluster.status.clone().unwrap_or_default();
        let mut status = cluster_status(
            valid,
            observed,
            plan,
            &self.failures,
            outside.listeners,
            &old,
            now,
        );
        status.selector = Some(selector(&self.key.name));
        self.keep_count(&old, &mut status);
        keep_wording(self.memory, None, &old.conditions, &mut status.conditions);
        failed |= !write_cluster_status(self.context, &self.cluster, &status).await;

        let mut statuses = BTreeMap::new();
        let world = observed.kafka.answered();
        for topic in &self.topics {
            let key = key_of(topic.as_ref());
            let old = self.status_before(topic, &key);
            let generation = topic.metadata.generation;
            let mut status = if topics::is_deleting(topic) {
                if !topics::has_finalizer(topic) {
                    continue;
                }
                let why = if valid.cluster.paused {
                    "the Cluster is paused, so its topic is not deleted"
                } else if !world.is_some_and(|world| world.authoritative) {
                    "its topic is deleted once the active controller answers"
                } else {
                    "its topic is being deleted"
                };
                deleting_topic(why, generation, &old, now)
            } else if let Some(valid) = valid.topics.iter().find(|valid| valid.key == key) {
                topic_status(valid, observed, plan, &self.failures, &old, now)
            } else if let Some(refusals) = valid.refusals.get(&key) {
                refused_status(refusals, generation, &old, now)
            } else {
                continue;
            };
            keep_wording(
                self.memory,
                Some(key.clone()),
                &old.conditions,
                &mut status.conditions,
            );
            statuses.insert(key, (Arc::clone(topic), status));
        }
        self.memory.worded.retain(|object, _| {
            object
                .as_ref()
                .is_none_or(|object| statuses.contains_key(object))
        });
        let all_ready = is_ready(&status.conditions)
            && statuses
                .values()
                .all(|(_, status)| is_ready(&status.conditions));
        failed |= !write_topic_statuses(self.context, statuses.into_values().collect()).await;

        self.tell_refusals(plan);
        let mut reasons: Vec<&'static str> = plan
            .refusals()
            .chain(self.failures.values().flatten())
            .map(|refusal| refusal.reason.word())
            .collect();
        reasons.sort_unstable();
        self.context.count(self.key, reasons);
        failed |= !self.failures.is_empty();
        self.memory.failed = std::mem::take(&mut self.failures);
        outcome(failed, all_ready, plan)
    }

    /// Notes the id of a topic that was made. If it is to be deleted with its Topic, it is written down at once: should
    /// this operator end before its report, the next one knows whose the topic is.
    pub(super) async fn record_created(&mut self, key: ObjectKey, id: String) {
        self.created.insert(key.clone(), id);
        let Some(topic) = self.context.caches.topics.get(&key) else {
            return;
        };
        if topic.spec.deletion_policy == DeletionPolicy::Retain {
            return;
        }
        let status = self.status_before(&topic, &key);
        // If that fails, the report tries again.
        write_topic_statuses(self.context, vec![(topic, status)]).await;
    }

    /// A Topic's status up to now, with the id of the topic that this pass made.
    fn status_before(&self, topic: &Topic, key: &ObjectKey) -> TopicStatus {
        let mut status = topic.status.clone().unwrap_or_default();
        if let Some(id) = self.created.get(key) {
            status.topic_id = Some(id.clone());
        }
        status
    }

    /// The number of under-replicated partitions changes all the time while brokers restart, so it is written at most
    /// once a minute.
    fn keep_count(&mut self, old: &ClusterStatus, status: &mut ClusterStatus) {
        if status.under_replicated_partitions == old.under_replicated_partitions {
            return;
        }
        let now = Instant::now();
        let recent = self
            .memory
            .counted
            .is_some_and(|counted| now.saturating_duration_since(counted) < COUNT_EVERY);
        if recent && old.under_replicated_partitions.is_some() {
            status.under_replicated_partitions = old.under_replicated_partitions;
        } else {
            self.memory.counted = Some(now);
        }
    }

    /// Refusals that someone has to do something about, failures that happen a second time, and what a restart waits for:
    /// each is told once, when it begins.
    fn tell_refusals(&mut self, plan: &Plan) {
        let mut now: BTreeMap<(Option<ObjectKey>, &'static str), Refusal> = BTreeMap::new();
        let first = !std::mem::replace(&mut self.memory.recalled, true);
        let planned = plan
            .topics
            .iter()
            .map(|(object, refusals)| (Some(object), refusals))
            .chain([(None, &plan.cluster)]);
        for (object, refusals) in planned {
            for refusal in refusals.iter().filter(|refusal| is_told(refusal)) {
                now.insert((object.cloned(), refusal.reason.word()), refusal.clone());
            }
        }
        for (object, failures) in &self.failures {
            let before = self.memory.failed.get(object);
            for failure in failures
                .iter()
                .filter(|failure| first || before.is_some_and(|before| before.contains(failure)))
            {
                now.insert((object.clone(), failure.reason.word()), failure.clone());
            }
        }
        if first {
            self.recall(&now);
        }
        let keys: BTreeSet<_> = now.keys().cloned().collect();
        for key in news::begun(&mut self.memory.told, keys) {
            let (Some(refusal), Some(regarding)) = (now.get(&key), self.reference(key.0.as_ref()))
            else {
                continue;
            };
            self.news.push(News {
                regarding,
                related: None,
                severity: if refusal.reason.is_transient() {
                    Severity::Normal
                } else {
                    Severity::Warning
                },
                reason: refusal.reason.word(),
                action: "Reconcile",
                note: refusal.message.clone(),
            });
        }
    }

    /// What the statuses said before this operator began was told by the one before it.
    fn recall(&mut self, now: &BTreeMap<(Option<ObjectKey>, &'static str), Refusal>) {
        for key in now.keys() {
            let conditions = match &key.0 {
                None => self
                    .cluster
                    .status
                    .as_ref()
                    .map(|status| &status.conditions),
                Some(object) => self
                    .topics
                    .iter()
                    .find(|topic| key_of(topic.as_ref()) == *object)
                    .and_then(|topic| topic.status.as_ref())
                    .map(|status| &status.conditions),
            };
            let known = conditions.into_iter().flatten().any(|condition| {
                condition.status == ConditionStatus::False && condition.reason == key.1
            });
            if known {
                self.memory.told.insert(key.clone());
            }
        }
    }

    fn reference(
        &self,
        object: Option<&ObjectKey>,
    ) -> Option<k8s_openapi::api::core::v1::ObjectReference> {
        match object {
            None => Some(self.cluster.object_ref(&())),
            Some(key) => self
                .topics
                .iter()
                .find(|topic| key_of(topic.as_ref()) == *key)
                .map(|topic| topic.object_ref(&())),
        }
    }
}

/// The wording of InSync changes all the time while brokers restart, so it is written at most once a minute.
fn keep_wording(
    memory: &mut Memory,
    object: Option<ObjectKey>,
    old: &[Condition],
    new: &mut [Condition],
) {
    if !is_reworded(old, new) {
        return;
    }
    let now = Instant::now();
    let last = memory.worded.get(&object);
    if last.is_some_and(|last| now.saturating_duration_since(*last) < COUNT_EVERY) {
        status::keep_wording(old, new);
    } else {
        memory.worded.insert(object, now);
    }
}

fn is_told(refusal: &Refusal) -> bool {
    !refusal.reason.is_transient() || refusal.reason == Reason::NotSafeToStop
}

fn outcome(failed: bool, all_ready: bool, plan: &Plan) -> Outcome {
    if failed {
        return Outcome::Failed;
    }
    if !plan.steps.is_empty() {
        return Outcome::UnderWay;
    }
    if all_ready {
        return Outcome::Converged;
    }
    let waits = plan.refusals().any(|refusal| refusal.reason.is_transient());
    let refused = plan
        .refusals()
        .any(|refusal| !refusal.reason.is_transient());
    if refused && !waits {
        Outcome::Refused
    } else {
        Outcome::UnderWay
    }
}

/// Says of objects without a status that they were seen.
pub(super) async fn first_visit(context: &Context, cluster: &Cluster, topics: &[Arc<Topic>]) {
    let now = Timestamp::now();
    if cluster.status.is_none() {
        let status = unseen_cluster(cluster.metadata.generation, now);
        write_cluster_status(context, cluster, &status).await;
    }
    let unseen = topics
        .iter()
        .filter(|topic| topic.status.is_none() && !topics::is_deleting(topic))
        .map(|topic| {
            (
                Arc::clone(topic),
                unseen_topic(topic.metadata.generation, now),
            )
        });
    write_topic_statuses(context, unseen.collect()).await;
}

/// The status of Topics that name no Cluster.
pub(in crate::kubernetes) fn clusterless(
    topics: &[Arc<Topic>],
    cluster: &ObjectKey,
) -> Vec<(Arc<Topic>, TopicStatus)> {
    let refusal = Refusal::new(
        Concern::Ready,
        Reason::ClusterNotFound,
        format!("spec.clusterRef.name: there is no Cluster {cluster}"),
    );
    let now = Timestamp::now();
    topics
        .iter()
        .filter(|topic| !topics::is_deleting(topic))
        .map(|topic| {
            let old = topic.status.clone().unwrap_or_default();
            let refusals = std::slice::from_ref(&refusal);
            let status = refused_status(refusals, topic.metadata.generation, &old, now);
            (Arc::clone(topic), status)
        })
        .collect()
}

/// Writes a Cluster's status if it differs; says whether that went well.
pub(in crate::kubernetes) async fn write_cluster_status(
    context: &Context,
    cluster: &Cluster,
    status: &ClusterStatus,
) -> bool {
    let key = key_of(cluster);
    let Some(patch) = difference(cluster.status.as_ref(), status) else {
        return true;
    };
    match context.writer.patch_status::<Cluster>(&key, &patch).await {
        Ok(cluster) => {
            context.caches.clusters.put(cluster);
            true
        }
        Err(error) if error.is_not_found() => true,
        Err(error) => {
            tracing::warn!(cluster = %key, %error, "the status cannot be written");
            false
        }
    }
}

/// Writes the statuses that differ; says whether that went well.
pub(in crate::kubernetes) async fn write_topic_statuses(
    context: &Context,
    statuses: Vec<(Arc<Topic>, TopicStatus)>,
) -> bool {
    let mut requests = Vec::new();
    for (topic, status) in statuses {
        let Some(patch) = difference(topic.status.as_ref(), &status) else {
            continue;
        };
        requests.push(async move {
            let key = key_of(topic.as_ref());
            let result = context.writer.patch_status::<Topic>(&key, &patch).await;
            (key, result)
        });
    }
    let mut well = true;
    let mut answers = futures::stream::iter(requests).buffer_unordered(PARALLEL);
    while let Some((key, result)) = answers.next().await {
        match result {
            Ok(topic) => {
                context.caches.topics.put(topic);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(topic = %key, %error, "the status cannot be written");
                well = false;
            }
        }
    }
    well
}

fn difference<S: serde::Serialize>(old: Option<&S>, new: &S) -> Option<Value> {
    let old = serde_json::to_value(old).unwrap_or_default();
    let new = serde_json::to_value(new).unwrap_or_default();
    merge_patch(&old, &new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_with(reasons: &[Reason]) -> Plan {
        let cluster = reasons
            .iter()
            .map(|&reason| Refusal::new(Concern::Ready, reason, ""));
        Plan {
            cluster: cluster.collect(),
            ..Plan::default()
        }
    }

    #[test]
    fn how_soon_to_look_again() {
        use Outcome::{Converged, Failed, Refused, UnderWay};
        for (failed, ready, reasons, expected) in [
            (true, true, vec![], Failed),
            (false, true, vec![], Converged),
            (false, false, vec![], UnderWay),
            (false, false, vec![Reason::InvalidConfig], Refused),
            (false, false, vec![Reason::NotSafeToStop], UnderWay),
            (
                false,
                false,
                vec![Reason::InvalidConfig, Reason::BrokersStarting],
                UnderWay,
            ),
        ] {
            assert_eq!(outcome(failed, ready, &plan_with(&reasons)), expected);
        }
    }

    #[test]
    fn status_is_written_only_when_it_differs() {
        let old = ClusterStatus {
            brokers: 3,
            controller: Some(1),
            ..ClusterStatus::default()
        };
        assert_eq!(difference(Some(&old), &old), None);
        let new = ClusterStatus {
            brokers: 3,
            ..ClusterStatus::default()
        };
        assert_eq!(
            difference(Some(&old), &new),
            Some(serde_json::json!({"controller": null}))
        );
    }
}
