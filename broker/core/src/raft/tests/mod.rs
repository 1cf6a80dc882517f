//! Voters in one thread from one seed: elections, crashes, restarts, partitions, lost messages, snapshots.

mod cases;
mod convert;
mod members;
mod quorum;
mod seeds;
