//! Runs seeds and tells how they went: one with all of its logs, or thousands on all cores.

mod arguments;
#[cfg(feature = "mutants")]
mod mutants;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use taffrail_sim::{Failure, Going, SimulatedTime, Troubles, run_all, shrink};
use tracing_subscriber::EnvFilter;

use arguments::Arguments;
use clap::Parser;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How many failures are made smaller: each takes some dozen runs.
const SHRUNK_MAX: usize = 3;

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match &arguments.log {
        Some(filter) => tracing_subscriber::fmt()
            .with_timer(SimulatedTime)
            .with_env_filter(EnvFilter::try_new(filter)?)
            .with_writer(std::io::stderr)
            .init(),
        // A panic is a failure like others, and told as one.
        None => std::panic::set_hook(Box::new(|_| {})),
    }
    #[cfg(feature = "mutants")]
    if let Some(seeds_max) = arguments.mutants {
        return Ok(mutants::run(&arguments, seeds_max));
    }
    Ok(run_seeds(&arguments))
}

fn run_seeds(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let mut told = begun;
    let (mut done, mut acknowledged, mut failures) = (0, 0, Vec::new());
    let mut troubles = Troubles::default();
    run_all(arguments.plans(), arguments.threads, |outcome| {
        done += 1;
        match outcome {
            Ok(report) => {
                acknowledged += report.acknowledged;
                troubles += report.troubles;
                if arguments.seeds == 1 {
                    println!("{report:?}");
                }
            }
            Err(failure) => {
                println!("{failure}");
                failures.push(*failure);
            }
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            tell(done, arguments.seeds, failures.len(), begun.elapsed());
        }
        Going::On
    });
    tell(done, arguments.seeds, failures.len(), begun.elapsed());
    println!("{acknowledged} batches were acknowledged");
    println!("{troubles}");
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    tell_failures(failures, !arguments.no_shrink);
    ExitCode::FAILURE
}

fn tell(done: u64, of: u64, failed: usize, elapsed: Duration) {
    let rate = done as f64 * 60.0 / elapsed.as_secs_f64().max(0.001);
    println!("{done} of {of} seeds, {failed} failed, {rate:.0} a minute");
}

fn tell_failures(mut failures: Vec<Failure>, shrinks: bool) {
    failures.sort_by_key(|failure| failure.plan.seed);
    println!("failed:");
    for (number, failure) in failures.into_iter().enumerate() {
        let failure = if shrinks && number < SHRUNK_MAX {
            *shrink(Box::new(failure))
        } else {
            failure
        };
        println!("{failure}");
    }
}
