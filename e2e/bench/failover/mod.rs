//! `make bench-failover`: how long a steady acks=all producer waits while a broker goes away, and whether anything that
//! was acknowledged is lost. Taffrail and Apache Kafka one after the other, three brokers each, the same client.
//!
//! The figure of a repetition is the longest time between two acknowledgements around the event. Beside it stands the time
//! from the event to the first record that clients which ask anew get acknowledged: what the cluster itself takes. A
//! paused broker closes no connection, so that a client that talks to it waits for a timeout of its own: there that is the
//! figure. Clients have timers of a second, so events come at moments spread over a second.

mod event;
mod quorum;
mod report;
mod round;

use anyhow::{Result, bail};
use clap::Parser;
use taffrail_e2e::cluster::BrokerKind;

use event::Event;
use round::Outcome;

use crate::series::{self, Selection, TAFFRAIL};

/// Kills, stops and pauses brokers under a producer, and writes e2e/bench/FAILOVER.md.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Repetitions of the events with a killed leader, on Taffrail
    #[arg(long, env = "REPS", default_value_t = 20)]
    pub(crate) reps: usize,
    /// Repetitions of the other events, on Taffrail
    #[arg(long, env = "OTHER_REPS", default_value_t = 5)]
    pub(crate) other_reps: usize,
    /// Repetitions of each event on Apache Kafka
    #[arg(long, env = "KAFKA_REPS", default_value_t = 3)]
    pub(crate) kafka_reps: usize,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// What librdkafka is to tell of the steady producer (`broker,metadata,msg`), on the standard error
    #[arg(long, env = "CLIENT_DEBUG", default_value = "")]
    pub(crate) client_debug: String,
}

/// All outcomes of a run.
pub(crate) type Outcomes = series::Outcomes<Event, Outcome>;

/// Runs everything that `arguments` name.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let events = arguments.selection.events(&Event::ALL)?;
    let reps = |kind, event: Event| match kind {
        BrokerKind::Kafka => arguments.kafka_reps,
        BrokerKind::Taffrail if event.is_killed_leader() => arguments.reps,
        BrokerKind::Taffrail => arguments.other_reps,
    };
    let outcomes = series::measure(
        &arguments.selection,
        &events,
        reps,
        |cluster, event, rep| round::run(cluster, event, rep, &arguments.client_debug),
    )?;
    let report = report::report(arguments, &events, &outcomes)?;
    arguments.selection.publish(&report, "FAILOVER.md")?;
    let damage: u64 = outcomes
        .iter()
        .filter(|((_, peer), _)| *peer == TAFFRAIL)
        .flat_map(|(_, outcomes)| outcomes)
        .map(|outcome| outcome.lost)
        .sum();
    if damage > 0 {
        bail!("Taffrail lost {damage} acknowledged records");
    }
    Ok(())
}
