//! The partitions that want an fsync: after a segment rolled, and after every append with `taffrail.flush=ack`.
//! One task works them off; what is appended meanwhile is covered by the next round (group commit).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use taffrail_core::ids::TopicPartition;
use taffrail_log::Flush;
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;
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

/// Works the queue off until the broker stops.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
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
        run_all(&broker.env, flushes).await;
    }
}

/// A partition and the fsyncs that it wants.
pub(super) type Wanted<E> = (Arc<Partition<E>>, Flush<<E as Env>::Disk>);

/// Runs the fsyncs of several partitions as one job, and tells each what came of it.
pub(super) async fn run_all<E: Env>(env: &E, flushes: Vec<Wanted<E>>) {
    if flushes.is_empty() {
        return;
    }
    let run = env.run_blocking(move || {
        let run = flushes
            .into_iter()
            .map(|(partition, flush)| (partition, flush.run()));
        run.collect::<Vec<_>>()
    });
    for (partition, result) in run.await {
        partition.finish_flush(env, result);
    }
}
