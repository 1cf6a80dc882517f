//! Group coordinators: one per partition of `__consumer_offsets` that this broker leads. The core decides; here its
//! decisions reach the log before anything is answered, and a coordinator is dropped and read back when that fails.

pub(crate) mod delete_groups;
pub(crate) mod describe_groups;
pub(crate) mod find_coordinator;
pub(crate) mod heartbeat;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_groups;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod sync_group;

mod bytes;
mod load;
mod named;
mod removed_topics;
mod shard;
mod soon;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use taffrail_core::config::BrokerConfig;
use taffrail_core::error::ErrorKind;
use taffrail_core::group::{Decision, Settings, partition_for};
use taffrail_core::ids::{LeaderEpoch, TopicPartition};
use taffrail_core::metadata::{Changes, Image};
use taffrail_core::time::Instant;
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;
use crate::state::{GroupEntry, GroupOffset, LoadingCoordinatorEntry};

pub use load::try_log;
use removed_topics::RemovedTopics;
use shard::Shard;

/// The topic that holds groups and offsets.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// The topic that will hold transactions; nobody may write to it, or create it as an ordinary one.
const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// Longest metadata of an offset, whatever is configured: Kafka's format counts its bytes in 16 bits.
const METADATA_BYTES_MAX: usize = i16::MAX as usize;

/// Whether a topic belongs to the brokers (Kafka's `Topic.isInternal`).
pub(crate) fn is_internal_topic(name: &str) -> bool {
    name == OFFSETS_TOPIC || name == TRANSACTIONS_TOPIC
}

/// The coordinators of this broker.
pub(crate) struct Groups<E: Env> {
    pub(super) settings: Settings,
    /// How long the replication of a decision may take before the client is told to try again.
    pub(super) commit_timeout: Duration,
    slots: Mutex<BTreeMap<i32, Slot<E>>>,
    removed_topics: Mutex<RemovedTopics>,
    /// A coordinator has a new, maybe earlier deadline.
    wake: Notify,
    /// Another broker coordinates, or this one begins to.
    changed: Notify,
    timer_started: std::sync::Once,
}

/// One partition of the offsets topic that this broker leads.
enum Slot<E: Env> {
    /// Read back from the log.
    Loading(Loading),
    Active(Arc<Shard<E>>),
}

/// A coordinator that is read back from the log.
struct Loading {
    epoch: LeaderEpoch,
    /// Why that fails, if it does not pass by itself.
    trouble: Option<String>,
}

impl Loading {
    fn in_epoch(epoch: LeaderEpoch) -> Self {
        Self {
            epoch,
            trouble: None,
        }
    }
}

