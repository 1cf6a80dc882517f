//! What `__consumer_offsets` holds, as values; their bytes are made elsewhere, in Kafka's formats.

use std::sync::Arc;

use crate::ids::TopicId;

/// Bytes that members exchange through the coordinator, which does not read them.
pub type Bytes = Arc<[u8]>;

/// One keyed record; a `None` value is a tombstone. The last one of a key wins. Names are shared: a request has one group and
/// few topics, and as many records as it has partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Key `OffsetCommitKey`, value `OffsetCommitValue`.
    Offset {
        /// The group that committed.
        group_id: Arc<str>,
        /// The topic's name.
        topic: Arc<str>,
        /// The partition's index.
        partition: i32,
        /// The offset; `None` = expired or deleted.
        value: Option<OffsetValue>,
    },
    /// Key `GroupMetadataKey`, value `GroupMetadataValue`.
    Group {
        /// Which group.
        group_id: Arc<str>,
        /// One settled generation; `None` = the group is gone.
        value: Option<GroupValue>,
    },
}

/// Longest string in a record: Kafka's format counts the bytes of most of them in 16 bits, and a member id is made of
/// a client's or an instance's id and 37 bytes more. Longer ones are refused, for an append that fails costs the whole
/// coordinator a reload.
pub(super) const TEXT_BYTES_MAX: usize = 32_000;

/// Bytes of a record beside its strings: lengths, numbers and the record's own framing, rounded up.
const RECORD_OVERHEAD_BYTES: usize = 100;

impl Record {
    /// Says that a group has no offset of a partition any more.
    pub(super) fn offset_tombstone(
        group_id: &Arc<str>,
        topic: &Arc<str>,
        partition: i32,
    ) -> Record {
        Record::Offset {
            group_id: Arc::clone(group_id),
            topic: Arc::clone(topic),
            partition,
            value: None,
        }
    }

    /// Says that a group is gone.
    pub(super) fn group_tombstone(group_id: &Arc<str>) -> Record {
        Record::Group {
            group_id: Arc::clone(group_id),
            value: None,
        }
    }

    /// How large it is in a batch, rather too much than too little.
    pub fn bytes_about(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Record::Offset {
                group_id,
                topic,
                value,
                ..
            } => {
                let metadata = value.as_ref().map_or(0, |value| value.metadata.len());
                RECORD_OVERHEAD_BYTES + group_id.len() + topic.len() + metadata
            }
            Record::Group {
                group_id,
                value: None,
            } => RECORD_OVERHEAD_BYTES + group_id.len(),
            Record::Group {
                group_id,
                value: Some(value),
            } => {
                let member = |member: &MemberValue| {
                    RECORD_OVERHEAD_BYTES
                        + member.member_id.len()
                        + text(&member.group_instance_id)
                        + member.client_id.len()
                        + member.client_host.len()
                        + member.subscription.len()
                        + member.assignment.len()
                };
                RECORD_OVERHEAD_BYTES
                    + group_id.len()
                    + value.protocol_type.len()
                    + text(&value.protocol)
                    + text(&value.leader)
                    + value.members.iter().map(member).sum::<usize>()
            }
        }
    }
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetValue {
    /// The next offset the group wants to read.
    pub offset: i64,
    /// The leader epoch of the last record read; −1 = not said.
    pub leader_epoch: i32,
    /// Whatever the consumer said; empty for null.
    pub metadata: String,
    /// When it was committed, milliseconds since 1970.
    pub commit_timestamp: i64,
    /// When it is to expire, if the client said so (OffsetCommit v2 to v4); −1 = by the broker's retention.
    pub expire_timestamp: i64,
    /// The topic's id; zero = not known.
    pub topic_id: TopicId,
}

impl OffsetValue {
    /// Whether it is one of this topic, as far as both ids are known.
    pub(super) fn is_of(&self, topic_id: TopicId) -> bool {
        topic_id == TopicId::ZERO || self.topic_id == TopicId::ZERO || self.topic_id == topic_id
    }
}

/// A generation of a group in which every member has its assignment, or one without members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupValue {
    /// `consumer` for consumers; other users of the protocol have their own.
    pub protocol_type: String,
    /// Grows with each rebalance.
    pub generation: i32,
    /// The chosen protocol (assignor); `None` without members.
    pub protocol: Option<String>,
    /// The member that computes the assignment.
    pub leader: Option<String>,
    /// When the group entered this state, milliseconds since 1970; −1 = not known.
    pub state_timestamp: i64,
    /// Sorted by member id.
    pub members: Vec<MemberValue>,
}

/// A member of a settled generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// Given by the coordinator.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
    /// The client's `client.id`.
    pub client_id: String,
    /// The address it came from.
    pub client_host: String,
    /// In milliseconds.
    pub rebalance_timeout_ms: i32,
    /// In milliseconds.
    pub session_timeout_ms: i32,
    /// Its metadata for the chosen protocol.
    pub subscription: Bytes,
    /// What the leader assigned to it.
    pub assignment: Bytes,
}
