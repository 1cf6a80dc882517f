//! What the node tells about itself: the JSON of `/admin/state`, the answer of `/admin/safe-to-stop`, gauges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus::IntGaugeVec;
use serde::Serialize;
use taffrail_core::controller::Impairment;
use taffrail_core::ids::{BrokerId, DirectoryId, TopicId, TopicPartition};
use taffrail_core::metadata::{Image, Partition, why_leaderless};

use crate::broker::Broker;
use crate::env::Env;
use crate::metrics::NodeMetrics;
use crate::partition::{CopyNumbers, FollowerNumbers, ReplicaNumbers};

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
    /// The recorded voters.
    pub voters: Vec<VoterEntry>,
    /// Why this broker does not vote though it is configured to, with what to do.
    pub vacant_seat: Option<String>,
    /// All registered brokers.
    pub brokers: Vec<BrokerEntry>,
    /// All topics with all partitions.
    pub topics: Vec<TopicEntry>,
    /// What the start had to recover, and how far it is.
    pub recovery: RecoveryEntry,
    /// The log directories of this broker.
    pub log_directories: Vec<DirectoryEntry>,
    /// The groups that this broker coordinates.
    pub groups: Vec<GroupEntry>,
    /// The partitions of `__consumer_offsets` that it leads and whose groups it cannot serve yet.
    pub loading_coordinators: Vec<LoadingCoordinatorEntry>,
}

/// A recorded voter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VoterEntry {
    /// Its broker id.
    pub id: i32,
    /// The log directory that holds its metadata log, as far as it is known.
    pub directory_id: Option<String>,
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
    /// ELR: those that left an ISR below min.insync.replicas and still have every acknowledged record.
    pub elr: Vec<i32>,
    /// Why nobody leads, and who would have to come back.
    pub leaderless: Option<String>,
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
    /// `damaged` while a part of the log cannot be trusted, `refetching` while it is fetched anew.
    pub damage: Option<&'static str>,
    /// Where it is being moved to on this broker.
    pub moving: Option<MovingEntry>,
    /// The leader's view of every follower.
    pub followers: Vec<FollowerEntry>,
}

/// A move of a replica to another log directory of its broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MovingEntry {
    /// The path of that directory.
    pub to: String,
    /// Records that have not been copied yet.
    pub lag: i64,
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
    /// Records that the leader has and it has not, if known.
    pub lag: Option<i64>,
    /// Milliseconds since it last had all that the leader had, if it ever had.
    pub caught_up_ms_ago: Option<u64>,
    /// Why it is not in the ISR.
    pub out_of_sync: Option<String>,
}

/// The recovery of the logs at start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoveryEntry {
    /// Logs opened so far.
    pub recovered: u64,
    /// Logs found.
    pub logs: u64,
    /// Bytes read to find where they end.
    pub bytes_scanned: u64,
    /// Those that are being read now.
    pub now: Vec<String>,
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
    /// That error.
    pub error: Option<String>,
    /// Whether it is full up to its reserve, so that producers are refused.
    pub full: bool,
    /// Bytes on its volume that may be used, the reserve included, as last measured.
    pub usable_bytes: Option<u64>,
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

/// A coordinator that is read back from its partition of `__consumer_offsets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoadingCoordinatorEntry {
    /// The partition.
    pub partition: i32,
    /// The leader epoch in which it is to coordinate.
    pub leader_epoch: i32,
    /// Why it cannot be loaded; `None` while it is read.
    pub trouble: Option<String>,
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

