//! Plants one fault after another and runs seeds until an invariant says that something is wrong.

use std::process::ExitCode;
use std::time::Instant;

use taffrail_mutants::Mutant;
use taffrail_sim::{Failure, Going, Plan, run_all};

use crate::arguments::Arguments;

/// Whether every planted fault is caught within so many seeds; prints by which seed and which invariant.
pub(crate) fn run(arguments: &Arguments, seeds_max: u64) -> ExitCode {
    let begun = Instant::now();
    let mut survived = 0;
    for mutant in Mutant::ALL {
        let started = Instant::now();
        let (seeds, caught) = hunt(arguments, seeds_max, mutant);
        let seconds = started.elapsed().as_secs();
        match caught {
            Some(failure) => println!(
                "{:28} seed {:3} ({seeds} seeds, {seconds} s)  {}: {}",
                mutant.name(),
                failure.plan.seed,
                failure.subject,
                failure.reason
            ),
            None => {
                println!("{:28} SURVIVED {seeds} seeds, {seconds} s", mutant.name());
                survived += 1;
            }
        }
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!(
        "{} of {} planted faults were caught, in {minutes:.1} minutes",
        Mutant::ALL.len() - survived,
        Mutant::ALL.len()
    );
    if survived == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How many seeds were run, and the first failure.
fn hunt(arguments: &Arguments, seeds_max: u64, mutant: Mutant) -> (u64, Option<Box<Failure>>) {
    let plans = (arguments.seed..).zip(0..seeds_max).map(|(seed, _)| Plan {
        mutant: Some(mutant),
        ..arguments.plan(seed)
    });
    let (mut seeds, mut caught) = (0, None);
    run_all(plans, arguments.threads, |outcome| {
        seeds += 1;
        match outcome {
            Ok(_) => Going::On,
            Err(failure) => {
                caught = Some(failure);
                Going::Enough
            }
        }
    });
    (seeds, caught)
}
