//! The configs of a broker: Kafka's names wherever Kafka has the thing, `taffrail.*` where it has not.
//! Names that Kafka knows and Taffrail has no use for are refused with a word about what to write instead.

use std::collections::BTreeSet;

use super::definition::{Allowed, Definition, Update, configs};
use super::error::{ConfigError, ConfigErrors};
use super::hint::broker_hint;
use super::layers::{Layers, broker_value};
use super::listener::{HostPort, Listener, Voter};
use super::value::{
    CleanupPolicy, CompressionType, ConfigValue, FlushPolicy, LogFormat, ReplicaSelector,
    TimestampType,
};
use super::{ConfigMap, broker_definition};

use Allowed::{Any, AtLeast, Between, OneOf, OnlyDefault, Shape, SomeOf};
use Update::{ClusterOnly, Dynamic, ReadOnly};

const LISTENERS: Allowed = Shape("a comma-separated list of NAME://host:port");
const LISTENER_NAME: Allowed = Shape("the name of one of the listeners");

configs! {
    /// The values that hold for one broker after all layers. The `log.*` rows are what topics fall back to.
    pub struct BrokerConfig, table BROKER_CONFIGS;

    // Who the broker is and where it is reached.
    "node.id" node_id: i32 = None, AtLeast(0), ReadOnly, [],
        "The broker's number, unique in the cluster and the same for ever.";
    "cluster.id" cluster_id: Option<String> = None, Shape("up to 64 letters, digits, - or _"), ReadOnly, [],
        "The cluster's identity; a broker refuses log directories of another one.";
    "broker.rack" rack: Option<String> = None, Any, ReadOnly, [],
        "The failure domain the broker stands in; replicas of a partition are spread over them.";
    "log.dirs" log_dirs: Vec<String> = None, Shape("a comma-separated list of folders"), ReadOnly, [],
        "The log directories; a new replica goes to the one with the fewest partitions.";
    "listeners" listeners: Vec<Listener> = Some("INTERNAL://:9093,PLAINTEXT://:9092"), LISTENERS, ReadOnly, [],
        "Where the broker listens: NAME://host:port, an empty host for every address.";
    "advertised.listeners" advertised_listeners: Vec<Listener> = Some(""), LISTENERS, ReadOnly, [],
        "What clients and brokers are told to connect to; a listener that is not named here is told with its own host if it has one, else the operator supplies its address.";
    "taffrail.rack.required" rack_required: bool = Some("false"), Any, ReadOnly, [],
        "Whether this broker waits until it has a rack, of its own or from the operator, before it takes replicas and serves.";
    "inter.broker.listener.name" inter_broker_listener_name: String = Some("INTERNAL"), LISTENER_NAME, ReadOnly, [],
        "The listener that brokers use among themselves; the private APIs are served nowhere else.";
    "listener.security.protocol.map" listener_security_protocol_map: Vec<String> = Some(""), Shape("a comma-separated list of NAME:PLAINTEXT"), ReadOnly, [],
        "The protocol of each listener; PLAINTEXT is the only one yet.";
    "controller.quorum.voters" controller_quorum_voters: Vec<Voter> = Some(""), Shape("a comma-separated list of id@host:port"), ReadOnly, [],
        "The brokers that keep the metadata, with the addresses of their internal listeners; empty makes this broker the only one.";

    // Connections and requests.
    "socket.request.max.bytes" socket_request_max_bytes: i32 = Some("104857600"), AtLeast(1), ReadOnly, [],
        "The largest request, in bytes; a connection that announces a larger one is closed.";
    "socket.send.buffer.bytes" socket_send_buffer_bytes: i32 = Some("-1"), AtLeast(-1), ReadOnly, [],
        "SO_SNDBUF of client sockets, in bytes; -1 leaves it to the operating system.";
    "socket.receive.buffer.bytes" socket_receive_buffer_bytes: i32 = Some("-1"), AtLeast(-1), ReadOnly, [],
        "SO_RCVBUF of client sockets, in bytes; -1 leaves it to the operating system.";
    "socket.listen.backlog.size" socket_listen_backlog_size: i32 = Some("1024"), AtLeast(1), ReadOnly, [],
        "How many connections may wait to be accepted.";
    "max.connections" max_connections: i32 = Some("2147483647"), AtLeast(0), ReadOnly, [],
        "How many client connections the broker holds; the file descriptor limit may set a lower bound.";
    "max.connections.per.ip" max_connections_per_ip: i32 = Some("2147483647"), AtLeast(0), ReadOnly, [],
        "How many of them may come from one address.";
    "connections.max.idle.ms" connections_max_idle_ms: i64 = Some("600000"), Any, ReadOnly, [],
        "After how long without traffic a connection is closed, in milliseconds; negative for never.";
    "request.timeout.ms" request_timeout_ms: i32 = Some("30000"), AtLeast(1), ReadOnly, [],
        "How long the broker waits for an answer of another broker, in milliseconds.";
    "queued.max.request.bytes" queued_max_request_bytes: i64 = Some("268435456"), Shape("an integer of at least 1, or -1 for no limit"), ReadOnly, [],
        "How many bytes of large requests all connections may hold in memory; beyond it new ones wait in their sockets.";
    "taffrail.connection.requests.max" connection_requests_max: i32 = Some("64"), Between(1, 10_000), ReadOnly, [],
        "How many requests of one connection may wait for their answer before it is read no further.";
    "taffrail.worker.threads" worker_threads: i32 = Some("0"), Between(0, 1024), ReadOnly, [],
        "How many threads serve connections; 0 for as many as there are cores.";
    "background.threads" background_threads: i32 = Some("2"), AtLeast(1), ReadOnly, [],
        "How many threads do slow file work: flush, retention, deletion.";

    // Topics.
    "num.partitions" num_partitions: i32 = Some("1"), AtLeast(1), ClusterOnly, [],
        "Partitions of a topic whose creator names no number.";
    "default.replication.factor" default_replication_factor: i32 = Some("1"), AtLeast(1), ClusterOnly, [],
        "Replicas of a partition whose creator names no number.";
    "auto.create.topics.enable" auto_create_topics_enable: bool = Some("true"), Any, ReadOnly, [],
        "Whether asking for a topic that does not exist creates it.";
    "delete.topic.enable" delete_topic_enable: bool = Some("true"), Any, ReadOnly, [],
        "Whether topics can be deleted.";
    "min.insync.replicas" min_insync_replicas: i32 = Some("1"), AtLeast(1), ClusterOnly, [],
        "How many replicas must be in sync for a write with acks=all, where the topic says nothing.";
    "unclean.leader.election.enable" unclean_leader_election_enable: bool = Some("false"), Any, ClusterOnly, [],
        "Whether a replica that is not in sync may lead as a last resort, where the topic says nothing.";
    "message.max.bytes" message_max_bytes: i32 = Some("1048588"), AtLeast(0), Dynamic, [],
        "The largest record batch, in bytes, where the topic says nothing.";
    "compression.type" compression_type: CompressionType = Some("producer"), OneOf(CompressionType::WORDS), Dynamic, [],
        "The stored codec, where the topic says nothing.";
    "compression.gzip.level" compression_gzip_level: i32 = Some("-1"), Between(-1, 9), Dynamic, [],
        "The gzip level, where the topic says nothing.";
    "compression.lz4.level" compression_lz4_level: i32 = Some("9"), Between(1, 17), Dynamic, [],
        "The lz4 level, where the topic says nothing.";
    "compression.zstd.level" compression_zstd_level: i32 = Some("3"), Between(-131_072, 22), Dynamic, [],
        "The zstd level, where the topic says nothing.";
    "taffrail.flush" flush: FlushPolicy = Some("os"), OneOf(FlushPolicy::WORDS), ClusterOnly, [],
        "When a record counts as stored, where the topic says nothing.";

    // What topics fall back to.
    "log.cleanup.policy" log_cleanup_policy: CleanupPolicy = Some("delete"), SomeOf(&["compact", "delete"]), Dynamic, [],
        "cleanup.policy, where the topic says nothing.";
    "log.cleaner.delete.retention.ms" log_cleaner_delete_retention_ms: i64 = Some("86400000"), AtLeast(0), Dynamic, [],
        "delete.retention.ms, where the topic says nothing.";
    "log.cleaner.max.compaction.lag.ms" log_cleaner_max_compaction_lag_ms: i64 = Some("9223372036854775807"), AtLeast(1), Dynamic, [],
        "max.compaction.lag.ms, where the topic says nothing.";
    "log.cleaner.min.cleanable.ratio" log_cleaner_min_cleanable_ratio: f64 = Some("0.5"), Between(0, 1), Dynamic, [],
        "min.cleanable.dirty.ratio, where the topic says nothing.";
    "log.cleaner.min.compaction.lag.ms" log_cleaner_min_compaction_lag_ms: i64 = Some("0"), AtLeast(0), Dynamic, [],
        "min.compaction.lag.ms, where the topic says nothing.";
    "log.flush.interval.messages" log_flush_interval_messages: i64 = Some("9223372036854775807"), AtLeast(1), Dynamic, [],
        "flush.messages, where the topic says nothing.";
    "log.flush.interval.ms" log_flush_interval_ms: Option<i64> = None, AtLeast(0), Dynamic, [],
        "flush.ms, where the topic says nothing; not set takes log.flush.scheduler.interval.ms.";
    "log.flush.scheduler.interval.ms" log_flush_scheduler_interval_ms: i64 = Some("9223372036854775807"), AtLeast(1), ReadOnly, [],
        "How often logs are looked through for one that must be flushed, in milliseconds.";
    "log.index.interval.bytes" log_index_interval_bytes: i32 = Some("4096"), AtLeast(0), Dynamic, [],
        "index.interval.bytes, where the topic says nothing.";
    "log.index.size.max.bytes" log_index_size_max_bytes: i32 = Some("10485760"), AtLeast(4), Dynamic, [],
        "segment.index.bytes, where the topic says nothing.";
    "log.local.retention.bytes" log_local_retention_bytes: i64 = Some("-2"), OnlyDefault, ReadOnly, [],
        "Tiered storage: bytes kept locally.";
    "log.local.retention.ms" log_local_retention_ms: i64 = Some("-2"), OnlyDefault, ReadOnly, [],
        "Tiered storage: time kept locally.";
    "log.message.timestamp.after.max.ms" log_message_timestamp_after_max_ms: i64 = Some("3600000"), AtLeast(0), Dynamic, [],
        "message.timestamp.after.max.ms, where the topic says nothing.";
    "log.message.timestamp.before.max.ms" log_message_timestamp_before_max_ms: i64 = Some("9223372036854775807"), AtLeast(0), Dynamic, [],
        "message.timestamp.before.max.ms, where the topic says nothing.";
    "log.message.timestamp.type" log_message_timestamp_type: TimestampType = Some("CreateTime"), OneOf(TimestampType::WORDS), Dynamic, [],
        "message.timestamp.type, where the topic says nothing.";
    "log.preallocate" log_preallocate: bool = Some("false"), Any, Dynamic, [],
        "preallocate, where the topic says nothing.";
    "log.retention.bytes" log_retention_bytes: i64 = Some("-1"), Any, Dynamic, [],
        "retention.bytes, where the topic says nothing.";
    "log.retention.hours" log_retention_hours: i32 = Some("168"), Any, ReadOnly, [],
        "How many hours a segment is kept, where neither minutes nor milliseconds are given.";
    "log.retention.minutes" log_retention_minutes: Option<i32> = None, Any, ReadOnly, [],
        "How many minutes a segment is kept, where no milliseconds are given.";
    "log.retention.ms" log_retention_ms: Option<i64> = None, Any, Dynamic, [],
        "retention.ms, where the topic says nothing.";
    "log.roll.hours" log_roll_hours: i32 = Some("168"), AtLeast(1), ReadOnly, [],
        "After how many hours a segment is closed, where no milliseconds are given.";
    "log.roll.jitter.hours" log_roll_jitter_hours: i32 = Some("0"), AtLeast(0), ReadOnly, [],
        "segment.jitter.ms in hours, where no milliseconds are given.";
    "log.roll.jitter.ms" log_roll_jitter_ms: Option<i64> = None, AtLeast(0), Dynamic, [],
        "segment.jitter.ms, where the topic says nothing.";
    "log.roll.ms" log_roll_ms: Option<i64> = None, AtLeast(1), Dynamic, [],
        "segment.ms, where the topic says nothing.";
    "log.segment.bytes" log_segment_bytes: i32 = Some("1073741824"), AtLeast(1_048_576), Dynamic, [],
        "segment.bytes, where the topic says nothing.";
    "log.segment.delete.delay.ms" log_segment_delete_delay_ms: i64 = Some("60000"), AtLeast(0), Dynamic, [],
        "file.delete.delay.ms, where the topic says nothing.";

    // The logs' upkeep.
    "log.retention.check.interval.ms" log_retention_check_interval_ms: i64 = Some("300000"), AtLeast(1), ReadOnly, [],
        "How often logs are looked through for segments that retention removes, in milliseconds.";
    "log.flush.offset.checkpoint.interval.ms" log_flush_offset_checkpoint_interval_ms: i32 = Some("60000"), AtLeast(1), ReadOnly, [],
        "How often the recovery points are written down, in milliseconds.";
    "log.flush.start.offset.checkpoint.interval.ms" log_flush_start_offset_checkpoint_interval_ms: i32 = Some("60000"), AtLeast(1), ReadOnly, [],
        "How often the log start offsets are written down, in milliseconds.";
    "replica.high.watermark.checkpoint.interval.ms" replica_high_watermark_checkpoint_interval_ms: i64 = Some("5000"), AtLeast(1), ReadOnly, [],
        "How often the high watermarks are written down, in milliseconds.";
    "taffrail.unflushed.bytes.max" unflushed_bytes_max: i64 = Some("2147483648"), AtLeast(1), ReadOnly, [],
        "How many appended bytes of all logs together may wait for their fsync, in the background; a start after a kill reads about as many, whatever the size of the logs.";
    "taffrail.disk.reserve.bytes" disk_reserve_bytes: i64 = Some("-1"), AtLeast(-1), ReadOnly, [],
        "How many bytes of each log directory's volume are kept free: below it producers are refused, replication and the brokers' own topics go on for a while, reads and deletions always; -1 for a twentieth of the volume, at most 1 GiB.";
    "taffrail.scrub.interval.ms" scrub_interval_ms: i64 = Some("604800000"), AtLeast(-1), ReadOnly, [],
        "How often every closed segment is read through and its checksums compared, in milliseconds; -1 for never.";
    "taffrail.scrub.bytes.per.second" scrub_bytes_per_second: i64 = Some("8388608"), AtLeast(1), ReadOnly, [],
        "How many bytes a second are read for that.";
    "num.recovery.threads.per.data.dir" num_recovery_threads_per_data_dir: i32 = Some("2"), AtLeast(1), ReadOnly, [],
        "How many threads read the logs of one directory at start.";
    "log.cleaner.threads" log_cleaner_threads: i32 = Some("1"), AtLeast(1), ReadOnly, [],
        "How many threads compact logs.";
    "log.cleaner.backoff.ms" log_cleaner_backoff_ms: i64 = Some("15000"), AtLeast(0), ReadOnly, [],
        "How long compaction rests when nothing is worth compacting, in milliseconds.";
    "log.cleaner.dedupe.buffer.size" log_cleaner_dedupe_buffer_size: i64 = Some("134217728"), AtLeast(1_048_576), ReadOnly, [],
        "How much memory compaction uses to remember keys, in bytes.";

    // Replication.
    "replica.lag.time.max.ms" replica_lag_time_max_ms: i64 = Some("30000"), AtLeast(1), ReadOnly, [],
        "How long a follower may go without having caught up before it is out of sync, in milliseconds.";
    "replica.lag.max.messages" replica_lag_max_messages: i64 = Some("-1"), AtLeast(-1), ReadOnly, [],
        "How many records a follower may be behind before it is out of sync; -1 for no such rule.";
    "replica.fetch.max.bytes" replica_fetch_max_bytes: i32 = Some("1048576"), AtLeast(0), ReadOnly, [],
        "How many bytes of one partition a follower asks for at once; a larger first batch still comes whole.";
    "replica.fetch.response.max.bytes" replica_fetch_response_max_bytes: i32 = Some("10485760"), AtLeast(0), ReadOnly, [],
        "How many bytes of all partitions together a follower asks for at once.";
    "replica.fetch.min.bytes" replica_fetch_min_bytes: i32 = Some("1"), AtLeast(0), ReadOnly, [],
        "How many bytes a follower waits for.";
    "replica.fetch.wait.max.ms" replica_fetch_wait_max_ms: i32 = Some("500"), AtLeast(1), ReadOnly, [],
        "How long a follower waits for them, in milliseconds.";
    "replica.fetch.backoff.ms" replica_fetch_backoff_ms: i32 = Some("1000"), AtLeast(0), ReadOnly, [],
        "How long a follower rests after an error, in milliseconds.";
    "replica.socket.timeout.ms" replica_socket_timeout_ms: i32 = Some("30000"), AtLeast(1), ReadOnly, [],
        "How long a follower waits for its leader's answer, in milliseconds.";
    "leader.replication.throttled.rate" leader_replication_throttled_rate: i64 = Some("9223372036854775807"), AtLeast(0), Dynamic, [],
        "How many bytes a second this broker sends as leader to replicas that leader.replication.throttled.replicas names and that are out of sync.";
    "follower.replication.throttled.rate" follower_replication_throttled_rate: i64 = Some("9223372036854775807"), AtLeast(0), Dynamic, [],
        "How many bytes a second this broker fetches for its replicas that follower.replication.throttled.replicas names and that are out of sync.";
    "replication.quota.window.num" replication_quota_window_num: i32 = Some("11"), AtLeast(1), ReadOnly, [],
        "In how many windows the bytes of throttled replicas are counted.";
    "replication.quota.window.size.seconds" replication_quota_window_size_seconds: i32 = Some("1"), AtLeast(1), ReadOnly, [],
        "How long each of them is, in seconds.";
    "replica.alter.log.dirs.io.max.bytes.per.second" replica_alter_log_dirs_io_max_bytes_per_second: i64 = Some("9223372036854775807"), AtLeast(0), Dynamic, [],
        "How many bytes a second this broker copies for replicas that move from one of its log directories to another.";
    "alter.log.dirs.replication.quota.window.num" alter_log_dirs_quota_window_num: i32 = Some("11"), AtLeast(1), ReadOnly, [],
        "In how many windows those bytes are counted.";
    "alter.log.dirs.replication.quota.window.size.seconds" alter_log_dirs_quota_window_size_seconds: i32 = Some("1"), AtLeast(1), ReadOnly, [],
        "How long each of them is, in seconds.";
    "replica.selector.class" replica_selector: Option<ReplicaSelector> = None, OneOf(ReplicaSelector::WORDS), ReadOnly, [],
        "Where consumers read: with the rack-aware selector from an in-sync replica in their own rack (client.rack), else from the leader.";
    "auto.leader.rebalance.enable" auto_leader_rebalance_enable: bool = Some("true"), Any, ReadOnly, [],
        "Whether leadership goes back to each partition's first replica by itself.";
    "leader.imbalance.check.interval.seconds" leader_imbalance_check_interval_seconds: i64 = Some("300"), AtLeast(1), ReadOnly, [],
        "How often that is looked at, in seconds.";
    "leader.imbalance.per.broker.percentage" leader_imbalance_per_broker_percentage: i32 = Some("10"), AtLeast(0), ReadOnly, [],
        "How much of what it should lead a broker may lack without it being given back, in percent.";

    // Controller and membership.
    "broker.session.timeout.ms" broker_session_timeout_ms: i32 = Some("3000"), AtLeast(100), ReadOnly, [],
        "After how long without a heartbeat a broker is fenced and its partitions get other leaders, in milliseconds.";
    "broker.heartbeat.interval.ms" broker_heartbeat_interval_ms: i32 = Some("500"), AtLeast(10), ReadOnly, [],
        "How often a broker tells the controller that it lives, in milliseconds.";
    "controller.quorum.election.timeout.ms" controller_quorum_election_timeout_ms: i32 = Some("1000"), AtLeast(100), ReadOnly, [],
        "How long a voter waits for the controller before it stands for election, in milliseconds.";
    "metadata.log.dir" metadata_log_dir: Option<String> = None, Any, ReadOnly, [],
        "Where the folder of the metadata log is; the first of log.dirs if not set. It gets a meta.properties with an id of its own.";
    "metadata.log.max.record.bytes.between.snapshots" metadata_log_max_record_bytes_between_snapshots: i64 = Some("20971520"), AtLeast(1), ReadOnly, [],
        "How many bytes of metadata records are kept before a snapshot replaces them.";
    "controlled.shutdown.enable" controlled_shutdown_enable: bool = Some("true"), Any, ReadOnly, [],
        "Whether a broker hands its leadership over before it stops.";
    "taffrail.shutdown.timeout.ms" shutdown_timeout_ms: i64 = Some("25000"), AtLeast(100), ReadOnly, [],
        "How long a stopping broker may take for that and for its last flush, in milliseconds.";

    // Groups.
    "group.min.session.timeout.ms" group_min_session_timeout_ms: i32 = Some("6000"), AtLeast(0), ReadOnly, [],
        "The shortest session timeout a group member may ask for, in milliseconds.";
    "group.max.session.timeout.ms" group_max_session_timeout_ms: i32 = Some("1800000"), AtLeast(0), ReadOnly, [],
        "The longest session timeout a group member may ask for, in milliseconds.";
    "group.initial.rebalance.delay.ms" group_initial_rebalance_delay_ms: i32 = Some("3000"), AtLeast(0), ReadOnly, [],
        "How long a new group waits for more members before it assigns partitions, in milliseconds.";
    "group.max.size" group_max_size: i32 = Some("2147483647"), AtLeast(1), ReadOnly, [],
        "How many members a group may have.";
    "offset.metadata.max.bytes" offset_metadata_max_bytes: i32 = Some("4096"), AtLeast(0), ReadOnly, [],
        "How long the text beside a committed offset may be, in bytes.";
    "offsets.commit.timeout.ms" offsets_commit_timeout_ms: i32 = Some("5000"), AtLeast(1), ReadOnly, [],
        "How long a commit waits for replication, in milliseconds.";
    "offsets.retention.minutes" offsets_retention_minutes: i32 = Some("10080"), AtLeast(1), ReadOnly, [],
        "How long the offsets of a group without members are kept, in minutes.";
    "offsets.retention.check.interval.ms" offsets_retention_check_interval_ms: i64 = Some("600000"), AtLeast(1), ReadOnly, [],
        "How often expired offsets are looked for, in milliseconds.";
    "offsets.topic.num.partitions" offsets_topic_num_partitions: i32 = Some("50"), AtLeast(1), ReadOnly, [],
        "Partitions of __consumer_offsets when it is created; groups are spread over them.";
    "offsets.topic.replication.factor" offsets_topic_replication_factor: i16 = Some("3"), AtLeast(1), ReadOnly, [],
        "Replicas of __consumer_offsets when it is created; fewer if there are fewer brokers.";
    "offsets.topic.segment.bytes" offsets_topic_segment_bytes: i32 = Some("104857600"), AtLeast(1), ReadOnly, [],
        "segment.bytes of __consumer_offsets.";

    // Producers and consumers.
    "producer.id.expiration.ms" producer_id_expiration_ms: i32 = Some("86400000"), AtLeast(1), ReadOnly, [],
        "How long the sequence numbers of a silent producer are remembered, in milliseconds.";
    "producer.id.expiration.check.interval.ms" producer_id_expiration_check_interval_ms: i32 = Some("600000"), AtLeast(1), ReadOnly, [],
        "How often silent producers are looked for, in milliseconds.";
    "fetch.max.bytes" fetch_max_bytes: i32 = Some("57671680"), AtLeast(1024), ReadOnly, [],
        "The most that one Fetch gets, in bytes, whatever it asks for; a larger first batch still comes whole.";
    "max.incremental.fetch.session.cache.slots" max_incremental_fetch_session_cache_slots: i32 = Some("1000"), AtLeast(0), ReadOnly, [],
        "How many fetch sessions are remembered; some for other brokers are in any case.";
    "max.request.partition.size.limit" max_request_partition_size_limit: i32 = Some("2000"), AtLeast(1), ReadOnly, [],
        "How many partitions one DescribeTopicPartitions returns.";

    // The program itself.
    "taffrail.metrics.listener" metrics_listener: HostPort = Some("0.0.0.0:9404"), Shape("host:port"), ReadOnly, [],
        "Where /metrics, the probes and the read-only page are served; an empty host for every address.";
    "taffrail.metrics.per.partition" metrics_per_partition: bool = Some("false"), Any, ReadOnly, [],
        "Whether /metrics has series of each partition; ten thousand partitions make a large page.";
    "taffrail.log.format" log_format: LogFormat = Some("text"), OneOf(LogFormat::WORDS), ReadOnly, [],
        "How log lines look: text for people, json for machines.";
    "taffrail.log.level" log_level: String = Some("info"), Shape("a tracing filter such as info or info,taffrail_node=debug"), ReadOnly, [],
        "Which log lines are written.";
}

