//! Replication of one partition: what its leader counts, what its follower does with an answer.
//!
//! The bytes never come here. [`Leader`] sees log end offsets, fetches and committed metadata, and says when the
//! high watermark moves and which in-sync set to propose; [`Follower`] sees what the leader answered and says whether
//! to append, to truncate (by leader epoch only, never by high watermark) or to wait.

mod fetch_check;
mod follower;
mod isr;
mod leader;
mod out_of_sync;
mod progress;
mod propose;
mod read_replica;
mod throttle;
mod watermark;

#[cfg(test)]
mod tests;

pub use fetch_check::{EpochEnd, FetchCheck, FetchedFrom, check_fetch, check_leader_epoch};
pub use follower::{
    Advance, FetchPosition, FetchedPartition, Follower, FollowerAction, LocalLog, WaitReason,
};
pub use isr::{AlterPartitionAnswer, IsrChange, Proposal};
pub use leader::{Acknowledgement, Effect, FollowerFetch, Leader, LeaderLog, Settings};
pub use out_of_sync::{Lag, OutOfSync};
pub use progress::{BrokerStanding, PartitionState, Replica};
pub use throttle::ReplicationThrottle;
