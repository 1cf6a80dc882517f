//! Which replicas here are not fit, and why; who must know is woken. A log directory that failed takes its replicas with it
//! and no others: they stop serving at once, and the next heartbeat, sent at once too, has the controller move
//! their leadership (KIP-112, KIP-858).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use taffrail_core::controller::{Impairment, Report};
use taffrail_core::ids::TopicPartition;
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;

/// What is wrong with replicas here. It holds what is wrong only, so that heartbeats need not look at every replica.
#[derive(Debug, Default)]
pub(crate) struct Impairments {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Grows with every change.
    version: i64,
    /// By partition, the worst first.
    known: BTreeMap<TopicPartition, BTreeMap<Impairment, Told>>,
}

/// Whether the controller knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Not that is known; reports have it from this version on.
    Not { since: i64 },
    /// Yes, and what it had decided before ends at this index of the metadata log.
    At(i64),
}

impl Impairments {
    /// Something is wrong with a replica.
    pub(crate) fn add(&self, partition: TopicPartition, impairment: Impairment) {
        let mut state = self.lock();
        let since = state.version + 1;
        let reasons = state.known.entry(partition).or_default();
        if reasons.contains_key(&impairment) {
            return;
        }
        reasons.insert(impairment, Told::Not { since });
        self.note_change(&mut state);
    }

    /// It is not any more.
    pub(crate) fn remove(&self, partition: TopicPartition, impairment: Impairment) {
        let mut state = self.lock();
        let Some(reasons) = state.known.get_mut(&partition) else {
            return;
        };
        let removed = reasons.remove(&impairment).is_some();
        if reasons.is_empty() {
            state.known.remove(&partition);
        }
        if removed {
            self.note_change(&mut state);
        }
    }

    /// The replica is gone, and with it what was wrong.
    pub(crate) fn forget(&self, partition: TopicPartition) {
        let mut state = self.lock();
        if state.known.remove(&partition).is_some() {
            self.note_change(&mut state);
        }
    }

    fn note_change(&self, state: &mut State) {
        state.version += 1;
        self.changed.notify_one();
    }

    /// The worst of each replica that is not fit.
    pub(crate) fn report(&self) -> Report {
        let state = self.lock();
        let worst = state
            .known
            .iter()
            .filter_map(|(id, reasons)| Some((*id, *reasons.first_key_value()?.0)));
        Report {
            version: state.version,
            impaired: worst.collect(),
        }
    }

    /// The controller answered a report; what it had decided until then ends at `index` of the metadata log.
    pub(crate) fn note_told(&self, report: &Report, index: i64) {
        let mut state = self.lock();
        for (id, impairment) in &report.impaired {
            let reasons = state.known.get_mut(id);
            let told = reasons.and_then(|reasons| reasons.get_mut(impairment));
            // It may be another damage than the one that was reported.
            if let Some(told) = told
                && matches!(told, Told::Not { since } if *since <= report.version)
            {
                *told = Told::At(index);
            }
        }
    }

    /// The index up to which the metadata may count on a replica that is known to be unfit in this way; none while the
    /// controller may not know of it.
    pub(crate) fn told_at(&self, partition: TopicPartition, impairment: Impairment) -> Option<i64> {
        match self.lock().known.get(&partition)?.get(&impairment)? {
            Told::At(index) => Some(*index),
            Told::Not { .. } => None,
        }
    }

    /// The replicas that are unfit in this way.
    pub(crate) fn replicas(&self, impairment: Impairment) -> Vec<TopicPartition> {
        let state = self.lock();
        let unfit = state
            .known
            .iter()
            .filter(|(_, reasons)| reasons.contains_key(&impairment));
        unfit.map(|(id, _)| *id).collect()
    }

    /// Waits until something changed since the last call. For one waiter.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
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
        let told = || impairments.report().impaired.get(&id).copied();
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

    #[test]
    fn only_the_answer_to_a_report_that_carried_it_says_that_the_controller_knows() {
        let impairments = Impairments::default();
        let id = TopicPartition::new(TopicId([1; 16]), 0);
        let told = || impairments.told_at(id, Impairment::Damaged);
        let before = impairments.report();
        impairments.add(id, Impairment::Damaged);
        impairments.note_told(&before, 5);
        assert_eq!(told(), None);
        let first = impairments.report();
        assert!(first.version > before.version);
        impairments.note_told(&first, 6);
        assert_eq!(told(), Some(6));
        impairments.note_told(&impairments.report(), 9);
        assert_eq!(
            told(),
            Some(6),
            "what came after the first answer does not count on it"
        );

        // Whole again, and damaged again: an answer to what was told of the first time says nothing of the second.
        impairments.remove(id, Impairment::Damaged);
        impairments.add(id, Impairment::Damaged);
        impairments.note_told(&first, 11);
        assert_eq!(told(), None);
        // Something worse hides it.
        impairments.add(id, Impairment::Offline);
        impairments.note_told(&impairments.report(), 12);
        assert_eq!(told(), None);
        impairments.remove(id, Impairment::Offline);
        impairments.note_told(&impairments.report(), 13);
        assert_eq!(told(), Some(13));
    }
}
