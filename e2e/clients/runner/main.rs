//! `taffrail-clients`: the matrix of clients. Starts three brokers, runs every client's program against them, checks by another client
//! what each left behind, prints the table and ends with 1 if a step failed that must pass.
//!
//! It never judges a client by its own words alone, and installs nothing: `e2e/clients/install.sh` does.

mod check;
mod client;
mod step;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::tools::repository;

use crate::client::{Client, Row};
use crate::step::Outcome;

/// Runs real clients of every ecosystem against three brokers and prints what works.
#[derive(Parser)]
struct Arguments {
    /// Only clients whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Whose brokers: taffrail or kafka. A failure against Kafka is the program's own.
    #[arg(long, default_value = "taffrail")]
    broker: String,
    /// How long one client's program may take, in seconds.
    #[arg(long, default_value_t = 420)]
    limit: u64,
    /// Where the table goes; a run of all clients against Taffrail writes e2e/clients/RESULTS.md.
    #[arg(long)]
    output: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let kind = match arguments.broker.as_str() {
        "kafka" => BrokerKind::Kafka,
        _ => BrokerKind::Taffrail,
    };
    let spec = ClusterSpec {
        kind,
        brokers: 3,
        config: Vec::new(),
        folder: None,
    };
    let cluster = Cluster::start(spec)?;
    let bootstrap = cluster.bootstrap();
    let clients: Vec<Client> = client::all()?
        .into_iter()
        .filter(|client| client.name.contains(&arguments.only))
        .collect();
    let mut rows = Vec::new();
    for client in &clients {
        let row = client.run(&bootstrap, Duration::from_secs(arguments.limit))?;
        report(&row);
        rows.push(row);
    }
    let text = table::markdown(&rows, kind);
    println!("\n{text}");
    let whole = arguments.only.is_empty() && kind == BrokerKind::Taffrail;
    let output = arguments
        .output
        .or_else(|| whole.then(|| repository().join("e2e/clients/RESULTS.md")));
    if let Some(path) = output {
        fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed: usize = rows.iter().map(|row| row.failures().count()).sum();
    let outcomes = || rows.iter().flat_map(|row| row.outcomes.values());
    let passed = outcomes().filter(|o| matches!(o, Outcome::Passed(_)));
    let passed = passed.count();
    // What a client has no call for, and what no version serves yet.
    let skipped = outcomes().count() - passed - failed;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    cluster.finish();
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn report(row: &Row) {
    println!("{} ({:.0} s)", row.name, row.took.as_secs_f64());
    for (step, outcome) in row.failures() {
        println!("  {step}: {outcome}");
    }
}
