//! A world in memory that plans are applied to, and manifests for it. For tests only.

use std::collections::BTreeMap;
use std::path::Path;

use crate::manifest;
use crate::object::{ObjectKey, derived_uid};
use crate::observed::*;
use crate::plan::{Plan, Step, plan};
use crate::validate::{Intent, TopicIntent, Valid, validate};

pub(crate) fn valid(text: &str) -> Valid {
    let file = manifest::parse(Path::new("test.yaml"), text).expect("YAML");
    let objects = manifest::objects(&file).unwrap_or_else(|error| panic!("{error}"));
    let (key, cluster, _) = objects.clusters[0].clone();
    let topics = objects.topics.into_iter().enumerate();
    let intent = Intent {
        cluster,
        cluster_uid: derived_uid("Cluster", &key),
        cluster_update_refused: None,
        topics: topics
            .map(|(order, (key, topic, _))| TopicIntent {
                topic,
                uid: derived_uid("Topic", &key),
                created: order as i64,
                update_refused: None,
            })
            .collect(),
    };
    validate(&intent, &[key])
}

/// Carries out a plan in memory, as brokers would.
pub(crate) fn apply(valid: &Valid, plan: &Plan, world: &mut Observed) {
    for planned in &plan.steps {
        let mut kafka = world.kafka.world().expect("known");
        match planned.step.clone() {
            Step::CreateBroker { broker } | Step::UpdateBroker { broker } => {
                let state = ObservedBroker {
                    config: valid.cluster.config.clone().expect("checked by plan"),
                    volumes: valid.cluster.volumes.clone(),
                    outdated: Vec::new(),
                    ready: true,
                    down: false,
                    safe_to_stop: Some(true),
                };
                world.brokers.insert(broker, state);
                kafka.brokers.insert(broker, registered(broker));
            }
            Step::RemoveBroker { broker } => {
                world.brokers.remove(&broker);
                kafka.brokers.remove(&broker);
            }
            Step::CreateTopic {
                object,
                name,
                assignments,
                config,
            } => {
                let topic = ObservedTopic {
                    topic_id: format!("id-of-{name}"),
                    internal: false,
                    partitions: partitions(0, assignments),
                    config: Some(config),
                };
                let before = kafka.topics.insert(name.clone(), topic);
                assert!(before.is_none(), "{name} created twice");
                manage(valid, world, &object, &name);
            }
            Step::AddPartitions {
                name,
                existing,
                assignments,
                ..
            } => {
                let topic = kafka.topics.get_mut(&name).expect("exists");
                assert_eq!(topic.partitions.len(), existing);
                topic.partitions.extend(partitions(existing, assignments));
            }
            Step::AlterTopicConfig { name, changes, .. } => {
                let topic = kafka.topics.get_mut(&name).expect("exists");
                let config = topic.config.as_mut().expect("known");
                for (name, value) in changes {
                    match value {
                        Some(value) => config.insert(name, value),
                        None => config.remove(&name),
                    };
                }
            }
            Step::Reassign { name, moves, .. } => {
                let topic = kafka.topics.get_mut(&name).expect("exists");
                for (index, replicas) in moves {
                    let partition = topic.partitions.get_mut(&index).expect("exists");
                    partition.isr.clone_from(&replicas);
                    partition.replicas = replicas;
                }
            }
            Step::DeleteTopic { name, topic_id, .. } => {
                let topic = kafka.topics.remove(&name).expect("exists");
                assert_eq!(topic.topic_id, topic_id);
                world.managed.remove(&name);
            }
            Step::ReleaseTopic { name, .. } => {
                world.managed.remove(&name);
            }
        }
        world.kafka = ObservedKafka::Answered(kafka);
    }
}

/// What the reconciler remembers after a pass: the topics it has seen for each object.
pub(crate) fn manage(valid: &Valid, world: &mut Observed, object: &ObjectKey, name: &str) {
    let topic = valid.topics.iter().find(|topic| topic.key == *object);
    world.managed.insert(
        name.to_owned(),
        ManagedTopic {
            object: object.clone(),
            topic_id: Some(format!("id-of-{name}")),
            deletion_policy: topic.expect("valid").deletion_policy,
        },
    );
}

pub(crate) fn registered(broker: i32) -> RegisteredBroker {
    RegisteredBroker {
        host: "127.0.0.1".to_owned(),
        port: 9092 + 100 * broker,
        rack: Some(format!("rack-{}", broker % 3)),
        fenced: false,
    }
}

pub(crate) fn partitions(
    first: usize,
    assignments: Vec<Vec<i32>>,
) -> BTreeMap<i32, ObservedPartition> {
    let indexed = assignments.into_iter().enumerate();
    indexed
        .map(|(index, replicas)| {
            let index = i32::try_from(first + index).expect("small");
            let partition = ObservedPartition {
                leader: replicas.first().copied(),
                isr: replicas.clone(),
                replicas,
                moves_to: None,
            };
            (index, partition)
        })
        .collect()
}

/// The world after a manifest was carried out from nothing.
pub(crate) fn world_of(text: &str) -> Observed {
    let valid = valid(text);
    let mut world = Observed::default();
    for _ in 0..20 {
        let plan = plan(&valid, &world);
        if plan.steps.is_empty() {
            break;
        }
        apply(&valid, &plan, &mut world);
    }
    world
}

pub(crate) fn cluster(spec: &str) -> String {
    format!(
        "apiVersion: taffrail.io/v1alpha1\nkind: Cluster\nmetadata: {{name: demo}}\nspec:\n  storage: {{volumes: \
         [{{name: data-0, size: 1Gi}}]}}\n{spec}\n"
    )
}

pub(crate) fn topic(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: taffrail.io/v1alpha1\nkind: Topic\nmetadata: {{name: {name}}}\nspec: {{clusterRef: {{name: \
         demo}}, {spec}}}\n"
    )
}

pub(crate) const THREE: &str = "  brokers: 3\n  config: {min.insync.replicas: 2}";
pub(crate) const ORDERS: &str = "partitions: 5, replicationFactor: 3, config: {retention.ms: 1000}";

pub(crate) fn demo() -> String {
    cluster(THREE) + &topic("orders", ORDERS)
}

pub(crate) fn kafka(world: &mut Observed) -> &mut KafkaWorld {
    match &mut world.kafka {
        ObservedKafka::Answered(kafka) => kafka,
        ObservedKafka::Absent | ObservedKafka::Unreachable { .. } => panic!("no world"),
    }
}
