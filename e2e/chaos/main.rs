//! Torments a cluster of real broker processes while real clients use it, and judges what they saw.

mod bed;
mod churn;
mod clock;
mod consumers;
mod dice;
mod disk;
mod fault;
mod health;
mod interrupt;
mod network;
mod pace;
mod producers;
mod progress;
mod record;
mod replicas;
mod run;
mod sandbox;
mod torment;
mod watcher;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::fault::FaultKind;
use crate::run::{Outcome, Plan};
use crate::sandbox::Means;

const HELP: &str = "\
Faults: kill, kill-all, pause, restart (SIGTERM, one after the other), power-loss, power-loss-all, one-way, ring, isolate,
reset, slow-disk, full-disk, clock, reassign, topics (created and deleted), elect.

Brokers run in network namespaces with data on ext4 in files: that takes root and loop devices. Partitions alone need user
namespaces or root. Nothing of it is seen outside, and nothing is left behind.

What may be lost: nothing that was acknowledged. Therefore a run with power-loss-all has taffrail.flush=ack, and without it
(taffrail.flush=os) a broker loses its power only while all replicas are in sync and no other fault lasts.

A fault counts if it met somebody. It fails, too, if a broker ends by itself, the cluster does not become whole within 120 s, a
partition goes without an acknowledgement for 60 s, or replicas differ at the end. Several runs may go on at the same time.

Exit codes: 0 all was as promised, 1 something was not (the folder of the evidence is named), 2 the run could not be made.";

/// Torments a cluster and judges it.
#[derive(Parser)]
#[command(name = "taffrail-chaos", version, after_help = HELP)]
struct Arguments {
    /// How long, as 90s, 30m or 1h
    #[arg(long, value_parser = duration, default_value = "5m")]
    duration: Duration,
    /// How many faults at most
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    count: u64,
    /// Records to be acknowledged between two faults, in every partition some
    #[arg(long, default_value_t = 0)]
    between: u64,
    /// The schedule; another one each time by default
    #[arg(long)]
    seed: Option<u64>,
    /// Which faults, separated by commas; all that this machine allows by default
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Each fault once, in the order given
    #[arg(long, requires = "faults")]
    once: bool,
    /// Leave out what this machine does not allow, instead of failing
    #[arg(long)]
    where_possible: bool,
    /// How many brokers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    brokers: u8,
    /// Records per second
    #[arg(long, default_value_t = 600)]
    rate: u64,
    /// Where a folder with the evidence is made if something is wrong
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    evidence: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Before any thread: namespaces are those of the thread that asks for them.
    let means = sandbox::enter();
    interrupt::listen();
    let result = attempt(&arguments, means);
    sandbox::remove_lock_file();
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("taffrail-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn attempt(arguments: &Arguments, mut means: Means) -> Result<bool> {
    let prefix = format!("taffrail-chaos-{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir()?;
    if means.disks
        && let Err(error) = disk::try_out(folder.path())
    {
        eprintln!("no disks of our own: {error:#}");
        means.disks = false;
    }
    let faults = choose(arguments, means)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = arguments
        .seed
        .unwrap_or(u64::from(now.subsec_nanos()) ^ now.as_secs());
    let plan = Plan {
        seed,
        brokers: usize::from(arguments.brokers),
        means,
        flushed: faults.contains(&FaultKind::PowerLossAll),
        faults,
        once: arguments.once,
        duration: arguments.duration,
        count: arguments.count,
        between: arguments.between,
        rate: arguments.rate,
    };
    let names: Vec<&str> = plan.faults.iter().map(|kind| kind.name()).collect();
    println!(
        "seed {seed}, {} brokers, taffrail.flush={}, faults {}",
        plan.brokers,
        if plan.flushed { "ack" } else { "os" },
        names.join(",")
    );
    let evidence = arguments
        .evidence
        .join(format!("taffrail-chaos-{seed}-{}", std::process::id()));
    let outcome = run::run(&plan, folder.path(), &evidence)
        .with_context(|| format!("seed {seed}; evidence in {}", evidence.display()))?;
    print(&outcome);
    if !outcome.is_good() {
        println!("evidence in {}", evidence.display());
    }
    Ok(outcome.is_good())
}

/// The faults that are asked for and possible.
fn choose(arguments: &Arguments, means: Means) -> Result<Vec<FaultKind>> {
    let (clocks, slow_disks) = (bed::clocks_work(), disk::slow_disks_work());
    let asked: Vec<FaultKind> = arguments
        .faults
        .iter()
        .map(|name| {
            FaultKind::from_name(name).with_context(|| format!("there is no fault {name} (--help)"))
        })
        .collect::<Result<_>>()?;
    let by_default = asked.is_empty();
    let candidates = if by_default {
        FaultKind::ALL.to_vec()
    } else {
        asked
    };
    let mut faults = Vec::new();
    for kind in candidates {
        match kind.lacking(means, clocks.is_ok(), slow_disks) {
            None => faults.push(kind),
            Some(what) if by_default || arguments.where_possible => {
                eprintln!("LEFT OUT: {} needs {what}", kind.name());
            }
            Some(what) => bail!("{} needs {what}", kind.name()),
        }
    }
    if faults.is_empty() {
        bail!("none of these faults is possible here");
    }
    Ok(faults)
}

fn print(outcome: &Outcome) {
    let total: u64 = outcome.faults.values().sum();
    let by_kind: Vec<String> = outcome
        .faults
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!(
        "{total} faults of {} kinds in {} s: {}",
        outcome.faults.len(),
        outcome.took.as_secs(),
        by_kind.join(", ")
    );
    println!("{}", outcome.report);
    println!(
        "{} elections (new leader epochs); longest time that a partition had no acknowledgement: {:.1} s ({})",
        outcome.elections,
        outcome.gap.length.as_secs_f64(),
        outcome.gap.during
    );
    println!("{} replicas compared byte by byte", outcome.replicas);
    if outcome.interrupted {
        println!("ended early by a signal");
    }
    for failure in &outcome.failures {
        println!("FAILED: {failure}");
    }
    println!(
        "{}",
        if outcome.is_good() {
            "all was as promised"
        } else {
            "NOT as promised"
        }
    );
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is no duration such as 90s, 30m or 1h");
    let (number, unit) = text
        .char_indices()
        .last()
        .map(|(at, _)| text.split_at(at))
        .ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}
