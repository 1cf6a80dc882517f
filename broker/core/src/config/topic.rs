//! The configs of a topic: every name that Kafka 4.4 has (`LogConfig`), with ours beside them.
//! Names of functions that Taffrail does not have (tiered storage) are accepted at their default only.

use super::definition::{Allowed, Definition, Synonym, Update, configs};
use super::error::{ConfigError, ConfigErrors};
use super::layers::{Layers, topic_value};
use super::value::{
    CleanupPolicy, CompressionType, ConfigValue, FlushPolicy, ThrottledReplicas, TimestampType,
};
use super::{ConfigMap, check_topic};

use Allowed::{Any, AtLeast, Between, OneOf, OnlyDefault, Replicas, SomeOf};
use Update::Dynamic;

configs! {
    /// The values that hold for one topic after all layers.
    pub struct TopicConfig, table TOPIC_CONFIGS;

    "cleanup.policy" cleanup_policy: CleanupPolicy = Some("delete"), SomeOf(&["compact", "delete"]), Dynamic,
        [Synonym::same("log.cleanup.policy")],
        "What happens to old segments: delete removes them by age and size, compact keeps the last value of each key; empty keeps all.";
    "compression.gzip.level" compression_gzip_level: i32 = Some("-1"), Between(-1, 9), Dynamic,
        [Synonym::same("compression.gzip.level")],
        "Level for batches that the broker itself compresses with gzip; -1 is the codec's default.";
    "compression.lz4.level" compression_lz4_level: i32 = Some("9"), Between(1, 17), Dynamic,
        [Synonym::same("compression.lz4.level")],
        "Level for batches that the broker itself compresses with lz4.";
    "compression.type" compression_type: CompressionType = Some("producer"), OneOf(CompressionType::WORDS), Dynamic,
        [Synonym::same("compression.type")],
        "The codec that batches are stored in; producer keeps each as it was sent.";
    "compression.zstd.level" compression_zstd_level: i32 = Some("3"), Between(-131_072, 22), Dynamic,
        [Synonym::same("compression.zstd.level")],
        "Level for batches that the broker itself compresses with zstd.";
    "delete.retention.ms" delete_retention_ms: i64 = Some("86400000"), AtLeast(0), Dynamic,
        [Synonym::same("log.cleaner.delete.retention.ms")],
        "How long a compacted topic keeps the marker of a deleted key, in milliseconds.";
    "file.delete.delay.ms" file_delete_delay_ms: i64 = Some("60000"), AtLeast(0), Dynamic,
        [Synonym::same("log.segment.delete.delay.ms")],
        "How long a removed segment's files stay on disk for readers that still use them, in milliseconds.";
    "flush.messages" flush_messages: i64 = Some("9223372036854775807"), AtLeast(1), Dynamic,
        [Synonym::same("log.flush.interval.messages")],
        "How many records may be appended between two fsyncs.";
    "flush.ms" flush_ms: i64 = Some("9223372036854775807"), AtLeast(0), Dynamic,
        [Synonym::same("log.flush.interval.ms"), Synonym::same("log.flush.scheduler.interval.ms")],
        "How long an appended record may wait for an fsync, in milliseconds.";
    "follower.replication.throttled.replicas" follower_replication_throttled_replicas: ThrottledReplicas = Some(""), Replicas, Dynamic, [],
        "Replicas that fetch no faster than follower.replication.throttled.rate of their brokers while they are out of sync: partition:broker, or * for all.";
    "index.interval.bytes" index_interval_bytes: i32 = Some("4096"), AtLeast(0), Dynamic,
        [Synonym::same("log.index.interval.bytes")],
        "How many bytes of log lie between two entries of the offset index.";
    "leader.replication.throttled.replicas" leader_replication_throttled_replicas: ThrottledReplicas = Some(""), Replicas, Dynamic, [],
        "Leaders that serve followers which are out of sync no faster than leader.replication.throttled.rate of their brokers: partition:broker, or * for all.";
    "local.retention.bytes" local_retention_bytes: i64 = Some("-2"), OnlyDefault, Dynamic,
        [Synonym::same("log.local.retention.bytes")],
        "Tiered storage: bytes kept locally.";
    "local.retention.ms" local_retention_ms: i64 = Some("-2"), OnlyDefault, Dynamic,
        [Synonym::same("log.local.retention.ms")],
        "Tiered storage: time kept locally.";
    "max.compaction.lag.ms" max_compaction_lag_ms: i64 = Some("9223372036854775807"), AtLeast(1), Dynamic,
        [Synonym::same("log.cleaner.max.compaction.lag.ms")],
        "How long a record may stay uncompacted, in milliseconds.";
    "max.message.bytes" max_message_bytes: i32 = Some("1048588"), AtLeast(0), Dynamic,
        [Synonym::same("message.max.bytes")],
        "The largest record batch that is accepted, in bytes, as compressed as it arrives.";
    "message.timestamp.after.max.ms" message_timestamp_after_max_ms: i64 = Some("3600000"), AtLeast(0), Dynamic,
        [Synonym::same("log.message.timestamp.after.max.ms")],
        "How far ahead of the broker's clock a record's timestamp may be, in milliseconds.";
    "message.timestamp.before.max.ms" message_timestamp_before_max_ms: i64 = Some("9223372036854775807"), AtLeast(0), Dynamic,
        [Synonym::same("log.message.timestamp.before.max.ms")],
        "How far behind the broker's clock a record's timestamp may be, in milliseconds.";
    "message.timestamp.type" message_timestamp_type: TimestampType = Some("CreateTime"), OneOf(TimestampType::WORDS), Dynamic,
        [Synonym::same("log.message.timestamp.type")],
        "Whose clock stamps a record: the producer's or the broker's.";
    "min.cleanable.dirty.ratio" min_cleanable_dirty_ratio: f64 = Some("0.5"), Between(0, 1), Dynamic,
        [Synonym::same("log.cleaner.min.cleanable.ratio")],
        "The share of a log that is not compacted yet from which on it is worth compacting.";
    "min.compaction.lag.ms" min_compaction_lag_ms: i64 = Some("0"), AtLeast(0), Dynamic,
        [Synonym::same("log.cleaner.min.compaction.lag.ms")],
        "How long a record stays uncompacted at least, in milliseconds.";
    "min.insync.replicas" min_insync_replicas: i32 = Some("1"), AtLeast(1), Dynamic,
        [Synonym::same("min.insync.replicas")],
        "How many replicas must be in sync for a write with acks=all to be accepted.";
    "preallocate" preallocate: bool = Some("false"), Any, Dynamic,
        [Synonym::same("log.preallocate")],
        "Whether a new segment's file gets its full size at once.";
    "remote.copy.lag.bytes" remote_copy_lag_bytes: i64 = Some("0"), OnlyDefault, Dynamic, [],
        "Tiered storage: bytes that wait for the copy.";
    "remote.copy.lag.ms" remote_copy_lag_ms: i64 = Some("0"), OnlyDefault, Dynamic, [],
        "Tiered storage: time before the copy.";
    "remote.log.copy.disable" remote_log_copy_disable: bool = Some("false"), OnlyDefault, Dynamic, [],
        "Tiered storage: whether copying stops.";
    "remote.log.delete.on.disable" remote_log_delete_on_disable: bool = Some("false"), OnlyDefault, Dynamic, [],
        "Tiered storage: whether switching it off deletes the copies.";
    "remote.storage.enable" remote_storage_enable: bool = Some("false"), OnlyDefault, Dynamic, [],
        "Tiered storage: whether the topic uses it.";
    "retention.bytes" retention_bytes: i64 = Some("-1"), Any, Dynamic,
        [Synonym::same("log.retention.bytes")],
        "How large a partition may grow before its oldest segments go, in bytes; negative is no limit.";
    "retention.ms" retention_ms: i64 = Some("604800000"), AtLeast(-1), Dynamic,
        [Synonym::same("log.retention.ms"), Synonym::minutes("log.retention.minutes"), Synonym::hours("log.retention.hours")],
        "How old a segment may grow before it goes, in milliseconds; -1 is no limit.";
    "segment.bytes" segment_bytes: i32 = Some("1073741824"), AtLeast(1_048_576), Dynamic,
        [Synonym::same("log.segment.bytes")],
        "How large a segment's file may grow, in bytes.";
    "segment.index.bytes" segment_index_bytes: i32 = Some("10485760"), AtLeast(4), Dynamic,
        [Synonym::same("log.index.size.max.bytes")],
        "How large a segment's index may grow before the segment is closed, in bytes.";
    "segment.jitter.ms" segment_jitter_ms: i64 = Some("0"), AtLeast(0), Dynamic,
        [Synonym::same("log.roll.jitter.ms"), Synonym::hours("log.roll.jitter.hours")],
        "At most how much earlier than segment.ms a segment is closed, drawn at random, in milliseconds.";
    "segment.ms" segment_ms: i64 = Some("604800000"), AtLeast(1), Dynamic,
        [Synonym::same("log.roll.ms"), Synonym::hours("log.roll.hours")],
        "After how long a segment is closed even if it is not full, in milliseconds.";
    "taffrail.flush" flush: FlushPolicy = Some("os"), OneOf(FlushPolicy::WORDS), Dynamic,
        [Synonym::same("taffrail.flush")],
        "When a replica counts a record as stored: os when it is in the page cache, ack when it is on the disk.";
    "unclean.leader.election.enable" unclean_leader_election_enable: bool = Some("false"), Any, Dynamic,
        [Synonym::same("unclean.leader.election.enable")],
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.";
    "internal.segment.bytes" internal_segment_bytes: Option<i32> = None, AtLeast(1), Dynamic, [],
        "Overrides segment.bytes below its lower bound, for tests.";
}

