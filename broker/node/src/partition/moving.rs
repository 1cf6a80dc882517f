//! The replica's side of a move to another log directory of this broker: a copy there (Kafka's future replica) that follows
//! the log here batch by batch, until both are the same and it takes its place. Neither role nor offsets change over it, so
//! nobody outside of the broker notices.
//!
//! The copy has a lock of its own, which is taken before the replica's. The log is read under the replica's lock, and written
//! there without it; only what came in between the last fsync of the copy and the end is copied under both.

use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};

use taffrail_core::error::ErrorKind;
use taffrail_log::{
    AbortedTransaction, CheckpointKind, Ends, Flush, Flushed, Log, LogDirectory, LogError,
    PartitionFolder, ReadLimits, Retired, RoomFor,
};

use super::repair::Soundness;
use super::{Partition, Replica, Role, storage_error};
use crate::env::Env;
use crate::producer_snapshots;

/// Bytes copied at a time: much for a disk, little for those who wait for the replica meanwhile.
const COPIED_BYTES: usize = 1 << 20;

/// A copy is made durable each time that so much of it is not, as a log that is appended to would be.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;

/// What may be left to copy, and to fsync, while nobody can append. It doubles with each attempt after which more was left, so
/// that a producer that is fast beside the disk does not keep a move from its end.
const LAST_BYTES: u64 = 256 << 10;
const LAST_BYTES_MAX: u64 = 16 << 20;

const LIMITS: ReadLimits = ReadLimits {
    max_bytes: COPIED_BYTES,
    min_one: true,
    end_offset: i64::MAX,
};

/// What is between a replica and its copy in another directory.
pub(super) struct Moving<E: Env> {
    copy: Option<FutureReplica<E>>,
    /// How many copies were begun: tells an fsync of one from that of the next.
    begun: u64,
}

struct FutureReplica<E: Env> {
    log: Log<E::Disk>,
    /// Bytes appended that no fsync was begun for.
    unflushed: u64,
    /// Whether everything was made durable once, names and checkpoints too.
    is_durable: bool,
    last_bytes: u64,
    /// Below this offset it has every aborted transaction noted. What a stop has left is gone through again.
    aborted_to: i64,
    /// Whether it was told that it does not get on.
    told: bool,
}

/// What a step of a move came to.
pub(crate) enum MoveStep<E: Env> {
    /// So many bytes were copied, and there may be more.
    Copied(usize),
    /// This has to be fsynced first, and [`Partition::finish_copy_flush`] be told.
    Flush(CopyFlush<E>),
    /// It does not get on now, which was told.
    Waits,
    /// The copy is the replica now. Where it was before, and the folder that is left there, unless that has to be kept.
    Moved(LogDirectory<E::Disk>, Option<PartitionFolder>),
    /// Nothing is moved any more.
    Over,
}

/// An fsync of a copy.
pub(crate) struct CopyFlush<E: Env> {
    flush: Flush<E::Disk>,
    directory: LogDirectory<E::Disk>,
    begun: u64,
}

/// What came of one.
pub(crate) struct CopyFlushed {
    flushed: Result<Flushed, LogError>,
    checkpointed: Result<(), LogError>,
    begun: u64,
}

/// A copy that is not needed: its folder, renamed already, is to be removed.
pub(crate) type Leftover<E> = (LogDirectory<<E as Env>::Disk>, PartitionFolder);

/// What came of the wish to move a replica.
pub(crate) struct Begun<E: Env> {
    /// Whether there is something to copy; not if the replica is there already.
    pub(crate) moves: bool,
    /// What the move before left, which went elsewhere.
    pub(crate) leftover: Option<Leftover<E>>,
}

/// A copy at one moment, for people who ask.
pub(crate) struct CopyNumbers {
    pub(crate) directory: PathBuf,
    pub(crate) size: u64,
    /// Records that the replica has and the copy has not.
    pub(crate) lag: i64,
}

/// Why a step did not get on.
enum Stop {
    /// A log directory has failed.
    Failed(LogError),
    /// Something that may be over soon.
    Later(String),
}

impl<E: Env> CopyFlush<E> {
    /// Runs it, and writes down what a start goes by if the copy has become the replica.
    pub(crate) fn run(self) -> CopyFlushed {
        let checkpoint = |kind| self.directory.write_checkpoint(kind);
        let flushed = self.flush.run();
        CopyFlushed {
            flushed,
            checkpointed: checkpoint(CheckpointKind::LogStart)
                .and_then(|()| checkpoint(CheckpointKind::HighWatermark)),
            begun: self.begun,
        }
    }
}

