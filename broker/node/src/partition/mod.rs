//! One replica of one partition: its log, its role, its producers and who waits for it, behind one lock.
//! The decisions are the cores'; here is the order in which log, core and waiters learn of an event.

mod append;
mod flush;
mod follow;
mod lead_proof;
mod lookup;
mod moving;
mod read;
mod refused;
mod repair;
mod role;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use taffrail_core::config::{FlushPolicy, ThrottledReplicas, TopicConfig};
use taffrail_core::error::ErrorKind;
use taffrail_core::ids::{BrokerId, LeaderEpoch, TopicPartition};
use taffrail_core::producer::Producers;
use taffrail_core::replica::{Effect, Follower, Lag, Leader, LocalLog, OutOfSync};
use taffrail_core::time::Instant;
use taffrail_log::{CheckpointKind, Log, LogConfig, LogError};

use self::lead_proof::ProofWaiters;
use crate::env::Env;
use crate::metrics::TopicMetrics;
use crate::replication::{
    FlushQueue, Impairments, IsrProposals, Suspects, Throttles, Waiter, Waiters,
};

pub(crate) use append::{AppendRequest, ProduceRefusal, producer_batch};
pub(crate) use flush::ReplicaFlush;
pub(crate) use follow::FollowerStep;
pub(crate) use lookup::SEARCHES_MAX;
pub(crate) use moving::{CopyNumbers, Leftover, MoveStep};
pub(crate) use read::{Fetcher, Isolation, Nearby, OwnReadError, ReadRequest, ReadResult};
pub(crate) use repair::Repair;
pub(crate) use role::RoleChange;

/// One replica that this broker holds.
pub(crate) struct Partition<E: Env> {
    pub(crate) id: TopicPartition,
    pub(crate) topic: Arc<str>,
    me: BrokerId,
    metrics: Arc<TopicMetrics>,
    proposals: Arc<IsrProposals>,
    flushes: Arc<FlushQueue>,
    throttles: Arc<Throttles>,
    throttled: Throttled,
    impairments: Arc<Impairments>,
    suspects: Arc<Suspects>,
    /// What validation needs, readable without the replica's lock.
    log_config: RwLock<Arc<LogConfig>>,
    /// Locked before the replica.
    moving: Mutex<moving::Moving<E>>,
    replica: Mutex<Replica<E>>,
}

/// What the lock guards.
struct Replica<E: Env> {
    /// None once the replica was deleted or closed.
    log: Option<Log<E::Disk>>,
    /// Counts the logs that it had: another one after each move to another log directory.
    log_number: u64,
    role: Role,
    producers: Producers,
    settings: taffrail_core::replica::Settings,
    flush_ack: bool,
    /// Whether the last records of the leader could not be appended.
    append_failing: bool,
    /// Whether they could not for want of room.
    full: bool,
    /// Whether its log is damaged.
    soundness: repair::Soundness,
    refused_sequences: refused::RefusedSequences,
    /// Followers that ask for the same data again and again, and how often they did.
    stuck: BTreeMap<BrokerId, (i64, u32)>,
    /// Whether it was taken out of service with its log directory.
    told_offline: bool,
    /// Exclusive end of what may be shown, kept over changes of role.
    high_watermark: i64,
    waiters: Waiters,
    /// Who waits for a proof that nobody else leads.
    proof_waiters: ProofWaiters,
    /// Who waits for the low watermark to move (DeleteRecords).
    low_watermark_waiters: Vec<Arc<Waiter>>,
    /// Bytes appended that consumers have not been credited with.
    unseen_bytes: i64,
    /// Bytes of these that consumers were credited with, but not those that wait for transactions to end.
    unstable_bytes: i64,
    /// Kept to be filled again.
    effects: Vec<Effect>,
}

/// What this replica is to its partition.
enum Role {
    /// Nobody leads, or the metadata has not said yet.
    Idle,
    Leader(Leader),
    Follower(Follower),
}

/// The numbers of a replica at one moment.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaNumbers {
    pub(crate) role: &'static str,
    pub(crate) log_start_offset: i64,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_end_offset: i64,
    pub(crate) low_watermark: Option<i64>,
    pub(crate) size: u64,
    /// Every other replica, for a leader.
    pub(crate) followers: Vec<FollowerNumbers>,
    pub(crate) isr_len: usize,
    pub(crate) min_isr: usize,
    pub(crate) replicas: usize,
    /// Whether its log is damaged or being fetched anew.
    pub(crate) damage: Option<&'static str>,
}

