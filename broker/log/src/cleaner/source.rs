//! A segment as a cleaning reads it: whole batches, one after another, each of which must be intact. What is written anew gets
//! a new checksum, so damage must not come along.

use std::path::PathBuf;
use std::sync::Arc;

use taffrail_protocol::records::{BATCH_HEADER_LENGTH, BatchHeader, crc_matches};

use crate::disk::DiskFile;
use crate::error::LogError;
use crate::open_files::Handle;
use crate::transaction_index::AbortedTransaction;

/// A segment to be cleaned, as it was when the cleaning began.
pub(crate) struct Source<F> {
    pub(crate) base_offset: i64,
    /// Where the next segment begins.
    pub(crate) end_offset: i64,
    pub(crate) size: u64,
    pub(crate) index_bytes: u64,
    pub(crate) time_index_bytes: u64,
    /// Whether its transaction index has entries.
    pub(crate) has_aborted: bool,
    pub(crate) handle: Arc<Handle<F>>,
}

/// All that a cleaning takes from a log when it begins.
pub(crate) struct Sources<F> {
    pub(crate) segments: Vec<Source<F>>,
    /// Those with records in the segments, by their first offsets.
    pub(crate) aborted: Vec<AbortedTransaction>,
    /// Where the first dirty batch is: a segment and a position in it.
    pub(crate) dirty_from: (usize, u64),
}

/// Bytes read at once; more where one batch is larger.
const CHUNK: u64 = 1 << 20;

/// A batch as it was read.
pub(super) struct Batch<'a> {
    pub(super) header: BatchHeader,
    pub(super) bytes: &'a [u8],
    /// Whether nothing follows it in its segment.
    pub(super) is_last: bool,
}

/// Goes through the batches of one segment.
pub(super) struct Batches<F> {
    file: Arc<F>,
    path: PathBuf,
    size: u64,
    end_offset: i64,
    /// No batch may begin below this.
    reached: i64,
    position: u64,
    chunk: Vec<u8>,
    chunk_position: u64,
}

impl<F: DiskFile> Batches<F> {
    /// From a batch boundary on.
    pub(super) fn new(
        file: Arc<F>,
        path: PathBuf,
        source: &Source<F>,
        position: u64,
    ) -> Batches<F> {
        Batches {
            file,
            path,
            size: source.size,
            end_offset: source.end_offset,
            reached: source.base_offset,
            position,
            chunk: Vec::new(),
            chunk_position: position,
        }
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Batch<'_>>, LogError> {
        if self.position == self.size {
            return Ok(None);
        }
        let position = self.position;
        self.fill(BATCH_HEADER_LENGTH as u64)?;
        let start = (position - self.chunk_position) as usize;
        let header = BatchHeader::parse(&self.chunk[start..])
            .map_err(|error| self.corrupt(error.to_string()))?;
        let size = header.total_length();
        let fits = header.base_offset >= self.reached
            && header.last_offset_delta >= 0
            && header.last_offset() < self.end_offset;
        if !fits {
            return Err(self.corrupt("its offsets are out of order"));
        }
        self.fill(size as u64)?;
        let start = (position - self.chunk_position) as usize;
        if !crc_matches(&self.chunk[start..start + size]) {
            return Err(self.corrupt("its checksum does not match"));
        }
        self.position += size as u64;
        self.reached = header.next_offset();
        Ok(Some(Batch {
            header,
            bytes: &self.chunk[start..start + size],
            is_last: self.position == self.size,
        }))
    }

    /// What is wrong with the batch that was returned last, or is next.
    pub(super) fn corrupt(&self, reason: impl std::fmt::Display) -> LogError {
        let after = self.reached - 1;
        LogError::corrupt(&self.path, format!("a batch near offset {after}: {reason}"))
    }

    /// Has so many bytes from the position on in the chunk.
    fn fill(&mut self, bytes: u64) -> Result<(), LogError> {
        let left = self.size - self.position;
        if bytes > left {
            return Err(self.corrupt("it is cut off"));
        }
        if self.position + bytes <= self.chunk_position + self.chunk.len() as u64 {
            return Ok(());
        }
        let length = bytes.max(CHUNK).min(left) as usize;
        self.chunk.resize(length, 0);
        self.chunk_position = self.position;
        let read = self.file.read_exact_at(&mut self.chunk, self.position);
        read.map_err(|error| {
            self.chunk.clear();
            LogError::io("read", &self.path, error)
        })
    }
}
