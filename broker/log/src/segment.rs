//! One segment: a file of batches and its two indexes. It locates offsets, positions and timestamps; it knows nothing
//! of the segments around it.

use std::cmp::Ordering;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch_walk::{BatchWalk, LOOKUP_CHUNK, SEQUENTIAL_CHUNK, WalkedBatch};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::index::{Index, OffsetEntry, TimeEntry, Window};
use crate::open_files::{Handle, OpenFiles};

pub(crate) const LOG_SUFFIX: &str = ".log";
pub(crate) const INDEX_SUFFIX: &str = ".index";
pub(crate) const TIME_INDEX_SUFFIX: &str = ".timeindex";

/// The largest timestamp of a segment and the last offset of the first batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargestTimestamp {
    pub(crate) timestamp: i64,
    pub(crate) last_offset: i64,
}

/// Largest distance of an offset from its segment's base offset, as Kafka's index readers take it.
pub(crate) const RELATIVE_OFFSET_MAX: i64 = i32::MAX as i64;

/// No timestamp at all: less than any.
pub(crate) const NO_TIMESTAMP: i64 = -1;

pub(crate) struct Segment<F> {
    pub(crate) base_offset: i64,
    /// Bytes of content. The file may be longer if it was recycled.
    pub(crate) size: u64,
    /// Whether the file is longer than its content.
    pub(crate) recycled: bool,
    /// How often its file was changed, and up to which change it is durable.
    pub(crate) changed: u64,
    pub(crate) synced: u64,
    /// Bytes of content that are durable.
    pub(crate) synced_size: u64,
    pub(crate) handle: Arc<Handle<F>>,
    pub(crate) offset_index: Index<OffsetEntry>,
    pub(crate) time_index: Index<TimeEntry>,
    /// Aborted transactions in its transaction index, how many of them are durable, and bytes behind them of an entry that a
    /// kill cut off.
    pub(crate) aborted: u64,
    pub(crate) aborted_synced: u64,
    pub(crate) aborted_torn: u64,
    /// Bytes appended since the last index entry.
    pub(crate) bytes_since_entry: u64,
    /// Max timestamp of the first batch, from which the segment's age counts; unknown until asked for.
    pub(crate) first_timestamp: Option<i64>,
    /// Unknown until asked for in a segment that was there at start.
    pub(crate) largest: Option<LargestTimestamp>,
    /// Timestamp of the last entry of the time index.
    pub(crate) last_time_entry: i64,
    /// Wall time at which this process made or opened it; its age if its records have no timestamps.
    pub(crate) since_ms: i64,
    /// Whether a range of it was handed out since `last_read_ms` was brought up to date.
    pub(crate) read_lately: bool,
    pub(crate) last_read_ms: i64,
    /// Whether its checksums were compared since this process opened it.
    pub(crate) checked: bool,
    /// Whether a range of it was handed out before they were.
    pub(crate) wants_check: bool,
}

pub(crate) fn file_name(base_offset: i64, suffix: &str) -> String {
    format!("{base_offset:020}{suffix}")
}

pub(crate) fn parse_file_name(name: &str, suffix: &str) -> Option<i64> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Where a segment's files are and how they are opened: what every operation on one needs.
pub(crate) struct Place<'a, D: Disk> {
    pub(crate) disk: &'a D,
    pub(crate) folder: &'a Path,
    pub(crate) files: &'a OpenFiles<D::File>,
}

impl<D: Disk> Place<'_, D> {
    pub(crate) fn path(&self, base_offset: i64, suffix: &str) -> PathBuf {
        self.folder.join(file_name(base_offset, suffix))
    }
}

