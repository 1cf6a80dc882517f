//! One broker put together: the cores, the logs, the fetchers, and every rule of order
//! (append, apply, fsync, reply; drop and replay), over one seam for clock, randomness, disk and network.
//! It never opens a socket or a file itself, and asks no clock but the seam's.

mod access;
mod api;
mod broker;
mod cluster;
mod connection;
mod coordinator_batch;
mod dispatch;
mod env;
mod errors;
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod housekeeping;
pub mod metadata_files;
mod metrics;
mod node;
mod partition;
mod producer_snapshots;
mod replication;
mod response;
mod state;
pub mod transactions;

pub use access::Principal;
pub use connection::{Connection, ListenerKind};
pub use env::{Env, Peer};
pub use metrics::NodeMetrics;
pub use node::{Health, Node, StartError};
pub use response::{Handled, Response, ResponseFile, ResponseFuture};
pub use state::{AdminState, LocalReplica, PartitionEntry, SafeToStop};

/// Whether faults are planted in this build (`make mutants`).
pub const MUTANTS: bool = cfg!(feature = "mutants");
