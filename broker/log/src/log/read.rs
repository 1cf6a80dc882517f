//! Reading by offset: which bytes of which file to send. No record is touched, and near the end of the log no file
//! either.
//!
//! The range holds whole batches only. It starts at the batch that holds the offset (clients drop the records
//! before theirs), and ends at the last batch boundary that is within both limits.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use crate::batch_walk::{BatchWalk, LOOKUP_CHUNK, WalkedBatch};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::index::{OffsetEntry, Window};
use crate::log::Log;
use crate::segment::LOG_SUFFIX;

/// How far a read may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Bytes at most.
    pub max_bytes: usize,
    /// Whether the first batch is returned even if it alone is larger than that (KIP-74).
    pub min_one: bool,
    /// Only batches that end below this offset are returned: the high watermark, the last stable offset or, for a
    /// follower, the log end offset (`i64::MAX`).
    pub end_offset: i64,
}

/// Whole batches in a file.
#[derive(Debug)]
pub struct FileRange<F> {
    /// The segment's file. It stays readable however long it is held, also after the segment was deleted; if the log is
    /// truncated meanwhile, it may end before the range does.
    pub file: Arc<F>,
    /// First byte.
    pub position: u64,
    /// Bytes, more than 0.
    pub length: usize,
}

impl<F> Clone for FileRange<F> {
    fn clone(&self) -> Self {
        FileRange {
            file: Arc::clone(&self.file),
            position: self.position,
            length: self.length,
        }
    }
}

impl<F: DiskFile> FileRange<F> {
    /// Appends the bytes to `out`. `UnexpectedEof` if the file was cut meanwhile.
    pub fn read_into(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + self.length, 0);
        let result = self.file.read_exact_at(&mut out[start..], self.position);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }
}

impl<D: Disk> Log<D> {
    /// The batches from `offset` on, within one segment. `None` if there is nothing to read within the limits (at the
    /// end, or because the first batch is too large). An offset outside of the log is an error.
    pub fn read(
        &mut self,
        offset: i64,
        limits: ReadLimits,
    ) -> Result<Option<FileRange<D::File>>, LogError> {
        if offset < self.log_start_offset || offset > self.log_end_offset {
            return Err(self.out_of_range(offset));
        }
        let end_offset = limits.end_offset.min(self.log_end_offset);
        if offset >= end_offset {
            return Ok(None);
        }
        let mut index = self.segment_for(offset);
        let start = loop {
            if let Some(start) = self.position_of(index, offset)? {
                break start;
            }
            // The segment's last offsets are missing, as they are after a compaction.
            index += 1;
            if index == self.segments.len() {
                return Ok(None);
            }
        };
        let bound = self.end_position(index, end_offset)?;
        if bound <= start {
            return Ok(None);
        }
        let end = if bound - start <= limits.max_bytes as u64 {
            bound
        } else {
            self.cut(index, start, bound, limits)?
        };
        if end == start {
            return Ok(None);
        }
        let is_active = index + 1 == self.segments.len();
        let (segment, place) = self.segment_and_place(index);
        segment.read_lately = true;
        // It goes to the socket unread, so nobody here would see that it is damaged.
        segment.wants_check |= !is_active && !segment.checked;
        let file = segment.file(&place)?;
        Ok(Some(FileRange {
            file,
            position: start,
            length: (end - start) as usize,
        }))
    }

    pub(super) fn out_of_range(&self, offset: i64) -> LogError {
        LogError::OffsetOutOfRange {
            offset,
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
        }
    }

    /// Where the first batch of a segment starts whose last offset is not below `offset`; `None` if all are below.
    pub(super) fn position_of(
        &mut self,
        index: usize,
        offset: i64,
    ) -> Result<Option<u64>, LogError> {
        if index + 1 == self.segments.len() {
            if offset >= self.log_end_offset {
                return Ok(None);
            }
            if self
                .recent
                .front()
                .is_some_and(|first| first.base_offset <= offset)
            {
                let found = self
                    .recent
                    .partition_point(|batch| batch.last_offset < offset);
                return Ok(self.recent.get(found).map(|batch| batch.position));
            }
        }
        Ok(self.locate(index, offset)?.map(|batch| batch.position))
    }

    /// Where batches that end below `end_offset` end in a segment.
    fn end_position(&mut self, index: usize, end_offset: i64) -> Result<u64, LogError> {
        let size = self.segments[index].size;
        let all = match self.segments.get(index + 1) {
            Some(next) => end_offset >= next.base_offset,
            None => end_offset >= self.log_end_offset,
        };
        if all {
            Ok(size)
        } else {
            Ok(self.position_of(index, end_offset)?.unwrap_or(size))
        }
    }

    /// The last batch boundary within `max_bytes` of `start`, or behind the first batch if that must be sent.
    fn cut(
        &mut self,
        index: usize,
        start: u64,
        bound: u64,
        limits: ReadLimits,
    ) -> Result<u64, LogError> {
        let limit = start + limits.max_bytes as u64;
        if index + 1 == self.segments.len() {
            let after = self.recent.partition_point(|batch| batch.position <= limit);
            if let Some(last) = after
                .checked_sub(1)
                .and_then(|found| self.recent.get(found))
                && last.position > start
            {
                return Ok(last.position);
            }
        }
        let known = self.index_floor(index, |entry| u64::from(entry.position).cmp(&limit))?;
        if known > start {
            return Ok(known);
        }
        // No index entry in between: the batches up to the limit are few, or large.
        let (segment, place) = self.segment_and_place(index);
        let file = segment.file(&place)?;
        let path = || place.path(segment.base_offset, LOG_SUFFIX);
        let mut walk = BatchWalk::new(&*file, &path, start, bound, LOOKUP_CHUNK);
        let mut end = start;
        while let Some(batch) = walk.next()? {
            if batch.end() > limit && !(limits.min_one && end == start) {
                break;
            }
            end = batch.end();
        }
        Ok(end)
    }

    pub(super) fn locate(
        &mut self,
        index: usize,
        offset: i64,
    ) -> Result<Option<WalkedBatch>, LogError> {
        let mut window = self.take_window(index);
        let (segment, place) = self.segment_and_place(index);
        let base_offset = segment.base_offset;
        let result = segment.locate(&place, &mut window, offset);
        self.window = window.map(|window| (base_offset, window));
        result
    }

    fn index_floor(
        &mut self,
        index: usize,
        order: impl Fn(&OffsetEntry) -> Ordering,
    ) -> Result<u64, LogError> {
        let mut window = self.take_window(index);
        let (segment, place) = self.segment_and_place(index);
        let base_offset = segment.base_offset;
        let result = segment.index_floor(&place, &mut window, order);
        self.window = window.map(|window| (base_offset, window));
        result
    }

    /// The index window if it is of this segment.
    fn take_window(&mut self, index: usize) -> Option<Window<OffsetEntry>> {
        let base_offset = self.segments[index].base_offset;
        self.window
            .take()
            .filter(|(of, _)| *of == base_offset)
            .map(|(_, window)| window)
    }
}
