//! Finding an offset by time, exact to the record: segments and time index narrow it down to a part of a segment, whose
//! records are then looked at, decompressed if need be. (Kafka: UnifiedLog.fetchOffsetByTimestamp; KAFKA-16310.)
//!
//! The log is needed for the first half alone. The second may take long, since it is the producers who say what is in a
//! batch, so it is a value of its own that runs without the log, and within bounds.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use taffrail_protocol::records::{
    BatchHeader, DecompressError, RecordIter, RecordsError, uncompressed_records,
};

use crate::batch_walk::{BatchWalk, SEQUENTIAL_CHUNK, WalkedBatch};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::Log;
use crate::segment::{LOG_SUFFIX, NO_TIMESTAMP, TIME_INDEX_SUFFIX};
use crate::validate::decompressed_bytes_max;

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

/// What is known of an offset that was asked for.
pub enum OffsetLookup<F> {
    /// The answer. `None` if there is none, which the wire shows as offset -1 and timestamp -1.
    Known(Option<TimestampOffset>),
    /// Records have to be looked at, for which nobody need hold the log: see [`RecordSearch::run`].
    Search(RecordSearch<F>),
}

/// What looking at records came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// The answer, as in [`OffsetLookup::Known`].
    Known(Option<TimestampOffset>),
    /// The segment has no such record; [`Log::search_on`] tells where to look next.
    NotInSegment,
}

/// Largest size that a batch may have, as it lies and when decompressed, to be looked into: as for one that is checked on its
/// way in (32 times `max.message.bytes`), and never more than this, for several may be looked at at a time.
const LOOKED_INTO_BYTES_MAX: usize = 128 << 20;

/// So many batches are looked into in vain. Headers of compressed batches are the producer's word, so every batch of a log
/// may promise what it does not hold, and each costs up to 32 MiB of decompressing by default: 8 are a second of work. Honest
/// ones disappoint once, where the log start lies within a batch. From then on the next promise is taken for the truth.
const LOOKS_MAX: usize = 8;

/// What makes a record the right one.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Since(i64),
    Exactly(i64),
}

/// What holds for a search in whatever segment.
#[derive(Clone, Copy, Debug)]
struct Terms {
    wanted: Wanted,
    log_start_offset: i64,
    end_offset: i64,
    bytes_max: usize,
    looks_left: usize,
}

/// Looks for a record in one segment. It holds the segment's file, and stays good when the log goes on or drops the segment.
pub struct RecordSearch<F> {
    file: Arc<F>,
    path: PathBuf,
    base_offset: i64,
    position: u64,
    end: u64,
    terms: Terms,
}

impl<D: Disk> Log<D> {
    /// The offset that `spec` asks for, among records below `end_offset` (what the asker may read: high watermark, last
    /// stable offset, or `i64::MAX`).
    pub fn find_offset(
        &mut self,
        spec: OffsetSpec,
        end_offset: i64,
    ) -> Result<OffsetLookup<D::File>, LogError> {
        let end_offset = end_offset.min(self.log_end_offset);
        match spec {
            OffsetSpec::Latest => Ok(OffsetLookup::Known(Some(self.end_of_log(end_offset)))),
            OffsetSpec::Earliest => Ok(OffsetLookup::Known(Some(
                self.end_of_log(self.log_start_offset),
            ))),
            OffsetSpec::Remote => Ok(OffsetLookup::Known(None)),
            OffsetSpec::MaxTimestamp => self.find_largest(end_offset),
            OffsetSpec::Timestamp(timestamp) => {
                let terms = self.terms(Wanted::Since(timestamp), end_offset);
                self.find_first_since(0, timestamp, terms)
            }
        }
    }

    /// Where to look next when a search came to [`Searched::NotInSegment`].
    pub fn search_on(
        &mut self,
        search: RecordSearch<D::File>,
    ) -> Result<OffsetLookup<D::File>, LogError> {
        match search.terms.wanted {
            Wanted::Exactly(_) => Ok(OffsetLookup::Known(None)),
            Wanted::Since(timestamp) => {
                let next = self
                    .segments
                    .partition_point(|segment| segment.base_offset <= search.base_offset);
                self.find_first_since(next, timestamp, search.terms)
            }
        }
    }

    fn end_of_log(&self, offset: i64) -> TimestampOffset {
        TimestampOffset {
            timestamp: -1,
            offset,
            leader_epoch: self.epochs.epoch_at(offset),
        }
    }

    fn terms(&self, wanted: Wanted, end_offset: i64) -> Terms {
        Terms {
            wanted,
            log_start_offset: self.log_start_offset,
            end_offset,
            bytes_max: decompressed_bytes_max(&self.config).min(LOOKED_INTO_BYTES_MAX),
            looks_left: LOOKS_MAX,
        }
    }

    /// The first segment from `from` on that promises a record whose timestamp is at least `timestamp`.
    fn find_first_since(
        &mut self,
        from: usize,
        timestamp: i64,
        terms: Terms,
    ) -> Result<OffsetLookup<D::File>, LogError> {
        for index in from..self.segments.len() {
            let (segment, place) = self.segment_and_place(index);
            if segment.base_offset >= terms.end_offset {
                break;
            }
            if segment.size == 0 || segment.largest_timestamp(&place)?.timestamp < timestamp {
                continue;
            }
            if let Some(position) = self.position_since(index, timestamp)? {
                let end = self.segments[index].size;
                return self.search(index, position..end, terms);
            }
        }
        Ok(OffsetLookup::Known(None))
    }