/// A follower as its leader sees it at one moment.
#[derive(Debug, Clone)]
pub(crate) struct FollowerNumbers {
    pub(crate) broker: BrokerId,
    pub(crate) log_end_offset: Option<i64>,
    pub(crate) lag: Lag,
    /// Why it is not in the ISR; none if it is.
    pub(crate) out_of_sync: Option<OutOfSync>,
}

/// What a replica is made with.
pub(crate) struct PartitionParts<E: Env> {
    pub(crate) id: TopicPartition,
    pub(crate) topic: Arc<str>,
    pub(crate) me: BrokerId,
    pub(crate) metrics: Arc<TopicMetrics>,
    pub(crate) proposals: Arc<IsrProposals>,
    pub(crate) flushes: Arc<FlushQueue>,
    pub(crate) throttles: Arc<Throttles>,
    pub(crate) impairments: Arc<Impairments>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) log: Log<E::Disk>,
    pub(crate) producers: Producers,
    pub(crate) config: TopicConfig,
    pub(crate) settings: taffrail_core::replica::Settings,
}

/// Whether the topic wants this replica throttled while a follower is out of sync.
#[derive(Debug, Default)]
struct Throttled {
    as_leader: AtomicBool,
    as_follower: AtomicBool,
}

impl Throttled {
    fn set(&self, config: &TopicConfig, id: TopicPartition, me: BrokerId) {
        let leaders = &config.leader_replication_throttled_replicas;
        let followers = &config.follower_replication_throttled_replicas;
        let here = |replicas: &ThrottledReplicas| replicas.contains(id.partition, me.0);
        self.as_leader.store(here(leaders), Ordering::Relaxed);
        self.as_follower.store(here(followers), Ordering::Relaxed);
    }
}

impl<E: Env> Partition<E> {
    /// A replica whose log is open; its role comes with the metadata.
    pub(crate) fn new(parts: PartitionParts<E>) -> Arc<Self> {
        let PartitionParts {
            id,
            topic,
            me,
            metrics,
            proposals,
            flushes,
            throttles,
            impairments,
            suspects,
            log,
            producers,
            config,
            settings,
        } = parts;
        let throttled = Throttled::default();
        throttled.set(&config, id, me);
        let checkpointed =
            log.directory()
                .checkpointed(CheckpointKind::HighWatermark, &topic, id.partition);
        let high_watermark = checkpointed
            .unwrap_or(log.log_start_offset())
            .clamp(log.log_start_offset(), log.log_end_offset());
        let log_config = RwLock::new(Arc::clone(log.config()));
        Arc::new(Self {
            id,
            topic,
            me,
            metrics,
            proposals,
            flushes,
            throttles,
            throttled,
            impairments,
            suspects,
            log_config,
            moving: Mutex::default(),
            replica: Mutex::new(Replica {
                log: Some(log),
                log_number: 0,
                role: Role::Idle,
                producers,
                settings,
                flush_ack: config.flush == FlushPolicy::Ack,
                append_failing: false,
                full: false,
                soundness: repair::Soundness::default(),
                refused_sequences: refused::RefusedSequences::default(),
                stuck: BTreeMap::new(),
                told_offline: false,
                high_watermark,
                waiters: Waiters::default(),
                proof_waiters: ProofWaiters::default(),
                low_watermark_waiters: Vec::new(),
                unseen_bytes: 0,
                unstable_bytes: 0,
                effects: Vec::new(),
            }),
        })
    }

