//! Keeps short what a start after a kill has to read: what lies above the recovery points, whatever the size of the logs.
//! What is appended is counted; when much of it waits for its fsync, the logs with most of it get one, in the background.
//!
//! It is no limit on producers: a disk that takes less than they give falls behind, until the kernel holds them up.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use taffrail_log::CheckpointKind;
use tokio::sync::Notify;

use super::flush_queue::run_all;
use crate::broker::Broker;
use crate::env::Env;
use crate::housekeeping;

/// Less than this is read within milliseconds after a kill, and not worth an fsync a minute.
const GATHERED_BYTES: u64 = 16 << 20;

/// How often, at most, recovery points are written down because they moved.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(200);

/// What was appended and is not known to be durable, over all logs of a broker.
#[derive(Debug)]
pub(super) struct Gathered {
    max: u64,
    /// Bytes since the logs were last looked at.
    appended: AtomicU64,
    /// Whether a recovery point moved to the end of a log's closed segments.
    closed: AtomicBool,
    wake: Notify,
}

impl Gathered {
    pub(super) fn new(max: u64) -> Self {
        Self {
            max,
            appended: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// The logs are looked at each time that a quarter of what may wait has come.
    fn step(&self) -> u64 {
        self.max / 4
    }

    pub(super) fn note_appended(&self, bytes: u64) {
        if self.appended.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.step() {
            self.wake.notify_one();
        }
    }

    /// Closed segments are durable that were not.
    pub(super) fn note_closed(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Makes the task look around.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// Looks after what gathers until the broker stops; first of all at what the one before it left.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
    let gathered = broker.replication.flushes.gathered();
    while !broker.is_stopping() {
        gathered.appended.store(0, Ordering::Relaxed);
        let closed = gathered.closed.swap(false, Ordering::Relaxed);
        if flush_fullest(&broker, gathered).await || closed {
            housekeeping::write_checkpoint(&broker, CheckpointKind::RecoveryPoint).await;
            let next = broker.env.now() + CHECKPOINT_PAUSE;
            broker.env.sleep_until(next).await;
        }
        gathered.wake.notified().await;
    }
}

/// Makes the logs with most of it durable until half of what may wait is left. Tells whether it did.
async fn flush_fullest<E: Env>(broker: &Arc<Broker<E>>, gathered: &Gathered) -> bool {
    let waiting = broker.partitions().into_iter();
    let waiting = waiting.map(|partition| (partition.unflushed_bytes(), partition));
    let mut waiting: Vec<_> = waiting.filter(|(bytes, _)| *bytes > 0).collect();
    let mut left: u64 = waiting.iter().map(|(bytes, _)| bytes).sum();
    if left <= gathered.max - gathered.step() {
        // What comes before the next look still fits.
        return false;
    }
    waiting.sort_by_key(|(bytes, partition)| (Reverse(*bytes), partition.id));
    for (bytes, partition) in waiting {
        if left <= gathered.max / 2 || broker.is_stopping() {
            break;
        }
        left -= bytes;
        if let Some(flush) = partition.begin_flush_of(1) {
            run_all(&broker.env, vec![(partition, flush)]).await;
        }
    }
    true
}

/// Makes what has gathered in each active segment durable, partition by partition, whatever the others hold.
pub(crate) async fn flush_gathered<E: Env>(broker: &Arc<Broker<E>>) {
    for partition in broker.partitions() {
        if broker.is_stopping() {
            return;
        }
        if let Some(flush) = partition.begin_flush_of(GATHERED_BYTES) {
            run_all(&broker.env, vec![(partition, flush)]).await;
        }
    }
}