impl BrokerConfig {
    /// Reads and checks a broker's file (environment overrides already merged), reporting everything that is wrong.
    pub fn from_file(file: &ConfigMap) -> Result<BrokerConfig, ConfigErrors> {
        let mut errors: Vec<ConfigError> = file
            .keys()
            .filter(|name| broker_definition(name).is_none())
            .map(|name| ConfigError::Unknown {
                name: name.clone(),
                hint: broker_hint(name),
            })
            .collect();
        let config = Self::from_lookup(
            |definition| broker_value(definition, &Layers::of_file(file)),
            &mut errors,
        );
        if errors.is_empty() {
            config.check_together(&mut errors);
        }
        if errors.is_empty() {
            Ok(config)
        } else {
            Err(ConfigErrors(errors))
        }
    }

    /// The values that hold once committed configs are known; what this version cannot read has its default, and is
    /// returned to be reported, since a broker must not stop over what is committed.
    pub fn lenient(layers: &Layers<'_>) -> (BrokerConfig, Vec<ConfigError>) {
        let mut errors = Vec::new();
        let config = Self::from_lookup(|definition| broker_value(definition, layers), &mut errors);
        (config, errors)
    }

    /// The listener that brokers use among themselves.
    pub fn internal_listener(&self) -> Option<&Listener> {
        self.listeners
            .iter()
            .find(|listener| listener.name == self.inter_broker_listener_name)
    }

