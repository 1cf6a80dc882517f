//! What was begun and has not ended yet. Nothing has to be decided about it any more, but the world is not as the spec
//! says before it has ended, so that a plan without steps is not the whole truth.

use serde::Serialize;

use super::brokers::count;
use super::{Plan, Step};
use crate::object::ObjectKey;
use crate::observed::{KafkaWorld, Observed, ObservedKafka, ObservedTopic};
use crate::validate::Valid;

/// One thing that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnderWay {
    /// The Topic object whose concern it is; none if it is the Cluster's.
    pub object: Option<ObjectKey>,
    /// What has not ended, as a phrase: "broker 3 does not serve clients yet".
    pub message: String,
}

/// What is under way beside the steps of the plan.
pub(super) fn find(valid: &Valid, observed: &Observed, plan: &mut Plan) {
    brokers(valid, observed, plan);
    match &observed.kafka {
        ObservedKafka::Absent => {}
        ObservedKafka::Unreachable { why } => plan.goes_on(
            None,
            format!("topics are looked at once a broker can be asked: {why}"),
        ),
        ObservedKafka::Answered(world) => topics(valid, world, plan),
    }
}

fn brokers(valid: &Valid, observed: &Observed, plan: &mut Plan) {
    let world = observed.kafka.answered();
    for (&id, broker) in observed.brokers.range(..valid.cluster.brokers) {
        if is_planned(plan, id) {
            continue;
        }
        // Any other broker than the controller may not have heard of it yet.
        let registered =
            world.is_none_or(|world| !world.authoritative || world.brokers.contains_key(&id));
        if !registered {
            plan.goes_on(
                None,
                format!("broker {id} is there and has not registered yet"),
            );
        } else if !broker.ready {
            plan.goes_on(None, format!("broker {id} does not serve clients yet"));
        }
    }
}

/// Whether a step will say of the broker what there is to say.
fn is_planned(plan: &Plan, id: i32) -> bool {
    plan.steps.iter().any(|planned| match planned.step {
        Step::CreateBroker { broker }
        | Step::UpdateBroker { broker }
        | Step::RemoveBroker { broker } => broker == id,
        Step::CreateTopic { .. }
        | Step::AddPartitions { .. }
        | Step::AlterTopicConfig { .. }
        | Step::Reassign { .. }
        | Step::DeleteTopic { .. }
        | Step::ReleaseTopic { .. } => false,
    })
}

fn topics(valid: &Valid, world: &KafkaWorld, plan: &mut Plan) {
    if !world.authoritative {
        plan.goes_on(
            None,
            "what the active controller alone knows is looked at once it can be asked".to_owned(),
        );
    }
    for topic in &valid.topics {
        let Some(existing) = world.topics.get(&topic.name) else {
            continue;
        };
        let moving = moving(existing);
        if moving > 0 {
            let object = Some(topic.key.clone());
            let are = if moving == 1 { "is" } else { "are" };
            plan.goes_on(
                object,
                format!("{} {are} being moved", count(moving, "partition")),
            );
        }
        if existing.config.is_none() {
            plan.goes_on(
                Some(topic.key.clone()),
                "its configuration could not be read yet".to_owned(),
            );
        }
    }
}

/// Partitions of a topic that are being moved.
pub(super) fn moving(topic: &ObservedTopic) -> usize {
    let partitions = topic.partitions.values();
    partitions
        .filter(|partition| partition.moves_to.is_some())
        .count()
}
