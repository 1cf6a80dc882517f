//! Events of a pass: what was done and why, one for each step, and what is refused, once when it begins to be.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource;

use super::api::{Severity, Writer};
use crate::plan::{PlannedStep, Step};

/// Events written at a time.
const PARALLEL: usize = 16;

/// Events written of one pass: 200 Topics applied together have one each.
const EVENTS_MAX: usize = 500;

/// One event.
#[derive(Clone, Debug)]
pub(super) struct News {
    /// The object that it is about.
    pub(super) regarding: ObjectReference,
    /// The pod or other object that the step was about.
    pub(super) related: Option<ObjectReference>,
    pub(super) severity: Severity,
    /// Why, for programs.
    pub(super) reason: &'static str,
    /// What was done or was to be done, for programs.
    pub(super) action: &'static str,
    /// Both for people.
    pub(super) note: String,
}

/// Reason and action of a step that was done.
pub(super) fn words(step: &Step) -> (&'static str, &'static str) {
    match step {
        Step::CreateBroker { .. } => ("BrokerCreated", "CreateBroker"),
        Step::UpdateBroker { .. } => ("BrokerRestarted", "RestartBroker"),
        Step::RemoveBroker { .. } => ("BrokerRemoved", "RemoveBroker"),
        Step::CreateTopic { .. } => ("TopicCreated", "CreateTopic"),
        Step::AddPartitions { .. } => ("PartitionsAdded", "AddPartitions"),
        Step::AlterTopicConfig { .. } => ("ConfigChanged", "ChangeConfig"),
        Step::Reassign { .. } => ("ReplicasMoved", "MoveReplicas"),
        Step::DeleteTopic { .. } => ("TopicDeleted", "DeleteTopic"),
        Step::ReleaseTopic { .. } => ("TopicReleased", "ReleaseTopic"),
    }
}

/// The text of a step that was done.
pub(super) fn note(planned: &PlannedStep) -> String {
    format!("{}: {}", planned.step, planned.reason)
}

/// A pod as the related object.
pub(super) fn pod(pod: &Pod) -> ObjectReference {
    pod.object_ref(&())
}

/// Refusals that begin, against those told before, which are replaced.
pub(super) fn begun<K: Clone + Ord>(told: &mut BTreeSet<K>, now: BTreeSet<K>) -> Vec<K> {
    let begun = now.difference(told).cloned().collect();
    *told = now;
    begun
}

/// Writes the events.
pub(super) async fn tell(writer: &Writer, news: Vec<News>) {
    let left_out = news.len().saturating_sub(EVENTS_MAX);
    if left_out > 0 {
        tracing::info!(left_out, "more events than are written");
    }
    let mut requests = Vec::new();
    for news in news.into_iter().take(EVENTS_MAX) {
        let News {
            regarding,
            related,
            severity,
            reason,
            action,
            note,
        } = news;
        requests.push(async move {
            writer
                .event(regarding, related, severity, reason, action, &note)
                .await;
        });
    }
    let mut requests = futures::stream::iter(requests).buffer_unordered(PARALLEL);
    while requests.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_once_until_they_end() {
        let mut told = BTreeSet::new();
        let set = |words: &[&'static str]| words.iter().copied().collect::<BTreeSet<_>>();
        for (now, expected) in [
            (vec!["a"], vec!["a"]),
            (vec!["a"], vec![]),
            (vec!["a", "b"], vec!["b"]),
            (vec!["b"], vec![]),
            (vec!["a", "b"], vec!["a"]),
        ] {
            assert_eq!(begun(&mut told, set(&now)), expected);
        }
    }
}
