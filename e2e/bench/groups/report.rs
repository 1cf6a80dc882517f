//! The report as a Markdown table.

use std::fmt::Write as _;

use anyhow::Result;

use super::event::Event;
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
    let mut text = String::from("# Consumer groups\n\n");
    writeln!(
        text,
        "Command: `make bench-groups` with REPS={} PEERS={}",
        arguments.reps, arguments.selection.peers
    )?;
    writeln!(text, "Commit: {}\n", machine::commit())?;
    writeln!(text, "Machine: {}.\n", machine::description()?)?;
    text.push_str(
        "Three brokers, a topic of 12 partitions with three replicas, a producer of 200 records a second over all of them; \
         librdkafka members of one group of the classic protocol with default settings (heartbeats every 3 s, eager assignors) \
         but a session timeout of 6 s, that commit every 200 ms. Events come at moments spread over the time between two \
         heartbeats. The time is from the event (the start of the third member's process, the kill) until each partition has \
         been read by its owner of now and each member has some, and where the coordinator died, until each member has also had a \
         commit acknowledged. A partition gets a record every 60 ms, so no figure is finer than that.\n\n",
    );
    text.push_str("| event | | n | s: median (least to most) | goal |\n|---|---|---|---|---|\n");
    for event in events {
        let of = |peer| outcomes.get(&(*event, peer)).map_or(&[][..], Vec::as_slice);
        for peer in [TAFFRAIL, KAFKA] {
            let found = of(peer);
            if found.is_empty() {
                writeln!(text, "| {event} | {peer} | 0 | not measured | |")?;
                continue;
            }
            let values = seconds(found);
            let goal = if peer == TAFFRAIL {
                verdict(&values, &seconds(of(KAFKA)))
            } else {
                ""
            };
            writeln!(
                text,
                "| {event} | {peer} | {} | **{:.2}** ({:.2} to {:.2}) | {goal} |",
                found.len(),
                median(&values),
                values.first().copied().unwrap_or_default(),
                values.last().copied().unwrap_or_default(),
            )?;
        }
    }
    Ok(text)
}

fn seconds(found: &[Outcome]) -> Vec<f64> {
    sorted(found, |outcome| outcome.seconds)
}

/// At least as quick as the peer, as far as that was measured.
fn verdict(ours: &[f64], peers: &[f64]) -> &'static str {
    if peers.is_empty() {
        return "";
    }
    if median(ours) <= median(peers) {
        "median <= Kafka's: kept"
    } else {
        "median <= Kafka's: **missed**"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_medians_are_held_against_each_other() {
        assert!(verdict(&[1.0, 2.0, 9.0], &[2.5]).ends_with("kept"));
        assert!(verdict(&[1.0, 3.0, 3.0], &[2.5]).ends_with("**missed**"));
        assert_eq!(verdict(&[1.0], &[]), "");
    }
}
