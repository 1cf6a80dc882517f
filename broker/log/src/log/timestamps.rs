//! Finding an offset by time, exact to the record: segments and time index narrow it down to a batch, whose records
//! are then looked at, decompressed if need be. (Kafka: UnifiedLog.fetchOffsetByTimestamp; KAFKA-16310.)

use taffrail_protocol::records::{RecordIter, uncompressed_records};

use crate::batch_walk::{BatchWalk, SEQUENTIAL_CHUNK, WalkedBatch};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::Log;
use crate::segment::{LOG_SUFFIX, NO_TIMESTAMP, TIME_INDEX_SUFFIX};

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The end of what may be read (-1).
    Latest,
    /// The log start (-2); the earliest local one (-4) is the same here.
    Earliest,
    /// The record with the largest timestamp (-3).
    MaxTimestamp,
    /// The end of what is stored elsewhere (-5, -6): nothing is.
    Remote,
    /// The first record whose timestamp is this or later, in milliseconds.
    Timestamp(i64),
}

impl OffsetSpec {
    /// From a ListOffsets request's timestamp field; `None` for a number without a meaning.
    pub fn from_wire(timestamp: i64) -> Option<OffsetSpec> {
        match timestamp {
            0.. => Some(OffsetSpec::Timestamp(timestamp)),
            -1 => Some(OffsetSpec::Latest),
            -2 | -4 => Some(OffsetSpec::Earliest),
            -3 => Some(OffsetSpec::MaxTimestamp),
            -5 | -6 => Some(OffsetSpec::Remote),
            _ => None,
        }
    }
}

/// An offset and what it was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp; -1 for the two ends of the log.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// The epoch of the leader that appended it, if known.
    pub leader_epoch: Option<i32>,
}

/// Largest size to which one batch is decompressed for a lookup: as for a batch that is checked on its way in, with
/// room for topics whose limit was higher when the batch came.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

impl<D: Disk> Log<D> {
    /// The offset that `spec` asks for, among records below `end_offset` (what the asker may read: high watermark, last
    /// stable offset, or `i64::MAX`). `None` if there is none, which the wire shows as offset -1 and timestamp -1.
    pub fn find_offset(
        &mut self,
        spec: OffsetSpec,
        end_offset: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        let end_offset = end_offset.min(self.log_end_offset);
        let found = match spec {
            OffsetSpec::Latest => return Ok(Some(self.end_of_log(end_offset))),
            OffsetSpec::Earliest => return Ok(Some(self.end_of_log(self.log_start_offset))),
            OffsetSpec::Remote => None,
            OffsetSpec::MaxTimestamp => self.find_largest()?,
            OffsetSpec::Timestamp(timestamp) => self.find_first_since(timestamp)?,
        };
        Ok(found.filter(|found| found.offset < end_offset))
    }

    fn end_of_log(&self, offset: i64) -> TimestampOffset {
        TimestampOffset {
            timestamp: -1,
            offset,
            leader_epoch: self.epochs.epoch_at(offset),
        }
    }

    /// The first record whose timestamp is at least `timestamp`.
    fn find_first_since(&mut self, timestamp: i64) -> Result<Option<TimestampOffset>, LogError> {
        for index in 0..self.segments.len() {
            let (segment, place) = self.segment_and_place(index);
            if segment.size == 0 || segment.largest_timestamp(&place)?.timestamp < timestamp {
                continue;
            }
            if let Some(found) = self.find_in_segment(index, timestamp)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_in_segment(
        &mut self,
        index: usize,
        timestamp: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        let (segment, place) = self.segment_and_place(index);
        // Up to the last batch before which all timestamps are lower, nothing needs a look.
        let path = place.path(segment.base_offset, TIME_INDEX_SUFFIX);
        let lower = segment
            .time_index
            .floor(place.disk, &path, &mut None, |entry| {
                entry.timestamp.cmp(&(timestamp - 1))
            })
            .or_else(|error| {
                if error.kind() == std::io::ErrorKind::NotFound {
                    Ok(None)
                } else {
                    Err(error)
                }
            })
            .map_err(|error| LogError::io("read", &path, error))?;
        let from = segment.base_offset + lower.map_or(0, |entry| i64::from(entry.relative_offset));
        let from = from.max(self.log_start_offset);
        let Some(mut position) = self.position_of(index, from)? else {
            return Ok(None);
        };
        // A batch may promise more than it holds: its newest records may lie below the log start.
        while let Some(batch) = self.next_batch_since(index, position, timestamp)? {
            let found = self.record_in(index, &batch, |at| at >= timestamp)?;
            if found.is_some() {
                return Ok(found);
            }
            position = batch.end();
        }
        Ok(None)
    }

    /// The first batch at or behind `position` whose largest timestamp is at least `timestamp`.
    fn next_batch_since(
        &mut self,
        index: usize,
        position: u64,
        timestamp: i64,
    ) -> Result<Option<WalkedBatch>, LogError> {
        let (segment, place) = self.segment_and_place(index);
        let file = segment.file(&place)?;
        let path = || place.path(segment.base_offset, LOG_SUFFIX);
        let mut walk = BatchWalk::new(&*file, &path, position, segment.size, SEQUENTIAL_CHUNK);
        while let Some(batch) = walk.next()? {
            if batch.header.max_timestamp >= timestamp {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of the log.
    fn find_largest(&mut self) -> Result<Option<TimestampOffset>, LogError> {
        let mut best: Option<(usize, i64, i64)> = None;
        for index in 0..self.segments.len() {
            let (segment, place) = self.segment_and_place(index);
            if segment.size == 0 {
                continue;
            }
            let largest = segment.largest_timestamp(&place)?;
            if largest.timestamp > best.map_or(NO_TIMESTAMP, |(_, timestamp, _)| timestamp) {
                best = Some((index, largest.timestamp, largest.last_offset));
            }
        }
        let Some((index, timestamp, last_offset)) = best else {
            return Ok(None);
        };
        let Some(batch) = self.locate(index, last_offset)? else {
            return Ok(None);
        };
        self.record_in(index, &batch, |at| at == timestamp)
    }

    /// The first record of a batch, at or above the log start, whose timestamp is right.
    fn record_in(
        &self,
        index: usize,
        batch: &WalkedBatch,
        right: impl Fn(i64) -> bool,
    ) -> Result<Option<TimestampOffset>, LogError> {
        let header = &batch.header;
        let mut bytes = vec![0; batch.size as usize];
        let path = self.segment_path(self.segments[index].base_offset);
        self.segments[index]
            .file(&self.place())?
            .read_exact_at(&mut bytes, batch.position)
            .map_err(|error| LogError::io("read", &path, error))?;
        let damaged = |reason: String| {
            LogError::corrupt(
                &path,
                format!(
                    "records of the batch at offset {}: {reason}",
                    header.base_offset
                ),
            )
        };
        let (header, records) = uncompressed_records(&bytes, DECOMPRESSED_BYTES_MAX)
            .map_err(|error| damaged(error.to_string()))?;
        for record in RecordIter::new(&header, &records) {
            let record = record.map_err(|error| damaged(error.to_string()))?;
            if record.offset >= self.log_start_offset && right(record.timestamp) {
                let leader_epoch = Some(header.partition_leader_epoch).filter(|epoch| *epoch >= 0);
                return Ok(Some(TimestampOffset {
                    timestamp: record.timestamp,
                    offset: record.offset,
                    leader_epoch,
                }));
            }
        }
        Ok(None)
    }
}
