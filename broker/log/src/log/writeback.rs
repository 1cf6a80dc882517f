//! Keeping the device busy and the append path free: pages behind the end are written out early, so that dirty memory never
//! piles up until an append must wait for it, and room ahead of the end is found before it is needed.

use std::ops::Range;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::Log;

/// Bytes that are handed to the device at once: large enough that a call is rare, small enough that a hundred busy
/// partitions hold less than 1 GiB of dirty memory.
const STEP: u64 = 8 << 20;

/// Room that is asked for ahead of the end: four steps, so that it is found long before it is needed.
const AHEAD: u64 = 4 * STEP;

/// Work for a background thread; nothing depends on whether it is done.
#[must_use = "nothing happens until it is run"]
pub struct Writeback<D: Disk> {
    file: Arc<D::File>,
    behind: Range<u64>,
    ahead: Range<u64>,
}

impl<D: Disk> Writeback<D> {
    /// Asks the kernel for both. May take milliseconds; must not run under the log's lock.
    pub fn run(self) {
        self.file
            .start_writeback(self.behind.start, self.behind.end - self.behind.start);
        if !self.ahead.is_empty() {
            self.file
                .reserve(self.ahead.start, self.ahead.end - self.ahead.start);
        }
    }
}

impl<D: Disk> Log<D> {
    /// What should be written out now, if enough was appended since the last time: a comparison of two numbers otherwise, to
    /// be called after appends.
    pub fn begin_writeback(&mut self) -> Result<Option<Writeback<D>>, LogError> {
        let limit = u64::from(self.config.segment_bytes);
        let (segment, place) = self.active_and_place();
        if segment.size < segment.written_back + STEP {
            return Ok(None);
        }
        let file = segment.file(&place)?;
        let behind = segment.written_back..segment.size;
        segment.written_back = segment.size;
        // A recycled file has its room; and a segment never grows past its limit.
        let mut ahead = segment.size..(segment.size + AHEAD).min(limit);
        if segment.recycled || ahead.start > ahead.end {
            ahead = 0..0;
        }
        segment.reserved |= !ahead.is_empty();
        Ok(Some(Writeback {
            file,
            behind,
            ahead,
        }))
    }
}