impl<E: Env> Default for Moving<E> {
    fn default() -> Self {
        Self {
            copy: None,
            begun: 0,
        }
    }
}

impl<E: Env> Moving<E> {
    fn begin(&mut self, log: Log<E::Disk>) {
        self.begun += 1;
        self.copy = Some(FutureReplica {
            log,
            unflushed: 0,
            is_durable: false,
            last_bytes: LAST_BYTES,
            aborted_to: 0,
            told: false,
        });
    }

    fn goes_to(&self, directory: &LogDirectory<E::Disk>) -> bool {
        let copy = self.copy.as_ref();
        copy.is_some_and(|copy| copy.log.directory().path() == directory.path())
    }

    /// Ends the move. Gives what it leaves, for that to be removed.
    fn cancel(&mut self) -> Option<Leftover<E>> {
        self.copy.take().and_then(|copy| leftover::<E>(copy.log))
    }

    /// Ends it so that the next start goes on with it.
    fn close(&mut self) -> Option<(PathBuf, Result<(), LogError>)> {
        let log = self.copy.take()?.log;
        let path = log.directory().path().to_owned();
        Some((path, log.close()))
    }
}

impl<E: Env> Partition<E> {
    /// Begins to move the replica to another log directory; a move to a third one ends.
    pub(crate) fn begin_move(
        &self,
        to: &LogDirectory<E::Disk>,
        wall_ms: i64,
    ) -> Result<Begun<E>, ErrorKind> {
        let mut moving = self.moving();
        let (config, ends) = {
            let mut replica = self.lock();
            let log = replica.log.as_mut().ok_or(ErrorKind::ReplicaNotAvailable)?;
            if log.poisoned().is_some() {
                return Err(ErrorKind::KafkaStorageError);
            }
            let is_there = log.directory().path() == to.path();
            if is_there || moving.goes_to(to) {
                drop(replica);
                let leftover = is_there.then(|| moving.cancel()).flatten();
                return Ok(Begun {
                    moves: !is_there,
                    leftover,
                });
            }
            (Arc::clone(log.config()), log.take_ends())
        };
        let topic_id = self.id.topic_id.0;
        let folder = PartitionFolder::future(&self.topic, self.id.partition, topic_id)
            .ok_or(ErrorKind::InvalidTopicException)?;
        let leftover = moving.cancel();
        let made = to.create_future_log(&folder, topic_id, config, wall_ms);
        let made = made.and_then(|mut log| {
            log.follow_ends(ends, wall_ms)?.remove()?;
            Ok(log)
        });
        match made {
            Ok(log) => {
                tracing::info!(partition = %self.name(), to = %to.path().display(), "the replica is being moved to another log directory");
                moving.begin(log);
                Ok(Begun {
                    moves: true,
                    leftover,
                })
            }
            Err(error) => {
                tracing::warn!(partition = %self.name(), to = %to.path().display(), %error, "the replica cannot be moved");
                Err(storage_error(&error))
            }
        }
    }

    /// Goes on with a copy that a stop has left; gives it back for removal if it is of no use.
    pub(crate) fn resume_move(&self, mut copy: Log<E::Disk>, wall_ms: i64) -> Option<Leftover<E>> {
        let mut moving = self.moving();
        let mut replica = self.lock();
        let current = replica.log.as_mut().filter(|log| {
            let is_elsewhere = copy.directory().path() != log.directory().path();
            is_elsewhere && copy.topic_id() == log.topic_id()
        });
        let cut = match current {
            Some(log) if moving.copy.is_none() => {
                // All that was taken back so far is seen to by this.
                log.take_ends();
                copy.cut_to_common(log, wall_ms)
                    .map_err(|error| error.to_string())
            }
            Some(_) | None => Err("it is not of this replica, or not the only one".to_owned()),
        };
        drop(replica);
        let to = copy.directory().path().display().to_string();
        match cut {
            Ok(()) => {
                let log_end_offset = copy.log_end_offset();
                tracing::info!(partition = %self.name(), to, log_end_offset, "goes on moving the replica to another log directory");
                moving.begin(copy);
                None
            }
            Err(reason) => {
                tracing::warn!(partition = %self.name(), to, reason, "what was copied of the replica before is removed");
                leftover::<E>(copy)
            }
        }
    }

