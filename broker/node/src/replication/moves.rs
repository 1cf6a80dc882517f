//! Replicas that move between the log directories of this broker (AlterReplicaLogDirs): which do, in which order, and how fast
//! (`replica.alter.log.dirs.io.max.bytes.per.second`). One task copies one replica after another, as a disk likes it best.
//! What a step does is the replica's (`partition/moving.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::TopicPartition;
use taffrail_log::{CheckpointKind, FolderState, LogDirectory, LogError, PartitionFolder};
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;
use crate::housekeeping::write_checkpoint;
use crate::partition::{Leftover, MoveStep, Partition};

/// A move that does not get on is tried again after this, and others are gone on with meanwhile.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// With its share of the rate used up, the task looks again after this.
const THROTTLE_PAUSE: Duration = Duration::from_millis(100);

/// How many wishes are kept of where replicas shall go that are not here yet; each is some 300 bytes.
const WISHES_MAX: usize = 10_000;

/// The moves of a broker.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// The first is copied.
    waiting: Mutex<VecDeque<TopicPartition>>,
    wake: Notify,
    /// The log directories that replicas shall be made in which are not here yet, by topic and partition. A tool that
    /// moves a replica to this broker and says in which directory, may come before the replica.
    wishes: Mutex<BTreeMap<(String, i32), PathBuf>>,
}

impl Moves {
    fn push(&self, partition: TopicPartition) {
        let mut waiting = self.waiting();
        if !waiting.contains(&partition) {
            waiting.push_back(partition);
        }
        self.wake.notify_one();
    }

    fn first(&self) -> Option<TopicPartition> {
        self.waiting().front().copied()
    }

    /// The first has ended.
    fn end(&self, partition: TopicPartition) {
        self.waiting().retain(|other| *other != partition);
    }

    /// The first lets others go first. Tells how many there are in all.
    fn postpone(&self, partition: TopicPartition) -> usize {
        let mut waiting = self.waiting();
        waiting.retain(|other| *other != partition);
        waiting.push_back(partition);
        waiting.len()
    }

    /// Makes the task look around.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn wish(&self, topic: &str, partition: i32, directory: &Path) {
        let mut wishes = self.wishes.lock().expect("no panic while locked");
        let key = (topic.to_owned(), partition);
        if wishes.len() < WISHES_MAX || wishes.contains_key(&key) {
            wishes.insert(key, directory.to_owned());
        }
    }

    /// Where a new replica shall be made, if somebody said so.
    pub(super) fn wished(&self, topic: &str, partition: i32) -> Option<PathBuf> {
        let wishes = self.wishes.lock().expect("no panic while locked");
        wishes.get(&(topic.to_owned(), partition)).cloned()
    }

    /// The replica was made.
    pub(super) fn forget_wish(&self, topic: &str, partition: i32) {
        let mut wishes = self.wishes.lock().expect("no panic while locked");
        wishes.remove(&(topic.to_owned(), partition));
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<TopicPartition>> {
        self.waiting.lock().expect("no panic while locked")
    }
}

impl<E: Env> Broker<E> {
    /// The log directory that a client names. `LogDirNotFound` if `log.dirs` does not have it, `KafkaStorageError` if it
    /// cannot be used.
    pub(crate) fn log_directory(&self, path: &str) -> Result<LogDirectory<E::Disk>, ErrorKind> {
        let directories = self.replication.directories().iter();
        let mut unusable = self.replication.unusable_directories().iter();
        let wanted = Path::new(path);
        let found = directories.clone().find(|held| held.path() == wanted);
        match found {
            Some(directory) if directory.offline().is_none() => Ok(directory.clone()),
            Some(_) => Err(ErrorKind::KafkaStorageError),
            None if unusable.any(|held| Path::new(&held.path) == wanted) => {
                Err(ErrorKind::KafkaStorageError)
            }
            None => Err(ErrorKind::LogDirNotFound),
        }
    }

    /// Has a replica move to another log directory of this broker. For one that is not here it is kept in mind where to make it,
    /// should it come, and answered `ReplicaNotAvailable`, upon which tools ask again. Blocks on the disk.
    pub(crate) fn move_replica(
        self: &Arc<Self>,
        topic: &str,
        partition: i32,
        to: &LogDirectory<E::Disk>,
    ) -> Result<(), ErrorKind> {
        if self.is_stopping() {
            return Err(ErrorKind::ReplicaNotAvailable);
        }
        let known = self.cluster.image();
        let known = known.topic_by_name(topic);
        let held = known.and_then(|known| self.partition(TopicPartition::new(known.id, partition)));
        let Some(held) = held else {
            self.replication.moves.wish(topic, partition, to.path());
            return Err(ErrorKind::ReplicaNotAvailable);
        };
        let begun = held.begin_move(to, self.env.wall_ms())?;
        if let Some(leftover) = begun.leftover {
            self.remove_deleted(held.name(), leftover);
        }
        if begun.moves {
            self.replication.moves.push(held.id);
        }
        Ok(())
    }

    /// Removes a folder that was renamed for it, in the background.
    pub(super) fn remove_deleted(&self, partition: String, (directory, deleted): Leftover<E>) {
        let env = self.env.clone();
        self.env.spawn(async move {
            let removed = env.run_blocking(move || directory.remove(&deleted)).await;
            if let Err(error) = removed {
                tracing::warn!(partition, %error, "the files of a deleted replica are still there");
            }
        });
    }

