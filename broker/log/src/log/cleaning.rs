//! What a cleaning needs of a log, under its lock: what may be cleaned, what there is to read, and the swap of what was cleaned.
//! Everything between is in [`crate::cleaner`]. Nothing calls this yet.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cleaner::leftovers::{
    CLEANED_SUFFIX, COMPACTED, SEGMENT_SUFFIXES, SIDE_SUFFIXES, SWAP_SUFFIX, rename_if_present,
    sync_names, take_place,
};
use crate::cleaner::{
    ActiveProducers, Begin, Cleaning, CompactionConfig, DirtyRange, Ready, Source, Sources,
};
use crate::disk::Disk;
use crate::error::LogError;
use crate::log::Log;
use crate::log::retention::{DELETED_SUFFIX, Retired};
use crate::segment::{LOG_SUFFIX, Segment, file_name};

impl<D: Disk> Log<D> {
    /// What of the log is dirty and may be cleaned. `checkpointed` is its first dirty offset as the checkpoint has it, and
    /// `stable_end` the last stable offset, or the high watermark if that is lower; `now_ms` is wall time, which the records'
    /// timestamps are compared with.
    ///
    /// Never cleaned are the active segment, one that goes on to or beyond `stable_end`, one that is not durable, one that has
    /// records of the last `min.compaction.lag.ms`, and none behind such a one.
    pub fn dirty_range(
        &mut self,
        checkpointed: Option<i64>,
        stable_end: i64,
        config: &CompactionConfig,
        now_ms: i64,
    ) -> Result<DirtyRange, LogError> {
        let readable = self.log_start_offset..=self.log_end_offset;
        let checkpoint_is_void = checkpointed.is_some_and(|offset| !readable.contains(&offset));
        let first_dirty_offset = checkpointed
            .filter(|_| !checkpoint_is_void)
            .unwrap_or(self.log_start_offset);
        let mut range = DirtyRange {
            first_dirty_offset,
            end_offset: self.segments[0].base_offset,
            clean_bytes: 0,
            dirty_bytes: 0,
            overdue_ms: 0,
            checkpoint_is_void,
            truncations: self.truncations,
        };
        let stable_end = stable_end.min(self.recovery_point);
        let newest_ms = now_ms.saturating_sub(config.min_compaction_lag_ms.max(0));
        let oldest_ms = now_ms.saturating_sub(config.max_compaction_lag_ms.max(0));
        let mut is_cleanable = true;
        for index in 0..self.segments.len() - 1 {
            let end_offset = self.segments[index + 1].base_offset;
            let is_dirty = end_offset > first_dirty_offset;
            let (segment, place) = self.segment_and_place(index);
            is_cleanable &= end_offset <= stable_end && !segment.is_unsynced();
            if is_cleanable && is_dirty && config.min_compaction_lag_ms > 0 {
                is_cleanable = segment.largest_timestamp(&place)?.timestamp <= newest_ms;
            }
            if is_dirty && let Some(first @ 1..) = segment.first_timestamp(&place)? {
                range.overdue_ms = range.overdue_ms.max(oldest_ms.saturating_sub(first));
            }
            if is_cleanable {
                range.end_offset = end_offset;
                let bytes = if is_dirty {
                    &mut range.dirty_bytes
                } else {
                    &mut range.clean_bytes
                };
                *bytes += segment.size;
            }
        }
        Ok(range)
    }

    /// Begins to clean what [`Log::dirty_range`] found. `producers` are those that are still known, and `map_bytes_max` is the
    /// memory that their keys' offsets may take. `None` if there is nothing to do, or the log is not what it was.
    pub fn begin_cleaning(
        &mut self,
        range: DirtyRange,
        config: &CompactionConfig,
        producers: ActiveProducers,
        map_bytes_max: usize,
        now_ms: i64,
    ) -> Result<Option<Cleaning<D>>, LogError> {
        self.check_writable()?;
        let ends = self.segments[1..]
            .iter()
            .position(|segment| segment.base_offset == range.end_offset);
        let is_current = self.config.compact
            && range.truncations == self.truncations
            && (self.log_start_offset..range.end_offset).contains(&range.first_dirty_offset);
        let Some(last) = ends.filter(|_| is_current) else {
            return Ok(None);
        };
        let first_dirty = self.segment_for(range.first_dirty_offset);
        let position = match self.locate(first_dirty, range.first_dirty_offset)? {
            Some(batch) => batch.position,
            None => self.segments[first_dirty].size,
        };
        let aborted = self.aborted_transactions(self.segments[0].base_offset, range.end_offset)?;
        let segments = self.segments[..=last].iter().zip(&self.segments[1..]);
        let segments = segments.map(|(segment, next)| Source {
            base_offset: segment.base_offset,
            end_offset: next.base_offset,
            size: segment.size,
            index_bytes: segment.offset_index.bytes(),
            time_index_bytes: segment.time_index.bytes(),
            has_aborted: segment.aborted > 0,
            handle: Arc::clone(&segment.handle),
        });
        let sources = Sources {
            segments: segments.collect(),
            aborted,
            dirty_from: (first_dirty, position),
        };
        let begin = Begin {
            disk: self.directory.disk().clone(),
            files: Arc::clone(self.directory.files()),
            folder: self.path.clone(),
            config: Arc::clone(&self.config),
            compaction: config.clone(),
            range,
            producers,
            map_bytes_max,
            now_ms,
        };
        Ok(Some(Cleaning::new(begin, sources)))
    }

