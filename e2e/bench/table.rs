//! The report: medians, ratios and goals as a Markdown table.

use std::fmt::Write as _;

use anyhow::Result;

use crate::cell::Cell;
use crate::machine::{self, Moment};
use crate::peer::PeerKind;
use crate::row::{Goal, Row};
use crate::{Arguments, Results};

const NOT_MEASURED: &str = "not measured";

/// The whole report.
pub(crate) fn report(
    arguments: &Arguments,
    rows: &[Row],
    results: &Results,
    before: &Moment,
) -> Result<String> {
    let steal = before.until(&Moment::now(&[])?).steal_percent;
    let mut text = String::from("# Results\n\n");
    writeln!(
        text,
        "Command: `make bench` with ROUNDS={} PEERS={} SCALE={}",
        arguments.rounds, arguments.peers, arguments.scale
    )?;
    writeln!(text, "Commit: {}\n", machine::commit())?;
    writeln!(
        text,
        "Machine: {}; steal over the whole run {steal:.1} %.\n",
        machine::description()?
    )?;
    text.push_str(
        "Each cell is the median of the rounds, with the smallest and the largest in brackets. CPU is user and system time of all \
         broker processes, for 10^9 bytes of values. One broker: acks=1, one replica; replicated: three brokers, three replicas, \
         min.insync.replicas 2, acks=all, CPU summed over the brokers. Memory is touched before each run of producing, but for the \
         row that says otherwise. The null broker is the least that a program can do on this machine (`null-broker/main.rs`).\n\n",
    );
    text.push_str("| row | figure | null broker | Taffrail | Apache Kafka | Taffrail / null | Taffrail / Kafka | goal |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        for figure in figures(row, results) {
            let of = |kind| {
                Spread::of(
                    results
                        .get(&(row.name, kind))
                        .map(Vec::as_slice)
                        .unwrap_or_default(),
                    figure,
                )
            };
            let (null, taffrail, kafka) = (
                of(PeerKind::NullBroker),
                of(PeerKind::Taffrail),
                of(PeerKind::Kafka),
            );
            let goal = if figure == row.figure { row.goal } else { None };
            writeln!(
                text,
                "| {} | {figure} | {} | {} | {} | {} | {} | {} |",
                row.name,
                cell(null),
                cell(taffrail),
                cell(kafka),
                ratio(taffrail, null),
                ratio(taffrail, kafka),
                verdict(goal, taffrail, null, kafka),
            )?;
        }
    }
    Ok(text)
}

/// Median, smallest and largest of a figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    smallest: f64,
    largest: f64,
}

impl Spread {
    fn of(cells: &[Cell], figure: &str) -> Option<Self> {
        let mut values: Vec<f64> = cells
            .iter()
            .filter_map(|cell| cell.figures.get(figure).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: *values.get(values.len() / 2)?,
            smallest: *values.first()?,
            largest: *values.last()?,
        })
    }
}

/// The names of a row's figures, the one with the goal first.
fn figures(row: &Row, results: &Results) -> Vec<&'static str> {
    let measured = results
        .iter()
        .find(|((name, _), _)| *name == row.name)
        .and_then(|(_, cells)| cells.first());
    let others = measured
        .into_iter()
        .flat_map(|cell| cell.figures.keys().copied())
        .filter(|name| *name != row.figure);
    std::iter::once(row.figure).chain(others).collect()
}

fn cell(spread: Option<Spread>) -> String {
    match spread {
        None => NOT_MEASURED.to_owned(),
        Some(s) => format!(
            "**{}** ({} to {})",
            short(s.median),
            short(s.smallest),
            short(s.largest)
        ),
    }
}

fn ratio(ours: Option<Spread>, theirs: Option<Spread>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs.median > 0.0 => {
            format!("{:.2}", ours.median / theirs.median)
        }
        _ => "-".to_owned(),
    }
}

fn verdict(
    goal: Option<Goal>,
    ours: Option<Spread>,
    null: Option<Spread>,
    kafka: Option<Spread>,
) -> String {
    let (limit, text) = match goal {
        None => return String::new(),
        Some(Goal::Below(limit)) => (Some(limit), format!("<= {limit}")),
        Some(Goal::Times(times, kind)) => {
            let peer = if kind == PeerKind::NullBroker {
                null
            } else {
                kafka
            };
            (
                peer.map(|p| p.median * times),
                format!("<= {times:.2} x {kind}"),
            )
        }
    };
    match (ours, limit) {
        (Some(ours), Some(limit)) if ours.median <= limit => format!("{text}: kept"),
        (Some(ours), Some(limit)) => format!(
            "{text}: **missed** by {:.0} %",
            (ours.median / limit - 1.0) * 100.0
        ),
        _ => format!("{text}: {NOT_MEASURED}"),
    }
}

/// Three digits that mean something.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Option<Spread> {
        Some(Spread {
            median,
            smallest: median,
            largest: median,
        })
    }

    #[test]
    fn a_goal_is_kept_missed_or_not_measured() {
        let times = Some(Goal::Times(1.5, PeerKind::NullBroker));
        let cases = [
            (
                times,
                spread(1.5),
                spread(1.0),
                "<= 1.50 x null broker: kept",
            ),
            (
                times,
                spread(3.0),
                spread(1.0),
                "<= 1.50 x null broker: **missed** by 100 %",
            ),
            (
                times,
                None,
                spread(1.0),
                "<= 1.50 x null broker: not measured",
            ),
            (
                times,
                spread(1.0),
                None,
                "<= 1.50 x null broker: not measured",
            ),
            (
                Some(Goal::Below(40.0)),
                spread(41.0),
                None,
                "<= 40: **missed** by 2 %",
            ),
            (None, spread(1.0), None, ""),
        ];
        for (goal, ours, null, expected) in cases {
            assert_eq!(verdict(goal, ours, null, None), expected);
        }
    }

    #[test]
    fn the_median_of_an_unsorted_odd_number_of_rounds_is_the_middle_one() {
        let cells: Vec<Cell> = [3.0, 1.0, 2.0]
            .iter()
            .map(|v| Cell {
                figures: [("x", *v)].into(),
                steal_percent: 0.0,
            })
            .collect();
        assert_eq!(
            Spread::of(&cells, "x"),
            Some(Spread {
                median: 2.0,
                smallest: 1.0,
                largest: 3.0
            })
        );
        assert_eq!(Spread::of(&cells, "y"), None);
    }
}
