//! `make bench`: Taffrail beside the machine's limit and beside Apache Kafka, in one run, with one client. `make
//! bench-failover` is `taffrail-bench failover` and `make bench-groups` is `taffrail-bench groups`, see there.
//!
//! Rows are measured in rounds, each round going once over all peers, so that what the machine does meanwhile falls on all alike;
//! a cell is the median of its rounds. The table goes to the terminal and to `e2e/bench/RESULTS.md`.

mod account;
mod cell;
mod failover;
mod groups;
mod machine;
mod peer;
mod row;
mod series;
mod table;
mod warm_up;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use taffrail_e2e::tools::repository;

use crate::cell::Cell;
use crate::peer::{Peer, PeerKind};
use crate::row::{Row, Setting};

/// Measures Taffrail, the null broker and Apache Kafka, and writes e2e/bench/RESULTS.md.
#[derive(Clone, Debug, Parser)]
#[command(name = "taffrail-bench", version)]
pub(crate) struct Arguments {
    /// Rounds; a cell is the median of them
    #[arg(long, env = "ROUNDS", default_value_t = 5)]
    rounds: usize,
    /// `kafka`, or `none`: then Kafka's cells read "not measured"
    #[arg(long, env = "PEERS", default_value = "kafka")]
    peers: String,
    /// Only rows whose name contains this
    #[arg(long, env = "ROWS", default_value = "")]
    rows: String,
    /// Percent of the usual number of records
    #[arg(long, env = "SCALE", default_value_t = 100)]
    scale: u64,
    /// Seconds of load before a JVM is measured; three of them get three times as long
    #[arg(long, env = "WARM_UP", default_value_t = 60)]
    warm_up: u64,
    /// Leave Taffrail out, to look at the peers alone
    #[arg(long)]
    without_taffrail: bool,
    #[command(subcommand)]
    other: Option<Other>,
}

/// What else can be measured.
#[derive(Clone, Debug, Subcommand)]
enum Other {
    /// How long a producer waits while a broker goes away; writes e2e/bench/FAILOVER.md.
    Failover(failover::Arguments),
    /// How long a consumer group takes to give its partitions anew; writes e2e/bench/GROUPS.md.
    Groups(groups::Arguments),
}

/// All cells of a run: per row and peer, one for each round.
pub(crate) type Results = BTreeMap<(&'static str, PeerKind), Vec<Cell>>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.other {
        Some(Other::Failover(failover)) => return failover::run(failover),
        Some(Other::Groups(groups)) => return groups::run(groups),
        None => {}
    }
    let rows: Vec<Row> = row::all(arguments.scale)
        .into_iter()
        .filter(|row| row.name.contains(&arguments.rows))
        .collect();
    if rows.is_empty() {
        bail!("no row's name contains {:?}", arguments.rows);
    }
    let before = machine::Moment::now(&[])?;
    let mut results = Results::new();
    for setting in [Setting::OneBroker, Setting::ThreeBrokers] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.setting == setting).collect();
        if !rows.is_empty() {
            measure(&arguments, setting, &rows, &mut results)?;
        }
    }
    let report = table::report(&arguments, &rows, &results, &before)?;
    print!("{report}");
    // A part of the rows or a short run is a look, not a result.
    if arguments.rows.is_empty() && arguments.scale == 100 && !arguments.without_taffrail {
        let path = repository().join("e2e/bench/RESULTS.md");
        fs::write(&path, report).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("bench: written to e2e/bench/RESULTS.md");
    }
    Ok(())
}

/// Starts the peers of one setting and measures all its rows on them.
fn measure(
    arguments: &Arguments,
    setting: Setting,
    rows: &[&Row],
    results: &mut Results,
) -> Result<()> {
    let mut peers = Vec::new();
    for kind in kinds(arguments, setting)? {
        eprintln!("bench: starting {kind} ({setting:?})");
        peers.push(Peer::start(kind, setting.brokers())?);
    }
    // Fresh processes first: what they hold before any load, and how long they take to start.
    for row in rows.iter().filter(|row| row.kind.is_about_the_process()) {
        measure_row(arguments, row, &mut peers, results)?;
    }
    let seconds = arguments.warm_up * setting.brokers() as u64;
    for peer in peers
        .iter_mut()
        .filter(|peer| peer.kind() == PeerKind::Kafka)
    {
        warm_up::warm_up(peer, seconds)?;
    }
    for row in rows.iter().filter(|row| !row.kind.is_about_the_process()) {
        measure_row(arguments, row, &mut peers, results)?;
    }
    for peer in peers {
        peer.finish();
    }
    Ok(())
}

fn measure_row(
    arguments: &Arguments,
    row: &Row,
    peers: &mut [Peer],
    results: &mut Results,
) -> Result<()> {
    for round in 0..arguments.rounds {
        // There and back again, so that no peer always follows the same one.
        if round > 0 {
            peers.reverse();
        }
        for peer in peers.iter_mut().filter(|peer| row.measures(peer.kind())) {
            let cell = cell::measure(row, peer)
                .with_context(|| format!("{} on {}", row.name, peer.kind()))?;
            eprintln!(
                "bench: {}, {}, round {}: {cell}",
                row.name,
                peer.kind(),
                round + 1
            );
            results
                .entry((row.name, peer.kind()))
                .or_default()
                .push(cell);
        }
    }
    if arguments.rounds.is_multiple_of(2) {
        peers.reverse();
    }
    Ok(())
}

fn kinds(arguments: &Arguments, setting: Setting) -> Result<Vec<PeerKind>> {
    let mut kinds = Vec::new();
    // The null broker has no replication.
    if setting == Setting::OneBroker {
        kinds.push(PeerKind::NullBroker);
    }
    if !arguments.without_taffrail {
        kinds.push(PeerKind::Taffrail);
    }
    match arguments.peers.as_str() {
        "kafka" => kinds.push(PeerKind::Kafka),
        "none" => {}
        other => bail!("PEERS is kafka or none, not {other}"),
    }
    Ok(kinds)
}
