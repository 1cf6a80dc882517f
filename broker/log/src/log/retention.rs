//! Removing old segments, whole ones and from the front only: by time, by size, by DeleteRecords. Never past the
//! high watermark. The files are renamed under the log's lock and removed without it, for that may take long.

use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::Log;
use crate::open_files::Handle;
use crate::segment::{
    INDEX_SUFFIX, LOG_SUFFIX, LargestTimestamp, NO_TIMESTAMP, Segment, TIME_INDEX_SUFFIX, file_name,
};
use crate::transaction_index::TRANSACTION_INDEX_SUFFIX;

pub(super) const DELETED_SUFFIX: &str = ".deleted";
pub(super) const SPARE_SUFFIX: &str = ".spare";

/// How long no reader may have held a range of a segment before it may be overwritten. A connection that is idle for
/// longer is closed (`connections.max.idle.ms`), so no socket can still have the file's pages in its queue.
const UNREAD_MS_MIN: i64 = 10 * 60 * 1000;

/// Segments that were taken out of the log; their files still take room.
#[must_use = "the files stay until `remove` is called, or until the next start"]
pub struct Retired<D: Disk> {
    disk: D,
    files: Vec<PathBuf>,
    /// How many segments were taken out.
    pub segments: usize,
    /// Bytes of their content.
    pub bytes: u64,
}

/// A retired segment's file that waits to be overwritten.
pub(super) struct Spare<F> {
    base_offset: i64,
    handle: Arc<Handle<F>>,
}

impl<D: Disk> Retired<D> {
    fn none(disk: &D) -> Retired<D> {
        Retired::of(disk, Vec::new(), 0, 0)
    }

    pub(super) fn of(disk: &D, files: Vec<PathBuf>, segments: usize, bytes: u64) -> Retired<D> {
        Retired {
            disk: disk.clone(),
            files,
            segments,
            bytes,
        }
    }

