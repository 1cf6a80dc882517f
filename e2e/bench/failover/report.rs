//! The report: gaps and goals as a Markdown table.

use std::fmt::Write as _;

use anyhow::Result;

use super::event::{Event, Goal};
use super::round::Outcome;
use super::{Arguments, Outcomes};
use crate::machine;
use crate::series::{KAFKA, TAFFRAIL, median, sorted};

/// The whole report.
pub(crate) fn report(
    arguments: &Arguments,
    events: &[Event],
    outcomes: &Outcomes,
) -> Result<String> {
    let mut text = String::from("# Failover\n\n");
    writeln!(
        text,
        "Command: `make bench-failover` with REPS={} OTHER_REPS={} KAFKA_REPS={} PEERS={}",
        arguments.reps, arguments.other_reps, arguments.kafka_reps, arguments.selection.peers
    )?;
    writeln!(text, "Commit: {}\n", machine::commit())?;
    writeln!(text, "Machine: {}.\n", machine::description()?)?;
    text.push_str(
        "Three brokers, three replicas, min.insync.replicas 2, default settings. A librdkafka producer sends 200 records a second \
         with acks=all and no linger, its other settings default (so it is not idempotent, and may duplicate). The gap is the longest \
         time between two acknowledgements around the event; beside it stands the time from the event to the first record that clients \
         which ask anew get acknowledged, which is what the cluster itself takes. Events come at moments spread over a second. A paused broker closes no connection, and a client that talks to it waits \
         for its own timeout: there the gap is the time to the first record that a client which asks anew gets acknowledged; the \
         broker is woken 2 s later. The slowest record is the longest time from giving one to the client to its acknowledgement \
         (with a paused leader, that is until it is woken). Afterwards the broker is started again and the topic read from its start.\n\n",
    );
    text.push_str(
        "| event | | n | gap s: median (least to most) | asked anew s: median (most) | slowest record s, worst | acknowledged | lost | duplicated | stop took s, worst | goal |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    for event in events {
        for peer in [TAFFRAIL, KAFKA] {
            let found = outcomes.get(&(*event, peer)).map_or(&[][..], Vec::as_slice);
            if found.is_empty() {
                writeln!(
                    text,
                    "| {event} | {peer} | 0 | not measured | | | | | | | |"
                )?;
                continue;
            }
            let goal = if peer == TAFFRAIL {
                verdict(event.goal(), found)
            } else {
                String::new()
            };
            writeln!(text, "| {event} | {peer} | {} | {goal} |", cells(found))?;
        }
    }
    Ok(text)
}

fn cells(found: &[Outcome]) -> String {
    let gaps = sorted(found, |outcome| outcome.gap);
    let anew = sorted(found, |outcome| outcome.anew);
    let worst = |of: fn(&Outcome) -> f64| found.iter().map(of).fold(0.0, f64::max);
    let sum = |of: fn(&Outcome) -> u64| found.iter().map(of).sum::<u64>();
    let stop = found
        .iter()
        .filter_map(|outcome| outcome.stop_took)
        .reduce(f64::max)
        .map_or_else(String::new, |took| format!("{took:.1}"));
    format!(
        "{} | **{:.2}** ({:.2} to {:.2}) | {:.2} ({:.2}) | {:.2} | {} | {} | {} | {stop}",
        found.len(),
        median(&gaps),
        gaps.first().copied().unwrap_or_default(),
        gaps.last().copied().unwrap_or_default(),
        median(&anew),
        anew.last().copied().unwrap_or_default(),
        worst(|outcome| outcome.slowest),
        sum(|outcome| outcome.acknowledged),
        sum(|outcome| outcome.lost),
        sum(|outcome| outcome.duplicated),
    )
}

fn verdict(goal: Goal, found: &[Outcome]) -> String {
    let gaps = sorted(found, |outcome| outcome.gap);
    let worst = gaps.last().copied().unwrap_or_default();
    let mut parts = Vec::new();
    if let Some(limit) = goal.median {
        parts.push(("median", median(&gaps), limit));
    }
    parts.push(("worst", worst, goal.worst));
    let told: Vec<String> = parts
        .into_iter()
        .map(|(what, value, limit)| {
            let kept = if value <= limit { "kept" } else { "**missed**" };
            format!("{what} <= {limit}: {kept}")
        })
        .collect();
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_worst_are_held_against_the_goal() {
        let outcome = |gap| Outcome {
            gap,
            anew: gap,
            slowest: gap,
            stop_took: None,
            acknowledged: 1,
            failed: 0,
            lost: 0,
            duplicated: 0,
        };
        let found = [0.5, 4.0, 0.6].map(outcome);
        let goal = Goal {
            median: Some(1.0),
            worst: 3.0,
        };
        assert_eq!(
            verdict(goal, &found),
            "median <= 1: kept; worst <= 3: **missed**"
        );
    }
}