    /// The copy in the making, if there is one.
    pub(crate) fn copy_numbers(&self) -> Option<CopyNumbers> {
        let moving = self.moving();
        let copy = &moving.copy.as_ref()?.log;
        let log_end_offset = self.lock().log.as_ref()?.log_end_offset();
        Some(CopyNumbers {
            directory: copy.directory().path().to_owned(),
            size: copy.size(),
            lag: (log_end_offset - copy.log_end_offset()).max(0),
        })
    }

    /// Ends a move without a result. Gives what it leaves, for that to be removed.
    pub(crate) fn cancel_move(&self) -> Option<Leftover<E>> {
        self.moving().cancel()
    }

    /// Closes the copy for good; the next start goes on with it. Gives its directory and what came of it.
    pub(crate) fn close_copy(&self) -> Option<(PathBuf, Result<(), LogError>)> {
        self.moving().close()
    }

    /// Takes the next step of a move. It takes as long as a disk takes for some megabytes, and must not run on the event loop.
    pub(crate) fn step_move(&self, env: &E) -> MoveStep<E> {
        let mut moving = self.moving();
        let begun = moving.begun;
        let Some(copy) = &mut moving.copy else {
            return MoveStep::Over;
        };
        let to = copy.log.directory().path().display().to_string();
        let over = match self.step(env, copy, begun) {
            Ok(MoveStep::Over) => MoveStep::Over,
            Ok(MoveStep::Moved(from, left)) => {
                tracing::info!(partition = %self.name(), from = %from.path().display(), to, "the replica was moved");
                // The log that it holds now is the old one.
                moving.copy = None;
                return MoveStep::Moved(from, left);
            }
            Ok(step) => {
                copy.told = false;
                return step;
            }
            Err(Stop::Later(reason)) => {
                if !std::mem::replace(&mut copy.told, true) {
                    tracing::warn!(partition = %self.name(), to, reason, "the move of the replica has to wait");
                }
                return MoveStep::Waits;
            }
            Err(Stop::Failed(error)) => {
                tracing::error!(partition = %self.name(), to, %error, "the replica cannot be moved");
                MoveStep::Over
            }
        };
        // With the failed directory back, the next start goes on with it.
        if let Some((_, Err(error))) = moving.close() {
            tracing::debug!(partition = %self.name(), to, %error, "the copy was not closed");
        }
        over
    }

    /// The fsync of the copy is done, or failed. Tells whether it can be gone on with at once.
    pub(crate) fn finish_copy_flush(&self, done: CopyFlushed) -> bool {
        let mut moving = self.moving();
        if moving.begun != done.begun {
            return true;
        }
        let Some(copy) = &mut moving.copy else {
            return true;
        };
        let finished = copy.log.finish_flush(done.flushed).map(drop);
        let finished = finished.and(done.checkpointed);
        copy.is_durable = finished.is_ok();
        if let Err(error) = &finished {
            super::upkeep::log_failure(&self.name(), "flush of a copy", error);
        }
        copy.is_durable
    }

    fn step(&self, env: &E, copy: &mut FutureReplica<E>, begun: u64) -> Result<MoveStep<E>, Stop> {
        if copy.unflushed >= UNFLUSHED_BYTES_MAX {
            return self.flush_copy(copy, begun);
        }
        let range = {
            let mut replica = self.lock();
            if matches!(replica.soundness, Soundness::Damaged { .. }) {
                return Err(Stop::Later("its log is damaged".to_owned()));
            }
            let Some(log) = replica.log.as_mut().filter(|log| log.poisoned().is_none()) else {
                return Ok(MoveStep::Over);
            };
            let held = log.log_start_offset()..=log.log_end_offset();
            if log.was_cut() || !held.contains(&copy.log.log_end_offset()) {
                let ends = log.take_ends();
                drop(replica);
                follow(copy, ends, env.wall_ms())?;
                return Ok(MoveStep::Copied(0));
            }
            copy.log.set_config(Arc::clone(log.config()));
            log.read(copy.log.log_end_offset(), LIMITS)
        };
        match range {
            Ok(Some(range)) => {
                let mut records = Vec::new();
                let read = range.read_into(&mut records);
                read.map_err(|error| Stop::Later(error.to_string()))?;
                let was_cut = || self.lock().log.as_ref().is_some_and(Log::was_cut);
                let copied = self.append_to_copy(copy, &records, env.wall_ms(), was_cut)?;
                self.copy_aborted(copy)?;
                Ok(MoveStep::Copied(copied))
            }
            Ok(None) if !copy.is_durable => self.flush_copy(copy, begun),
            Ok(None) if copy.unflushed > copy.last_bytes => {
                copy.last_bytes = (copy.last_bytes * 2).min(LAST_BYTES_MAX);
                self.flush_copy(copy, begun)
            }
            Ok(None) => {
                self.copy_aborted(copy)?;
                self.take_over(env, copy)
            }
            Err(error) => Err(self.read_stop(copy, &error)),
        }
    }