    /// Kafka's name of the partition, for logs and pages.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.topic, self.id.partition)
    }

    /// The settings of its log.
    pub(crate) fn log_config(&self) -> Arc<LogConfig> {
        Arc::clone(&self.log_config.read().expect("no panic while locked"))
    }

    /// Whether this replica is throttled while it follows and is out of sync.
    pub(crate) fn is_throttled_follower(&self) -> bool {
        self.throttled.as_follower.load(Ordering::Relaxed)
    }

    /// Whether the replica was deleted or closed, so that nobody may hold on to it.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock().log.is_none()
    }

    /// The directory that holds it and its size in bytes, unless it is gone.
    pub(crate) fn placement(&self) -> Option<(std::path::PathBuf, u64)> {
        let replica = self.lock();
        let log = replica.log.as_ref()?;
        Some((log.directory().path().to_owned(), log.size()))
    }

    /// Whether its log is in this log directory.
    pub(crate) fn is_in(&self, directory: &std::path::Path) -> bool {
        let replica = self.lock();
        let log = replica.log.as_ref();
        log.is_some_and(|log| log.directory().path() == directory)
    }

    /// All numbers at once, under one lock.
    pub(crate) fn numbers(&self, now: Instant) -> Option<ReplicaNumbers> {
        let replica = self.lock();
        let log = replica.log.as_ref()?;
        let poisoned = log.poisoned().is_some();
        let mut numbers = ReplicaNumbers {
            role: if poisoned {
                "offline"
            } else {
                replica.role.name()
            },
            log_start_offset: log.log_start_offset(),
            high_watermark: replica.high_watermark(),
            last_stable_offset: read::last_stable_offset(
                log,
                &replica.producers,
                replica.high_watermark(),
            ),
            log_end_offset: log.log_end_offset(),
            low_watermark: None,
            size: log.size(),
            followers: Vec::new(),
            isr_len: 0,
            min_isr: 0,
            replicas: 0,
            damage: replica.soundness.damage(),
        };
        if let Role::Leader(leader) = &replica.role {
            numbers.low_watermark = leader.low_watermark();
            numbers.isr_len = leader.isr_len();
            numbers.min_isr = leader.min_isr();
            numbers.replicas = leader.replicas().len();
            numbers.followers = leader
                .replicas()
                .iter()
                .filter(|replica| replica.broker != self.me)
                .map(|replica| FollowerNumbers {
                    broker: replica.broker,
                    log_end_offset: replica.log_end_offset,
                    lag: leader.lag(replica, now),
                    out_of_sync: leader.why_out_of_sync(replica, now),
                })
                .collect();
        }
        Some(numbers)
    }

    fn lock(&self) -> MutexGuard<'_, Replica<E>> {
        self.replica
            .lock()
            .expect("no panic while a replica is locked")
    }

    /// Carries out what the leader's core decided.
    fn settle(&self, replica: &mut Replica<E>, mut effects: Vec<Effect>) {
        for effect in effects.drain(..) {
            match effect {
                Effect::HighWatermark(high_watermark) => replica.show_up_to(high_watermark),
                Effect::LowWatermark(_) => {
                    for waiter in replica.low_watermark_waiters.drain(..) {
                        waiter.wake();
                    }
                }
                Effect::AlterPartition(proposal) => self.proposals.push(self.id, proposal),
            }
        }
        replica.effects = effects;
        replica.wake_proven();
    }
}

impl<E: Env> Replica<E> {
    fn high_watermark(&self) -> i64 {
        match &self.role {
            Role::Idle => self.high_watermark,
            Role::Leader(leader) => leader.high_watermark(),
            Role::Follower(follower) => follower.high_watermark(),
        }
    }

    /// Whether its log directory failed.
    fn is_offline(&self) -> bool {
        let log = self.log.as_ref();
        log.is_some_and(|log| log.poisoned().is_some())
    }

    /// Whether there are records that must be durable before this replica may claim them.
    fn owes_flush(&self) -> bool {
        #[cfg(feature = "mutants")]
        if taffrail_mutants::is_planted(taffrail_mutants::Mutant::AckBeforeFsync) {
            return false;
        }
        let log = self.log.as_ref().filter(|_| self.flush_ack);
        log.is_some_and(|log| log.recovery_point() < log.log_end_offset())
    }

    /// The high watermark moved: whoever waits for it learns of it.
    fn show_up_to(&mut self, high_watermark: i64) {
        let old = self.high_watermark;
        let old_stable = self.producers.last_stable_offset(old);
        self.high_watermark = high_watermark;
        self.producers.handle_high_watermark(high_watermark);
        let Some(log) = &self.log else { return };
        let log_end_offset = log.log_end_offset();
        let bytes = share(self.unseen_bytes, old, high_watermark, log_end_offset);
        self.unseen_bytes -= bytes;
        self.waiters.high_watermark_moved(high_watermark, bytes);
        self.unstable_bytes += bytes;
        let stable = self.producers.last_stable_offset(high_watermark);
        if stable > old_stable {
            let bytes = share(self.unstable_bytes, old_stable, stable, high_watermark);
            self.unstable_bytes -= bytes;
            self.waiters.last_stable_offset_moved(bytes);
        }
    }

    /// Whoever waits has to look again: the role or the epoch changed.
    fn wake_all(&mut self) {
        self.waiters.wake_all();
        self.proof_waiters.wake_all();
        for waiter in self.low_watermark_waiters.drain(..) {
            waiter.wake();
        }
    }