impl<E: Env> Groups<E> {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let millis = |value: i64| Duration::from_millis(u64::try_from(value).unwrap_or(0));
        let count = |value: i32| usize::try_from(value).unwrap_or(0);
        let defaults = Settings::default();
        let settings = Settings {
            session_timeout_min: millis(i64::from(config.group_min_session_timeout_ms)),
            session_timeout_max: millis(i64::from(config.group_max_session_timeout_ms)),
            initial_rebalance_delay: millis(i64::from(config.group_initial_rebalance_delay_ms)),
            group_size_max: count(config.group_max_size).min(defaults.group_size_max),
            offset_metadata_bytes_max: count(config.offset_metadata_max_bytes)
                .min(METADATA_BYTES_MAX),
            offsets_retention: millis(i64::from(config.offsets_retention_minutes) * 60_000),
            offsets_retention_check_interval: millis(config.offsets_retention_check_interval_ms),
            ..defaults
        };
        Self {
            settings,
            commit_timeout: millis(i64::from(config.offsets_commit_timeout_ms)),
            slots: Mutex::new(BTreeMap::new()),
            removed_topics: Mutex::default(),
            wake: Notify::new(),
            changed: Notify::new(),
            timer_started: std::sync::Once::new(),
        }
    }

    /// The coordinator of a group, if it is here and loaded. Clients retry on every error but the first.
    fn shard_of(&self, image: &Image, group_id: &str) -> Result<Arc<Shard<E>>, ErrorKind> {
        if group_id.is_empty() {
            return Err(ErrorKind::InvalidGroupId);
        }
        self.shard_of_any(image, group_id)
    }

    /// As `shard_of`, also of the group without a name: old consumers keep offsets in it, so that offsets of it may be
    /// committed and fetched, and it may be described and deleted.
    fn shard_of_any(&self, image: &Image, group_id: &str) -> Result<Arc<Shard<E>>, ErrorKind> {
        let topic = image
            .topic_by_name(OFFSETS_TOPIC)
            .ok_or(ErrorKind::NotCoordinator)?;
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        match self.slots().get(&partition_for(group_id, count)) {
            Some(Slot::Active(shard)) => Ok(Arc::clone(shard)),
            Some(Slot::Loading(_)) => Err(ErrorKind::CoordinatorLoadInProgress),
            None => Err(ErrorKind::NotCoordinator),
        }
    }

    /// Whether the coordinator of a group is being loaded, and nothing has gone wrong with that so far.
    fn is_loading_well(&self, image: &Image, group_id: &str) -> bool {
        let Some(topic) = image.topic_by_name(OFFSETS_TOPIC) else {
            return false;
        };
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        match self.slots().get(&partition_for(group_id, count)) {
            Some(Slot::Loading(loading)) => loading.trouble.is_none(),
            Some(Slot::Active(_)) | None => false,
        }
    }

    /// Coordinators come and go with the leadership of their partitions.
    pub(crate) fn apply_metadata(
        &self,
        broker: &Arc<Broker<E>>,
        old: &Image,
        new: &Image,
        changes: &Changes,
    ) {
        if let Some(topic) = old.topic_by_name(OFFSETS_TOPIC)
            && changes.removed_topics.contains_key(&topic.id)
        {
            let replaced = std::mem::take(&mut *self.slots());
            self.removed_topics().clear();
            for slot in replaced.into_values() {
                if let Slot::Active(old) = slot {
                    old.retire();
                }
            }
        }
        if !changes.removed_topics.is_empty() {
            // The timer has each coordinator here write tombstones, which may have to wait.
            let led: Vec<i32> = self.slots().keys().copied().collect();
            self.removed_topics().note(&led, &changes.removed_topics);
            self.wake.notify_one();
        }
        let Some(topic) = new.topic_by_name(OFFSETS_TOPIC) else {
            return;
        };
        let of_topic = |id: &&TopicPartition| id.topic_id == topic.id;
        for id in changes.partitions.iter().filter(of_topic) {
            let Some(state) = new.partition(*id) else {
                continue;
            };
            let leads = state.leader == Some(broker.id);
            self.elect(broker, *id, leads.then_some(state.leader_epoch));
        }
        if changes.partitions.iter().any(|id| id.topic_id == topic.id) {
            self.changed.notify_waiters();
        }
    }

    /// This broker leads a partition in this epoch, or does not.
    fn elect(&self, broker: &Arc<Broker<E>>, id: TopicPartition, epoch: Option<LeaderEpoch>) {
        let mut slots = self.slots();
        let current = slots.get(&id.partition).map(|slot| match slot {
            Slot::Loading(loading) => loading.epoch,
            Slot::Active(shard) => shard.epoch(),
        });
        if current == epoch {
            return;
        }
        let replaced = match epoch {
            Some(epoch) => slots.insert(id.partition, Slot::Loading(Loading::in_epoch(epoch))),
            None => {
                self.removed_topics().drop_partition(id.partition);
                slots.remove(&id.partition)
            }
        };
        drop(slots);
        if let Some(Slot::Active(old)) = replaced {
            old.retire();
        }
        if let Some(epoch) = epoch {
            load::start(broker, id, epoch);
        }
    }

    /// Whether a partition is still to be loaded in this epoch.
    fn is_loading(&self, partition: i32, epoch: LeaderEpoch) -> bool {
        matches!(self.slots().get(&partition), Some(Slot::Loading(loading)) if loading.epoch == epoch)
    }

    /// A load has failed for a reason that somebody has to know.
    fn note_trouble(&self, partition: i32, epoch: LeaderEpoch, trouble: String) {
        if let Some(Slot::Loading(loading)) = self.slots().get_mut(&partition)
            && loading.epoch == epoch
        {
            loading.trouble = Some(trouble);
        }
    }

    /// A load has finished.
    fn activate(&self, broker: &Arc<Broker<E>>, partition: i32, shard: Arc<Shard<E>>) {
        {
            let mut slots = self.slots();
            match slots.get(&partition) {
                Some(Slot::Loading(loading)) if loading.epoch == shard.epoch() => {
                    slots.insert(partition, Slot::Active(shard));
                }
                Some(Slot::Loading(_) | Slot::Active(_)) | None => return,
            }
        }
        self.changed.notify_waiters();
        self.timer_started
            .call_once(|| broker.env.spawn(keep_time(Arc::clone(broker))));
        self.wake.notify_one();
    }

    /// A coordinator could not write what it decided: it is read back from the log.
    fn reload(&self, broker: &Arc<Broker<E>>, failed: &Arc<Shard<E>>) {
        let id = failed.partition().id;
        {
            let mut slots = self.slots();
            match slots.get(&id.partition) {
                Some(Slot::Active(shard)) if Arc::ptr_eq(shard, failed) => {
                    let loading = Loading::in_epoch(failed.epoch());
                    slots.insert(id.partition, Slot::Loading(loading));
                }
                Some(Slot::Loading(_) | Slot::Active(_)) | None => return,
            }
        }
        load::start(broker, id, failed.epoch());
    }

    /// Offsets of deleted topics go. What cannot be written now is tried again at the next look at the deadlines, also
    /// by a coordinator that was read back meanwhile.
    fn forget_removed_topics(&self, broker: &Arc<Broker<E>>, shard: &Arc<Shard<E>>) {
        let partition = shard.partition().id.partition;
        let Some(topics) = self.removed_topics().owed(partition) else {
            return;
        };
        let forgotten = shard.decide_quietly(broker, |turn| Decision {
            records: turn.coordinator.handle_topics_removed(&topics),
            reply: (),
        });
        if let Err(error) = forgotten {
            tracing::debug!(partition = %shard.partition().name(), ?error, "offsets of deleted topics stay for now");
            return;
        }
        self.removed_topics().done(partition, &topics);
    }

    /// Has the timer look at the deadlines again.
    pub(super) fn wake_timer(&self) {
        self.wake.notify_one();
    }

    /// What `/admin/state` shows.
    pub(crate) fn entries(&self, broker: &Broker<E>) -> Vec<GroupEntry> {
        let image = broker.cluster.image();
        let mut entries = Vec::new();
        for shard in self.active() {
            shard.look(|coordinator| {
                for (group_id, group) in coordinator.groups() {
                    let offsets = group
                        .offsets()
                        .map(|(topic, partition, value)| GroupOffset {
                            topic: topic.to_string(),
                            partition,
                            committed: value.offset,
                            lag: lag(broker, &image, topic, partition, value.offset),
                        });
                    entries.push(GroupEntry {
                        group_id: group_id.to_owned(),
                        state: coordinator.state(group_id).to_string(),
                        members: group.classic().members().len(),
                        offsets: offsets.collect(),
                    });
                }
            });
        }
        entries
    }

    /// The coordinators that `/admin/state` shows to be loading.
    pub(crate) fn loading(&self) -> Vec<LoadingCoordinatorEntry> {
        let slots = self.slots();
        let loading = slots.iter().filter_map(|(partition, slot)| match slot {
            Slot::Loading(loading) => Some(LoadingCoordinatorEntry {
                partition: *partition,
                leader_epoch: loading.epoch.0,
                trouble: loading.trouble.clone(),
            }),
            Slot::Active(_) => None,
        });
        loading.collect()
    }

    /// Every coordinator of this broker.
    ///
    /// # Errors
    /// [`ErrorKind::CoordinatorLoadInProgress`] while one of them loads.
    fn all(&self) -> Result<Vec<Arc<Shard<E>>>, ErrorKind> {
        let of = |slot: &Slot<E>| match slot {
            Slot::Active(shard) => Ok(Arc::clone(shard)),
            Slot::Loading(_) => Err(ErrorKind::CoordinatorLoadInProgress),
        };
        self.slots().values().map(of).collect()
    }

    fn active(&self) -> Vec<Arc<Shard<E>>> {
        self.slots()
            .values()
            .filter_map(|slot| match slot {
                Slot::Active(shard) => Some(Arc::clone(shard)),
                Slot::Loading(_) => None,
            })
            .collect()
    }

    fn removed_topics(&self) -> MutexGuard<'_, RemovedTopics> {
        self.removed_topics.lock().expect("no panic while locked")
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<i32, Slot<E>>> {
        self.slots.lock().expect("no panic while locked")
    }
}

