//! Tables of plain text, and the texts that a person sees of a local cluster.

use std::fmt::Write;

use taffrail_crds::{Condition, ConditionStatus};

use super::report::Report;

/// Partitions shown before the rest is counted.
const PARTITIONS_SHOWN_MAX: usize = 60;

/// Rows with columns as wide as their widest cell.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .chain([header.get(column).map_or(0, |cell| cell.len())])
            .max()
            .unwrap_or(0)
    };
    let mut text = String::new();
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(line, "{cell:<width$}  ", width = width(column));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One row a partition.
pub(super) fn partitions(report: &Report) -> String {
    let mut rows = Vec::new();
    for topic in &report.topics {
        let name = topic
            .status
            .topic_name
            .as_deref()
            .unwrap_or(&topic.object.name);
        for partition in &topic.partitions {
            rows.push(vec![
                name.to_owned(),
                partition.partition.to_string(),
                partition
                    .leader
                    .map_or("none".to_owned(), |leader| leader.to_string()),
                numbers(&partition.replicas),
                numbers(&partition.isr),
            ]);
        }
    }
    let more = rows.len().saturating_sub(PARTITIONS_SHOWN_MAX);
    rows.truncate(PARTITIONS_SHOWN_MAX);
    let mut text = table(&["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"], &rows);
    if more > 0 {
        let _ = writeln!(text, "and {more} more partitions");
    }
    text
}

/// Everything about a local cluster.
pub(super) fn status(report: &Report) -> String {
    let mut text = String::new();
    let state = if report.running { "runs" } else { "is stopped" };
    let _ = writeln!(
        text,
        "Cluster {} {state}, data in {}",
        report.cluster.object,
        report.data_dir.display()
    );
    if let Some(error) = &report.file_error {
        let _ = writeln!(text, "The manifest cannot be used as it stands:\n{error}");
    }
    if report.running {
        let _ = writeln!(text, "{}", ready_line(&report.cluster.status.conditions));
        let _ = writeln!(text, "Bootstrap servers: {}\n", report.bootstrap_servers);
        let brokers: Vec<Vec<String>> = report
            .brokers
            .iter()
            .map(|broker| {
                vec![
                    broker.id.to_string(),
                    broker.pid.map_or("none".to_owned(), |pid| pid.to_string()),
                    broker.state.clone(),
                    if broker.ready { "yes" } else { "no" }.to_owned(),
                    broker.restarts.to_string(),
                    broker.client.clone(),
                    broker.metrics.clone(),
                ]
            })
            .collect();
        text += &table(
            &[
                "BROKER", "PID", "STATE", "READY", "RESTARTS", "CLIENTS", "METRICS",
            ],
            &brokers,
        );
    }
    let topics: Vec<Vec<String>> = report
        .topics
        .iter()
        .map(|topic| {
            let number =
                |number: Option<i32>| number.map_or("none".to_owned(), |number| number.to_string());
            let (ready, why) = if report.running {
                ready_of(&topic.status.conditions)
            } else {
                ("no".to_owned(), "the cluster is stopped".to_owned())
            };
            vec![
                topic.object.to_string(),
                topic.status.topic_name.clone().unwrap_or_default(),
                number(topic.status.partitions),
                number(topic.status.replication_factor),
                ready,
                why,
            ]
        })
        .collect();
    let _ = writeln!(text);
    text += &table(
        &["OBJECT", "TOPIC", "PARTITIONS", "REPLICAS", "READY", "WHY"],
        &topics,
    );
    if report.running {
        let _ = write!(text, "\n{}", partitions(report));
    }
    for kept in &report.kept {
        let _ = writeln!(text, "\nTopic {} is kept: {}", kept.topic, kept.message);
    }
    text
}

fn ready_line(conditions: &[Condition]) -> String {
    match ready_of(conditions) {
        (ready, why) if why.is_empty() => format!("Ready: {ready}"),
        (ready, why) => format!("Ready: {ready}, {why}"),
    }
}

/// The Ready condition, and why it does not hold.
pub(super) fn ready_of(conditions: &[Condition]) -> (String, String) {
    match conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
    {
        None => ("Unknown".to_owned(), String::new()),
        Some(condition) => {
            let status = format!("{:?}", condition.status);
            if condition.status == ConditionStatus::True {
                (status, String::new())
            } else {
                (
                    status,
                    format!("{}: {}", condition.reason, condition.message),
                )
            }
        }
    }
}

fn numbers(ids: &[i32]) -> String {
    let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
    ids.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["orders".to_owned(), "0".to_owned()],
            vec!["a".to_owned(), "10".to_owned()],
        ];
        assert_eq!(
            table(&["TOPIC", "PARTITION"], &rows),
            "TOPIC   PARTITION\norders  0\na       10\n"
        );
    }
}
