//! What `__consumer_offsets` says of a consumer group; the keys' numbers are of Kafka's group coordinator.

use super::Partitions;
use super::assignment::CurrentAssignment;

/// One record of a group: a key and its value, or no value where there is none any more. Each is a field of the group's state, so that their
/// order, beside that of one key, does not matter, and a compacted log says the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerRecord {
    /// `ConsumerGroupMetadata` (key 3).
    Group(Option<GroupEpoch>),
    /// `ConsumerGroupMemberMetadata` (key 5).
    Member(String, Option<MemberMetadata>),
    /// `ConsumerGroupTargetAssignmentMetadata` (key 6): the epoch of the target assignment.
    TargetEpoch(Option<i32>),
    /// `ConsumerGroupTargetAssignmentMember` (key 7).
    Target(String, Option<Partitions>),
    /// `ConsumerGroupCurrentMemberAssignment` (key 8).
    Current(String, Option<CurrentAssignment>),
}

/// How often the group changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupEpoch {
    /// Goes up by one whenever there must be a new target assignment.
    pub epoch: i32,
    /// Of the subscribed topics with their ids and sizes, as of then.
    pub metadata_hash: i64,
}

/// What a member said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberMetadata {
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// `client.rack`.
    pub rack_id: Option<String>,
    /// The client's `client.id`.
    pub client_id: String,
    /// The address it came from.
    pub client_host: String,
    /// The names of the topics that it subscribes to, sorted and each once.
    pub subscribed_topic_names: Vec<String>,
    /// The assignor that it would like to have.
    pub server_assignor: Option<String>,
    /// `max.poll.interval.ms`: how long it may take to give up partitions.
    pub rebalance_timeout_ms: i32,
}