    /// The fsyncs that make all of the copy durable; what a start goes by is noted before.
    fn flush_copy(&self, copy: &mut FutureReplica<E>, begun: u64) -> Result<MoveStep<E>, Stop> {
        let high_watermark = self.lock().high_watermark();
        self.publish_high_watermark_of(&copy.log, high_watermark);
        let flush = copy.log.begin_flush_of_all().map_err(stop_of)?;
        copy.unflushed = 0;
        Ok(MoveStep::Flush(CopyFlush {
            flush,
            directory: copy.log.directory().clone(),
            begun,
        }))
    }

    /// Under both locks: copies what little came since the copy was the same, and has it take the replica's place.
    fn take_over(&self, env: &E, copy: &mut FutureReplica<E>) -> Result<MoveStep<E>, Stop> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        if replica.soundness != Soundness::Sound {
            return Err(Stop::Later("its log is not whole".to_owned()));
        }
        let Some(log) = replica.log.as_mut().filter(|log| log.poisoned().is_none()) else {
            return Ok(MoveStep::Over);
        };
        if log.was_cut() || !self.copy_rest(log, copy, env.wall_ms())? {
            return Ok(MoveStep::Copied(0));
        }
        follow(copy, log.take_ends(), env.wall_ms())?;
        let end = log.log_end_offset();
        if copy.log.log_end_offset() != end {
            let reached = copy.log.log_end_offset();
            return Err(Stop::Later(format!("no batch is at offset {reached}")));
        }
        while note_aborted(copy, missing_aborted(log, copy)?)? {}
        copy.log.adopt(log);
        producer_snapshots::write(&mut copy.log, end, &replica.producers);
        let flushed = copy.log.begin_flush_of_all().map_err(stop_of)?.run();
        copy.log.finish_flush(flushed).map_err(stop_of)?;
        let from = log.directory().clone();
        let left = copy.log.take_place_of(log).map_err(stop_of)?;
        std::mem::swap(log, &mut copy.log);
        let flushed = log.recovery_point();
        let high_watermark = replica.high_watermark();
        if let Some(log) = &replica.log {
            self.publish_high_watermark_of(log, high_watermark);
        }
        self.note_moved(env, replica, flushed);
        Ok(MoveStep::Moved(from, left))
    }

    /// The replica's log is another one, with the same in it, and all of that is durable.
    fn note_moved(&self, env: &E, replica: &mut Replica<E>, flushed: i64) {
        // Fsyncs of the other one that are under way say nothing of this one.
        replica.log_number += 1;
        let mut effects = std::mem::take(&mut replica.effects);
        if let Role::Leader(leader) = &mut replica.role {
            leader.handle_flushed(env.now(), flushed, &mut effects);
        }
        self.settle(replica, effects);
        if replica.flush_ack {
            self.flushes.push(self.id);
        }
    }

    /// Copies what the log has and the copy has not, unless that is more than may be left for the end.
    fn copy_rest(
        &self,
        log: &mut Log<E::Disk>,
        copy: &mut FutureReplica<E>,
        wall_ms: i64,
    ) -> Result<bool, Stop> {
        let mut left = copy.last_bytes;
        loop {
            let range = log.read(copy.log.log_end_offset(), LIMITS);
            let range = range.map_err(|error| self.read_stop(copy, &error))?;
            let Some(range) = range else { return Ok(true) };
            let Some(less) = left.checked_sub(range.length as u64) else {
                copy.last_bytes = (copy.last_bytes * 2).min(LAST_BYTES_MAX);
                return Ok(false);
            };
            left = less;
            let mut records = Vec::new();
            let read = range.read_into(&mut records);
            read.map_err(|error| Stop::Later(error.to_string()))?;
            self.append_to_copy(copy, &records, wall_ms, || false)?;
        }
    }

    /// Notes in the copy which of the transactions that it holds were aborted: it is appended to without knowing of producers.
    /// Of a log that was cut meanwhile it may be told too much, which goes when the copy is cut, too.
    fn copy_aborted(&self, copy: &mut FutureReplica<E>) -> Result<(), Stop> {
        loop {
            let missing = match &self.lock().log {
                Some(log) => missing_aborted(log, copy)?,
                None => return Ok(()),
            };
            if !note_aborted(copy, missing)? {
                return Ok(());
            }
        }
    }

    /// Appends what was read. With `was_cut` the log has taken records back since: what was read may be anything.
    fn append_to_copy(
        &self,
        copy: &mut FutureReplica<E>,
        records: &[u8],
        wall_ms: i64,
        was_cut: impl FnOnce() -> bool,
    ) -> Result<usize, Stop> {
        let directory = copy.log.directory();
        if !directory.has_room(records.len() as u64, RoomFor::Replication) {
            return Err(Stop::Later("there is no room where it goes to".to_owned()));
        }
        let offset = copy.log.log_end_offset();
        let wrong = match copy.log.append_follower(records, i32::MAX, wall_ms) {
            Ok(appended) if appended.bytes > 0 => {
                copy.unflushed += appended.bytes as u64;
                return Ok(appended.bytes);
            }
            Ok(_) => "no whole batch is there".to_owned(),
            Err(
                error @ (LogError::DiskFull { .. }
                | LogError::Io { .. }
                | LogError::Poisoned { .. }),
            ) => return Err(stop_of(error)),
            Err(error) => error.to_string(),
        };
        if was_cut() {
            return Ok(0);
        }
        self.suspects.push(self.id, offset);
        Err(Stop::Later(format!(
            "its log may be damaged at offset {offset}: {wrong}"
        )))
    }

    fn read_stop(&self, copy: &FutureReplica<E>, error: &LogError) -> Stop {
        if matches!(error, LogError::Corrupt { .. }) {
            self.suspects.push(self.id, copy.log.log_end_offset());
        }
        Stop::Later(error.to_string())
    }

    fn publish_high_watermark_of(&self, log: &Log<E::Disk>, high_watermark: i64) {
        let (topic, partition) = (&self.topic, self.id.partition);
        let kind = CheckpointKind::HighWatermark;
        log.directory()
            .publish(kind, topic, partition, high_watermark);
    }

    fn moving(&self) -> MutexGuard<'_, Moving<E>> {
        self.moving
            .lock()
            .expect("no panic while a replica is moved")
    }
}

