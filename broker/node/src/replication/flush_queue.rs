//! The partitions that want an fsync: after a segment rolled, and after every append with `taffrail.flush=ack`.
//! One task works them off; what is appended meanwhile is covered by the next round (group commit).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use taffrail_core::config::BrokerConfig;
use taffrail_core::ids::TopicPartition;
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;
use crate::partition::{Partition, ReplicaFlush};
use crate::replication::gathered::Gathered;

/// The queue: a set, so that it is never longer than the partitions are many.
#[derive(Debug)]
pub(crate) struct FlushQueue {
    waiting: Mutex<BTreeSet<TopicPartition>>,
    wake: Notify,
    gathered: Gathered,
}

impl FlushQueue {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let max = u64::try_from(config.unflushed_bytes_max).unwrap_or(u64::MAX);
        Self {
            waiting: Mutex::default(),
            wake: Notify::new(),
            gathered: Gathered::new(max),
        }
    }

    /// Counts what was appended to some log.
    pub(crate) fn note_appended(&self, bytes: u64) {
        self.gathered.note_appended(bytes);
    }

    pub(super) fn gathered(&self) -> &Gathered {
        &self.gathered
    }

    /// Asks for a flush of a partition.
    pub(crate) fn push(&self, partition: TopicPartition) {
        self.waiting
            .lock()
            .expect("no panic while locked")
            .insert(partition);
        self.wake.notify_one();
    }

    /// Makes the tasks look around.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
        self.gathered.wake();
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
        if run_all(&broker.env, flushes).await {
            broker.replication.flushes.gathered.note_closed();
        }
    }
}

/// A partition and the fsyncs that it wants.
pub(super) type Wanted<E> = (Arc<Partition<E>>, ReplicaFlush<E>);

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
    for (partition, done) in run.await {
        closed |= partition.finish_flush(env, done);
    }
    closed
}