impl<F: DiskFile> Segment<F> {
    pub(crate) fn empty(base_offset: i64, now_ms: i64) -> Segment<F> {
        Segment {
            base_offset,
            size: 0,
            recycled: false,
            changed: 0,
            synced: 0,
            synced_size: 0,
            handle: Handle::closed(),
            offset_index: Index::empty(),
            time_index: Index::empty(),
            aborted: 0,
            aborted_synced: 0,
            aborted_torn: 0,
            bytes_since_entry: 0,
            first_timestamp: None,
            largest: Some(LargestTimestamp {
                timestamp: NO_TIMESTAMP,
                last_offset: base_offset,
            }),
            last_time_entry: NO_TIMESTAMP,
            since_ms: now_ms,
            read_lately: false,
            last_read_ms: now_ms,
            checked: false,
            wants_check: false,
        }
    }

    /// A segment whose files have these sizes, nothing of them read yet.
    pub(crate) fn on_disk(
        base_offset: i64,
        size: u64,
        index_bytes: u64,
        time_index_bytes: u64,
        now_ms: i64,
    ) -> Self {
        Segment {
            size,
            offset_index: Index::in_file(index_bytes),
            time_index: Index::in_file(time_index_bytes),
            largest: None,
            ..Segment::empty(base_offset, now_ms)
        }
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.synced < self.changed
    }

    pub(crate) fn file<D: Disk<File = F>>(&self, place: &Place<'_, D>) -> Result<Arc<F>, LogError> {
        let path = || place.path(self.base_offset, LOG_SUFFIX);
        place
            .files
            .get(&self.handle, || place.disk.open(&path()))
            .map_err(|error| LogError::io("open", &path(), error))
    }

