//! Everything about the replicas that this broker holds: their directories, who follows whom, ISR proposals,
//! flushes, fetch sessions. Which replicas there are is the metadata's to say (`apply`).

mod apply;
mod directories;
mod elections;
mod fetch_answer;
mod fetch_session;
mod fetcher;
mod flush_queue;
mod gathered;
mod impaired;
mod isr;
mod moves;
mod recovering;
mod scrub;
mod throttle;
mod waiter;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use taffrail_core::config::BrokerConfig;
use taffrail_core::controller::Impairment;
use taffrail_core::fetch_session::{Limits, Sessions};
use taffrail_core::ids::{BrokerEpoch, BrokerId, DirectoryId, TopicId, TopicPartition};
use taffrail_log::{CleanShutdown, LogDirectory};
use tokio::sync::Notify;

use crate::api::fetch::{WaitingFetch, WaitingFetches};
use crate::broker::Broker;
use crate::env::Env;
use crate::partition::Partition;

pub(crate) use directories::{close_all, open_directories};
pub use fetch_answer::try_fetch_answer;
pub(crate) use flush_queue::FlushQueue;
pub(crate) use gathered::flush_gathered;
pub(crate) use impaired::Impairments;
pub(crate) use isr::IsrProposals;
pub(crate) use moves::Moves;
pub(crate) use recovering::Recovering;
pub(crate) use scrub::Suspects;
pub(crate) use throttle::Throttles;
pub(crate) use waiter::{VisibleEnd, Waiter, Waiters};

use fetcher::Fetchers;

/// A log directory that could not be used at start.
#[derive(Debug, Clone)]
pub(crate) struct UnusableDirectory {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// The state that all replicas of a broker share.
pub(crate) struct Replication<E: Env> {
    directories: OnceLock<Vec<LogDirectory<E::Disk>>>,
    pub(crate) proposals: Arc<IsrProposals>,
    pub(crate) flushes: Arc<FlushQueue>,
    pub(crate) throttles: Arc<Throttles>,
    /// The replicas that move between log directories.
    pub(crate) moves: Moves,
    /// The replicas that are not fit.
    pub(crate) impairments: Arc<Impairments>,
    /// Replicas whose log may be damaged.
    pub(crate) suspects: Arc<Suspects>,
    /// A log directory went offline.
    pub(crate) directory_failed: Arc<Notify>,
    /// Retention is to look now.
    pub(crate) retention_wanted: Notify,
    /// Directories that could not be opened at start.
    unusable: OnceLock<Vec<UnusableDirectory>>,
    /// Replicas that may be in one of those, and are therefore not made anew.
    missing: Mutex<BTreeSet<TopicPartition>>,
    fetchers: Fetchers,
    sessions: Mutex<Sessions<Arc<Partition<E>>>>,
    waiting_fetches: Mutex<WaitingFetches>,
    strays_checked: AtomicBool,
    joined: AtomicBool,
    /// Partitions whose state in the metadata could not be carried out.
    retries: Mutex<BTreeSet<TopicPartition>>,
}

impl<E: Env> Replication<E> {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let limits = Limits {
            sessions_max: usize::try_from(config.max_incremental_fetch_session_cache_slots)
                .unwrap_or(0),
            ..Limits::default()
        };
        Self {
            directories: OnceLock::new(),
            proposals: Arc::default(),
            flushes: Arc::new(FlushQueue::new(config)),
            throttles: Arc::new(Throttles::new(config)),
            moves: Moves::default(),
            impairments: Arc::default(),
            suspects: Arc::default(),
            directory_failed: Arc::default(),
            retention_wanted: Notify::new(),
            unusable: OnceLock::new(),
            missing: Mutex::default(),
            fetchers: Fetchers::default(),
            sessions: Mutex::new(Sessions::new(limits)),
            waiting_fetches: Mutex::new(BTreeMap::new()),
            strays_checked: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            retries: Mutex::new(BTreeSet::new()),
        }
    }

    /// The log directories, in the order of `log.dirs`; none before they were opened.
    pub(crate) fn directories(&self) -> &[LogDirectory<E::Disk>] {
        self.directories.get().map_or(&[], Vec::as_slice)
    }

    /// The log directories that could not be used at start.
    pub(crate) fn unusable_directories(&self) -> &[UnusableDirectory] {
        self.unusable.get().map_or(&[], Vec::as_slice)
    }

    /// How many log directories are out of use, now or since the start.
    pub(crate) fn offline_directory_count(&self) -> usize {
        let failed = self.directories().iter();
        let failed = failed.filter(|directory| directory.offline().is_some());
        failed.count() + self.unusable_directories().len()
    }

    /// A replica that should be here and was not found may be in a directory that could not be used. Made anew and empty
    /// in another one it could become the leader of what it has lost (KAFKA-16157).
    fn add_missing(&self, partition: TopicPartition) {
        self.missing().insert(partition);
        self.impairments.add(partition, Impairment::Offline);
    }

