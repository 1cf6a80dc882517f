//! Every decision of a broker: placement, replication, controller, groups, transactions; no I/O and no clock.
//!
//! Cores are plain values. `handle_*` takes time and an event and says what must be done, `apply` is the only
//! writer of replicated state and cannot fail, `next_deadline` says when to call again.

pub mod config;
pub mod controller;
pub mod error;
pub mod fetch_session;
pub mod group;
pub mod ids;
pub mod metadata;
pub mod placement;
pub mod producer;
pub mod raft;
pub mod replica;
pub mod time;
pub mod transaction;
