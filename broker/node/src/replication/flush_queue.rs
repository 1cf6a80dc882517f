//! The partitions that want an fsync: after a segment rolled, and after every append with `taffrail.flush=ack`.
//! One task works them off; what is appended meanwhile is covered by the next round (group commit).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::ids::TopicPartition;
use taffrail_log::{CheckpointKind, Flush};
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;
use crate::housekeeping;
use crate::partition::Partition;

/// The queue: a set, so that it is never longer than the partitions are many.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    waiting: Mutex<BTreeSet<TopicPartition>>,
    wake: Notify,
}

impl FlushQueue {
    /// Asks for a flush of a partition.
    pub(crate) fn push(&self, partition: TopicPartition) {
        self.waiting
            .lock()
            .expect("no panic while locked")
            .insert(partition);
        self.wake.notify_one();
    }

    /// Makes the task look around.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn take(&self) -> BTreeSet<TopicPartition> {
        std::mem::take(&mut *self.waiting.lock().expect("no panic while locked"))
    }
}

/// How often the recovery points may be written down because segments were closed.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(1);

/// Less than this is read within milliseconds after a kill, and not worth an fsync.
const GATHERED_BYTES: u64 = 16 << 20;

/// Works the queue off until the broker stops.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
    let mut next_checkpoint = broker.env.now();
    while !broker.is_stopping() {
        broker.replication.flushes.wake.notified().await;
        let mut flushes = Vec::new();
        for id in broker.replication.flushes.take() {
            let Some(partition) = broker.partition(id) else {
                continue;
            };
            if let Some(flush) = partition.begin_flush() {
                flushes.push((partition, flush));
            }
        }
        let closed = run_all(&broker.env, flushes).await;
        let now = broker.env.now();
        if closed && now >= next_checkpoint {
            next_checkpoint = now + CHECKPOINT_PAUSE;
            // What a kill has recovery read is then bounded by segments, not by the minute that passed since the last one.
            let writer = Arc::clone(&broker);
            broker.env.spawn(async move {
                housekeeping::write_checkpoint(&writer, CheckpointKind::RecoveryPoint).await;
            });
        }
    }
}

/// Makes what has gathered in active segments durable, partition by partition, so that not all of it is read after a kill.
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

/// A partition and the fsyncs that it wants.
pub(super) type Wanted<E> = (Arc<Partition<E>>, Flush<<E as Env>::Disk>);

/// Runs the fsyncs of several partitions as one job, and tells each what came of it. Tells whether any of them has its
/// closed segments durable now.
pub(super) async fn run_all<E: Env>(env: &E, flushes: Vec<Wanted<E>>) -> bool {
    if flushes.is_empty() {
        return false;
    }
    let run = env.run_blocking(move || {
        let run = flushes
            .into_iter()
            .map(|(partition, flush)| (partition, flush.run()));
        run.collect::<Vec<_>>()
    });
    let mut closed = false;
    for (partition, result) in run.await {
        closed |= partition.finish_flush(env, result);
    }
    closed
}
