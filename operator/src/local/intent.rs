//! From a file of manifests to an intent, with the memory of what was in force before: updates are admitted against
//! it as an API server would, and a refused one leaves the object as it was.

use std::path::Path;

use serde_json::Value;
use taffrail_crds::admission::{Admitted, FieldError, admit};
use taffrail_crds::{Cluster, Topic};

use super::LocalError;
use super::memory::{Memory, RememberedTopic};
use crate::manifest::Objects;
use crate::object::{ObjectKey, derived_uid};
use crate::properties::grown;
use crate::validate::{Intent, TopicIntent};

/// The only Cluster of a file.
pub(super) fn only_cluster<'a>(
    path: &Path,
    objects: &'a Objects,
) -> Result<&'a (ObjectKey, Cluster, Value), LocalError> {
    match objects.clusters.as_slice() {
        [one] => Ok(one),
        [] => Err(LocalError::NoCluster(path.to_owned())),
        several => Err(LocalError::ManyClusters {
            path: path.to_owned(),
            number: several.len(),
        }),
    }
}

/// The intent of a file. The memory then holds what is in force; Topics that are not in the file are forgotten.
pub(super) fn take(
    cluster: &(ObjectKey, Cluster, Value),
    objects: &Objects,
    memory: &mut Memory,
) -> Intent {
    let (_, new, manifest) = cluster;
    let old = memory.cluster_manifest.take();
    let (in_force, manifest, cluster_update_refused) = match old {
        Some(old) => match admit(manifest, Some(&old)) {
            Ok(_) => (new.clone(), manifest.clone(), None),
            Err(errors) => match admit(&old, None) {
                Ok(Admitted::Cluster(before)) => (*before, old, Some(joined(&errors))),
                // An object of an earlier release that this one would refuse cannot stay in force.
                Ok(Admitted::Topic(_)) | Err(_) => (new.clone(), manifest.clone(), None),
            },
        },
        None => (new.clone(), manifest.clone(), None),
    };
    memory.cluster_manifest = Some(manifest);
    memory.voters = grown(&memory.voters, in_force.spec.brokers);
    let mut topics = Vec::new();
    let mut remembered = std::mem::take(&mut memory.topics);
    for (key, new, manifest) in &objects.topics {
        let (topic, state, update_refused) =
            take_topic(new, manifest, remembered.remove(key), &mut memory.next_age);
        topics.push(TopicIntent {
            topic,
            uid: derived_uid("Topic", key),
            created: state.created,
            update_refused,
        });
        memory.topics.insert(key.clone(), state);
    }
    Intent {
        cluster: in_force,
        cluster_uid: memory.cluster_uid.clone(),
        cluster_update_refused,
        topics,
    }
}

fn take_topic(
    new: &Topic,
    manifest: &Value,
    old: Option<RememberedTopic>,
    next_age: &mut i64,
) -> (Topic, RememberedTopic, Option<String>) {
    let Some(old) = old else {
        let created = *next_age;
        *next_age += 1;
        let state = RememberedTopic {
            created,
            manifest: manifest.clone(),
        };
        return (new.clone(), state, None);
    };
    let errors = match admit(manifest, Some(&old.manifest)) {
        Ok(_) => None,
        Err(errors) => Some(joined(&errors)),
    };
    match (errors, admit(&old.manifest, None)) {
        (Some(errors), Ok(Admitted::Topic(before))) => (*before, old, Some(errors)),
        _ => {
            let state = RememberedTopic {
                created: old.created,
                manifest: manifest.clone(),
            };
            (new.clone(), state, None)
        }
    }
}

fn joined(errors: &[FieldError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    fn objects(topics: &[(&str, i32)]) -> Objects {
        let mut text = String::from(
            "apiVersion: taffrail.io/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec: {brokers: 1, storage: \
             {volumes: [{name: a, size: 1Gi}]}}\n",
        );
        for (name, partitions) in topics {
            text += &format!(
                "---\napiVersion: taffrail.io/v1alpha1\nkind: Topic\nmetadata: {{name: {name}}}\nspec: {{clusterRef: \
                 {{name: demo}}, partitions: {partitions}, replicationFactor: 1}}\n"
            );
        }
        let file = manifest::parse(Path::new("a.yaml"), &text).expect("YAML");
        manifest::objects(&file).expect("admitted")
    }

    fn take_all(memory: &mut Memory, topics: &[(&str, i32)]) -> Vec<(String, i32, i64, bool)> {
        let objects = objects(topics);
        let cluster = only_cluster(Path::new("a.yaml"), &objects).expect("one");
        let intent = take(cluster, &objects, memory);
        let summary = intent.topics.iter().map(|topic| {
            (
                topic.topic.metadata.name.clone().unwrap_or_default(),
                topic.topic.spec.partitions,
                topic.created,
                topic.update_refused.is_some(),
            )
        });
        summary.collect()
    }

    #[test]
    fn ages_stay_and_refused_updates_leave_the_object() {
        let key = ObjectKey::new(None, Some("demo"));
        let mut memory = Memory::new(key, "id".to_owned(), vec![0]);
        let one =
            |name: &str, partitions, age, refused| (name.to_owned(), partitions, age, refused);
        assert_eq!(take_all(&mut memory, &[("b", 2)]), [one("b", 2, 0, false)]);
        assert_eq!(
            take_all(&mut memory, &[("a", 1), ("b", 1)]),
            [one("a", 1, 1, false), one("b", 2, 0, true)],
        );
        assert_eq!(take_all(&mut memory, &[("b", 3)]), [one("b", 3, 0, false)]);
        // Removed and written again is a new object.
        assert_eq!(
            take_all(&mut memory, &[("a", 1), ("b", 3)]),
            [one("a", 1, 2, false), one("b", 3, 0, false)],
        );
    }
}
