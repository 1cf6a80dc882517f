//! Making a new log and opening one that is there. After a clean stop only the end of the active segment is read;
//! otherwise `recovery` scans from the recovery point.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::batch_walk::{BatchWalk, LOOKUP_CHUNK, WalkedBatch};
use crate::checkpoint::{CheckpointKind, parse_epochs, read_if_present};
use crate::clean_shutdown::CleanShutdown;
use crate::cleaner::leftovers::{self, COMPACTED};
use crate::config::LogConfig;
use crate::directory::LogDirectory;
use crate::disk::{DirEntry, Disk};
use crate::epochs::LeaderEpochs;
use crate::error::LogError;
use crate::folder::PartitionFolder;
use crate::identity::{read_topic_id, write_topic_id};
use crate::log::recovery::Recovered;
use crate::log::retention::{DELETED_SUFFIX, SPARE_SUFFIX};
use crate::log::{EPOCH_CHECKPOINT, Log};
use crate::segment::{
    INDEX_SUFFIX, LOG_SUFFIX, LargestTimestamp, NO_TIMESTAMP, RELATIVE_OFFSET_MAX, Segment,
    TIME_INDEX_SUFFIX, parse_file_name,
};
use crate::transaction_index::TRANSACTION_INDEX_SUFFIX;

const TEMPORARY_SUFFIX: &str = ".tmp";

