//! Where a scan after a kill begins: not at the start of the segment that holds the recovery point, but at the last batch
//! before that which both indexes vouch for. So a restart costs what was appended since the last flush, not a segment.
//!
//! What lies below the recovery point is durable and was whole. The indexes may have lost entries to a power loss, or show
//! zeros; they never show an entry that was wrong when it was written. The largest timestamp below the chosen batch
//! must be known, too, and the time index knows it up to each offset entry: both entries are added together.

use crate::batch_walk::WalkedBatch;
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::index::{OffsetEntry, TimeEntry};
use crate::log::Log;
use crate::log::recovery::BatchReader;
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, LargestTimestamp, NO_TIMESTAMP, TIME_INDEX_SUFFIX};

/// A batch to go on from, and what the indexes know up to it.
pub(super) struct Resume {
    pub(super) position: u64,
    pub(super) base_offset: i64,
    /// Entries of the two indexes that stay.
    offset_entries: u32,
    time_entries: u32,
    largest: LargestTimestamp,
}

impl<D: Disk> Log<D> {
    /// The batch from which on a segment has to be scanned, given that all below `recovery_point` is durable; `None` if that is
    /// all of it.
    pub(super) fn resume(
        &mut self,
        index: usize,
        recovery_point: i64,
    ) -> Result<Option<Resume>, LogError> {
        let (segment, place) = self.segment_and_place(index);
        let limit = recovery_point - segment.base_offset;
        let size = segment.size;
        let index_path = place.path(segment.base_offset, INDEX_SUFFIX);
        let offsets: Vec<OffsetEntry> = segment
            .offset_index
            .sound_front(place.disk, &index_path, |entry| {
                i64::from(entry.relative_offset) < limit && u64::from(entry.position) < size
            })
            .or_else(no_file)
            .map_err(|error| LogError::io("read", &index_path, error))?;
        let time_path = place.path(segment.base_offset, TIME_INDEX_SUFFIX);
        let times: Vec<TimeEntry> = segment
            .time_index
            .sound_front(place.disk, &time_path, |entry| {
                i64::from(entry.relative_offset) < limit
            })
            .or_else(no_file)
            .map_err(|error| LogError::io("read", &time_path, error))?;
        let Some(last_time) = times.last() else {
            return Ok(None);
        };
        let known =
            offsets.partition_point(|entry| entry.relative_offset <= last_time.relative_offset);
        let Some(entry) = known.checked_sub(1).map(|last| offsets[last]) else {
            return Ok(None);
        };
        let Some(batch) = self.batch_of(index, entry)? else {
            return Ok(None);
        };
        let kept = times.partition_point(|time| time.relative_offset <= entry.relative_offset);
        let base_offset = self.segments[index].base_offset;
        let largest = kept.checked_sub(1).map(|last| times[last]);
        Ok(Some(Resume {
            position: batch.position,
            base_offset: batch.header.base_offset,
            // Both count entries of files below 2 GiB.
            offset_entries: known as u32,
            time_entries: kept as u32,
            largest: largest.map_or(
                LargestTimestamp {
                    timestamp: NO_TIMESTAMP,
                    last_offset: base_offset,
                },
                |time| LargestTimestamp {
                    timestamp: time.timestamp,
                    last_offset: base_offset + i64::from(time.relative_offset),
                },
            ),
        }))
    }

    /// The batch that an entry tells of, if it is there and whole.
    fn batch_of(
        &mut self,
        index: usize,
        entry: OffsetEntry,
    ) -> Result<Option<WalkedBatch>, LogError> {
        let (segment, place) = self.segment_and_place(index);
        let path = place.path(segment.base_offset, LOG_SUFFIX);
        let file = segment.file(&place)?;
        let failed = |error| LogError::io("read", &path, error);
        let length = file.length().map_err(failed)?;
        let last_offset = segment.base_offset + i64::from(entry.relative_offset);
        let position = u64::from(entry.position);
        if position >= length {
            return Ok(None);
        }
        let batch = BatchReader::new(&*file, length)
            .acceptable(position, segment.base_offset..=last_offset, -1)
            .map_err(failed)?;
        Ok(batch.filter(|batch| batch.last_offset() == last_offset))
    }

    /// Makes a segment what it was before the batch to go on from.
    pub(super) fn rewind(&mut self, index: usize, resume: &Resume) -> Result<(), LogError> {
        let (segment, place) = self.segment_and_place(index);
        let index_path = place.path(segment.base_offset, INDEX_SUFFIX);
        segment
            .offset_index
            .keep_front(place.disk, &index_path, resume.offset_entries)
            .map_err(|error| LogError::io("cut", &index_path, error))?;
        let time_path = place.path(segment.base_offset, TIME_INDEX_SUFFIX);
        segment
            .time_index
            .keep_front(place.disk, &time_path, resume.time_entries)
            .map_err(|error| LogError::io("cut", &time_path, error))?;
        segment.size = resume.position;
        // The batch's own entry is there already.
        segment.bytes_since_entry = 0;
        segment.first_timestamp = None;
        segment.last_time_entry = resume.largest.timestamp;
        segment.largest = Some(resume.largest);
        Ok(())
    }
}

fn no_file<E>(error: std::io::Error) -> std::io::Result<Vec<E>> {
    if error.kind() == std::io::ErrorKind::NotFound {
        Ok(Vec::new())
    } else {
        Err(error)
    }
}
