//! Steps that make the topics what the Topics say: created, grown, configured, re-replicated, deleted or let go.

use std::collections::BTreeMap;

use taffrail_core::config::same_meaning;
use taffrail_core::ids::BrokerId;
use taffrail_core::placement::{PlacementBroker, place, place_more, start_and_shift};
use taffrail_crds::DeletionPolicy;

use super::brokers::count;
use super::replicas::replicas_for_factor;
use super::{MOVES_MAX, Plan, Step, under_way};
use crate::observed::{KafkaWorld, Observed, ObservedKafka, ObservedTopic};
use crate::refusal::{Concern, Reason, Refusal};
use crate::validate::{Valid, ValidTopic};

pub(super) fn plan(valid: &Valid, observed: &Observed, plan: &mut Plan) {
    let Some(world) = observed.kafka.world() else {
        // Why is told of the Cluster: it changes from look to look, and Topics may be many.
        for topic in &valid.topics {
            let refusal = Refusal::new(
                Concern::Placed,
                Reason::BrokersUnreachable,
                "no broker can be asked; the Cluster says why",
            );
            plan.refuse_topic(&topic.key, refusal);
        }
        return;
    };
    let mut topics = Topics {
        ring: Ring::of(valid, observed, &world),
        brokers: usize::try_from(valid.cluster.brokers).unwrap_or(0),
        moves_left: MOVES_MAX.saturating_sub(moving(&world)),
        plan,
    };
    for topic in &valid.topics {
        match world.topics.get(&topic.name) {
            None if !world.authoritative => topics.refuse_once(
                topic,
                Reason::BrokersUnreachable,
                "the active controller cannot be asked whether the topic exists".to_owned(),
            ),
            None => topics.create(topic),
            Some(existing) => {
                if let Some(recorded) = replaced(topic, existing, &world, observed) {
                    topics.plan.refuse_topic(
                        &topic.key,
                        Refusal::new(
                            Concern::Ready,
                            Reason::TopicReplaced,
                            format!(
                                "topic {} has id {} and was made by somebody else, after topic {recorded} of this Topic was \
                                 deleted; it stays when this Topic goes. To take it over, set spec.deletionPolicy to Retain \
                                 and then back",
                                topic.name, existing.topic_id
                            ),
                        ),
                    );
                }
                // Partitions, replicas and configuration do not wait for each other.
                topics.grow(topic, existing);
                topics.change_factor(topic, existing);
                topics.configure(topic, existing);
            }
        }
    }
    if world.authoritative {
        topics.let_go(valid, observed, &world);
    }
}

/// The id of the topic that a Topic had, if somebody has put another in its place. With Retain it does not matter which
/// of both it is; with Delete the other one's records would go with the Topic.
pub(crate) fn replaced<'a>(
    topic: &ValidTopic,
    existing: &ObservedTopic,
    world: &KafkaWorld,
    observed: &'a Observed,
) -> Option<&'a String> {
    let recorded = observed.recorded.get(&topic.key)?;
    let replaced = world.authoritative
        && topic.deletion_policy == DeletionPolicy::Delete
        && *recorded != existing.topic_id;
    replaced.then_some(recorded)
}

/// Where replicas may be placed.
enum Ring {
    /// All brokers of the spec, with their racks.
    Complete(Vec<PlacementBroker>),
    /// Some are still unknown, so that a placement made now would not be the one of a repeat.
    Waiting(String),
}

impl Ring {
    fn of(valid: &Valid, observed: &Observed, world: &KafkaWorld) -> Self {
        let ids = 0..valid.cluster.brokers;
        if matches!(observed.kafka, ObservedKafka::Absent) {
            // Nothing runs yet: what would be placed once the brokers are there. Racks are unknown until then.
            return Self::Complete(
                ids.map(|id| PlacementBroker {
                    id: BrokerId(id),
                    rack: None,
                })
                .collect(),
            );
        }
        let mut brokers = Vec::new();
        for id in ids {
            match world.brokers.get(&id) {
                None => return Self::Waiting(format!("broker {id} has not registered yet")),
                Some(broker) if valid.cluster.racks && broker.rack.is_none() => {
                    return Self::Waiting(format!("the rack of broker {id} is not known yet"));
                }
                Some(broker) => brokers.push(PlacementBroker {
                    id: BrokerId(id),
                    rack: broker.rack.clone().filter(|_| valid.cluster.racks),
                }),
            }
        }
        Self::Complete(brokers)
    }
}