impl<D: Disk> Log<D> {
    pub(crate) fn create(
        directory: LogDirectory<D>,
        folder: PartitionFolder,
        topic_id: [u8; 16],
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<Log<D>, LogError> {
        let path = directory.path().join(&folder.name);
        let failed = |error| LogError::io("create", &path, error);
        match directory.disk().list(&path) {
            Ok(_) => return Err(failed(io::ErrorKind::AlreadyExists.into())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Err(_) => {}
        }
        let make = || {
            directory.disk().create_dir_all(&path)?;
            write_topic_id(directory.disk(), &path, &topic_id)
        };
        make().map_err(failed)?;
        let mut log = Log::with_segments(
            directory,
            folder,
            config,
            LeaderEpochs::default(),
            Vec::new(),
        );
        log.topic_id = Some(topic_id);
        log.created_here = true;
        let first = log.new_segment(0, now_ms)?;
        log.segments.push(first);
        log.publish_all();
        Ok(log)
    }

    pub(crate) fn open(
        directory: LogDirectory<D>,
        folder: PartitionFolder,
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<(Log<D>, Recovered), LogError> {
        let path = directory.path().join(&folder.name);
        let disk = directory.disk().clone();
        let entries = disk
            .list(&path)
            .map_err(|error| LogError::io("list", &path, error))?;
        let entries = settle_cleaning(&disk, &path, entries)?;
        remove_leftovers(&disk, &path, &entries)?;
        let checkpointed = |kind| {
            directory
                .checkpointed(kind, &folder.topic, folder.partition)
                .unwrap_or(0)
        };
        let log_start = checkpointed(CheckpointKind::LogStart);
        let recovery_point = checkpointed(CheckpointKind::RecoveryPoint);
        let clean = directory.clean_shutdown() != CleanShutdown::No;
        let topic_id =
            read_topic_id(&disk, &path).map_err(|error| LogError::io("read", &path, error))?;
        let segments = segments_of(&entries, now_ms);
        let epochs = read_epochs(&disk, &path)?;
        // An empty log has none and needs none.
        let epochs_known = epochs.is_some() || segments.iter().all(|segment| segment.size == 0);
        let mut log = Log::with_segments(
            directory,
            folder,
            config,
            epochs.unwrap_or_default(),
            segments,
        );
        log.topic_id = topic_id;
        log.compacted = entries.iter().any(|entry| entry.name == COMPACTED);
        log.epochs_written = epochs_known;
        if !clean {
            // A process that was killed may have left names that a power loss now would take.
            log.names_changed += 1;
        }
        log.identity_synced = clean;
        if log.segments.is_empty() {
            let first = log.new_segment(log_start, now_ms)?;
            log.segments.push(first);
        }
        log.log_start_offset = log.segments[0].base_offset.max(log_start);
        // Every epoch must be known; a damaged checkpoint takes a look at every batch.
        let scan_from = if epochs_known { recovery_point } else { 0 };
        let (mut recovered, reason) = if clean && epochs_known {
            match log.load_sealed() {
                Ok(()) => (Recovered::nothing(), None),
                Err(LogError::Corrupt { reason, .. }) => {
                    (log.recover(log.active().base_offset)?, Some(reason))
                }
                Err(error) => return Err(error),
            }
        } else {
            (log.recover(scan_from)?, None)
        };
        if let Some(reason) = reason {
            tracing::warn!(
                log = log.folder.name,
                reason,
                "the end of a cleanly closed log is damaged"
            );
        }
        recovered.clean = clean && recovered.bytes_cut == 0;
        log.recovery_point = if recovered.clean {
            let active = log.active_and_place().0;
            active.synced_size = active.size;
            log.log_end_offset
        } else {
            recovery_point.min(log.log_end_offset)
        };
        if log.log_end_offset == 0 {
            // One that was never used is closed without an fsync, so neither its names nor its topic id need be durable.
            log.names_changed += 1;
            log.identity_synced = false;
        }
        if !recovered.clean {
            log.settle_aborted()?;
        }
        log.settle(now_ms)?;
        Ok((log, recovered))
    }

    fn with_segments(
        directory: LogDirectory<D>,
        folder: PartitionFolder,
        config: Arc<LogConfig>,
        epochs: LeaderEpochs,
        segments: Vec<Segment<D::File>>,
    ) -> Log<D> {
        Log {
            path: directory.path().join(&folder.name),
            directory,
            folder,
            topic_id: None,
            config,
            segments,
            log_start_offset: 0,
            log_end_offset: 0,
            recovery_point: 0,
            epochs,
            epochs_written: false,
            identity_synced: false,
            created_here: false,
            compacted: false,
            names_changed: 0,
            names_synced: 0,
            truncations: 0,
            cut: None,
            recent: VecDeque::new(),
            window: None,
            spare: None,
            poison: None,
        }
    }

    /// Brings everything that hangs on the two ends of the log into line with them.
    fn settle(&mut self, now_ms: i64) -> Result<(), LogError> {
        if self.log_start_offset > self.log_end_offset {
            // The data below the log start is all there is, and nobody may read it.
            self.truncate_fully_and_start_at(self.log_start_offset, now_ms)?;
        }
        let trimmed_end = self.epochs.truncate_from_end(self.log_end_offset);
        let trimmed_start = self.epochs.truncate_from_start(self.log_start_offset);
        self.epochs_written &= !trimmed_end && !trimmed_start;
        self.remove_producer_snapshots_above(self.log_end_offset)?;
        self.publish_all();
        self.check_invariants();
        Ok(())
    }

    /// Publishes what a new or recovered log starts with.
    fn publish_all(&self) {
        self.publish(CheckpointKind::RecoveryPoint, self.recovery_point);
        self.publish(CheckpointKind::LogStart, self.log_start_offset);
    }

    /// After a clean stop: what the active segment's end tells, and indexes for segments that lack them.
    fn load_sealed(&mut self) -> Result<(), LogError> {
        self.index_segments_below(self.segments.len() - 1)?;
        self.load_active_end()
    }

    /// Makes indexes for complete segments that have none but should.
    pub(super) fn index_segments_below(&mut self, end: usize) -> Result<(), LogError> {
        let interval = u64::from(self.config.index_interval_bytes);
        for index in 0..end {
            if self.segments[index].offset_index.len() == 0 && self.segments[index].size > interval
            {
                self.rebuild_indexes(index)?;
            }
        }
        Ok(())
    }

    /// Reads the end of the active segment, from its last index entry on, for everything that appending goes on from.
    pub(super) fn load_active_end(&mut self) -> Result<(), LogError> {
        self.recent.clear();
        let (segment, place) = self.active_and_place();
        let index_path = place.path(segment.base_offset, INDEX_SUFFIX);
        let last = segment
            .offset_index
            .last(place.disk, &index_path)
            .map_err(|error| LogError::io("read", &index_path, error))?;
        let start = last.map_or(0, |entry| u64::from(entry.position));
        if start > segment.size || (start == segment.size && last.is_some()) {
            return Err(LogError::corrupt(
                &index_path,
                "its last entry is beyond the log",
            ));
        }
        let time_path = place.path(segment.base_offset, TIME_INDEX_SUFFIX);
        let last_time = segment
            .time_index
            .last(place.disk, &time_path)
            .map_err(|error| LogError::io("read", &time_path, error))?;
        let mut largest = LargestTimestamp {
            timestamp: NO_TIMESTAMP,
            last_offset: segment.base_offset,
        };
        if let Some(entry) = last_time {
            let last_offset = segment.base_offset + i64::from(entry.relative_offset);
            largest = LargestTimestamp {
                timestamp: entry.timestamp,
                last_offset,
            };
        }
        segment.last_time_entry = largest.timestamp;

        let mut end_offset = segment.base_offset;
        let furthest = segment.base_offset.saturating_add(RELATIVE_OFFSET_MAX);
        let mut tail: Vec<WalkedBatch> = Vec::new();
        if segment.size > 0 {
            let file = segment.file(&place)?;
            let path = || place.path(segment.base_offset, LOG_SUFFIX);
            let mut walk = BatchWalk::new(&*file, &path, start, segment.size, LOOKUP_CHUNK);
            while let Some(batch) = walk.next()? {
                if batch.header.base_offset < end_offset {
                    return Err(LogError::corrupt(&path(), "batches are out of order"));
                }
                // The base offset is not in the checksum, and nothing else tells that it is wrong in the last batch.
                if batch.last_offset() > furthest {
                    return Err(LogError::corrupt(
                        &path(),
                        format!("a batch claims offset {}", batch.header.base_offset),
                    ));
                }
                end_offset = batch.last_offset() + 1;
                largest.take(&batch);
                tail.push(batch);
            }
        }
        segment.bytes_since_entry = segment.size - start;
        segment.largest = Some(largest);
        segment.first_timestamp = None;
        self.log_end_offset = end_offset;
        for batch in &tail {
            self.note_recent(batch);
        }
        Ok(())
    }
}

fn segments_of<F: crate::disk::DiskFile>(entries: &[DirEntry], now_ms: i64) -> Vec<Segment<F>> {
    let length = |name: String| {
        let found = entries.binary_search_by(|entry| entry.name.as_str().cmp(&name));
        found.map_or(0, |index| entries[index].length)
    };
    let logs = entries.iter().filter(|entry| !entry.is_dir);
    // Names are twenty digits, so their order is that of the offsets.
    logs.filter_map(|entry| Some((parse_file_name(&entry.name, LOG_SUFFIX)?, entry.length)))
        .map(|(base_offset, size)| {
            let index = length(crate::segment::file_name(base_offset, INDEX_SUFFIX));
            let time_index = length(crate::segment::file_name(base_offset, TIME_INDEX_SUFFIX));
            let aborted = length(crate::segment::file_name(
                base_offset,
                TRANSACTION_INDEX_SUFFIX,
            ));
            let entry_bytes = crate::transaction_index::ENTRY_BYTES as u64;
            Segment {
                aborted: aborted / entry_bytes,
                aborted_synced: aborted / entry_bytes,
                aborted_torn: aborted % entry_bytes,
                ..Segment::on_disk(base_offset, size, index, time_index, now_ms)
            }
        })
        .collect()
}

/// `None` if the checkpoint is damaged. One that is missing is no epochs, unless there are batches, which all have one;
/// then it is as good as damaged.
fn read_epochs<D: Disk>(disk: &D, folder: &Path) -> Result<Option<LeaderEpochs>, LogError> {
    let path = folder.join(EPOCH_CHECKPOINT);
    let content =
        read_if_present(disk, &path).map_err(|error| LogError::io("read", &path, error))?;
    Ok(content.and_then(|content| parse_epochs(&content)))
}

/// Ends or undoes what a process that died left of a cleaning. Returns what is in the folder then.
fn settle_cleaning<D: Disk>(
    disk: &D,
    folder: &Path,
    entries: Vec<DirEntry>,
) -> Result<Vec<DirEntry>, LogError> {
    if !leftovers::are_there(&entries) {
        return Ok(entries);
    }
    leftovers::settle(disk, folder, &entries)?;
    disk.list(folder)
        .map_err(|error| LogError::io("list", folder, error))
}

/// What a process that died left half-done.
fn remove_leftovers<D: Disk>(
    disk: &D,
    folder: &Path,
    entries: &[DirEntry],
) -> Result<(), LogError> {
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        if [DELETED_SUFFIX, SPARE_SUFFIX, TEMPORARY_SUFFIX]
            .iter()
            .any(|suffix| entry.name.ends_with(suffix))
        {
            let path = folder.join(&entry.name);
            disk.remove_file(&path)
                .map_err(|error| LogError::io("remove", &path, error))?;
        }
    }
    Ok(())
}
