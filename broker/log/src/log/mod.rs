//! The log of one replica. Each step has its file: open and recovery, append, read, lookup by timestamp, truncation,
//! retention, flush. Methods that change the log take `&mut self`; the caller holds one lock around them all.
//!
//! Invariant: log start offset <= log end offset, recovery point <= log end offset, and there is always an active
//! segment, the last one, whose content ends at the log end offset.

mod aborted;
mod append;
mod batches;
mod check;
mod cleaning;
mod flush;
mod moving;
mod open;
mod producer_snapshots;
mod read;
mod recovery;
mod resume;
mod retention;
mod timestamps;
mod truncate;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{CheckpointKind, format_epochs, replace_unnamed};
use crate::config::LogConfig;
use crate::directory::LogDirectory;
use crate::disk::Disk;
use crate::epochs::LeaderEpochs;
use crate::error::LogError;
use crate::folder::PartitionFolder;
use crate::index::{OffsetEntry, Window};
use crate::segment::{LOG_SUFFIX, Place, Segment};

pub use append::Appended;
pub use batches::{BatchHeaders, LocatedBatch};
pub use check::{CheckStep, SegmentCheck};
pub use flush::{Flush, Flushed};
pub use moving::Ends;
pub use read::{FileRange, ReadLimits};
pub use recovery::Recovered;
pub use retention::Retired;
pub use timestamps::{OffsetLookup, OffsetSpec, RecordSearch, Searched, TimestampOffset};

const EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";

/// Batches at the end of the log that are kept in mind, so that readers and the high watermark near the end need
/// neither index nor file: 64 of 24 bytes are 1.5 KiB, and none in a log that nobody appends to.
const RECENT_MAX: usize = 64;

/// Where one of the newest batches is.
#[derive(Clone, Copy, Debug)]
struct RecentBatch {
    base_offset: i64,
    last_offset: i64,
    position: u64,
}

/// The log of one replica.
pub struct Log<D: Disk> {
    directory: LogDirectory<D>,
    folder: PartitionFolder,
    path: PathBuf,
    topic_id: Option<[u8; 16]>,
    config: Arc<LogConfig>,
    /// By base offset; never empty; the last is active.
    segments: Vec<Segment<D::File>>,
    log_start_offset: i64,
    log_end_offset: i64,
    recovery_point: i64,
    epochs: LeaderEpochs,
    /// Whether the epoch checkpoint on the disk is as in memory.
    epochs_written: bool,
    /// Whether the topic id, and the folder's own name, are durable.
    identity_synced: bool,
    /// Whether this process made it.
    created_here: bool,
    /// Whether it was ever compacted, so that gaps between its batches are no damage.
    compacted: bool,
    /// How often the names of segment files changed, and up to which change they are durable.
    names_changed: u64,
    names_synced: u64,
    truncations: u64,
    /// The lowest offset to which records were taken back since somebody asked.
    cut: Option<i64>,
    /// The newest batches of the active segment; none is left out between the first of them and the end.
    recent: VecDeque<RecentBatch>,
    /// The part of an index file that the last lookup read, with its segment's base offset.
    window: Option<(i64, Window<OffsetEntry>)>,
    spare: Option<retention::Spare<D::File>>,
    poison: Option<String>,
}

impl<D: Disk> Log<D> {
    /// Its folder in the log directory.
    pub fn folder(&self) -> &PartitionFolder {
        &self.folder
    }

    /// The log directory that it is in.
    pub fn directory(&self) -> &LogDirectory<D> {
        &self.directory
    }

    /// The topic id that its folder names; `None` if `partition.metadata` is missing or unreadable.
    pub fn topic_id(&self) -> Option<[u8; 16]> {
        self.topic_id
    }

    /// The settings in force.
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Puts other settings in force, from the next call on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// The offset of the next record.
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// Every record below this offset is on the disk.
    pub fn recovery_point(&self) -> i64 {
        self.recovery_point
    }

    /// Bytes of all segments' content.
    pub fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// How many segments there are.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Base offset of the active segment.
    pub fn active_base_offset(&self) -> i64 {
        self.active().base_offset
    }

    /// Bytes of the active segment's content.
    pub fn active_size(&self) -> u64 {
        self.active().size
    }

    /// The leader epochs and where they began.
    pub fn epochs(&self) -> &LeaderEpochs {
        &self.epochs
    }

