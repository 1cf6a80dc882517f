//! The batch headers of a log in order, for those who rebuild state from it: producer state after a kill,
//! coordinators after an election.

use crate::batch_walk::{BatchWalk, SEQUENTIAL_CHUNK, WalkedBatch};
use crate::disk::Disk;
use crate::error::LogError;
use crate::log::{FileRange, Log, place};
use crate::segment::LOG_SUFFIX;

use taffrail_protocol::records::BatchHeader;

/// A batch of a log.
#[derive(Debug)]
pub struct LocatedBatch<F> {
    /// Its header.
    pub header: BatchHeader,
    /// All of its bytes.
    pub range: FileRange<F>,
}

/// An iterator over batches, from [`Log::batches`]. After an error there is nothing more.
pub struct BatchHeaders<'a, D: Disk> {
    log: &'a Log<D>,
    segment: usize,
    offset: i64,
    /// Position in the segment's file; batches below `offset` are skipped.
    position: u64,
    /// Headers that one read found and that were not handed out yet, in reverse.
    ahead: Vec<WalkedBatch>,
    failed: bool,
}

/// Headers taken from a file at once: 1,024 of about 100 bytes.
const AHEAD: usize = 1024;

impl<D: Disk> Log<D> {
    /// All batches from the one that holds `offset` on, up to the log end. An offset below the log start begins there.
    pub fn batches(&self, offset: i64) -> BatchHeaders<'_, D> {
        let offset = offset.max(self.log_start_offset);
        BatchHeaders {
            log: self,
            segment: self.segment_for(offset),
            offset,
            position: 0,
            ahead: Vec::new(),
            failed: false,
        }
    }
}

impl<D: Disk> BatchHeaders<'_, D> {
    fn advance(&mut self) -> Result<Option<LocatedBatch<D::File>>, LogError> {
        loop {
            let Some(segment) = self.log.segments.get(self.segment) else {
                return Ok(None);
            };
            if let Some(batch) = self.ahead.pop() {
                if batch.last_offset() < self.offset {
                    continue;
                }
                let file = segment.file(&self.log.place())?;
                let range = FileRange {
                    file,
                    position: batch.position,
                    length: batch.size as usize,
                };
                return Ok(Some(LocatedBatch {
                    header: batch.header,
                    range,
                }));
            }
            if self.position >= segment.size {
                self.segment += 1;
                self.position = 0;
                continue;
            }
            self.look_ahead()?;
        }
    }

    fn look_ahead(&mut self) -> Result<(), LogError> {
        let segment = &self.log.segments[self.segment];
        let place = place(&self.log.directory, &self.log.path);
        if self.position == 0 && self.offset > segment.base_offset {
            match segment.locate(&place, &mut None, self.offset)? {
                Some(batch) => self.position = batch.position,
                None => {
                    self.position = segment.size;
                    return Ok(());
                }
            }
        }
        let file = segment.file(&place)?;
        let path = || place.path(segment.base_offset, LOG_SUFFIX);
        let mut walk = BatchWalk::new(&*file, &path, self.position, segment.size, SEQUENTIAL_CHUNK);
        while self.ahead.len() < AHEAD
            && let Some(batch) = walk.next()?
        {
            self.position = batch.end();
            self.ahead.push(batch);
        }
        self.ahead.reverse();
        Ok(())
    }
}

impl<D: Disk> Iterator for BatchHeaders<'_, D> {
    type Item = Result<LocatedBatch<D::File>, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = self.advance().transpose();
        self.failed = matches!(result, Some(Err(_)));
        result
    }
}