impl TopicConfig {
    /// The values of a topic; refuses what [`check_topic`] refuses.
    pub fn from_layers(
        layers: &Layers<'_>,
        topic: &ConfigMap,
    ) -> Result<TopicConfig, ConfigErrors> {
        check_topic(topic)?;
        match Self::lenient(layers, topic) {
            (config, errors) if errors.is_empty() => Ok(config),
            (_, errors) => Err(ConfigErrors(errors)),
        }
    }

    /// The values of a topic that is already committed: what this version cannot read has its default, and is returned
    /// to be reported, since a broker must not stop over it.
    pub fn lenient(layers: &Layers<'_>, topic: &ConfigMap) -> (TopicConfig, Vec<ConfigError>) {
        let mut errors = Vec::new();
        let mut config = TopicConfig::from_lookup(
            |definition| topic_value(definition, layers, topic),
            &mut errors,
        );
        // The broker's log.retention.* take any negative number for "no limit".
        config.retention_ms = config.retention_ms.max(-1);
        (config, errors)
    }

    /// The segment size in bytes that holds: the one for tests where it is set.
    pub fn effective_segment_bytes(&self) -> i32 {
        self.internal_segment_bytes.unwrap_or(self.segment_bytes)
    }

    /// After how long a segment is closed: a compacted topic may not hold records back longer than its compaction lag.
    pub fn effective_segment_ms(&self) -> i64 {
        if self.cleanup_policy.compact {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }
}

impl Default for TopicConfig {
    /// The values of a topic that sets nothing in a cluster that sets nothing.
    fn default() -> Self {
        TopicConfig::from_lookup(|_| None, &mut Vec::new())
    }
}
