//! Repetitions of events on clusters of three brokers, on Taffrail and then on Apache Kafka.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::tools::repository;

/// Taffrail's name in the tables.
pub(crate) const TAFFRAIL: &str = "Taffrail";
/// The peer's.
pub(crate) const KAFKA: &str = "Apache Kafka";

/// What of a series is to be run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Selection {
    /// `kafka`, or `none`: then Kafka's cells read "not measured"
    #[arg(long, env = "PEERS", default_value = "kafka")]
    pub(crate) peers: String,
    /// Only events whose name contains this; no report is written then
    #[arg(long, env = "EVENTS", default_value = "")]
    events: String,
}

impl Selection {
    /// Those of `all` events that are to be run.
    pub(crate) fn events<E: Copy + Display>(&self, all: &[E]) -> Result<Vec<E>> {
        let named = |event: &&E| event.to_string().contains(&self.events);
        let events: Vec<E> = all.iter().filter(named).copied().collect();
        if events.is_empty() {
            bail!("no event's name contains {:?}", self.events);
        }
        Ok(events)
    }

    /// Prints a report, and writes it to a file of `e2e/bench` if it is of all events.
    pub(crate) fn publish(&self, report: &str, file: &str) -> Result<()> {
        print!("{report}");
        if self.events.is_empty() {
            let path = repository().join("e2e/bench").join(file);
            fs::write(&path, report).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("bench: written to e2e/bench/{file}");
        }
        Ok(())
    }
}

/// What the repetitions of each event on each peer found.
pub(crate) type Outcomes<E, O> = BTreeMap<(E, &'static str), Vec<O>>;

/// Runs `round` for each of `events`, as often as `reps` says, on Taffrail and on the selected peers.
pub(crate) fn measure<E: Copy + Ord + Display, O: Display>(
    selection: &Selection,
    events: &[E],
    reps: impl Fn(BrokerKind, E) -> usize,
    mut round: impl FnMut(&mut Cluster, E, usize) -> Result<O>,
) -> Result<Outcomes<E, O>> {
    let kinds: &[BrokerKind] = match selection.peers.as_str() {
        "kafka" => &[BrokerKind::Taffrail, BrokerKind::Kafka],
        "none" => &[BrokerKind::Taffrail],
        other => bail!("PEERS is kafka or none, not {other}"),
    };
    let mut outcomes = Outcomes::new();
    for kind in kinds {
        measure_kind(*kind, events, &reps, &mut round, &mut outcomes)?;
    }
    Ok(outcomes)
}

fn measure_kind<E: Copy + Ord + Display, O: Display>(
    kind: BrokerKind,
    events: &[E],
    reps: &impl Fn(BrokerKind, E) -> usize,
    round: &mut impl FnMut(&mut Cluster, E, usize) -> Result<O>,
    outcomes: &mut Outcomes<E, O>,
) -> Result<()> {
    let peer = match kind {
        BrokerKind::Taffrail => TAFFRAIL,
        BrokerKind::Kafka => KAFKA,
    };
    eprintln!("bench: starting {peer}");
    let mut running: Option<Cluster> = None;
    for event in events {
        for rep in 0..reps(kind, *event) {
            let mut cluster = match running.take() {
                Some(cluster) => cluster,
                None => start(kind)?,
            };
            let outcome = round(&mut cluster, *event, rep)
                .with_context(|| format!("{event} on {peer}, repetition {}", rep + 1));
            match outcome {
                Ok(outcome) => {
                    eprintln!("bench: {event}, {peer}, {}: {outcome}", rep + 1);
                    outcomes.entry((*event, peer)).or_default().push(outcome);
                    running = Some(cluster);
                }
                Err(error) if kind == BrokerKind::Kafka => {
                    // What a peer cannot do is a finding, too. The other events begin with brokers that are whole, once these are gone.
                    eprintln!("bench: not measured: {error:#}");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    if let Some(cluster) = running {
        cluster.finish();
    }
    Ok(())
}

fn start(kind: BrokerKind) -> Result<Cluster> {
    Cluster::start(ClusterSpec {
        kind,
        brokers: 3,
        config: Vec::new(),
        folder: None,
    })
    .with_context(|| match kind {
        BrokerKind::Taffrail => "Taffrail",
        BrokerKind::Kafka => "Apache Kafka; PEERS=none leaves it out",
    })
}

/// When in a `period` of the clients an event comes: spread evenly, however many repetitions there are.
pub(crate) fn phase(period: Duration, rep: usize) -> Duration {
    // The golden ratio's fraction, in thousandths.
    period * (rep * 618 % 1000) as u32 / 1000
}

/// The repetitions' values of one figure, ascending.
pub(crate) fn sorted<O>(found: &[O], of: impl Fn(&O) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = found.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle of ascending values.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
