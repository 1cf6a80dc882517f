//! Which replicas here are not fit, and why; who must know is woken. A log directory that failed takes its replicas with it
//! and no others: they stop serving at once, and the next heartbeat, sent at once too, has the controller move
//! their leadership (KIP-112, KIP-858).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use taffrail_core::controller::{Impaired, Impairment};
use taffrail_core::ids::TopicPartition;
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;

/// What is wrong with replicas here. It holds what is wrong only, so that heartbeats need not look at every replica.
#[derive(Debug, Default)]
pub(crate) struct Impairments {
    /// By partition, the worst first.
    known: Mutex<BTreeMap<TopicPartition, BTreeSet<Impairment>>>,
    changed: Notify,
}

impl Impairments {
    /// Something is wrong with a replica.
    pub(crate) fn add(&self, partition: TopicPartition, impairment: Impairment) {
        let added = self.lock().entry(partition).or_default().insert(impairment);
        if added {
            self.changed.notify_one();
        }
    }

    /// It is not any more.
    pub(crate) fn remove(&self, partition: TopicPartition, impairment: Impairment) {
        let mut known = self.lock();
        let Some(reasons) = known.get_mut(&partition) else {
            return;
        };
        let removed = reasons.remove(&impairment);
        if reasons.is_empty() {
            known.remove(&partition);
        }
        if removed {
            self.changed.notify_one();
        }
    }

    /// The replica is gone, and with it what was wrong.
    pub(crate) fn forget(&self, partition: TopicPartition) {
        if self.lock().remove(&partition).is_some() {
            self.changed.notify_one();
        }
    }

    /// The worst of each replica that is not fit.
    pub(crate) fn all(&self) -> Impaired {
        let known = self.lock();
        let worst = known
            .iter()
            .filter_map(|(id, reasons)| Some((*id, *reasons.first()?)));
        worst.collect()
    }

    /// The replicas whose logs are damaged.
    pub(crate) fn damaged(&self) -> Vec<TopicPartition> {
        let known = self.lock();
        let damaged = known
            .iter()
            .filter(|(_, reasons)| reasons.contains(&Impairment::Damaged));
        damaged.map(|(id, _)| *id).collect()
    }

    /// Waits until something changed since the last call. For one waiter.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, BTreeSet<Impairment>>> {
        self.known.lock().expect("no panic while locked")
    }
}

impl<E: Env> Broker<E> {
    /// Takes the replicas of failed log directories out of service; gives why the broker cannot go on, if so.
    pub(crate) fn take_directories_offline(self: &Arc<Self>) -> Option<String> {
        let directories = self.replication.directories();
        for directory in directories {
            let Some(reason) = directory.offline() else {
                continue;
            };
            let mut taken = 0;
            for partition in self.partitions() {
                if partition.is_in(directory.path()) && partition.go_offline() {
                    self.replication.unfollow(partition.id);
                    self.replication
                        .impairments
                        .add(partition.id, Impairment::Offline);
                    taken += 1;
                }
            }
            if taken > 0 {
                tracing::error!(directory = %directory.path().display(), reason, replicas = taken, "the replicas of a failed log directory are offline");
            }
        }
        self.out_of_directories()
    }

    /// With its last log directory a broker has nothing to serve, and a voter without its metadata log may not vote: it
    /// stops, as Kafka's does, so that others lead and whoever runs it sees that it needs a disk.
    fn out_of_directories(&self) -> Option<String> {
        let directories = self.replication.directories();
        let failed = || {
            directories
                .iter()
                .filter_map(|directory| Some((directory, directory.offline()?)))
        };
        let (_, reason) = failed().next()?;
        if failed().count() == directories.len() {
            return Some(format!(
                "every log directory is offline, the first because of: {reason}. Repair or replace the disk and start the \
                 broker again"
            ));
        }
        let metadata = self.cluster.metadata_directory()?;
        let (directory, reason) = failed().find(|(directory, _)| directory.path() == metadata)?;
        Some(format!(
            "the log directory {} failed, and it holds the metadata log that this broker votes with: {reason}. Repair or \
             replace the disk and start the broker again",
            directory.path().display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use taffrail_core::ids::TopicId;

    use super::*;

    #[test]
    fn the_worst_of_what_is_wrong_is_told_until_nothing_is() {
        let impairments = Impairments::default();
        let id = TopicPartition::new(TopicId([1; 16]), 0);
        let told = || impairments.all().get(&id).copied();
        impairments.add(id, Impairment::Full);
        impairments.add(id, Impairment::Offline);
        impairments.add(id, Impairment::Damaged);
        assert_eq!(told(), Some(Impairment::Offline));
        impairments.remove(id, Impairment::Offline);
        assert_eq!(told(), Some(Impairment::Damaged));
        impairments.remove(id, Impairment::Damaged);
        impairments.remove(id, Impairment::Full);
        assert_eq!(told(), None);
        impairments.add(id, Impairment::Damaged);
        impairments.forget(id);
        assert_eq!(told(), None);
    }
}
