//! The Topics of a Cluster: what they ask for, which of them go, and their finalizers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use kube::ResourceExt;
use taffrail_crds::{DeletionPolicy, Topic};

use super::super::cache::key_of;
use super::super::context::Context;
use super::super::finalizer::{self, Change, TopicState};
use crate::object::ObjectKey;
use crate::observed::{KafkaWorld, ManagedTopic};
use crate::validate::{TopicIntent, Valid, topic_name};

/// Requests for Topics under way at a time.
pub(super) const PARALLEL: usize = 16;

/// The Topics that ask for something.
pub(super) fn intents(topics: &[Arc<Topic>]) -> Vec<TopicIntent> {
    let staying = topics.iter().filter(|topic| !is_deleting(topic));
    staying
        .map(|topic| TopicIntent {
            topic: topic.as_ref().clone(),
            uid: topic.uid().unwrap_or_default(),
            created: topic
                .creation_timestamp()
                .map_or(i64::MAX, |time| time.0.as_second()),
            update_refused: None,
        })
        .collect()
}

/// The ids that Topics were seen to have, by object.
pub(super) fn recorded(topics: &[Arc<Topic>]) -> BTreeMap<ObjectKey, String> {
    let staying = topics.iter().filter(|topic| !is_deleting(topic));
    staying
        .filter_map(|topic| Some((key_of(topic.as_ref()), topic_id(topic)?.to_owned())))
        .collect()
}

/// Topics of brokers whose objects are being deleted and wait for that, by topic name; the oldest object first.
pub(super) fn managed(topics: &[Arc<Topic>]) -> BTreeMap<String, ManagedTopic> {
    let mut leaving: Vec<(&Arc<Topic>, &str)> = topics
        .iter()
        .filter(|topic| is_deleting(topic) && has_finalizer(topic))
        .filter(|topic| topic.spec.deletion_policy == DeletionPolicy::Delete)
        .filter_map(|topic| Some((topic, topic_id(topic)?)))
        .collect();
    leaving.sort_by_key(|(topic, _)| topic.creation_timestamp().map(|time| time.0));
    let mut managed = BTreeMap::new();
    for (topic, id) in leaving {
        let name = topic_name(topic);
        managed
            .entry(name.to_owned())
            .or_insert_with(|| ManagedTopic {
                object: key_of(topic.as_ref()),
                topic_id: Some(id.to_owned()),
                deletion_policy: topic.spec.deletion_policy,
            });
    }
    managed
}

/// The id of an object's topic, which is written down as soon as the operator has made or seen it. A name alone says
/// nothing about whose a topic is.
fn topic_id(topic: &Topic) -> Option<&str> {
    topic.status.as_ref()?.topic_id.as_deref()
}

/// Whether nothing is left to delete for a Topic that is being deleted: it never had a topic, or the active controller
/// said that it is gone.
pub(super) fn is_gone(topic: &Topic, world: Option<&KafkaWorld>, valid: Option<&Valid>) -> bool {
    let name = topic_name(topic);
    if valid.is_some_and(|valid| valid.claimed.contains_key(name)) {
        // Another Topic has taken it up.
        return true;
    }
    let Some(id) = topic_id(topic) else {
        return true;
    };
    world
        .filter(|world| world.authoritative)
        .is_some_and(|world| {
            let found = world.topics.get(name);
            found.is_none_or(|found| found.topic_id != id)
        })
}

pub(super) fn is_deleting(topic: &Topic) -> bool {
    topic.metadata.deletion_timestamp.is_some()
}

pub(super) fn has_finalizer(topic: &Topic) -> bool {
    topic
        .finalizers()
        .iter()
        .any(|name| name == finalizer::TOPIC)
}

/// What to do about a Topic's finalizer.
pub(super) fn change(topic: &Topic, cluster_stays: bool, owns: bool, gone: bool) -> Change {
    finalizer::of_topic(TopicState {
        has: has_finalizer(topic),
        deleting: is_deleting(topic),
        policy: topic.spec.deletion_policy,
        cluster_stays,
        owns_topic: owns,
        topic_gone: gone,
    })
}