    /// Goes on with the copies that the last stop has left. `all_usable` says that no log directory is missing: a copy without
    /// a replica is then of no use to this broker.
    pub(super) fn resume_moves(&self, directories: &[LogDirectory<E::Disk>], all_usable: bool) {
        for directory in directories {
            if directory.offline().is_some() {
                continue;
            }
            let resumed = directory
                .folders()
                .map_err(|error| error.to_string())
                .and_then(|folders| {
                    let result = folders
                        .iter()
                        .try_for_each(|folder| self.resume_move(directory, folder, all_usable));
                    result.map_err(|error| error.to_string())
                });
            if let Err(reason) = resumed {
                directory.mark_offline(&reason);
            }
        }
    }

    fn resume_move(
        &self,
        directory: &LogDirectory<E::Disk>,
        folder: &PartitionFolder,
        all_usable: bool,
    ) -> Result<(), LogError> {
        let FolderState::Future(id) = folder.state else {
            return Ok(());
        };
        let id = TopicPartition::new(taffrail_core::ids::TopicId(id), folder.partition);
        let Some(partition) = self.partition(id) else {
            if all_usable {
                let stray = directory.mark_stray(folder)?;
                tracing::warn!(
                    from = folder.name,
                    to = stray.name,
                    "a copy of a replica that is not here is kept aside"
                );
            }
            return Ok(());
        };
        let wall_ms = self.env.wall_ms();
        let leftover = match directory.open_log(folder, partition.log_config(), wall_ms) {
            Ok((copy, _)) => partition.resume_move(copy, wall_ms),
            Err(LogError::Corrupt { path, reason }) => {
                tracing::warn!(partition = %partition.name(), path, reason, "what was copied of the replica before is removed");
                Some((directory.clone(), directory.mark_deleted(folder)?))
            }
            Err(error) => return Err(error),
        };
        match leftover {
            Some(leftover) => self.remove_deleted(partition.name(), leftover),
            None => self.replication.moves.push(id),
        }
        Ok(())
    }
}

/// Moves replicas until the broker stops.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
    let moves = &broker.replication.moves;
    // How many steps in a row did not get on.
    let mut stuck = 0;
    while !broker.is_stopping() {
        let Some(id) = moves.first() else {
            moves.wake.notified().await;
            continue;
        };
        let Some(partition) = broker.partition(id) else {
            moves.end(id);
            continue;
        };
        if broker
            .replication
            .throttles
            .log_dirs
            .is_exceeded(broker.env.now())
        {
            rest(&broker, THROTTLE_PAUSE).await;
            continue;
        }
        if step(&broker, &partition).await {
            stuck = 0;
            continue;
        }
        stuck += 1;
        if stuck >= moves.postpone(id) {
            rest(&broker, RETRY_PAUSE).await;
            stuck = 0;
        }
    }
}

/// One step of one move. `false` if it does not get on.
async fn step<E: Env>(broker: &Arc<Broker<E>>, partition: &Arc<Partition<E>>) -> bool {
    let (stepping, env) = (Arc::clone(partition), broker.env.clone());
    let step = broker.env.run_blocking(move || stepping.step_move(&env));
    match step.await {
        MoveStep::Copied(bytes) => {
            let throttle = &broker.replication.throttles.log_dirs;
            throttle.record(broker.env.now(), bytes);
            true
        }
        MoveStep::Flush(flush) => {
            let done = broker.env.run_blocking(move || flush.run()).await;
            let done = partition.finish_copy_flush(done);
            // A start after a kill reads what is above the recovery points, of copies too.
            write_checkpoint(broker, CheckpointKind::RecoveryPoint).await;
            done
        }
        MoveStep::Waits => false,
        MoveStep::Moved(from, left) => {
            broker.replication.moves.end(partition.id);
            if let Some(left) = left {
                broker.remove_deleted(partition.name(), (from, left));
            }
            write_checkpoint(broker, CheckpointKind::RecoveryPoint).await;
            true
        }
        MoveStep::Over => {
            broker.replication.moves.end(partition.id);
            true
        }
    }
}

/// Waits, at most until another move is asked for.
async fn rest<E: Env>(broker: &Arc<Broker<E>>, pause: Duration) {
    let until = broker.env.now() + pause;
    tokio::select! {
        biased;
        () = broker.replication.moves.wake.notified() => {}
        () = broker.env.sleep_until(until) => {}
    }
}

#[cfg(test)]
mod tests {
    use taffrail_core::ids::TopicId;

    use super::*;

    #[test]
    fn moves_go_one_after_another_and_those_that_wait_let_others_go_first() {
        let moves = Moves::default();
        let id = |partition| TopicPartition::new(TopicId([1; 16]), partition);
        for partition in [0, 1, 0, 2] {
            moves.push(id(partition));
        }
        assert_eq!(moves.first(), Some(id(0)));
        assert_eq!(moves.postpone(id(0)), 3);
        assert_eq!(moves.first(), Some(id(1)));
        moves.end(id(1));
        moves.end(id(2));
        assert_eq!(moves.first(), Some(id(0)));
        moves.end(id(0));
        assert_eq!(moves.first(), None);
    }

    #[test]
    fn a_wish_is_kept_until_the_replica_is_made_and_there_are_only_so_many() {
        let moves = Moves::default();
        moves.wish("a", 0, Path::new("/one"));
        moves.wish("a", 0, Path::new("/two"));
        for partition in 1..=WISHES_MAX as i32 {
            moves.wish("a", partition, Path::new("/one"));
        }
        let last = WISHES_MAX as i32;
        assert_eq!(moves.wished("a", 0), Some(PathBuf::from("/two")));
        assert_eq!(moves.wished("a", last - 1), Some(PathBuf::from("/one")));
        assert_eq!(moves.wished("a", last), None);
        moves.forget_wish("a", 0);
        assert_eq!(moves.wished("a", 0), None);
    }
}