    fn is_missing(&self, partition: TopicPartition) -> bool {
        self.missing().contains(&partition)
    }

    /// The replica has no place here any more.
    fn forget_missing(&self, partition: TopicPartition) {
        if self.missing().remove(&partition) {
            self.impairments.forget(partition);
        }
    }

    fn missing_of(&self, topic: TopicId) -> Vec<TopicPartition> {
        let range = TopicPartition::new(topic, i32::MIN)..=TopicPartition::new(topic, i32::MAX);
        self.missing().range(range).copied().collect()
    }

    fn missing(&self) -> MutexGuard<'_, BTreeSet<TopicPartition>> {
        self.missing.lock().expect("no panic while locked")
    }

    /// The ids of the log directories in use, sorted, as the registration tells them.
    pub(crate) fn directory_ids(&self) -> Vec<DirectoryId> {
        let mut ids: Vec<DirectoryId> = self
            .directories()
            .iter()
            .filter(|directory| directory.offline().is_none())
            .map(|directory| DirectoryId(directory.identity().directory_id))
            .collect();
        ids.sort();
        ids
    }

    /// The ids of the log directories that an error took offline, as heartbeats tell them.
    pub(crate) fn offline_directory_ids(&self) -> Vec<DirectoryId> {
        self.directories()
            .iter()
            .filter(|directory| directory.offline().is_some())
            .map(|directory| DirectoryId(directory.identity().directory_id))
            .collect()
    }

    /// The broker epoch under which every log directory was shut down cleanly; none if any was not, or if they differ.
    pub(crate) fn clean_shutdown_epoch(&self) -> Option<BrokerEpoch> {
        let mut epochs =
            self.directories()
                .iter()
                .map(|directory| match directory.clean_shutdown() {
                    CleanShutdown::Yes { broker_epoch } => broker_epoch,
                    CleanShutdown::No => None,
                });
        let first = epochs.next()??;
        epochs
            .all(|epoch| epoch == Some(first))
            .then_some(BrokerEpoch(first))
    }

    /// The fetch sessions. Held only while a fetch begins or ends.
    pub(crate) fn sessions(&self) -> MutexGuard<'_, Sessions<Arc<Partition<E>>>> {
        self.sessions.lock().expect("no panic while locked")
    }

    /// The long poll that has a session.
    pub(crate) fn waiting_fetch(&self, session_id: i32) -> Option<WaitingFetch> {
        if session_id == 0 {
            return None;
        }
        self.waiting().get(&session_id).cloned()
    }

    pub(crate) fn add_waiting_fetch(&self, session_id: i32, fetch: WaitingFetch) {
        if session_id != 0 {
            self.waiting().insert(session_id, fetch);
        }
    }

    pub(crate) fn remove_waiting_fetch(&self, session_id: i32) {
        if session_id != 0 {
            self.waiting().remove(&session_id);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingFetches> {
        self.waiting_fetches.lock().expect("no panic while locked")
    }

    /// This broker follows `leader` for a partition, or has to fetch from another position.
    fn follow(&self, broker: &Arc<Broker<E>>, leader: BrokerId, partition: TopicPartition) {
        self.fetchers.follow(broker, leader, partition);
    }

    /// This broker does not follow anybody for a partition.
    fn unfollow(&self, partition: TopicPartition) {
        self.fetchers.unfollow_unless(None, partition);
    }

    /// This broker does not follow anybody but `leader` for a partition.
    fn unfollow_unless(&self, leader: Option<BrokerId>, partition: TopicPartition) {
        self.fetchers.unfollow_unless(leader, partition);
    }

    /// Wakes what sleeps, so that it sees that the broker stops.
    pub(crate) fn stop(&self) {
        self.fetchers.stop();
        self.flushes.wake();
        self.moves.wake();
        self.proposals.wake();
    }

    fn try_again(&self, partition: TopicPartition) {
        let mut retries = self.retries.lock().expect("no panic while locked");
        retries.insert(partition);
    }

    fn take_retries(&self) -> BTreeSet<TopicPartition> {
        std::mem::take(&mut *self.retries.lock().expect("no panic while locked"))
    }

    /// Whether the metadata is applied for the first time: nothing of it has been carried out yet.
    fn joins(&self) -> bool {
        !self.joined.swap(true, Ordering::AcqRel)
    }

    fn strays_checked(&self) -> bool {
        self.strays_checked.swap(true, Ordering::AcqRel)
    }
}

/// Starts the tasks that all replicas share.
pub(crate) fn start<E: Env>(broker: &Arc<Broker<E>>) {
    broker.env.spawn(isr::send_proposals(Arc::clone(broker)));
    broker.env.spawn(isr::check_lag(Arc::clone(broker)));
    broker.env.spawn(flush_queue::run(Arc::clone(broker)));
    broker.env.spawn(gathered::run(Arc::clone(broker)));
    broker.env.spawn(moves::run(Arc::clone(broker)));
    broker.env.spawn(scrub::run(Arc::clone(broker)));
}