/// How far a group is behind, where this broker holds a replica that tells.
fn lag<E: Env>(
    broker: &Broker<E>,
    image: &Image,
    topic: &str,
    partition: i32,
    committed: i64,
) -> Option<i64> {
    let topic_id = image.topic_by_name(topic)?.id;
    let held = broker.partition(TopicPartition::new(topic_id, partition))?;
    let high_watermark = held.numbers(broker.env.now())?.high_watermark;
    Some(behind(high_watermark, committed))
}

/// Records between a committed offset and the high watermark. A group commits whatever it likes.
fn behind(high_watermark: i64, committed: i64) -> i64 {
    high_watermark.saturating_sub(committed).max(0)
}

/// The one timer of all coordinators: sessions end, rebalances complete, offsets expire.
async fn keep_time<E: Env>(broker: Arc<Broker<E>>) {
    /// Without a deadline the timer still looks up now and then, whether the broker stops.
    const IDLE: Duration = Duration::from_secs(1);
    while !broker.is_stopping() {
        let now = broker.env.now();
        let mut next: Option<Instant> = None;
        for shard in broker.groups.active() {
            shard.handle_timeout(&broker, now);
            broker.groups.forget_removed_topics(&broker, &shard);
            next = [next, shard.next_deadline()].into_iter().flatten().min();
        }
        let idle = broker.env.next_round(IDLE);
        let until = next.map_or(idle, |deadline| deadline.min(idle));
        // A deadline that is due but could not be met (too few replicas, say) is tried again a little later.
        let until = until.max(now + Duration::from_millis(10));
        tokio::select! {
            biased;
            () = broker.groups.wake.notified() => {}
            () = broker.env.sleep_until(until) => {}
        }
    }
}