    /// The first batch whose last offset is not below `offset`, or `None` if all are below. `start` is a batch boundary
    /// at or before it.
    pub(crate) fn locate_from<D: Disk<File = F>>(
        &self,
        place: &Place<'_, D>,
        start: u64,
        offset: i64,
    ) -> Result<Option<WalkedBatch>, LogError> {
        let file = self.file(place)?;
        let path = || place.path(self.base_offset, LOG_SUFFIX);
        let mut walk = BatchWalk::new(&*file, &path, start, self.size, LOOKUP_CHUNK);
        while let Some(batch) = walk.next()? {
            if batch.last_offset() >= offset {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// The same, from what the offset index knows.
    pub(crate) fn locate<D: Disk<File = F>>(
        &self,
        place: &Place<'_, D>,
        window: &mut Option<Window<OffsetEntry>>,
        offset: i64,
    ) -> Result<Option<WalkedBatch>, LogError> {
        let relative = offset - self.base_offset;
        let start = self.index_floor(place, window, |entry| {
            i64::from(entry.relative_offset).cmp(&relative)
        })?;
        match self.locate_from(place, start, offset) {
            // An index is advisory: one that points between batches costs a walk from the start.
            Err(LogError::Corrupt { .. }) if start > 0 => self.locate_from(place, 0, offset),
            result => result,
        }
    }

    /// Position of the last indexed batch for which `order` is not `Greater`; 0 if none is.
    pub(crate) fn index_floor<D: Disk<File = F>>(
        &self,
        place: &Place<'_, D>,
        window: &mut Option<Window<OffsetEntry>>,
        order: impl Fn(&OffsetEntry) -> Ordering,
    ) -> Result<u64, LogError> {
        let path = place.path(self.base_offset, INDEX_SUFFIX);
        let entry = advisory(self.offset_index.floor(place.disk, &path, window, order))
            .map_err(|error| LogError::io("read", &path, error))?;
        Ok(entry
            .flatten()
            .map(|entry| u64::from(entry.position))
            .filter(|position| *position < self.size)
            .unwrap_or(0))
    }

    /// The largest timestamp, read from the time index the first time.
    pub(crate) fn largest_timestamp<D: Disk<File = F>>(
        &mut self,
        place: &Place<'_, D>,
    ) -> Result<LargestTimestamp, LogError> {
        if let Some(largest) = self.largest {
            return Ok(largest);
        }
        let path = place.path(self.base_offset, TIME_INDEX_SUFFIX);
        let last = advisory(self.time_index.last(place.disk, &path))
            .map_err(|error| LogError::io("read", &path, error))?
            .flatten();
        let largest = match last {
            Some(entry) => LargestTimestamp {
                timestamp: entry.timestamp,
                last_offset: self.base_offset + i64::from(entry.relative_offset),
            },
            None => self.walk_for_largest(place)?,
        };
        self.largest = Some(largest);
        Ok(largest)
    }

    fn walk_for_largest<D: Disk<File = F>>(
        &self,
        place: &Place<'_, D>,
    ) -> Result<LargestTimestamp, LogError> {
        let file = self.file(place)?;
        let path = || place.path(self.base_offset, LOG_SUFFIX);
        let mut walk = BatchWalk::new(&*file, &path, 0, self.size, SEQUENTIAL_CHUNK);
        let mut largest = LargestTimestamp {
            timestamp: NO_TIMESTAMP,
            last_offset: self.base_offset,
        };
        while let Some(batch) = walk.next()? {
            largest.take(&batch);
        }
        Ok(largest)
    }

    /// Max timestamp of the first batch, if there is one.
    pub(crate) fn first_timestamp<D: Disk<File = F>>(
        &mut self,
        place: &Place<'_, D>,
    ) -> Result<Option<i64>, LogError> {
        if self.first_timestamp.is_none() && self.size > 0 {
            let first = self.locate_from(place, 0, i64::MIN)?;
            self.first_timestamp = first.map(|batch| batch.header.max_timestamp);
        }
        Ok(self.first_timestamp)
    }

    /// Takes note of a batch whose bytes are in the file: size, timestamps and, where one is due, index entries.
    pub(crate) fn note_batch(&mut self, batch: &WalkedBatch, index_interval_bytes: u32) {
        let mut largest = self.largest.unwrap_or(LargestTimestamp {
            timestamp: self.last_time_entry,
            last_offset: self.base_offset,
        });
        largest.take(batch);
        self.largest = Some(largest);
        if self.first_timestamp.is_none() && batch.position == 0 {
            self.first_timestamp = Some(batch.header.max_timestamp);
        }
        if self.bytes_since_entry > u64::from(index_interval_bytes) {
            // The offset fits since the log rolls before it would not; the position fits since segments stay below 2 GiB.
            if let (Ok(relative_offset), Ok(position)) = (
                u32::try_from(batch.last_offset() - self.base_offset),
                u32::try_from(batch.position),
            ) {
                self.offset_index.push(OffsetEntry {
                    relative_offset,
                    position,
                });
            }
            self.push_time_entry();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += batch.size;
        self.changed += 1;
        self.size = batch.end();
    }

    /// Adds the largest timestamp to the time index if the last entry does not tell it.
    pub(crate) fn push_time_entry(&mut self) {
        let Some(largest) = self.largest else { return };
        let Ok(relative_offset) = u32::try_from(largest.last_offset - self.base_offset) else {
            return;
        };
        if largest.timestamp > self.last_time_entry {
            self.time_index.push(TimeEntry {
                timestamp: largest.timestamp,
                relative_offset,
            });
            self.last_time_entry = largest.timestamp;
        }
    }

    /// Whether a segment ends with the batch that ends at `end_offset`, and the ends of its indexes tell what its batches do.
    pub(crate) fn is_complete<D: Disk<File = F>>(
        &self,
        place: &Place<'_, D>,
        end_offset: i64,
    ) -> Result<bool, LogError> {
        match self.check_end(place, end_offset) {
            Err(LogError::Corrupt { .. }) => Ok(false),
            result => result,
        }
    }

    fn check_end<D: Disk<File = F>>(
        &self,
        place: &Place<'_, D>,
        end_offset: i64,
    ) -> Result<bool, LogError> {
        let index_path = place.path(self.base_offset, INDEX_SUFFIX);
        let last = advisory(self.offset_index.last(place.disk, &index_path))
            .map_err(|error| LogError::io("read", &index_path, error))?
            .flatten();
        let time_path = place.path(self.base_offset, TIME_INDEX_SUFFIX);
        let largest = advisory(self.time_index.last(place.disk, &time_path))
            .map_err(|error| LogError::io("read", &time_path, error))?
            .flatten();
        let largest_timestamp = largest.map_or(NO_TIMESTAMP, |entry| entry.timestamp);
        let file = self.file(place)?;
        let path = || place.path(self.base_offset, LOG_SUFFIX);
        let start = last.map_or(0, |entry| u64::from(entry.position));
        let mut walk = BatchWalk::new(&*file, &path, start, self.size, LOOKUP_CHUNK);
        let mut reached = self.base_offset;
        while let Some(batch) = walk.next()? {
            let indexed = last.filter(|_| batch.position == start);
            let indexed_offset =
                indexed.map(|entry| self.base_offset + i64::from(entry.relative_offset));
            if batch.header.base_offset < reached
                || batch.header.max_timestamp > largest_timestamp
                || indexed_offset.is_some_and(|offset| offset != batch.last_offset())
            {
                return Ok(false);
            }
            reached = batch.last_offset() + 1;
        }
        let Some(largest) = largest else {
            return Ok(reached == end_offset);
        };
        let offset = self.base_offset + i64::from(largest.relative_offset);
        let holds_largest = self.locate(place, &mut None, offset)?.is_some_and(|batch| {
            batch.last_offset() == offset && batch.header.max_timestamp == largest.timestamp
        });
        Ok(reached == end_offset && holds_largest)
    }

    /// Forgets the indexes and everything else that was learned from the batches, to learn it anew.
    pub(crate) fn clear_indexes<D: Disk<File = F>>(
        &mut self,
        place: &Place<'_, D>,
    ) -> Result<(), LogError> {
        for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
            let path = place.path(self.base_offset, suffix);
            match place.disk.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", &path, error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        self.offset_index = Index::empty();
        self.time_index = Index::empty();
        self.size = 0;
        self.bytes_since_entry = 0;
        self.first_timestamp = None;
        self.last_time_entry = NO_TIMESTAMP;
        self.largest = Some(LargestTimestamp {
            timestamp: NO_TIMESTAMP,
            last_offset: self.base_offset,
        });
        Ok(())
    }

    /// Puts what the indexes hold in memory into their files.
    pub(crate) fn write_indexes<D: Disk<File = F>>(
        &mut self,
        place: &Place<'_, D>,
    ) -> Result<(), LogError> {
        let path = place.path(self.base_offset, INDEX_SUFFIX);
        self.offset_index
            .write(place.disk, &path)
            .map_err(|error| LogError::io("write", &path, error))?;
        let path = place.path(self.base_offset, TIME_INDEX_SUFFIX);
        self.time_index
            .write(place.disk, &path)
            .map_err(|error| LogError::io("write", &path, error))
    }
}

impl LargestTimestamp {
    pub(crate) fn take(&mut self, batch: &WalkedBatch) {
        if batch.header.max_timestamp > self.timestamp {
            *self = LargestTimestamp {
                timestamp: batch.header.max_timestamp,
                last_offset: batch.last_offset(),
            };
        }
    }
}

/// A missing index file is an empty index.
fn advisory<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_twenty_digits() {
        assert_eq!(file_name(42, LOG_SUFFIX), "00000000000000000042.log");
        for (name, expected) in [
            ("00000000000000000042.log", Some(42)),
            ("42.log", None),
            ("000000000000000000-1.log", None),
            ("99999999999999999999.log", None),
            ("00000000000000000042.log.deleted", None),
        ] {
            assert_eq!(parse_file_name(name, LOG_SUFFIX), expected, "{name}");
        }
    }
}