    /// What others may be told to connect to: the advertised address of each listener, or its own where that names a
    /// host. A listener that has neither is left out until the operator supplies its address.
    pub fn advertised(&self) -> Vec<Listener> {
        self.listeners
            .iter()
            .filter_map(|listener| {
                let advertised = self
                    .advertised_listeners
                    .iter()
                    .find(|advertised| advertised.name == listener.name);
                advertised
                    .or((!listener.is_wildcard()).then_some(listener))
                    .cloned()
            })
            .collect()
    }

    /// Rules that join several configs.
    fn check_together(&self, errors: &mut Vec<ConfigError>) {
        let mut conflict = |name: &str, value: String, reason: String| {
            errors.push(ConfigError::Conflict {
                name: name.to_string(),
                value,
                reason,
            });
        };
        if self.log_dirs.is_empty() {
            conflict("log.dirs", String::new(), "names no folder".to_string());
        }
        if let Some(twice) = first_repeated(&self.log_dirs) {
            conflict("log.dirs", twice.clone(), "is named twice".to_string());
        }
        if let Some(cluster_id) = &self.cluster_id
            && !is_cluster_id(cluster_id)
        {
            conflict(
                "cluster.id",
                cluster_id.clone(),
                "must be 1 to 64 letters, digits, - or _".to_string(),
            );
        }
        let names: Vec<String> = self
            .listeners
            .iter()
            .map(|listener| listener.name.clone())
            .collect();
        if let Some(twice) = first_repeated(&names) {
            conflict("listeners", twice.clone(), "is named twice".to_string());
        }
        let places: Vec<(String, u16)> = self
            .listeners
            .iter()
            .filter(|listener| listener.port != 0)
            .map(|listener| (listener.host.clone(), listener.port))
            .collect();
        if let Some((host, port)) = first_repeated(&places) {
            conflict(
                "listeners",
                format!("{host}:{port}"),
                "is used by two listeners".to_string(),
            );
        }
        if self.internal_listener().is_none() {
            conflict(
                "inter.broker.listener.name",
                self.inter_broker_listener_name.clone(),
                format!("is not one of the listeners: {}", names.join(", ")),
            );
        }
        for advertised in &self.advertised_listeners {
            if !names.contains(&advertised.name) {
                conflict(
                    "advertised.listeners",
                    advertised.to_string(),
                    format!(
                        "has a name that is not one of the listeners: {}",
                        names.join(", ")
                    ),
                );
            } else if advertised.is_wildcard() {
                conflict(
                    "advertised.listeners",
                    advertised.to_string(),
                    "names no host that a client could connect to".to_string(),
                );
            }
        }
        for mapping in &self.listener_security_protocol_map {
            if mapping
                .split_once(':')
                .is_none_or(|(_, protocol)| protocol != "PLAINTEXT")
            {
                conflict(
                    "listener.security.protocol.map",
                    mapping.clone(),
                    "must be NAME:PLAINTEXT, the only protocol there is yet".to_string(),
                );
            }
        }
        let ids: Vec<i32> = self
            .controller_quorum_voters
            .iter()
            .map(|voter| voter.id)
            .collect();
        if let Some(twice) = first_repeated(&ids) {
            conflict(
                "controller.quorum.voters",
                twice.to_string(),
                "is named twice".to_string(),
            );
        }
        if self.queued_max_request_bytes != -1 && self.queued_max_request_bytes < 1 {
            conflict(
                "queued.max.request.bytes",
                self.queued_max_request_bytes.to_string(),
                "must be at least 1, or -1 for no limit".to_string(),
            );
        }
        for (low_name, low, high_name, high) in [
            (
                "broker.heartbeat.interval.ms",
                i64::from(self.broker_heartbeat_interval_ms),
                "half of broker.session.timeout.ms",
                i64::from(self.broker_session_timeout_ms) / 2,
            ),
            (
                "group.min.session.timeout.ms",
                i64::from(self.group_min_session_timeout_ms),
                "group.max.session.timeout.ms",
                i64::from(self.group_max_session_timeout_ms),
            ),
            (
                "replica.fetch.wait.max.ms",
                i64::from(self.replica_fetch_wait_max_ms),
                "replica.lag.time.max.ms",
                self.replica_lag_time_max_ms,
            ),
            (
                "log.cleaner.min.compaction.lag.ms",
                self.log_cleaner_min_compaction_lag_ms,
                "log.cleaner.max.compaction.lag.ms",
                self.log_cleaner_max_compaction_lag_ms,
            ),
        ] {
            if low > high {
                conflict(
                    low_name,
                    low.to_string(),
                    format!("must not be more than {high_name}, {high}"),
                );
            }
        }
    }
}

impl Default for BrokerConfig {
    /// Every default; `node.id` is 0 and `log.dirs` is empty, which no file may leave so.
    fn default() -> Self {
        BrokerConfig::from_lookup(|_| None, &mut Vec::new())
    }
}

fn is_cluster_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn first_repeated<T: Ord>(items: &[T]) -> Option<&T> {
    let mut seen = BTreeSet::new();
    items.iter().find(|item| !seen.insert(*item))
}