/// Puts finalizers on and takes them off. Returns the Topics for which that failed and why (none if the object changed
/// in the meantime, so that it is looked at again), and whether anything was written.
pub(in crate::kubernetes) async fn set_finalizers(
    context: &Context,
    changes: Vec<(Arc<Topic>, Change)>,
) -> (BTreeMap<ObjectKey, Option<String>>, bool) {
    let mut requests = Vec::new();
    for (topic, change) in changes {
        if change == Change::None {
            continue;
        }
        let list = finalizer::changed(topic.finalizers(), finalizer::TOPIC, change);
        requests.push(async move {
            let key = key_of(topic.as_ref());
            let result = context.writer.set_finalizers(topic.as_ref(), &list).await;
            (key, result)
        });
    }
    let wrote = !requests.is_empty();
    let mut failed = BTreeMap::new();
    let mut answers = futures::stream::iter(requests).buffer_unordered(PARALLEL);
    while let Some((key, result)) = answers.next().await {
        match result {
            Ok(topic) => {
                let goes =
                    topic.metadata.deletion_timestamp.is_some() && topic.finalizers().is_empty();
                if goes {
                    context.caches.topics.remove(&topic);
                } else {
                    context.caches.topics.put(topic);
                }
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let why = (!error.is_conflict()).then(|| error.to_string());
                failed.insert(key, why);
            }
        }
    }
    (failed, wrote)
}

/// Names of topics whose configuration is to be compared.
pub(super) fn configured(valid: &Valid) -> Vec<String> {
    let names: BTreeSet<&String> = valid.topics.iter().map(|topic| &topic.name).collect();
    names.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::ObservedTopic;
    use serde_json::json;

    fn topic(name: &str, deleting: bool, id: Option<&str>) -> Topic {
        serde_json::from_value(json!({
            "apiVersion": "taffrail.io/v1alpha1", "kind": "Topic",
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": deleting.then_some("2026-01-01T00:00:01Z"),
                "finalizers": [finalizer::TOPIC],
            },
            "spec": {
                "clusterRef": {"name": "demo"}, "topicName": "orders", "partitions": 1, "replicationFactor": 1,
                "deletionPolicy": "Delete",
            },
            "status": {"topicId": id},
        }))
        .expect("a Topic")
    }

    fn world(id: Option<&str>) -> KafkaWorld {
        let found = id.map(|id| {
            let topic = ObservedTopic {
                topic_id: id.to_owned(),
                ..ObservedTopic::default()
            };
            ("orders".to_owned(), topic)
        });
        KafkaWorld {
            authoritative: true,
            topics: found.into_iter().collect(),
            ..KafkaWorld::default()
        }
    }

    #[test]
    fn topic_is_gone_when_brokers_say_so() {
        for (known, found, expected) in [
            (Some("a"), Some("a"), false),
            (Some("a"), Some("b"), true),
            (Some("a"), None, true),
            // Nobody knows whose the topic of this name is.
            (None, Some("a"), true),
            (None, None, true),
        ] {
            let topic = topic("t", true, known);
            let hearsay = KafkaWorld {
                authoritative: false,
                ..world(found)
            };
            for unsure in [None, Some(&hearsay)] {
                assert_eq!(is_gone(&topic, unsure, None), known.is_none());
            }
            assert_eq!(
                is_gone(&topic, Some(&world(found)), None),
                expected,
                "{known:?} {found:?}"
            );
        }
    }

    #[test]
    fn only_leaving_topics_are_managed() {
        let stays = Arc::new(topic("stays", false, Some("a")));
        let unknown = Arc::new(topic("unknown", true, None));
        let goes = Arc::new(topic("goes", true, Some("a")));
        let managed = managed(&[stays, unknown, goes]);
        let orders = managed.get("orders").expect("managed");
        assert_eq!(orders.object.name, "goes");
        assert_eq!(orders.topic_id.as_deref(), Some("a"));
    }
}