    /// Why nothing is appended any more, if so.
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.as_deref().or_else(|| self.directory.offline())
    }

    /// Notes that `epoch` begins at the log end offset: what a new leader does before it serves. It is written with the next
    /// flush. Until then every record of the epoch is above the recovery point and tells of it after a crash; an epoch
    /// without records is forgotten then, as Kafka forgets it at every start, and nobody can have seen it.
    pub fn assign_epoch(&mut self, epoch: i32) -> Result<(), LogError> {
        self.check_writable()?;
        self.assign_epoch_at(epoch, self.log_end_offset)
    }

    /// Gives up what memory a log that nobody uses can do without.
    pub fn release_memory(&mut self) -> Result<(), LogError> {
        self.recent = VecDeque::new();
        self.window = None;
        self.write_indexes()
    }

    /// Brings the active segment's index files up to the log end.
    pub(crate) fn write_indexes(&mut self) -> Result<(), LogError> {
        self.check_writable()?;
        let (segment, place) = self.active_and_place();
        let result = segment.write_indexes(&place);
        self.poison_on_failure(result)
    }

    fn active(&self) -> &Segment<D::File> {
        // The vector is never empty: `open` and `create` put one in, and truncation replaces the last one.
        &self.segments[self.segments.len() - 1]
    }

    fn place(&self) -> Place<'_, D> {
        place(&self.directory, &self.path)
    }

    fn segment_and_place(&mut self, index: usize) -> (&mut Segment<D::File>, Place<'_, D>) {
        (
            &mut self.segments[index],
            place(&self.directory, &self.path),
        )
    }

    fn active_and_place(&mut self) -> (&mut Segment<D::File>, Place<'_, D>) {
        self.segment_and_place(self.segments.len() - 1)
    }

    fn segment_path(&self, base_offset: i64) -> PathBuf {
        self.place().path(base_offset, LOG_SUFFIX)
    }

    /// Index of the segment that holds `offset`, or would.
    fn segment_for(&self, offset: i64) -> usize {
        self.segments
            .partition_point(|segment| segment.base_offset <= offset)
            .saturating_sub(1)
    }

    fn check_writable(&self) -> Result<(), LogError> {
        match &self.poison {
            Some(reason) => Err(LogError::Poisoned {
                reason: reason.clone(),
            }),
            None => self.directory.check_online(),
        }
    }

    /// A write that failed half-way leaves the files unknown: nothing is appended any more, here or in the directory. A
    /// full disk is no such failure, where what failed can be tried again.
    fn poison_on_failure<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        match &result {
            Ok(_) | Err(LogError::DiskFull { .. }) => {}
            Err(error) => self.poison(error),
        }
        result
    }

    /// The same for what cannot be tried again.
    fn poison_on_any_failure<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result {
            self.poison(error);
        }
        result
    }

    fn poison(&mut self, error: &LogError) {
        if self.poison.is_none() {
            let reason = error.to_string();
            self.directory.mark_offline(&reason);
            self.poison = Some(reason);
        }
    }

    fn assign_epoch_at(&mut self, epoch: i32, start_offset: i64) -> Result<(), LogError> {
        if let Some(latest) = self.epochs.latest()
            && latest.epoch > epoch
        {
            return Err(LogError::StaleLeaderEpoch {
                epoch,
                latest: latest.epoch,
            });
        }
        if self.epochs.assign(epoch, start_offset) {
            self.epochs_written = false;
        }
        Ok(())
    }

    /// Replaces the epoch checkpoint; its name is durable with the folder's next fsync.
    fn write_epochs(&mut self) -> Result<(), LogError> {
        let content = format_epochs(&self.epochs);
        let result = replace_unnamed(
            self.directory.disk(),
            &self.path,
            EPOCH_CHECKPOINT,
            content.as_bytes(),
        )
        .map_err(|error| LogError::io("write", &self.path.join(EPOCH_CHECKPOINT), error));
        self.poison_on_failure(result)?;
        self.names_changed += 1;
        self.epochs_written = true;
        Ok(())
    }

    fn publish(&self, kind: CheckpointKind, offset: i64) {
        self.directory
            .publish(kind, &self.folder.topic, self.folder.partition, offset);
    }

    fn set_recovery_point(&mut self, offset: i64) {
        self.recovery_point = offset;
        self.publish(CheckpointKind::RecoveryPoint, offset);
    }

    fn set_log_start(&mut self, offset: i64) {
        self.log_start_offset = offset;
        self.publish(CheckpointKind::LogStart, offset);
    }

    fn check_invariants(&self) {
        assert!(
            self.log_start_offset <= self.log_end_offset,
            "log start {self:?}"
        );
        assert!(
            self.recovery_point <= self.log_end_offset,
            "recovery point {self:?}"
        );
        assert!(
            self.active().base_offset <= self.log_end_offset,
            "active segment {self:?}"
        );
    }
}

fn place<'a, D: Disk>(directory: &'a LogDirectory<D>, folder: &'a Path) -> Place<'a, D> {
    Place {
        disk: directory.disk(),
        folder,
        files: directory.files(),
    }
}

impl<D: Disk> std::fmt::Debug for Log<D> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Log")
            .field("folder", &self.folder.name)
            .field("log_start_offset", &self.log_start_offset)
            .field("log_end_offset", &self.log_end_offset)
            .field("recovery_point", &self.recovery_point)
            .finish_non_exhaustive()
    }
}