struct Topics<'a> {
    ring: Ring,
    brokers: usize,
    moves_left: usize,
    plan: &'a mut Plan,
}

impl Topics<'_> {
    fn create(&mut self, topic: &ValidTopic) {
        let Ok(config) = &topic.config else {
            // Refused already; a topic is not created without the configuration that its owner meant it to have.
            self.refuse_once(
                topic,
                Reason::InvalidConfig,
                "the topic is created once its configuration is right".to_owned(),
            );
            return;
        };
        let (start, shift) = start_and_shift(topic.uid.as_bytes());
        let placed = self.place(topic, |ring| {
            place(
                ring,
                0,
                topic.partitions,
                topic.replication_factor,
                start,
                shift,
            )
        });
        if let Some(assignments) = placed {
            self.plan.step(
                Step::CreateTopic {
                    object: topic.key.clone(),
                    name: topic.name.clone(),
                    assignments,
                    config: config.clone(),
                },
                "the topic does not exist",
            );
        }
    }

    fn grow(&mut self, topic: &ValidTopic, existing: &ObservedTopic) {
        let have = existing.partitions.len();
        if have > topic.partitions {
            self.plan.refuse_topic(
                &topic.key,
                Refusal::new(
                    Concern::Placed,
                    Reason::FewerPartitions,
                    format!(
                        "spec.partitions: topic {} has {} and partitions cannot be removed; set spec.partitions to {have}",
                        topic.name,
                        count(have, "partition"),
                    ),
                ),
            );
            return;
        }
        let more = topic.partitions - have;
        if more == 0 {
            return;
        }
        let first: Vec<BrokerId> = existing
            .partitions
            .get(&0)
            .map(|partition| partition.replicas.iter().copied().map(BrokerId).collect())
            .unwrap_or_default();
        let placed = self.place(topic, |ring| {
            place_more(ring, &first, have, more, topic.replication_factor)
        });
        if let Some(assignments) = placed {
            self.plan.step(
                Step::AddPartitions {
                    object: topic.key.clone(),
                    name: topic.name.clone(),
                    existing: have,
                    assignments,
                },
                format!(
                    "spec.partitions is {} and the topic has {have}",
                    topic.partitions
                ),
            );
        }
    }

    fn change_factor(&mut self, topic: &ValidTopic, existing: &ObservedTopic) {
        let wanted = topic.replication_factor;
        // A move that is under way is let be, unless it leads to a factor that nobody wants any more.
        let differing = existing.partitions.iter().filter(|(_, partition)| {
            partition
                .moves_to
                .as_ref()
                .unwrap_or(&partition.replicas)
                .len()
                != wanted
        });
        let mut moves = BTreeMap::new();
        let mut waiting = 0;
        for (&index, partition) in differing {
            let placed = self.place(topic, |ring| {
                replicas_for_factor(ring, usize::try_from(index).unwrap_or(0), partition, wanted)
            });
            let Some(replicas) = placed else {
                return;
            };
            if partition.moves_to.is_some() {
                // Takes the place of one that counts already.
                moves.insert(index, replicas);
            } else if self.moves_left == 0 {
                waiting += 1;
            } else {
                self.moves_left -= 1;
                moves.insert(index, replicas);
            }
        }
        if waiting > 0 {
            self.wait(
                topic,
                &format!(
                    "{} wait, since {MOVES_MAX} move at a time",
                    count(waiting, "more partition")
                ),
            );
        }
        if !moves.is_empty() {
            self.plan.step(
                Step::Reassign {
                    object: topic.key.clone(),
                    name: topic.name.clone(),
                    moves,
                },
                format!("spec.replicationFactor is {wanted}"),
            );
        }
    }

    fn configure(&mut self, topic: &ValidTopic, existing: &ObservedTopic) {
        let (Ok(wanted), Some(now)) = (&topic.config, &existing.config) else {
            return;
        };
        let mut changes = BTreeMap::new();
        let mut reasons = Vec::new();
        for (name, value) in wanted {
            match now.get(name) {
                Some(current) if same_meaning(name, current, value) => continue,
                Some(current) => reasons.push(format!("{name} is {current} instead of {value}")),
                None => reasons.push(format!("{name} is not set")),
            }
            changes.insert(name.clone(), Some(value.clone()));
        }
        for name in now.keys().filter(|name| !wanted.contains_key(*name)) {
            reasons.push(format!("{name} is not in the spec"));
            changes.insert(name.clone(), None);
        }
        if !changes.is_empty() {
            self.plan.step(
                Step::AlterTopicConfig {
                    object: topic.key.clone(),
                    name: topic.name.clone(),
                    changes,
                },
                reasons.join(", "),
            );
        }
    }

    /// Topics whose object is gone. Their names are looked up, never what the brokers list: a topic that no Topic
    /// object ever spoke for is no concern of ours.
    fn let_go(&mut self, valid: &Valid, observed: &Observed, world: &KafkaWorld) {
        for (name, managed) in &observed.managed {
            if valid.claimed.contains_key(name) {
                continue;
            }
            let object = managed.object.clone();
            let name = name.clone();
            let same = world
                .topics
                .get(&name)
                .filter(|topic| managed.topic_id.as_ref() == Some(&topic.topic_id));
            match (same, managed.deletion_policy) {
                (Some(topic), DeletionPolicy::Delete) => self.plan.step(
                    Step::DeleteTopic {
                        object,
                        name,
                        topic_id: topic.topic_id.clone(),
                    },
                    "its Topic was removed and says deletionPolicy: Delete",
                ),
                (Some(_), DeletionPolicy::Retain) => self.plan.step(
                    Step::ReleaseTopic { object, name },
                    "its Topic was removed and says deletionPolicy: Retain, so the topic stays",
                ),
                (None, _) => self.plan.step(
                    Step::ReleaseTopic { object, name },
                    "its Topic was removed and the topic is gone",
                ),
            }
        }
    }

    /// Places over the ring, or says why not.
    fn place<T: Placed>(
        &mut self,
        topic: &ValidTopic,
        placement: impl FnOnce(&[PlacementBroker]) -> T,
    ) -> Option<T::Replicas> {
        if topic.replication_factor > self.brokers {
            self.refuse_once(
                topic,
                Reason::TooFewBrokers,
                format!(
                    "spec.replicationFactor: {} replicas need as many brokers, and the Cluster has {}; lower it or raise \
                     spec.brokers of the Cluster",
                    topic.replication_factor, self.brokers
                ),
            );
            return None;
        }
        match &self.ring {
            Ring::Waiting(why) => {
                let why = why.clone();
                self.refuse_once(topic, Reason::BrokersStarting, why);
                None
            }
            Ring::Complete(ring) => match placement(ring).replicas() {
                Ok(replicas) => Some(replicas),
                Err(error) => {
                    self.refuse_once(topic, Reason::TooFewBrokers, error);
                    None
                }
            },
        }
    }

    fn wait(&mut self, topic: &ValidTopic, message: &str) {
        self.refuse_once(topic, Reason::Progressing, message.to_owned());
    }

    fn refuse_once(&mut self, topic: &ValidTopic, reason: Reason, message: String) {
        let refusal = Refusal::new(Concern::Placed, reason, message);
        let known = self.plan.topics.get(&topic.key);
        if !known.is_some_and(|known| known.contains(&refusal)) {
            self.plan.refuse_topic(&topic.key, refusal);
        }
    }
}

/// A placement's result in the plan's plain numbers.
trait Placed {
    type Replicas;
    fn replicas(self) -> Result<Self::Replicas, String>;
}

impl<E: ToString> Placed for Result<Vec<Vec<BrokerId>>, E> {
    type Replicas = Vec<Vec<i32>>;

    fn replicas(self) -> Result<Self::Replicas, String> {
        self.map(|partitions| {
            partitions
                .into_iter()
                .map(|replicas| replicas.into_iter().map(|broker| broker.0).collect())
                .collect()
        })
        .map_err(|error| error.to_string())
    }
}

impl<E: ToString> Placed for Result<Vec<BrokerId>, E> {
    type Replicas = Vec<i32>;

    fn replicas(self) -> Result<Self::Replicas, String> {
        self.map(|replicas| replicas.into_iter().map(|broker| broker.0).collect())
            .map_err(|error| error.to_string())
    }
}

fn moving(world: &KafkaWorld) -> usize {
    world.topics.values().map(under_way::moving).sum()
}
