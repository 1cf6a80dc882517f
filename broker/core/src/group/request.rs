//! Requests to a group coordinator and its replies, free of wire versions.

use std::sync::Arc;

use crate::error::ErrorKind;
use crate::ids::TopicId;

use super::record::{Bytes, Record, TEXT_BYTES_MAX};

/// Names a request whose reply may come later, by an [`Effect`]. Given by the caller, unique among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestToken(pub u64);

/// Records to append and apply, and the reply to release when they are replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<R> {
    /// In this order; they belong together in one batch, but for tombstones alone, which may be split.
    pub records: Vec<Record>,
    /// The reply.
    pub reply: R,
}

/// The reply to a request that waited. Released like a [`Decision`]'s reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer a JoinGroup.
    JoinAnswered {
        /// Which.
        token: RequestToken,
        /// With what.
        reply: JoinReply,
    },
    /// Answer a SyncGroup.
    SyncAnswered {
        /// Which.
        token: RequestToken,
        /// With what.
        reply: SyncReply,
    },
}

/// JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroup {
    /// Which group.
    pub group_id: String,
    /// Empty at the first try.
    pub member_id: String,
    /// Of a static member (v5+).
    pub group_instance_id: Option<String>,
    /// From the request header; empty if null.
    pub client_id: String,
    /// The address of the connection, as Kafka prints it (`/127.0.0.1`).
    pub client_host: String,
    /// In milliseconds, as sent.
    pub session_timeout_ms: i32,
    /// In milliseconds, as sent; v0 has none and means the session timeout.
    pub rebalance_timeout_ms: i32,
    /// `consumer` for consumers.
    pub protocol_type: String,
    /// The protocols (assignors) that the member supports with its metadata for each, preferred first.
    pub protocols: Vec<(String, Bytes)>,
    /// v4+: a new dynamic member is told its id first and joins with it (KIP-394).
    pub requires_known_member_id: bool,
    /// v9+: a static leader that comes back may be told to skip the assignment (KIP-814).
    pub supports_skipping_assignment: bool,
    /// 128 random bits, of which a new member's id is made.
    pub random: u128,
}

impl JoinGroup {
    /// Whether all that it says of the member beside its protocols can be written down.
    pub(super) fn is_writable(&self) -> bool {
        let instance_id = self.group_instance_id.as_deref().unwrap_or_default();
        [&self.client_id, &self.client_host, &self.protocol_type]
            .into_iter()
            .map(String::as_str)
            .chain([instance_id])
            .all(|text| text.len() <= TEXT_BYTES_MAX)
    }
}

/// Reply to JoinGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinReply {
    /// `None` = joined.
    pub error: Option<ErrorKind>,
    /// −1 with an error.
    pub generation: i32,
    /// The group's protocol type (v7+).
    pub protocol_type: Option<String>,
    /// The chosen protocol; v6 and lower say an empty string for `None`.
    pub protocol: Option<String>,
    /// The leader's member id; empty with an error.
    pub leader: String,
    /// v9+: the leader need not compute an assignment.
    pub skip_assignment: bool,
    /// The member's id, also with MEMBER_ID_REQUIRED.
    pub member_id: String,
    /// All members, for the leader; empty for others.
    pub members: Vec<JoinMember>,
}

/// A member as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinMember {
    /// Its id.
    pub member_id: String,
    /// Of a static member.
    pub group_instance_id: Option<String>,
    /// Its metadata for the chosen protocol.
    pub metadata: Bytes,
}

impl JoinReply {
    pub(super) fn refused(error: ErrorKind, member_id: &str) -> JoinReply {
        JoinReply {
            error: Some(error),
            generation: -1,
            member_id: member_id.to_owned(),
            ..JoinReply::default()
        }
    }
}

/// SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncGroup {
    /// Which group.
    pub group_id: String,
    /// Of the JoinGroup reply.
    pub generation: i32,
    /// Who.
    pub member_id: String,
    /// Of a static member (v3+).
    pub group_instance_id: Option<String>,
    /// Checked if given (v5+).
    pub protocol_type: Option<String>,
    /// Checked if given (v5+).
    pub protocol: Option<String>,
    /// From the leader: member id and assignment.
    pub assignments: Vec<(String, Bytes)>,
}

/// Reply to SyncGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncReply {
    /// `None` = assigned.
    pub error: Option<ErrorKind>,
    /// v5+.
    pub protocol_type: Option<String>,
    /// v5+.
    pub protocol: Option<String>,
    /// Empty bytes, never absent, if the leader assigned nothing.
    pub assignment: Bytes,
}

impl SyncReply {
    pub(super) fn refused(error: ErrorKind) -> SyncReply {
        SyncReply {
            error: Some(error),
            ..SyncReply::default()
        }
    }
}

/// Heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Which group.
    pub group_id: String,
    /// Which generation.
    pub generation: i32,
    /// Who.
    pub member_id: String,
    /// Of a static member (v3+).
    pub group_instance_id: Option<String>,
}

/// LeaveGroup; v0 to v2 name one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveGroup {
    /// Which group.
    pub group_id: String,
    /// Who leaves.
    pub members: Vec<LeaveMember>,
}

/// One that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveMember {
    /// May be empty if the instance id says who.
    pub member_id: String,
    /// Of a static member (v3+).
    pub group_instance_id: Option<String>,
}

/// Reply to LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveReply {
    /// Of the whole request.
    pub error: Option<ErrorKind>,
    /// For each member of the request; v0 to v2 make the only one's the error of the whole.
    pub members: Vec<(LeaveMember, Option<ErrorKind>)>,
}

/// OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// Which group.
    pub group_id: Arc<str>,
    /// −1 from a consumer that is no member (v0 always).
    pub generation: i32,
    /// Empty from a consumer that is no member.
    pub member_id: String,
    /// Of a static member (v7+).
    pub group_instance_id: Option<String>,
    /// v2 to v4: keep it for so long; `None` (−1) = the broker's retention.
    pub retention_time_ms: Option<i64>,
    /// v9+: a generation of an unknown group is GROUP_ID_NOT_FOUND, before it is ILLEGAL_GENERATION.
    pub knows_group_id_not_found: bool,
    /// What to commit.
    pub offsets: Vec<CommitPartition>,
}

/// One offset to commit. The node has checked that the topic and partition exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPartition {
    /// The topic's name, shared by its partitions.
    pub topic: Arc<str>,
    /// The topic's id; zero = not known.
    pub topic_id: TopicId,
    /// The partition's index.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// −1 = not said.
    pub leader_epoch: i32,
    /// Null is as good as empty.
    pub metadata: Option<String>,
}

/// Reply to OffsetCommit: one result for each offset of the request, in its order.
pub type OffsetCommitReply = Vec<Option<ErrorKind>>;

/// OffsetDelete. The node has checked that the topics and partitions exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDelete {
    /// Which group.
    pub group_id: String,
    /// Topic names, with the indexes of partitions.
    pub topics: Vec<(String, Vec<i32>)>,
}

/// The offsets of a topic that OffsetFetch wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedOffsets {
    /// The topic's name.
    pub topic: String,
    /// Offsets of an older topic of the same name are none of it; zero = not said.
    pub topic_id: TopicId,
    /// The partitions' indexes, each once.
    pub partitions: Vec<i32>,
}

/// The offsets of a topic in a reply to OffsetFetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopic {
    /// The topic's name.
    pub topic: String,
    /// Its partitions, in the order in which they were asked for.
    pub partitions: Vec<FetchedOffset>,
}

/// One partition in a reply to OffsetFetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    /// The partition's index.
    pub partition: i32,
    /// −1 = nothing committed.
    pub offset: i64,
    /// −1 = not known.
    pub leader_epoch: i32,
    /// As committed; empty for null.
    pub metadata: String,
}
