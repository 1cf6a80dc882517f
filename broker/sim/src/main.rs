//! `taffrail-sim --seed N --steps M`: runs one seed, or as many as `--seeds` says from there on, and tells how they went.

use std::process::ExitCode;

use anyhow::{Context, bail};
use taffrail_sim::{Plan, SimulatedTime, run};
use tracing_subscriber::EnvFilter;

const USAGE: &str = "taffrail-sim --seed N [--seeds COUNT] [--steps M] [--log FILTER]";

struct Arguments {
    seed: u64,
    seeds: u64,
    steps: u32,
    log: Option<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = arguments(std::env::args().skip(1))?;
    if let Some(filter) = &arguments.log {
        tracing_subscriber::fmt()
            .with_timer(SimulatedTime)
            .with_env_filter(EnvFilter::try_new(filter)?)
            .with_writer(std::io::stderr)
            .init();
    }
    let mut failed = 0;
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        let steps = arguments.steps;
        match run(Plan { seed, steps }) {
            Ok(report) => println!("seed {seed}: {report:?}"),
            Err(failure) => {
                println!("{failure}");
                failed += 1;
            }
        }
    }
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn arguments(mut words: impl Iterator<Item = String>) -> anyhow::Result<Arguments> {
    let mut arguments = Arguments {
        seed: 0,
        seeds: 1,
        steps: 40,
        log: None,
    };
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} needs a value: {USAGE}"))?;
        match word.as_str() {
            "--seed" => arguments.seed = value.parse().context("--seed")?,
            "--seeds" => arguments.seeds = value.parse().context("--seeds")?,
            "--steps" => arguments.steps = value.parse().context("--steps")?,
            "--log" => arguments.log = Some(value),
            _ => bail!("{word} is not known: {USAGE}"),
        }
    }
    Ok(arguments)
}