/// Everything that `/admin/state` shows, now.
pub(crate) fn admin_state<E: Env>(broker: &Arc<Broker<E>>) -> AdminState {
    let (index, image) = broker.cluster.indexed_image();
    let topics = image
        .topics_by_name()
        .map(|topic| TopicEntry {
            name: topic.name.clone(),
            topic_id: topic.id.to_string(),
            partitions: (0..)
                .zip(&topic.partitions)
                .map(|(index, state)| partition_entry(broker, &image, topic.id, index, state))
                .collect(),
        })
        .collect();
    let unusable = broker.replication.unusable_directories().iter();
    let unusable = unusable.map(|directory| DirectoryEntry {
        path: directory.path.clone(),
        directory_id: String::new(),
        offline: true,
        error: Some(directory.reason.clone()),
        full: false,
        usable_bytes: None,
        partitions: 0,
    });
    AdminState {
        cluster_id: broker.cluster.cluster_id().unwrap_or_default(),
        broker_id: broker.id.0,
        controller_id: broker.cluster.controller_id().map(|id| id.0),
        broker_epoch: broker.cluster.broker_epoch().map(|epoch| epoch.0),
        metadata_index: i64::try_from(index).unwrap_or(i64::MAX),
        metadata_hash: format!("{:016x}", image.hash()),
        voters: image
            .voters()
            .map(|(id, voter)| VoterEntry {
                id: id.0,
                directory_id: voter.directory.map(|directory| directory.to_string()),
            })
            .collect(),
        vacant_seat: broker.cluster.vacant_seat(),
        brokers: image
            .brokers()
            .map(|registered| BrokerEntry {
                id: registered.id.0,
                rack: image.rack(registered.id).map(str::to_owned),
                fenced: registered.fenced,
                epoch: registered.epoch.0,
            })
            .collect(),
        topics,
        recovery: RecoveryEntry {
            recovered: broker.recovered.load(Ordering::Relaxed),
            logs: broker.to_recover.load(Ordering::Relaxed),
            bytes_scanned: broker.bytes_scanned.load(Ordering::Relaxed),
            now: broker.recovering.names(),
        },
        log_directories: broker
            .replication
            .directories()
            .iter()
            .map(|directory| DirectoryEntry {
                path: directory.path().display().to_string(),
                directory_id: DirectoryId(directory.identity().directory_id).to_string(),
                offline: directory.offline().is_some(),
                error: directory.offline().map(str::to_owned),
                full: directory.is_full(),
                usable_bytes: Some(directory.measured_room().0),
                partitions: directory.partition_count(),
            })
            .chain(unusable)
            .collect(),
        groups: broker.groups.entries(broker),
        loading_coordinators: broker.groups.loading(),
    }
}

fn partition_entry<E: Env>(
    broker: &Broker<E>,
    image: &Image,
    topic: TopicId,
    index: i32,
    state: &Partition,
) -> PartitionEntry {
    let ids = |brokers: &[BrokerId]| brokers.iter().map(|id| id.0).collect::<Vec<_>>();
    let held = broker.partition(TopicPartition::new(topic, index));
    let moving = held.as_ref().and_then(|partition| partition.copy_numbers());
    PartitionEntry {
        partition: index,
        leader: state.leader.map(|id| id.0),
        leader_epoch: state.leader_epoch.0,
        replicas: ids(&state.replicas),
        isr: ids(&state.isr),
        osr: state
            .replicas
            .iter()
            .filter(|id| !state.isr.contains(id))
            .map(|id| id.0)
            .collect(),
        elr: ids(&state.elr),
        leaderless: why_leaderless(image, state),
        local: held
            .and_then(|partition| partition.numbers(broker.env.now()))
            .map(|numbers| local_replica(numbers, moving)),
    }
}

