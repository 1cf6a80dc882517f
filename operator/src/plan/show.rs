//! A plan as text for people.

use std::fmt::Write;

use super::{Plan, Step};
use crate::validate::Valid;

/// Partitions of a placement that are printed before the rest is counted.
const PARTITIONS_SHOWN_MAX: usize = 24;

/// The plan, its reasons, and what is refused.
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
        if quiet {
            line(2, "as the spec says");
        }
    }
    let refused = plan.refusals().count();
    let summary = match (plan.steps.len(), refused) {
        (0, 0) => "Nothing to do.".to_owned(),
        (steps, 0) => format!("{}.", super::brokers::count(steps, "step")),
        (steps, refused) => format!(
            "{}, {refused} not done.",
            super::brokers::count(steps, "step")
        ),
    };
    line(0, &summary);
    out
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
