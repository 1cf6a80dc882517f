//! What a log must know of its topic's configuration, as plain values; names follow Kafka's topic configs.

use taffrail_protocol::records::{Compression, TimestampType};

/// Settings of one log. They may be replaced while the log is open: each call uses what is set then.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment never grows past this, unless one batch alone is larger.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment whose first batch is older than this, compared with the batch to append, is closed.
    pub segment_ms: i64,
    /// Taken off `segment_ms`, drawn once per log by the caller, so that segments do not all roll at once.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: an index that has grown to this closes its segment.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: log bytes between two index entries.
    pub index_interval_bytes: u32,
    /// `retention.ms`; `None` for no limit (-1).
    pub retention_ms: Option<i64>,
    /// `retention.bytes`; `None` for no limit (-1).
    pub retention_bytes: Option<u64>,
    /// `cleanup.policy` contains `delete`: the two limits above apply.
    pub delete: bool,
    /// `cleanup.policy` contains `compact`: every record needs a key.
    pub compact: bool,
    /// `max.message.bytes`: largest batch that a producer may send.
    pub max_message_bytes: u32,
    /// `compression.type`: the codec of stored batches; `None` for `producer`, as they were sent.
    pub compression: Option<Compression>,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a record's timestamp may lie behind the broker's clock.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far it may lie ahead.
    pub timestamp_after_max_ms: i64,
    /// Whether a segment that retention removed is kept to be overwritten by the next one (FORMAT.md, recycled segments).
    pub recycle_segments: bool,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_ms: Some(7 * 24 * 60 * 60 * 1000),
            retention_bytes: None,
            delete: true,
            compact: false,
            max_message_bytes: 1_048_588,
            compression: None,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 60 * 60 * 1000,
            recycle_segments: true,
        }
    }
}