    /// Frees the room. Readers that hold ranges of the files keep them until they are done.
    pub fn remove(self) -> Result<(), LogError> {
        for path in &self.files {
            match self.disk.remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", path, error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

impl<D: Disk> Log<D> {
    /// Takes out the segments that are older or make the log larger than the topic allows, or lie below the log start.
    /// `now_ms` is wall time, which the records' timestamps are compared with. To be called every few minutes
    /// (`log.retention.check.interval.ms`).
    pub fn retire_segments(
        &mut self,
        now_ms: i64,
        high_watermark: i64,
    ) -> Result<Retired<D>, LogError> {
        self.check_writable()?;
        for segment in &mut self.segments {
            if std::mem::take(&mut segment.read_lately) {
                segment.last_read_ms = now_ms;
            }
        }
        let count = self.count_retired(now_ms, high_watermark)?;
        if count == 0 {
            return Ok(Retired::none(self.directory.disk()));
        }
        if count == self.segments.len() {
            self.roll_at(self.log_end_offset, now_ms)?;
        }
        let new_start = self.segments[count].base_offset.max(self.log_start_offset);
        self.advance_log_start(new_start);
        self.take_out(count, now_ms)
    }

    /// DeleteRecords: nothing below `offset` may be read any more. The offset may not lie beyond the high watermark; one
    /// below the log start changes nothing.
    pub fn delete_records(
        &mut self,
        offset: i64,
        high_watermark: i64,
        now_ms: i64,
    ) -> Result<Retired<D>, LogError> {
        self.check_writable()?;
        if offset > high_watermark.min(self.log_end_offset) {
            return Err(self.out_of_range(offset));
        }
        self.advance_log_start(offset);
        let below = self
            .segments
            .iter()
            .skip(1)
            .take_while(|segment| segment.base_offset <= offset)
            .count();
        self.take_out(below, now_ms)
    }

    /// A follower's log start follows its leader's. Offsets beyond the log end are cut to it.
    pub fn advance_log_start_to(
        &mut self,
        offset: i64,
        now_ms: i64,
    ) -> Result<Retired<D>, LogError> {
        let offset = offset.min(self.log_end_offset);
        if offset <= self.log_start_offset {
            return Ok(Retired::none(self.directory.disk()));
        }
        self.delete_records(offset, self.log_end_offset, now_ms)
    }

    /// How many segments, counted from the front, are due.
    fn count_retired(&mut self, now_ms: i64, high_watermark: i64) -> Result<usize, LogError> {
        let config = Arc::clone(&self.config);
        let retention_ms = config.retention_ms.filter(|_| config.delete);
        let retention_bytes = config.retention_bytes.filter(|_| config.delete);
        let mut size = self.size();
        let mut count = 0;
        while count < self.segments.len() {
            let end_offset = self
                .segments
                .get(count + 1)
                .map_or(self.log_end_offset, |next| next.base_offset);
            let is_active = count + 1 == self.segments.len();
            if end_offset > high_watermark || self.segments[count].size == 0 {
                break;
            }
            let too_large =
                retention_bytes.is_some_and(|limit| size - self.segments[count].size >= limit);
            let below_start = !is_active && end_offset <= self.log_start_offset;
            let too_old = match retention_ms {
                Some(limit) if !too_large && !below_start => self.age(count, now_ms)? > limit,
                _ => false,
            };
            if !(too_large || below_start || too_old) {
                break;
            }
            size -= self.segments[count].size;
            count += 1;
        }
        Ok(count)
    }

    /// Milliseconds since the newest record of a segment, by its timestamp; since the segment was opened if it has none.
    fn age(&mut self, index: usize, now_ms: i64) -> Result<i64, LogError> {
        let (segment, place) = self.segment_and_place(index);
        let LargestTimestamp { timestamp, .. } = segment.largest_timestamp(&place)?;
        let newest = if timestamp > NO_TIMESTAMP {
            timestamp
        } else {
            segment.since_ms
        };
        Ok(now_ms.saturating_sub(newest))
    }

    pub(super) fn advance_log_start(&mut self, offset: i64) {
        if offset <= self.log_start_offset {
            return;
        }
        self.set_log_start(offset);
        if self.recovery_point < offset {
            self.set_recovery_point(offset);
        }
        self.epochs_written &= !self.epochs.truncate_from_start(offset);
    }

    /// Takes the first `count` segments out of the log and renames their files.
    fn take_out(&mut self, count: usize, now_ms: i64) -> Result<Retired<D>, LogError> {
        let mut retired = Retired::none(self.directory.disk());
        let had_spare = self.spare.is_some();
        let segments: Vec<Segment<D::File>> = self.segments.drain(..count).collect();
        for segment in segments {
            retired.segments += 1;
            retired.bytes += segment.size;
            let result = self.retire(segment, now_ms, &mut retired.files);
            self.poison_on_any_failure(result)?;
        }
        if self.spare.is_some() && !had_spare {
            // Under its old name its new content would be taken for the old.
            let synced = self.directory.disk().sync_dir(&self.path);
            let synced = synced.map_err(|error| LogError::io("fsync", &self.path, error));
            self.poison_on_any_failure(synced)?;
        }
        self.window = None;
        self.check_invariants();
        Ok(retired)
    }

    fn retire(
        &mut self,
        segment: Segment<D::File>,
        now_ms: i64,
        files: &mut Vec<PathBuf>,
    ) -> Result<(), LogError> {
        let may_recycle = self.config.recycle_segments
            && !self.directory.is_full()
            && self.spare.is_none()
            && segment.size >= u64::from(self.config.segment_bytes) / 2
            && !segment.read_lately
            && now_ms.saturating_sub(segment.last_read_ms) >= UNREAD_MS_MIN
            && !segment.handle.has_readers();
        for suffix in [
            LOG_SUFFIX,
            INDEX_SUFFIX,
            TIME_INDEX_SUFFIX,
            TRANSACTION_INDEX_SUFFIX,
        ] {
            let from = self.place().path(segment.base_offset, suffix);
            let spare = may_recycle && suffix == LOG_SUFFIX;
            let to = if spare {
                self.place().path(segment.base_offset, SPARE_SUFFIX)
            } else {
                self.path
                    .join(file_name(segment.base_offset, suffix) + DELETED_SUFFIX)
            };
            match self.directory.disk().rename(&from, &to) {
                Ok(()) if spare => {}
                Ok(()) => files.push(to),
                Err(error)
                    if error.kind() == std::io::ErrorKind::NotFound && suffix != LOG_SUFFIX => {}
                Err(error) => return Err(LogError::io("rename", &from, error)),
            }
        }
        if may_recycle {
            self.spare = Some(Spare {
                base_offset: segment.base_offset,
                handle: segment.handle,
            });
        }
        Ok(())
    }

    /// Makes a new segment out of a spare file: a rename, and its old content stays until it is overwritten.
    pub(super) fn recycle(
        &mut self,
        spare: Spare<D::File>,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Segment<D::File>, LogError> {
        let from = self.place().path(spare.base_offset, SPARE_SUFFIX);
        let to = self.segment_path(base_offset);
        self.directory
            .disk()
            .rename(&from, &to)
            .map_err(|error| LogError::io("rename", &from, error))?;
        Ok(Segment {
            recycled: true,
            handle: spare.handle,
            ..Segment::empty(base_offset, now_ms)
        })
    }

    /// Gives the room back that is kept for the next segment: what a directory needs that runs full.
    pub fn give_back_room(&mut self) {
        self.remove_spare();
    }

    /// Gives a spare file's room back.
    pub(super) fn remove_spare(&mut self) {
        if let Some(spare) = self.spare.take() {
            let path = self.place().path(spare.base_offset, SPARE_SUFFIX);
            if let Err(error) = self.directory.disk().remove_file(&path) {
                tracing::debug!(file = %path.display(), %error, "spare segment stays until the next start");
            }
        }
    }

    /// Removes a segment's files at once, in an order that leaves no index without its log.
    pub(super) fn remove_segment_files(&self, base_offset: i64) -> Result<(), LogError> {
        for suffix in [
            INDEX_SUFFIX,
            TIME_INDEX_SUFFIX,
            TRANSACTION_INDEX_SUFFIX,
            LOG_SUFFIX,
        ] {
            let path = self.place().path(base_offset, suffix);
            match self.directory.disk().remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", &path, error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

impl<F: DiskFile> std::fmt::Debug for Spare<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Spare")
            .field("base_offset", &self.base_offset)
            .finish_non_exhaustive()
    }
}
