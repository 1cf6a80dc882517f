//! The metadata quorum: Raft among the voters, as a value that is told of messages and ticks and says what to do.
//!
//! The only user of the `raft` crate. Everything outside sees the types here; bytes from peers are decoded into them
//! and never reach the crate's own parsing. Voters are given at bootstrap; adding and removing them (as learners first)
//! comes later through `Snapshot::{voters, learners}`, which already travel and persist.

mod convert;
mod logger;
mod node;
mod seating;
mod storage;
#[cfg(test)]
mod tests;
mod types;

pub use node::{RaftConfig, RaftNode};
pub use seating::{Seating, VoterStanding, judge_seating};
pub use types::{
    CommittedLog, Entry, EntryType, HardState, Message, MessageType, Persist, Persisted,
    ProposeError, RaftError, Ready, Role, Snapshot, VoterProgress,
};
