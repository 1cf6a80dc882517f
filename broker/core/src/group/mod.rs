//! Classic consumer groups and committed offsets of one `__consumer_offsets` partition.
//!
//! [`Coordinator`] decides; the caller appends a decision's records to the partition, applies them, and only then
//! gives the coordinator its next event. Replies and effects are released when the high watermark has passed the log
//! end of the moment of the decision, also those without records, for they may speak of what is not yet replicated.
//! A heartbeat alone may be answered at once. If the append fails or leadership is lost, the coordinator is dropped and
//! built anew from the log: [`Coordinator::new`], [`Coordinator::apply`] for each record, [`Coordinator::handle_loaded`].
//!
//! So that a passing lack of replicas does not cost a reload, the caller checks `min.insync.replicas` before it asks.

mod admin;
mod classic;
mod commit;
pub mod consumer;
mod coordinator;
mod expiry;
mod join;
mod member;
mod partition;
mod pending;
mod protocols;
mod rebalance;
mod record;
mod request;
mod settings;
mod state;
mod subscription;
mod sync;

#[cfg(test)]
mod tests;

pub use admin::{CLASSIC_TYPE, DescribedGroup, DescribedMember, ListFilter, ListedGroup};
pub use classic::Classic;
pub use coordinator::{Coordinator, Group};
pub use member::Member;
pub use partition::partition_for;
pub use pending::{LoggedOffset, OffsetKey, PendingOffsets};
pub use protocols::check_protocols;
pub use record::{Bytes, GroupValue, MemberValue, OffsetValue, Record};
pub use request::{
    CommitPartition, Decision, Effect, FetchedOffset, FetchedTopic, Heartbeat, JoinGroup,
    JoinMember, JoinReply, LeaveGroup, LeaveMember, LeaveReply, OffsetCommit, OffsetCommitReply,
    OffsetDelete, RequestToken, SyncGroup, SyncReply, WantedOffsets,
};
pub use settings::Settings;
pub use state::State;
