//! `make bench-groups`: how long a consumer group of the classic protocol takes until all its partitions are read again: when a third
//! member joins, when a member is killed, and when the broker that coordinates it is killed. Taffrail and Apache Kafka one after the
//! other, three brokers each, the same librdkafka clients with default settings but a session timeout of 6 s.

mod event;
mod follower;
mod report;
mod round;
mod told;

use std::fs;

use anyhow::{Context, Result, bail};
use clap::Parser;
use taffrail_e2e::cluster::BrokerKind;
use taffrail_e2e::tools::repository;

use event::Event;
use round::Outcome;

use crate::series;

/// Has members join and die and coordinators die, and writes e2e/bench/GROUPS.md.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Repetitions of each event on each peer; of a join four times as many
    #[arg(long, env = "REPS", default_value_t = 5)]
    pub(crate) reps: usize,
    /// `kafka`, or `none`: then Kafka's cells read "not measured"
    #[arg(long, env = "PEERS", default_value = "kafka")]
    pub(crate) peers: String,
    /// Only events whose name contains this; GROUPS.md is not written then
    #[arg(long, env = "EVENTS", default_value = "")]
    pub(crate) events: String,
}

/// All outcomes of a run.
pub(crate) type Outcomes = series::Outcomes<Event, Outcome>;

/// Runs everything that `arguments` name.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let events: Vec<Event> = Event::ALL
        .into_iter()
        .filter(|event| event.to_string().contains(&arguments.events))
        .collect();
    if events.is_empty() {
        bail!("no event's name contains {:?}", arguments.events);
    }
    let reps = |_: BrokerKind, event: Event| arguments.reps * event.reps_factor();
    let outcomes = series::measure(&arguments.peers, &events, reps, round::run)?;
    let report = report::report(arguments, &events, &outcomes)?;
    print!("{report}");
    if arguments.events.is_empty() {
        let path = repository().join("e2e/bench/GROUPS.md");
        fs::write(&path, report).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("bench: written to e2e/bench/GROUPS.md");
    }
    Ok(())
}
