//! The command line of `taffrail-sim`.

use anyhow::{Context, bail};
use taffrail_sim::{Kind, Plan, threads};

const USAGE: &str = "taffrail-sim [--seed FIRST] [--seeds COUNT] [--steps STEPS] [--without KIND,...] [--only disks] [--threads COUNT] \
                     [--shrink yes|no] [--log FILTER] [--mutant NAME] [--mutants SEEDS_MAX]";

/// What is to be run.
pub(crate) struct Arguments {
    /// The first seed.
    pub(crate) seed: u64,
    /// How many.
    pub(crate) seeds: u64,
    /// What every seed has.
    pub(crate) plan: Plan,
    /// Whether only seeds with faults of disks are run.
    pub(crate) only_disks: bool,
    pub(crate) threads: usize,
    /// Whether failures are made smaller.
    pub(crate) shrink: bool,
    pub(crate) log: Option<String>,
    /// Whether planted faults are to be caught, each by at most so many seeds.
    #[cfg(feature = "mutants")]
    pub(crate) mutants: bool,
}

impl Arguments {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Arguments> {
        let mut arguments = Arguments {
            seed: 0,
            seeds: 1,
            plan: Plan::new(0, taffrail_sim::STEPS),
            only_disks: false,
            threads: threads(),
            shrink: true,
            log: None,
            #[cfg(feature = "mutants")]
            mutants: false,
        };
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word} needs a value: {USAGE}"))?;
            let number = || {
                value
                    .parse::<u64>()
                    .with_context(|| format!("{word} {value}"))
            };
            match word.as_str() {
                "--seed" => arguments.seed = number()?,
                "--seeds" => arguments.seeds = number()?,
                "--steps" => arguments.plan.steps = u32::try_from(number()?).context("--steps")?,
                "--threads" => arguments.threads = usize::try_from(number()?)?,
                "--only" => {
                    anyhow::ensure!(value == "disks", "--only {value}: only disks can be chosen");
                    arguments.only_disks = true;
                }
                "--shrink" => arguments.shrink = value == "yes",
                "--log" => arguments.log = Some(value),
                "--without" => {
                    for name in value.split(',') {
                        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
                        let kind =
                            kind.with_context(|| format!("--without: no fault is called {name}"))?;
                        arguments.plan.without = arguments.plan.without.with(kind);
                    }
                }
                #[cfg(feature = "mutants")]
                "--mutant" => {
                    let mut all = taffrail_mutants::Mutant::ALL.into_iter();
                    let mutant = all.find(|mutant| mutant.name() == value);
                    let mutant = mutant.with_context(|| format!("no mutant is called {value}"))?;
                    arguments.plan.mutant = Some(mutant);
                }
                #[cfg(feature = "mutants")]
                "--mutants" => {
                    arguments.mutants = true;
                    arguments.seeds = number()?;
                }
                #[cfg(not(feature = "mutants"))]
                "--mutant" | "--mutants" => {
                    bail!("{word} needs a build with planted faults: make mutants")
                }
                _ => bail!("{word} is not known: {USAGE}"),
            }
        }
        Ok(arguments)
    }
}