    /// Whether what a cleaning read is still what the log holds.
    pub fn is_current(&self, cleaning: &Cleaning<D>) -> bool {
        let begin = cleaning.begin();
        self.config.compact
            && begin.range.truncations == self.truncations
            && begin.folder == self.path
    }

    /// Has the new segment of a cleaning take the place of those that it was made of. Gives the files of those, to be removed
    /// without the lock; `None` if the log is not what it was, and the cleaning is to be abandoned. Readers that hold ranges of
    /// the old files keep them.
    pub fn swap_cleaned(
        &mut self,
        cleaning: &mut Cleaning<D>,
    ) -> Result<Option<Retired<D>>, LogError> {
        self.check_writable()?;
        if !self.is_current(cleaning) {
            return Ok(None);
        }
        let Some(Ready { sources, output }) = cleaning.ready() else {
            return Ok(None);
        };
        let first = self
            .segments
            .partition_point(|segment| segment.base_offset < sources[0].base_offset);
        let end = first + sources.len();
        // Retention may have removed some of them, but none was added. The last one is never active: one follows it.
        let is_whole = end < self.segments.len()
            && self.segments[first..end]
                .iter()
                .zip(sources)
                .all(|(segment, source)| {
                    segment.base_offset == source.base_offset && segment.size == source.size
                });
        if !is_whole {
            return Ok(None);
        }
        let base_offset = output.segment.base_offset;
        self.prepare_swap(base_offset)?;
        let swapped = self.put_in_place(first..end, base_offset);
        let files = self.poison_on_any_failure(swapped)?;
        let empty = Segment::empty(base_offset, output.segment.since_ms);
        let mut cleaned = std::mem::replace(&mut output.segment, empty);
        let old: Vec<Segment<D::File>> = self.segments.drain(first..end).collect();
        inherit(&mut cleaned, &old);
        let replaced = old.iter().map(|segment| segment.size).sum();
        self.segments.insert(first, cleaned);
        self.window = None;
        self.compacted = true;
        cleaning.handle_swapped();
        self.check_invariants();
        Ok(Some(Retired::of(
            self.directory.disk(),
            files,
            old.len(),
            replaced,
        )))
    }

    /// Steps 2 and 3 of `cleaner::leftovers`: nothing of the log has changed if they fail.
    fn prepare_swap(&self, base_offset: i64) -> Result<(), LogError> {
        let disk = self.directory.disk();
        if !self.compacted {
            let path = self.path.join(COMPACTED);
            match disk.create(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(LogError::io("create", &path, error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        for suffix in SIDE_SUFFIXES {
            let name = file_name(base_offset, suffix);
            let from = self.path.join(name.clone() + CLEANED_SUFFIX);
            let to = self.path.join(name + SWAP_SUFFIX);
            rename_if_present(disk, &from, &to)?;
        }
        Ok(())
    }

    /// Steps 4 to 7. Returns the files that the old segments have now.
    fn put_in_place(
        &mut self,
        group: std::ops::Range<usize>,
        base_offset: i64,
    ) -> Result<Vec<PathBuf>, LogError> {
        self.names_changed += 1;
        let disk = self.directory.disk();
        let log = self
            .path
            .join(file_name(base_offset, LOG_SUFFIX) + CLEANED_SUFFIX);
        let swap = self
            .path
            .join(file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX);
        disk.rename(&log, &swap)
            .map_err(|error| LogError::io("rename", &log, error))?;
        sync_names(disk, &self.path)?;
        let mut files = Vec::new();
        for segment in &self.segments[group] {
            // What is beside the first one's log is replaced.
            let suffixes = if segment.base_offset == base_offset {
                &SEGMENT_SUFFIXES[..1]
            } else {
                &SEGMENT_SUFFIXES[..]
            };
            for suffix in suffixes {
                let name = file_name(segment.base_offset, suffix);
                let from = self.path.join(&name);
                let to = self.path.join(name + DELETED_SUFFIX);
                if rename_if_present(disk, &from, &to)? {
                    files.push(to);
                }
            }
        }
        take_place(disk, &self.path, base_offset)?;
        sync_names(disk, &self.path)?;
        Ok(files)
    }
}

/// What the new segment goes on with of those that it replaces.
fn inherit<F>(cleaned: &mut Segment<F>, old: &[Segment<F>]) {
    // A flush that began before may still bring its result.
    cleaned.changed = old.iter().map(|segment| segment.changed).max().unwrap_or(0);
    cleaned.synced = cleaned.changed;
    cleaned.synced_size = cleaned.size;
    let since_ms = old.iter().map(|segment| segment.since_ms).max();
    cleaned.since_ms = since_ms.unwrap_or(cleaned.since_ms);
    for segment in old {
        cleaned.read_lately |= segment.read_lately;
        cleaned.last_read_ms = cleaned.last_read_ms.max(segment.last_read_ms);
        cleaned.wants_check |= segment.wants_check;
    }
}