fn local_replica(numbers: ReplicaNumbers, moving: Option<CopyNumbers>) -> LocalReplica {
    LocalReplica {
        role: numbers.role,
        log_start_offset: numbers.log_start_offset,
        low_watermark: numbers.low_watermark,
        last_stable_offset: numbers.last_stable_offset,
        high_watermark: numbers.high_watermark,
        log_end_offset: numbers.log_end_offset,
        size: numbers.size,
        damage: numbers.damage,
        moving: moving.map(|copy| MovingEntry {
            to: copy.directory.display().to_string(),
            lag: copy.lag,
        }),
        followers: numbers
            .followers
            .into_iter()
            .map(|follower| FollowerEntry {
                broker: follower.broker.0,
                log_end_offset: follower.log_end_offset.unwrap_or(-1),
                in_sync: follower.out_of_sync.is_none(),
                lag: follower.lag.records,
                caught_up_ms_ago: follower.lag.since_caught_up.map(millis),
                out_of_sync: follower.out_of_sync.map(|reason| reason.to_string()),
            })
            .collect(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Answers from memory: what the committed ISRs would be without this broker.
pub(crate) fn safe_to_stop<E: Env>(broker: &Arc<Broker<E>>) -> SafeToStop {
    let image = broker.cluster.image();
    let mut reasons = Vec::new();
    let mut partitions = Vec::new();
    if !broker.cluster.is_caught_up() {
        reasons
            .push("this broker has not caught up with the metadata, so it cannot tell".to_owned());
    }
    for topic in image.topics_by_name() {
        let min_isr = usize::try_from(broker.topic_config(&image, &topic.name).min_insync_replicas)
            .unwrap_or(1);
        for (index, state) in topic.partitions.iter().enumerate() {
            if !state.replicas.contains(&broker.id) || state.replicas.len() == 1 {
                continue;
            }
            let left = state.isr.iter().filter(|id| **id != broker.id).count();
            if left < min_isr.min(state.replicas.len()) && state.isr.contains(&broker.id) {
                partitions.push(format!("{}-{index}", topic.name));
            }
        }
    }
    if !partitions.is_empty() {
        reasons.push(format!(
            "{} partitions would fall below min.insync.replicas",
            partitions.len()
        ));
    }
    let voters = broker.cluster.voters();
    if voters.contains(&broker.id) && voters.len() > 1 {
        let others_live = voters
            .iter()
            .filter(|id| **id != broker.id && image.is_active(**id))
            .count();
        if others_live < voters.len() / 2 + 1 {
            reasons.push("the metadata quorum would lose its majority".to_owned());
        }
    }
    SafeToStop {
        safe: reasons.is_empty(),
        reasons,
        partitions,
    }
}

/// Brings the gauges up to date; counters count by themselves.
pub(crate) fn refresh_metrics<E: Env>(broker: &Arc<Broker<E>>) {
    let metrics = broker.metrics();
    let (index, image) = broker.cluster.indexed_image();
    let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let (mut leads, mut under_replicated, mut under_min_isr, mut offline) = (0, 0, 0, 0);
    let held = broker.partitions();
    let per_partition = broker.config.metrics_per_partition;
    metrics.partition_offsets.reset();
    let now = broker.env.now();
    let mut followers: BTreeMap<i32, FollowerTotals> = BTreeMap::new();
    for partition in &held {
        let Some(numbers) = partition.numbers(now) else {
            continue;
        };
        if numbers.role == "leader" {
            leads += 1;
            under_replicated += usize::from(numbers.isr_len < numbers.replicas);
            under_min_isr += usize::from(numbers.isr_len < numbers.min_isr);
        }
        offline += usize::from(numbers.role == "offline");
        for follower in &numbers.followers {
            let totals = followers.entry(follower.broker.0).or_default();
            totals.add(follower);
        }
        if per_partition {
            let index = partition.id.partition.to_string();
            let set = |which: &str, offset: i64| {
                metrics
                    .partition_offsets
                    .with_label_values(&[&*partition.topic, index.as_str(), which])
                    .set(offset);
            };
            set("log_start", numbers.log_start_offset);
            set("high_watermark", numbers.high_watermark);
            set("last_stable", numbers.last_stable_offset);
            set("log_end", numbers.log_end_offset);
            if let Some(low_watermark) = numbers.low_watermark {
                set("low_watermark", low_watermark);
            }
        }
    }
    set_follower_gauges(metrics, &followers);
    let recovered = broker.recovered.load(Ordering::Relaxed);
    let to_recover = broker.to_recover.load(Ordering::Relaxed);
    metrics
        .remaining_logs_to_recover
        .set(i64::try_from(to_recover.saturating_sub(recovered)).unwrap_or(i64::MAX));
    metrics.partition_count.set(gauge(held.len()));
    metrics.leader_count.set(leads);
    metrics
        .under_replicated_partitions
        .set(gauge(under_replicated));
    metrics
        .under_min_isr_partition_count
        .set(gauge(under_min_isr));
    metrics.offline_replica_count.set(gauge(offline));
    metrics
        .active_controller_count
        .set(i64::from(broker.cluster.controller_id() == Some(broker.id)));
    metrics.offline_partitions_count.set(gauge(
        image
            .partitions()
            .filter(|(_, state)| state.leader.is_none())
            .count(),
    ));
    metrics
        .global_topic_count
        .set(gauge(image.topics().count()));
    metrics
        .global_partition_count
        .set(gauge(image.partitions().count()));
    metrics.fenced_broker_count.set(gauge(
        image
            .brokers()
            .filter(|registered| registered.fenced)
            .count(),
    ));
    metrics.active_broker_count.set(gauge(
        image
            .brokers()
            .filter(|registered| !registered.fenced)
            .count(),
    ));
    metrics.damaged_replica_count.set(gauge(
        broker
            .replication
            .impairments
            .replicas(Impairment::Damaged)
            .len(),
    ));
    for directory in broker.replication.directories() {
        let path = directory.path().display().to_string();
        let (usable, _) = directory.measured_room();
        metrics
            .directory_usable_bytes
            .with_label_values(&[path.as_str()])
            .set(i64::try_from(usable).unwrap_or(i64::MAX));
        metrics
            .directory_full
            .with_label_values(&[path.as_str()])
            .set(i64::from(directory.is_full()));
    }
    metrics
        .offline_log_directory_count
        .set(gauge(broker.replication.offline_directory_count()));
    metrics
        .metadata_index
        .set(i64::try_from(index).unwrap_or(i64::MAX));
    // 53 bits of it: Prometheus keeps numbers as doubles.
    metrics.metadata_hash.set((image.hash() >> 11) as i64);
    let groups = broker.groups.entries(broker);
    metrics.group_count.set(gauge(groups.len()));
    metrics.consumer_lag.reset();
    for group in &groups {
        for offset in &group.offsets {
            if let Some(lag) = offset.lag {
                let partition = offset.partition.to_string();
                let labels = [
                    group.group_id.as_str(),
                    offset.topic.as_str(),
                    partition.as_str(),
                ];
                metrics.consumer_lag.with_label_values(&labels).set(lag);
            }
        }
    }
}

/// The followers on one broker, of all partitions led here.
#[derive(Debug, Default)]
struct FollowerTotals {
    out_of_sync: i64,
    lag_max: i64,
    /// Of those out of sync, the longest time since one was caught up, in milliseconds.
    caught_up_ms_ago_max: i64,
}

impl FollowerTotals {
    fn add(&mut self, follower: &FollowerNumbers) {
        self.lag_max = self.lag_max.max(follower.lag.records.unwrap_or(0));
        if follower.out_of_sync.is_some() {
            self.out_of_sync += 1;
            let ms_ago = follower.lag.since_caught_up.map_or(0, millis);
            let ms_ago = i64::try_from(ms_ago).unwrap_or(i64::MAX);
            self.caught_up_ms_ago_max = self.caught_up_ms_ago_max.max(ms_ago);
        }
    }
}

fn set_follower_gauges(metrics: &NodeMetrics, followers: &BTreeMap<i32, FollowerTotals>) {
    for family in [
        &metrics.follower_out_of_sync,
        &metrics.follower_lag_max,
        &metrics.follower_caught_up_ms_ago_max,
    ] {
        family.reset();
    }
    for (broker, totals) in followers {
        let broker = broker.to_string();
        let set =
            |family: &IntGaugeVec, value: i64| family.with_label_values(&[&broker]).set(value);
        set(&metrics.follower_out_of_sync, totals.out_of_sync);
        set(&metrics.follower_lag_max, totals.lag_max);
        set(
            &metrics.follower_caught_up_ms_ago_max,
            totals.caught_up_ms_ago_max,
        );
    }
}