    /// Where the batches of a segment begin that need a look; `None` if all lie below the log start.
    fn position_since(&mut self, index: usize, timestamp: i64) -> Result<Option<u64>, LogError> {
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
        self.position_of(index, from)
    }

    /// The batch that has the largest timestamp of the log.
    fn find_largest(&mut self, end_offset: i64) -> Result<OffsetLookup<D::File>, LogError> {
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
            return Ok(OffsetLookup::Known(None));
        };
        let Some(batch) = self.locate(index, last_offset)? else {
            return Ok(OffsetLookup::Known(None));
        };
        let terms = self.terms(Wanted::Exactly(timestamp), end_offset);
        self.search(index, batch.position..batch.end(), terms)
    }

    fn search(
        &mut self,
        index: usize,
        positions: Range<u64>,
        terms: Terms,
    ) -> Result<OffsetLookup<D::File>, LogError> {
        let (segment, place) = self.segment_and_place(index);
        Ok(OffsetLookup::Search(RecordSearch {
            file: segment.file(&place)?,
            path: place.path(segment.base_offset, LOG_SUFFIX),
            base_offset: segment.base_offset,
            position: positions.start,
            end: positions.end,
            terms,
        }))
    }
}

impl<F: DiskFile> RecordSearch<F> {
    /// Reads and decompresses, batch by batch. May take long; must not run under the log's lock.
    pub fn run(&mut self) -> Result<Searched, LogError> {
        let path = || self.path.clone();
        let mut walk = BatchWalk::new(
            &*self.file,
            &path,
            self.position,
            self.end,
            SEQUENTIAL_CHUNK,
        );
        while let Some(batch) = walk.next()? {
            if batch.header.base_offset >= self.terms.end_offset {
                return Ok(Searched::Known(None));
            }
            if !self.terms.is_promised(batch.header.max_timestamp) {
                continue;
            }
            let found = if self.terms.looks_left == 0 {
                Some(self.terms.whole(&batch.header))
            } else {
                self.record_in(&batch)?
            };
            if let Some(found) = found {
                let visible = found.offset < self.terms.end_offset;
                return Ok(Searched::Known(visible.then_some(found)));
            }
            self.terms.looks_left -= 1;
        }
        Ok(Searched::NotInSegment)
    }

    /// The first record of a batch, at or above the log start, whose timestamp is right.
    fn record_in(&self, batch: &WalkedBatch) -> Result<Option<TimestampOffset>, LogError> {
        let header = &batch.header;
        let damaged = |reason: String| {
            LogError::corrupt(
                &self.path,
                format!(
                    "records of the batch at offset {}: {reason}",
                    header.base_offset
                ),
            )
        };
        let size = usize::try_from(batch.size).unwrap_or(usize::MAX);
        if size > self.terms.bytes_max {
            return Ok(Some(self.terms.whole(header)));
        }
        let mut bytes = vec![0; size];
        self.file
            .read_exact_at(&mut bytes, batch.position)
            .map_err(|error| LogError::io("read", &self.path, error))?;
        let (header, records) = match uncompressed_records(&bytes, self.terms.bytes_max) {
            Ok(found) => found,
            Err(RecordsError::Decompress(DecompressError::TooLarge { .. })) => {
                return Ok(Some(self.terms.whole(header)));
            }
            Err(error) => return Err(damaged(error.to_string())),
        };
        for record in RecordIter::new(&header, &records) {
            let record = record.map_err(|error| damaged(error.to_string()))?;
            if record.offset >= self.terms.log_start_offset && self.terms.is_right(record.timestamp)
            {
                return Ok(Some(TimestampOffset {
                    timestamp: record.timestamp,
                    offset: record.offset,
                    leader_epoch: epoch_of(&header),
                }));
            }
        }
        Ok(None)
    }
}

impl Terms {
    fn is_right(&self, timestamp: i64) -> bool {
        match self.wanted {
            Wanted::Since(wanted) => timestamp >= wanted,
            Wanted::Exactly(wanted) => timestamp == wanted,
        }
    }

    /// Whether a batch with this largest timestamp says that it has such a record.
    fn is_promised(&self, largest: i64) -> bool {
        match self.wanted {
            Wanted::Since(wanted) | Wanted::Exactly(wanted) => largest >= wanted,
        }
    }

    /// The answer for a batch that is not looked into: as its header says, from its first record on. Whoever reads from there may
    /// see records that are older than wanted, but misses none.
    fn whole(&self, header: &BatchHeader) -> TimestampOffset {
        TimestampOffset {
            timestamp: header.max_timestamp,
            offset: header.base_offset.max(self.log_start_offset),
            leader_epoch: epoch_of(header),
        }
    }
}

fn epoch_of(header: &BatchHeader) -> Option<i32> {
    Some(header.partition_leader_epoch).filter(|epoch| *epoch >= 0)
}
