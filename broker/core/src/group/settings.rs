//! The configuration of a group coordinator.

use std::time::Duration;

/// Limits and delays; Kafka's names in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shortest session a member may ask for (`group.min.session.timeout.ms`).
    pub session_timeout_min: Duration,
    /// Longest session a member may ask for (`group.max.session.timeout.ms`).
    pub session_timeout_max: Duration,
    /// How long an empty group waits for more members after the first (`group.initial.rebalance.delay.ms`).
    pub initial_rebalance_delay: Duration,
    /// Members of a group, pending ones not counted (`group.max.size`).
    pub group_size_max: usize,
    /// Groups of one coordinator, which is one of the 50 partitions of `__consumer_offsets`.
    pub groups_max: usize,
    /// Bytes that the members of all groups of one coordinator may say of themselves, in names and metadata of protocols.
    pub protocol_bytes_max: usize,
    /// Bytes of an offset's metadata string (`offset.metadata.max.bytes`).
    pub offset_metadata_bytes_max: usize,
    /// Bytes of the records of one decision, which must fit into one batch (`max.message.bytes` of the topic). Larger
    /// ones are refused, for an append that fails costs the whole coordinator a reload.
    pub batch_bytes_max: usize,
    /// How long offsets are kept when nobody uses them (`offsets.retention.minutes`).
    pub offsets_retention: Duration,
    /// How often to look for expired offsets (`offsets.retention.check.interval.ms`).
    pub offsets_retention_check_interval: Duration,
}

impl Default for Settings {
    /// Kafka's defaults, but for the limits that Kafka does not have: 10,000 members, at some 500 bytes each, are 5 MB;
    /// 100,000 groups without offsets, at some 300 bytes each, are 30 MB; 16 MiB of members' metadata are 16,000 members with 1 KB, and
    /// 50 coordinators on three brokers hold at most 270 MB each.
    fn default() -> Settings {
        Settings {
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(1_800),
            initial_rebalance_delay: Duration::from_secs(3),
            group_size_max: 10_000,
            groups_max: 100_000,
            protocol_bytes_max: 16 << 20,
            offset_metadata_bytes_max: 4_096,
            // 1 MiB + 12 less the batch header.
            batch_bytes_max: 1_048_500,
            offsets_retention: Duration::from_secs(7 * 24 * 3_600),
            offsets_retention_check_interval: Duration::from_secs(600),
        }
    }
}