/// A copy follows where its log ends and starts.
fn follow<E: Env>(copy: &mut FutureReplica<E>, ends: Ends, wall_ms: i64) -> Result<(), Stop> {
    let followed = copy.log.follow_ends(ends, wall_ms);
    copy.aborted_to = copy.aborted_to.min(copy.log.log_end_offset());
    followed.and_then(Retired::remove).map_err(stop_of)
}

/// Some of the aborted transactions that the copy has and does not know of.
fn missing_aborted<E: Env>(
    log: &Log<E::Disk>,
    copy: &FutureReplica<E>,
) -> Result<Vec<AbortedTransaction>, Stop> {
    let end_offset = copy.log.log_end_offset().min(log.log_end_offset());
    log.aborted_with_markers(copy.aborted_to, end_offset)
        .map_err(|error| Stop::Later(error.to_string()))
}

/// Tells whether there may be more.
fn note_aborted<E: Env>(
    copy: &mut FutureReplica<E>,
    missing: Vec<AbortedTransaction>,
) -> Result<bool, Stop> {
    for aborted in &missing {
        copy.log.note_aborted(*aborted).map_err(stop_of)?;
        copy.aborted_to = aborted.last_offset + 1;
    }
    Ok(!missing.is_empty())
}

/// Renames the folder of a copy that is not needed, for it to be removed.
fn leftover<E: Env>(copy: Log<E::Disk>) -> Option<Leftover<E>> {
    let (directory, folder) = (copy.directory().clone(), copy.folder().clone());
    drop(copy);
    match directory.mark_deleted(&folder) {
        Ok(deleted) => Some((directory, deleted)),
        Err(error) => {
            tracing::warn!(copy = folder.name, directory = %directory.path().display(), %error, "what was copied of a replica stays until the next start");
            None
        }
    }
}

fn stop_of(error: LogError) -> Stop {
    match error {
        LogError::DiskFull { .. } => Stop::Later(error.to_string()),
        error => Stop::Failed(error),
    }
}
