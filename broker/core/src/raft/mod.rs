//! The metadata quorum: Raft among the voters, as a value that is told of messages and ticks and says what to do.
//!
//! The only user of the `raft` crate. Everything outside sees the types here; bytes from peers are decoded into them
//! and never reach the crate's own parsing. The voters of an empty log are its founders; others come as learners and go by
//! entries of their own, and a snapshot says who they are as of its index.

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
    CommittedLog, Entry, EntryType, HardState, MembershipChange, Message, MessageType, Persist,
    Persisted, ProposeError, RaftError, Ready, Role, Snapshot, VoterProgress,
};
