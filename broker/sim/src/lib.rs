//! A whole cluster in one thread from one seed: the simulated side of the node's seam, clients that speak the protocol,
//! faults, and the invariants that must hold whatever happens.
//! The same seed gives the same run; a seed that fails prints the command that replays it.

mod client;
mod cluster;
mod convergence;
mod disk;
mod env;
mod executor;
#[cfg(test)]
mod failover;
mod faults;
#[cfg(test)]
mod handover;
mod history;
mod invariants;
mod log_time;
mod network;
mod observation;
mod peer;
mod random;
mod regressions;
#[cfg(test)]
mod requests;
mod runner;
mod serving;
mod shape;
mod shrink;
mod simulation;
#[cfg(test)]
mod told;
mod trace;

pub use disk::{Call, Fault, SimDisk, SimFile, SimLock};
pub use faults::{Kind, Kinds, Profile, Troubles};
pub use log_time::SimulatedTime;
pub use regressions::REGRESSIONS;
pub use runner::{Going, Outcome, run_all, threads};
pub use shrink::shrink;
pub use simulation::{Failure, Plan, Report, STEPS, run};

/// Counts what each thread holds, for the test of what requests take.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: taffrail_allocation::Counting = taffrail_allocation::Counting;
