//! A plan as text for people.

use std::fmt::Write;

use super::{Plan, Step};
use crate::object::ObjectKey;
use crate::validate::Valid;

/// Partitions of a placement that are printed before the rest is counted.
const PARTITIONS_SHOWN_MAX: usize = 24;

/// The plan, its reasons, what is refused, and what goes on.
pub fn show(valid: &Valid, plan: &Plan) -> String {
    let mut out = String::new();
    let mut line = |indent: usize, text: &str| {
        let _ = writeln!(out, "{:indent$}{text}", "");
    };
    line(0, &format!("Cluster {}", valid.cluster.key));
    if valid.cluster.paused {
        line(2, "paused: nothing is changed");
    }
    for planned in plan
        .steps
        .iter()
        .filter(|planned| planned.step.object().is_none())
    {
        line(2, &format!("{}: {}", verb(&planned.step), planned.reason));
    }
    for refusal in &plan.cluster {
        line(2, &format!("not done: {refusal}"));
    }
    for message in going_on(plan, None) {
        line(2, &format!("under way: {message}"));
    }
    let mut objects: Vec<_> = valid
        .topics
        .iter()
        .map(|topic| &topic.key)
        .chain(plan.topics.keys())
        .chain(
            plan.steps
                .iter()
                .filter_map(|planned| planned.step.object()),
        )
        .collect();
    objects.sort();
    objects.dedup();
    for object in objects {
        line(0, &format!("Topic {object}"));
        let steps = plan
            .steps
            .iter()
            .filter(|planned| planned.step.object() == Some(object));
        let mut quiet = true;
        for planned in steps {
            quiet = false;
            line(2, &format!("{}: {}", verb(&planned.step), planned.reason));
            for detail in details(&planned.step) {
                line(4, &detail);
            }
        }
        for refusal in plan.topics.get(object).into_iter().flatten() {
            quiet = false;
            line(2, &format!("not done: {refusal}"));
        }
        for message in going_on(plan, Some(object)) {
            quiet = false;
            line(2, &format!("under way: {message}"));
        }
        if quiet {
            line(
                2,
                if valid.cluster.paused {
                    "not looked at while the Cluster is paused"
                } else {
                    "as the spec says"
                },
            );
        }
    }
    line(0, &summary(valid, plan));
    out
}

/// What is under way of a Topic, or else of the Cluster.
fn going_on<'a>(
    plan: &'a Plan,
    object: Option<&'a ObjectKey>,
) -> impl Iterator<Item = &'a str> + 'a {
    let things = plan
        .under_way
        .iter()
        .filter(move |thing| thing.object.as_ref() == object);
    things.map(|thing| thing.message.as_str())
}

/// How much there is of each, in one line.
fn summary(valid: &Valid, plan: &Plan) -> String {
    let steps = super::brokers::count(plan.steps.len(), "step");
    let refused = plan.refusals().count();
    let under_way = plan.under_way.len();
    match (plan.steps.len(), refused, under_way) {
        (0, 0, 0) if valid.cluster.paused => {
            "Nothing is done while the Cluster is paused.".to_owned()
        }
        (0, 0, 0) => "Nothing to do.".to_owned(),
        (0, 0, _) => format!("Nothing else to do, {under_way} under way."),
        (_, 0, 0) => format!("{steps}."),
        (_, 0, _) => format!("{steps}, {under_way} under way."),
        (_, _, 0) => format!("{steps}, {refused} not done."),
        (..) => format!("{steps}, {refused} not done, {under_way} under way."),
    }
}

/// What a step does, in a few words.
fn verb(step: &Step) -> String {
    match step {
        Step::CreateBroker { broker } => format!("start broker {broker}"),
        Step::UpdateBroker { broker } => format!("restart broker {broker}"),
        Step::RemoveBroker { broker } => format!("remove broker {broker}"),
        Step::CreateTopic {
            name, assignments, ..
        } => format!(
            "create topic {name} with {} of {}",
            super::brokers::count(assignments.len(), "partition"),
            super::brokers::count(assignments.first().map_or(0, Vec::len), "replica"),
        ),
        Step::AddPartitions {
            name, assignments, ..
        } => format!(
            "add {} to topic {name}",
            super::brokers::count(assignments.len(), "partition")
        ),
        Step::AlterTopicConfig { name, .. } => format!("change the config of topic {name}"),
        Step::Reassign { name, moves, .. } => format!(
            "move {} of topic {name}",
            super::brokers::count(moves.len(), "partition")
        ),
        Step::DeleteTopic { name, topic_id, .. } => format!("delete topic {name} ({topic_id})"),
        Step::ReleaseTopic { name, .. } => format!("let go of topic {name}"),
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&verb(self))
    }
}

fn details(step: &Step) -> Vec<String> {
    let placed = |partitions: Vec<(usize, &Vec<i32>)>| {
        let more = partitions.len().saturating_sub(PARTITIONS_SHOWN_MAX);
        let mut lines: Vec<String> = partitions
            .into_iter()
            .take(PARTITIONS_SHOWN_MAX)
            .map(|(index, replicas)| {
                let replicas: Vec<String> = replicas.iter().map(i32::to_string).collect();
                format!("partition {index}: brokers {}", replicas.join(", "))
            })
            .collect();
        if more > 0 {
            lines.push(format!("and {more} more, going on in the same way"));
        }
        lines
    };
    match step {
        Step::CreateTopic {
            assignments,
            config,
            ..
        } => {
            let mut lines = placed(assignments.iter().enumerate().collect());
            lines.extend(
                config
                    .iter()
                    .map(|(name, value)| format!("{name} = {value}")),
            );
            lines
        }
        Step::AddPartitions {
            existing,
            assignments,
            ..
        } => placed(
            assignments
                .iter()
                .enumerate()
                .map(|(index, replicas)| (existing + index, replicas))
                .collect(),
        ),
        Step::Reassign { moves, .. } => placed(
            moves
                .iter()
                .map(|(index, replicas)| (usize::try_from(*index).unwrap_or(0), replicas))
                .collect(),
        ),
        Step::AlterTopicConfig { changes, .. } => changes
            .iter()
            .map(|(name, value)| match value {
                Some(value) => format!("{name} = {value}"),
                None => format!("{name} goes back to the cluster's default"),
            })
            .collect(),
        Step::CreateBroker { .. }
        | Step::UpdateBroker { .. }
        | Step::RemoveBroker { .. }
        | Step::DeleteTopic { .. }
        | Step::ReleaseTopic { .. } => Vec::new(),
    }
}
