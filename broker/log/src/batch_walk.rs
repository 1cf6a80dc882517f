//! Walks the batch headers of a segment file, from one batch boundary on, without reading the records between
//! them when it need not.

use std::path::PathBuf;

use taffrail_protocol::records::{BATCH_HEADER_LENGTH, BatchHeader};

use crate::disk::DiskFile;
use crate::error::LogError;

/// A batch in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkedBatch {
    pub(crate) header: BatchHeader,
    pub(crate) position: u64,
    /// Bytes of the whole batch.
    pub(crate) size: u64,
}

impl WalkedBatch {
    pub(crate) fn last_offset(&self) -> i64 {
        self.header.last_offset()
    }

    pub(crate) fn end(&self) -> u64 {
        self.position + self.size
    }
}

/// A walk over `[position, end)` of a file. It reads a chunk at a time, so that small batches cost no call each.
pub(crate) struct BatchWalk<'a, F> {
    file: &'a F,
    path: &'a dyn Fn() -> PathBuf,
    position: u64,
    end: u64,
    chunk: Vec<u8>,
    chunk_position: u64,
    chunk_size: usize,
}

/// For a lookup: what lies between two index entries.
pub(crate) const LOOKUP_CHUNK: usize = 4096;
/// For going through a whole segment.
pub(crate) const SEQUENTIAL_CHUNK: usize = 256 << 10;

impl<'a, F: DiskFile> BatchWalk<'a, F> {
    pub(crate) fn new(
        file: &'a F,
        path: &'a dyn Fn() -> PathBuf,
        position: u64,
        end: u64,
        chunk_size: usize,
    ) -> BatchWalk<'a, F> {
        BatchWalk {
            file,
            path,
            position,
            end,
            chunk: Vec::new(),
            chunk_position: 0,
            chunk_size,
        }
    }

    /// The next batch, `None` at the end. Something that is no whole batch is an error.
    pub(crate) fn next(&mut self) -> Result<Option<WalkedBatch>, LogError> {
        if self.position >= self.end {
            return Ok(None);
        }
        let position = self.position;
        let left = self.end - position;
        if left < BATCH_HEADER_LENGTH as u64 {
            return Err(self.corrupt(position, "a batch header is cut off"));
        }
        let Ok(header) = BatchHeader::parse(self.header_bytes()?) else {
            return Err(self.corrupt(position, "no batch header"));
        };
        let size = header.total_length() as u64;
        if size > left || header.last_offset_delta < 0 {
            return Err(self.corrupt(position, "no batch header"));
        }
        self.position += size;
        Ok(Some(WalkedBatch {
            header,
            position,
            size,
        }))
    }

    fn header_bytes(&mut self) -> Result<&[u8], LogError> {
        let cached = self
            .position
            .checked_sub(self.chunk_position)
            .map_or(usize::MAX, |start| start as usize);
        let start = match cached.checked_add(BATCH_HEADER_LENGTH) {
            Some(end) if end <= self.chunk.len() => cached,
            _ => {
                let length = (self.end - self.position).min(self.chunk_size as u64) as usize;
                self.chunk.resize(length, 0);
                self.chunk_position = self.position;
                if let Err(error) = self.file.read_exact_at(&mut self.chunk, self.position) {
                    self.chunk.clear();
                    return Err(LogError::io("read", &(self.path)(), error));
                }
                0
            }
        };
        Ok(&self.chunk[start..start + BATCH_HEADER_LENGTH])
    }

    fn corrupt(&self, position: u64, reason: &str) -> LogError {
        LogError::corrupt(&(self.path)(), format!("{reason} at position {position}"))
    }
}
