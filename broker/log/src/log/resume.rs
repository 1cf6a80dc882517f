//! Where a scan after a kill begins: not at the start of the segment that holds the recovery point, but at the last batch
//! before that which the offset index vouches for. So a restart costs what was appended since the last flush, not a segment.
//!
//! What lies below the recovery point is durable and was whole. The indexes may have lost entries to a power loss, or show
//! zeros; they never show an entry that was wrong when it was written. The largest timestamp below the chosen batch must be
//! known, too. The time index knows it up to its last entry, and says nothing more while no timestamp is larger, or where
//! its end was lost; so the headers from there on are looked at. Mostly that is one batch or none.

use crate::batch_walk::{BatchWalk, LOOKUP_CHUNK, WalkedBatch};
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
    times: Times,
}

/// What the time index says up to a batch, and should say.
struct Times {
    /// Entries that it lacks.
    missing: Vec<TimeEntry>,
    /// Timestamp of its last entry, the missing ones included.
    last_entry: i64,
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
        let Some(&entry) = offsets.last() else {
            return Ok(None);
        };
        let Some(batch) = self.batch_of(index, entry)? else {
            return Ok(None);
        };
        let kept = times.partition_point(|time| time.relative_offset <= entry.relative_offset);
        let last_time = kept.checked_sub(1).map(|last| times[last]);
        let Some(times) = self.times_up_to(index, &batch, last_time, &offsets)? else {
            return Ok(None);
        };
        Ok(Some(Resume {
            position: batch.position,
            base_offset: batch.header.base_offset,
            // Both count entries of files below 2 GiB.
            offset_entries: offsets.len() as u32,
            time_entries: kept as u32,
            times,
        }))
    }

    /// What the headers from the last entry of the time index up to `last` add to it; `None` if they do not stand one behind
    /// another. An entry is due where the offset index has one.
    fn times_up_to(
        &mut self,
        index: usize,
        last: &WalkedBatch,
        last_time: Option<TimeEntry>,
        offsets: &[OffsetEntry],
    ) -> Result<Option<Times>, LogError> {
        let (segment, place) = self.segment_and_place(index);
        let base_offset = segment.base_offset;
        let known = last_time.unwrap_or(TimeEntry {
            timestamp: NO_TIMESTAMP,
            relative_offset: 0,
        });
        let mut times = Times {
            missing: Vec::new(),
            last_entry: known.timestamp,
            largest: LargestTimestamp {
                timestamp: known.timestamp,
                last_offset: base_offset + i64::from(known.relative_offset),
            },
        };
        let below = offsets.partition_point(|entry| entry.relative_offset <= known.relative_offset);
        let (start, mut due) = match below.checked_sub(1) {
            Some(at) if last_time.is_some() => (u64::from(offsets[at].position), &offsets[at..]),
            _ => (0, offsets),
        };
        let file = segment.file(&place)?;
        let path = || place.path(base_offset, LOG_SUFFIX);
        let mut walk = BatchWalk::new(&*file, &path, start, last.end(), LOOKUP_CHUNK);
        loop {
            let batch = match walk.next() {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(Some(times)),
                Err(LogError::Corrupt { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            times.largest.take(&batch);
            let has_entry =
                due.first().map(|entry| u64::from(entry.position)) == Some(batch.position);
            if has_entry {
                due = &due[1..];
            }
            if has_entry
                && times.largest.timestamp > times.last_entry
                && let Ok(relative_offset) = u32::try_from(times.largest.last_offset - base_offset)
            {
                times.missing.push(TimeEntry {
                    timestamp: times.largest.timestamp,
                    relative_offset,
                });
                times.last_entry = times.largest.timestamp;
            }
        }
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
        segment.synced_size = resume.position;
        // The batch's own entry is there already.
        segment.bytes_since_entry = 0;
        segment.first_timestamp = None;
        for entry in &resume.times.missing {
            segment.time_index.push(*entry);
        }
        segment.last_time_entry = resume.times.last_entry;
        segment.largest = Some(resume.times.largest);
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
