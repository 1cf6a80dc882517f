//! What the node tells about itself: the JSON of `/admin/state`, the answer of `/admin/safe-to-stop`, gauges.

use serde::Serialize;

use crate::broker::Broker;
use crate::env::Env;

/// Everything that `GET /admin/state` shows, as this broker knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminState {
    /// The cluster's id.
    pub cluster_id: String,
    /// This broker.
    pub broker_id: i32,
    /// The active controller, as far as this broker knows.
    pub controller_id: Option<i32>,
    /// This broker's epoch, once registered.
    pub broker_epoch: Option<i64>,
    /// The last metadata index that this broker has applied (inclusive).
    pub metadata_index: i64,
    /// A hash of the metadata image at that index: equal on all brokers at equal index.
    pub metadata_hash: String,
    /// All registered brokers.
    pub brokers: Vec<BrokerEntry>,
    /// All topics with all partitions.
    pub topics: Vec<TopicEntry>,
    /// The log directories of this broker.
    pub log_directories: Vec<DirectoryEntry>,
    /// The groups that this broker coordinates.
    pub groups: Vec<GroupEntry>,
}

/// One registered broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokerEntry {
    /// The broker's id.
    pub id: i32,
    /// Its rack, if known.
    pub rack: Option<String>,
    /// Whether the controller keeps it out of leadership and ISRs.
    pub fenced: bool,
    /// Its epoch.
    pub epoch: i64,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicEntry {
    /// The topic's name.
    pub name: String,
    /// The topic's id, as Kafka prints it.
    pub topic_id: String,
    /// Its partitions by index.
    pub partitions: Vec<PartitionEntry>,
}

/// One partition. Offsets are exclusive ends and known where this broker holds a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionEntry {
    /// The partition's index.
    pub partition: i32,
    /// The leader, if any.
    pub leader: Option<i32>,
    /// The leader epoch.
    pub leader_epoch: i32,
    /// AR: all assigned replicas, in assignment order.
    pub replicas: Vec<i32>,
    /// ISR: those in step with the leader.
    pub isr: Vec<i32>,
    /// OSR: those that are not.
    pub osr: Vec<i32>,
    /// This broker's replica, if it holds one.
    pub local: Option<LocalReplica>,
}

/// The offsets of this broker's replica of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocalReplica {
    /// `leader`, `follower` or `offline`.
    pub role: &'static str,
    /// The first retained offset.
    pub log_start_offset: i64,
    /// LW: the smallest log start offset over all replicas, known to the leader.
    pub low_watermark: Option<i64>,
    /// LSO: what read_committed consumers see ends here.
    pub last_stable_offset: i64,
    /// HW: what consumers see ends here.
    pub high_watermark: i64,
    /// LEO: the offset of the next record.
    pub log_end_offset: i64,
    /// Bytes on disk.
    pub size: u64,
    /// The leader's view of every follower.
    pub followers: Vec<FollowerEntry>,
}

/// A follower as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowerEntry {
    /// The follower.
    pub broker: i32,
    /// Its log end offset, -1 before its first fetch.
    pub log_end_offset: i64,
    /// Whether it is in the ISR.
    pub in_sync: bool,
}

/// A log directory of this broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirectoryEntry {
    /// Its path.
    pub path: String,
    /// Its id, as Kafka prints it.
    pub directory_id: String,
    /// Whether it has been taken offline by an error.
    pub offline: bool,
    /// Partition folders in it.
    pub partitions: usize,
}

/// A group that this broker coordinates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupEntry {
    /// The group's id.
    pub group_id: String,
    /// Its state, as Kafka prints it.
    pub state: String,
    /// Its members.
    pub members: usize,
    /// Committed offsets against the high watermark, where this broker knows both.
    pub offsets: Vec<GroupOffset>,
}

/// One committed offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupOffset {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The committed offset: the next one the group reads.
    pub committed: i64,
    /// High watermark minus committed offset, where this broker holds a replica.
    pub lag: Option<i64>,
}

/// Whether this broker may be stopped without hurting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SafeToStop {
    /// Whether nothing stands against it.
    pub safe: bool,
    /// What stands against it, one sentence each.
    pub reasons: Vec<String>,
    /// Partitions that would fall below their effective min.insync.replicas.
    pub partitions: Vec<String>,
}

