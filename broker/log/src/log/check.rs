//! Looking for bit rot. A segment's batches are read and their checksums compared, piece by piece and without the log's lock:
//! what is below the log end never changes, except by a truncation or by retention, which are told apart
//! afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use crate::batch_walk::WalkedBatch;
use crate::disk::Disk;
use crate::epochs::LeaderEpochs;
use crate::error::LogError;
use crate::log::Log;
use crate::log::recovery::BatchReader;
use crate::segment::{LOG_SUFFIX, RELATIVE_OFFSET_MAX};

/// A check of one segment under way. While it is held the segment's file is not used for another segment.
#[derive(Debug)]
#[must_use = "nothing is read until it is stepped"]
pub struct SegmentCheck<D: Disk> {
    file: Arc<D::File>,
    path: PathBuf,
    base_offset: i64,
    /// Where the next segment, or what was not there yet, begins.
    end_offset: i64,
    size: u64,
    is_active: bool,
    truncations: u64,
    position: u64,
    reached: i64,
    /// The checksum does not cover a batch's epoch, so that is compared with what the log knows.
    epochs: LeaderEpochs,
}

/// What a step of a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckStep {
    /// So many bytes are whole, and there are more.
    More(u64),
    /// So many bytes are whole, and that was the end.
    Whole(u64),
    /// The segment is damaged: what, and where.
    Damaged(String),
}

impl<D: Disk> SegmentCheck<D> {
    /// Base offset of the segment.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Where the next segment begins.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Reads on, batch by batch, for about `bytes`. May take long; must not run under the log's lock. A sector that cannot
    /// be read is damage, too.
    pub fn step(&mut self, bytes: u64) -> CheckStep {
        let start = self.position;
        let mut reader = BatchReader::new(&*self.file, self.size);
        while self.position < self.size {
            if self.position - start >= bytes {
                return CheckStep::More(self.position - start);
            }
            // Gaps are allowed: a topic may have been compacted once.
            let offsets = self.reached..=self.base_offset + RELATIVE_OFFSET_MAX;
            match reader.acceptable(self.position, offsets, -1) {
                Ok(Some(batch))
                    if batch.last_offset() < self.end_offset && self.is_of_its_epoch(&batch) =>
                {
                    self.position = batch.end();
                    self.reached = batch.last_offset() + 1;
                }
                Ok(_) => return self.damaged("the batch is damaged"),
                Err(error) => return self.damaged(&error.to_string()),
            }
        }
        CheckStep::Whole(self.position - start)
    }

    fn is_of_its_epoch(&self, batch: &WalkedBatch) -> bool {
        let epoch = self.epochs.epoch_at(batch.header.base_offset);
        // None below the log start.
        epoch.is_none_or(|epoch| epoch == batch.header.partition_leader_epoch)
    }

    fn damaged(&self, reason: &str) -> CheckStep {
        CheckStep::Damaged(format!(
            "{} at position {}, after offset {}: {reason}",
            self.path.display(),
            self.position,
            self.reached - 1
        ))
    }
}

impl<D: Disk> Log<D> {
    /// A check of the segment that holds `offset`, or of the first one behind it. Of the active one, what is there now;
    /// `None` without `active`, or with nothing in it.
    pub fn begin_check(
        &mut self,
        offset: i64,
        active: bool,
    ) -> Result<Option<SegmentCheck<D>>, LogError> {
        let index = self.segment_for(offset);
        let is_active = index + 1 == self.segments.len();
        let end_offset = self
            .segments
            .get(index + 1)
            .map_or(self.log_end_offset, |next| next.base_offset);
        let truncations = self.truncations;
        let epochs = self.epochs.clone();
        let (segment, place) = self.segment_and_place(index);
        if is_active && (!active || segment.size == 0) {
            return Ok(None);
        }
        Ok(Some(SegmentCheck {
            file: segment.file(&place)?,
            path: place.path(segment.base_offset, LOG_SUFFIX),
            base_offset: segment.base_offset,
            end_offset,
            size: segment.size,
            is_active,
            truncations,
            position: 0,
            reached: segment.base_offset,
            epochs,
        }))
    }

    /// Takes note of the end of a check. Tells whether what it saw still counts: not if the segment was removed, or the log
    /// truncated or moved, meanwhile.
    pub fn finish_check(&mut self, check: &SegmentCheck<D>) -> bool {
        let found = self
            .segments
            .binary_search_by_key(&check.base_offset, |segment| segment.base_offset);
        let Ok(index) = found else { return false };
        // It may have begun in the folder from which the replica was moved here.
        let is_here = check.path.parent() == Some(self.path.as_path());
        if self.truncations != check.truncations || !is_here {
            return false;
        }
        let segment = &mut self.segments[index];
        segment.checked |= !check.is_active;
        segment.wants_check = false;
        true
    }

    /// The first closed segment that was handed out to readers and not checked yet.
    pub fn unchecked_read(&self) -> Option<i64> {
        let wanting = self.segments.iter().find(|segment| segment.wants_check);
        wanting.map(|segment| segment.base_offset)
    }

    /// Whether there is a segment that starts at this offset.
    pub fn has_segment(&self, base_offset: i64) -> bool {
        self.segments
            .binary_search_by_key(&base_offset, |segment| segment.base_offset)
            .is_ok()
    }
}