    fn local_log(log: &Log<E::Disk>) -> LocalLog {
        LocalLog {
            log_start_offset: log.log_start_offset(),
            log_end_offset: log.log_end_offset(),
            last_epoch: log.epochs().latest().map(|entry| LeaderEpoch(entry.epoch)),
        }
    }
}

/// The part of so many bytes, which lie between two offsets, that an end in between shows. Exact when it shows all; before
/// that the share of records stands for the share of bytes.
fn share(bytes: i64, from: i64, to: i64, end: i64) -> i64 {
    if to >= end {
        return bytes;
    }
    let records = (end - from).max(1);
    let shown = (to - from).max(0);
    (i128::from(bytes) * i128::from(shown) / i128::from(records)) as i64
}

impl Role {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Leader(_) => "leader",
            Self::Follower(_) => "follower",
        }
    }

    fn leader_epoch(&self) -> LeaderEpoch {
        match self {
            Self::Idle => LeaderEpoch(-1),
            Self::Leader(leader) => leader.leader_epoch(),
            Self::Follower(follower) => follower.leader_epoch(),
        }
    }
}

/// What a log's failure means to a client.
pub(crate) fn storage_error(error: &LogError) -> ErrorKind {
    match error {
        LogError::OffsetOutOfRange { .. } => ErrorKind::OffsetOutOfRange,
        LogError::InvalidRecords { .. } => ErrorKind::CorruptMessage,
        LogError::BatchTooLarge { .. } => ErrorKind::RecordListTooLarge,
        LogError::NotContiguous { .. }
        | LogError::StaleLeaderEpoch { .. }
        | LogError::DiskFull { .. }
        | LogError::Poisoned { .. }
        | LogError::Corrupt { .. }
        | LogError::Io { .. } => ErrorKind::KafkaStorageError,
    }
}

/// The configuration of a log, out of its topic's.
pub(crate) fn log_config(config: &TopicConfig, random: u64) -> LogConfig {
    use taffrail_core::config::{CompressionType, TimestampType};
    use taffrail_protocol::records::{Compression, TimestampType as StoredTimestampType};
    let jitter = if config.segment_jitter_ms > 0 {
        (random >> 1) as i64 % config.segment_jitter_ms
    } else {
        0
    };
    LogConfig {
        segment_bytes: unsigned(config.effective_segment_bytes()),
        segment_ms: config.effective_segment_ms(),
        segment_jitter_ms: jitter,
        segment_index_bytes: unsigned(config.segment_index_bytes),
        index_interval_bytes: unsigned(config.index_interval_bytes),
        retention_ms: (config.retention_ms >= 0).then_some(config.retention_ms),
        retention_bytes: u64::try_from(config.retention_bytes).ok(),
        delete: config.cleanup_policy.delete,
        compact: config.cleanup_policy.compact,
        max_message_bytes: unsigned(config.max_message_bytes),
        compression: match config.compression_type {
            CompressionType::Producer => None,
            CompressionType::Uncompressed => Some(Compression::None),
            CompressionType::Gzip => Some(Compression::Gzip),
            CompressionType::Snappy => Some(Compression::Snappy),
            CompressionType::Lz4 => Some(Compression::Lz4),
            CompressionType::Zstd => Some(Compression::Zstd),
        },
        timestamp_type: match config.message_timestamp_type {
            TimestampType::CreateTime => StoredTimestampType::CreateTime,
            TimestampType::LogAppendTime => StoredTimestampType::LogAppendTime,
        },
        timestamp_before_max_ms: config.message_timestamp_before_max_ms,
        timestamp_after_max_ms: config.message_timestamp_after_max_ms,
        recycle_segments: true,
    }
}

/// Sizes are checked to be positive where they are configured.
fn unsigned(size: i32) -> u32 {
    u32::try_from(size).unwrap_or(0)
}

/// What replication of a partition goes by, out of its topic's configuration and the broker's.
pub(crate) fn replica_settings(
    config: &TopicConfig,
    broker: &taffrail_core::config::BrokerConfig,
) -> taffrail_core::replica::Settings {
    taffrail_core::replica::Settings {
        replica_lag_time_max: Duration::from_millis(
            u64::try_from(broker.replica_lag_time_max_ms).unwrap_or(0),
        ),
        replica_lag_messages_max: (broker.replica_lag_max_messages > 0)
            .then_some(broker.replica_lag_max_messages),
        min_insync_replicas: usize::try_from(config.min_insync_replicas).unwrap_or(1),
        flush_ack: config.flush == FlushPolicy::Ack,
    }
}
