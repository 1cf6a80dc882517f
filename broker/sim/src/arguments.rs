//! The command line of `taffrail-sim`.

use clap::Parser;
use taffrail_sim::{Kind, Plan, Profile, STEPS, threads};

/// Runs simulated clusters, one from each seed, with faults, and says which seeds broke a promise.
#[derive(Clone, Debug, Parser)]
#[command(name = "taffrail-sim", version)]
pub(crate) struct Arguments {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1)]
    pub(crate) seeds: u64,
    /// How many steps with faults each seed has
    #[arg(long, default_value_t = STEPS)]
    steps: u32,
    /// Faults to leave out, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    without: Vec<Kind>,
    /// Only seeds with faults of this kind: `disks`
    #[arg(long, value_parser = ["disks"])]
    only: Option<String>,
    /// How many seeds at the same time; all cores by default
    #[arg(long, default_value_t = threads(), hide_default_value = true)]
    pub(crate) threads: usize,
    /// Do not look for fewer steps and faults that fail, too
    #[arg(long)]
    pub(crate) no_shrink: bool,
    /// What the brokers are to log, as `debug` or `taffrail_node=trace`
    #[arg(long)]
    pub(crate) log: Option<String>,
    /// The fault that is planted in the product
    #[cfg(feature = "mutants")]
    #[arg(long, value_parser = mutant)]
    mutant: Option<taffrail_mutants::Mutant>,
    /// Plant each fault after the other; each has to be caught within this many seeds
    #[cfg(feature = "mutants")]
    #[arg(long)]
    pub(crate) mutants: Option<u64>,
}

impl Arguments {
    /// What the seed is run with.
    pub(crate) fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::new(seed, self.steps);
        for kind in &self.without {
            plan.without = plan.without.with(*kind);
        }
        #[cfg(feature = "mutants")]
        {
            plan.mutant = self.mutant;
        }
        plan
    }

    /// The plans of so many seeds.
    pub(crate) fn plans(&self) -> impl Iterator<Item = Plan> {
        let wanted = |seed: &u64| self.only.is_none() || Profile::of_seed(*seed) == Profile::Disks;
        let count = usize::try_from(self.seeds).unwrap_or(usize::MAX);
        let seeds = (self.seed..=u64::MAX).filter(wanted).take(count);
        seeds.map(|seed| self.plan(seed))
    }
}

fn kind(name: &str) -> Result<Kind, String> {
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    kind.ok_or_else(|| {
        let names = Kind::ALL.map(Kind::name).join(", ");
        format!("the faults are {names}")
    })
}

#[cfg(feature = "mutants")]
fn mutant(name: &str) -> Result<taffrail_mutants::Mutant, String> {
    let mut all = taffrail_mutants::Mutant::ALL.into_iter();
    let mutant = all.find(|mutant| mutant.name() == name);
    mutant.ok_or_else(|| String::from("no such fault can be planted"))
}
