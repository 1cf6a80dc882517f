//! A proposed change of the in-sync set, from the moment it is sent until the controller or newer metadata settles it.

use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch};
use crate::time::Instant;

/// Whether a proposal adds replicas or removes some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsrChange {
    /// Replicas that caught up join. They count for the high watermark from now on.
    Expand,
    /// Replicas that fell behind leave. They count for the high watermark until this is committed.
    Shrink,
}

/// An AlterPartition request for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Names this sending in its answer, also when the same is sent again; grows within one [`Leader`](super::Leader).
    pub id: u64,
    /// The leader epoch of the sender.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch that this is a compare-and-set on.
    pub partition_epoch: PartitionEpoch,
    /// Whether it adds or removes.
    pub change: IsrChange,
    /// The wanted ISR with the broker epoch of each member; `BrokerEpoch(-1)` = not known, not checked (KIP-903).
    pub new_isr: Vec<(BrokerId, BrokerEpoch)>,
}

impl Proposal {
    pub(super) fn contains(&self, broker: BrokerId) -> bool {
        self.new_isr.iter().any(|(member, _)| *member == broker)
    }
}

/// What came back for a [`Proposal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterPartitionAnswer {
    /// The controller committed it, or had already; this is the partition now.
    Committed {
        /// The leader epoch of the partition.
        leader_epoch: LeaderEpoch,
        /// The partition epoch that the change led to.
        partition_epoch: PartitionEpoch,
        /// The committed ISR.
        isr: Vec<BrokerId>,
        /// Whether replicas outside of it are eligible to lead (the committed ELR).
        has_eligible: bool,
    },
    /// INELIGIBLE_REPLICA or OPERATION_NOT_ATTEMPTED: not applied. The proposal is dropped, unless an
    /// earlier copy of it that went unanswered could still be.
    NotApplied,
    /// FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID or
    /// UNKNOWN_TOPIC_OR_PARTITION: the metadata that this broker has not seen yet will settle it.
    AwaitMetadata,
    /// NOT_CONTROLLER, a time-out, a lost connection, anything else: nobody knows, so the same is asked again.
    Unknown,
}

/// A proposal that is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) proposal: Proposal,
    /// When to send the same proposal again; `None` while an answer is awaited.
    pub(super) resend_at: Option<Instant>,
    /// When it last turned out that a copy would not be answered; that copy may still reach the controller.
    pub(super) unanswered_at: Option<Instant>,
}
