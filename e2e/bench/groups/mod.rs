//! `make bench-groups`: how long a consumer group of the classic protocol takes until all its partitions are read again: when a third
//! member joins, when a member is killed, and when the broker that coordinates it is killed. Taffrail and Apache Kafka one after the
//! other, three brokers each, the same librdkafka clients with default settings but a session timeout of 6 s.

mod event;
mod follower;
mod report;
mod round;
mod told;

use anyhow::Result;
use clap::Parser;
use taffrail_e2e::cluster::BrokerKind;

use event::Event;
use round::Outcome;

use crate::series::{self, Selection};

/// Has members join and die and coordinators die, and writes e2e/bench/GROUPS.md.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Repetitions of each event on each peer; of a join four times as many
    #[arg(long, env = "REPS", default_value_t = 5)]
    pub(crate) reps: usize,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// All outcomes of a run.
pub(crate) type Outcomes = series::Outcomes<Event, Outcome>;

/// Runs everything that `arguments` name.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let events = arguments.selection.events(&Event::ALL)?;
    let reps = |_: BrokerKind, event: Event| arguments.reps * event.reps_factor();
    let outcomes = series::measure(&arguments.selection, &events, reps, round::run)?;
    let report = report::report(arguments, &events, &outcomes)?;
    arguments.selection.publish(&report, "GROUPS.md")
}
