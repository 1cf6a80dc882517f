//! Recovery after a kill or a power loss: reads every batch from the segment of the recovery point on, takes those
//! that can be what was appended, cuts the rest off, and rebuilds indexes and leader epochs on the way.
//!
//! What makes a batch acceptable is in FORMAT.md. The rules matter because behind the end of a recycled file stand stale
//! but intact batches: their offsets are lower than what was appended after them, so the offset rule ends the scan. They
//! also catch a damaged base offset, which the checksum does not cover.

use std::ops::RangeInclusive;

use taffrail_protocol::records::{BATCH_HEADER_LENGTH, BatchHeader, crc_matches};

use crate::batch_walk::{BatchWalk, SEQUENTIAL_CHUNK, WalkedBatch};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::Log;
use crate::log::resume::Resume;
use crate::segment::{LOG_SUFFIX, RELATIVE_OFFSET_MAX};

/// What opening a log found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the log was closed cleanly, so that its content is as the last process left it.
    pub clean: bool,
    /// Segments that were read, from their start or from the last batch that was known to be durable.
    pub segments_scanned: usize,
    /// Bytes that were read.
    pub bytes_scanned: u64,
    /// Bytes that were cut off or removed.
    pub bytes_cut: u64,
}

impl Recovered {
    pub(super) fn nothing() -> Recovered {
        Recovered::default()
    }
}

/// Bytes read from a segment at once.
const CHUNK: usize = 1 << 20;

/// What the scan of one segment ended with.
struct Scanned {
    /// End of the last acceptable batch.
    valid: u64,
    end_offset: i64,
}

impl<D: Disk> Log<D> {
    /// Scans from the last batch that is known to be durable, or the start of the segment that holds `recovery_point`, to the end and leaves a log whose every batch is intact.
    pub(super) fn recover(&mut self, recovery_point: i64) -> Result<Recovered, LogError> {
        let first = self.segment_for(recovery_point);
        self.index_segments_below(first)?;
        // The segment that ends where the recovery point is may have been flushed before it was complete: its indexes were
        // written later, and its file was cut to its content later. If that survived a kill, it may still not be durable.
        if first > 0 && self.segments[first].base_offset == recovery_point {
            let (segment, place) = self.segment_and_place(first - 1);
            segment.changed += 1;
            if !segment.is_complete(&place, recovery_point)? {
                self.complete_segment(first - 1, recovery_point)?;
            }
        }
        let mut recovered = Recovered::nothing();
        self.recent.clear();
        self.window = None;
        let resume = self.resume(first, recovery_point)?;
        // The batches themselves tell the epochs from here on.
        let checkpointed = self.epochs.clone();
        let scanned_from = resume
            .as_ref()
            .map_or(self.segments[first].base_offset, |resume| {
                resume.base_offset
            });
        self.epochs.truncate_from_end(scanned_from);
        let mut index = first;
        let mut was_cut = false;
        while index < self.segments.len() {
            let base_offset = self.segments[index].base_offset;
            if index > first && !self.continues(base_offset, was_cut) {
                recovered.bytes_cut += self.drop_segments_from(index)?;
                break;
            }
            let size = self.segments[index].size;
            let resume = resume.as_ref().filter(|_| index == first);
            let scanned = self.scan(index, resume)?;
            self.log_end_offset = scanned.end_offset;
            recovered.segments_scanned += 1;
            recovered.bytes_scanned += size - resume.map_or(0, |resume| resume.position);
            // No reason to drop the next one: a file may be longer than its content, if it was recycled.
            was_cut = scanned.valid < size;
            recovered.bytes_cut += size.saturating_sub(scanned.valid);
            index += 1;
        }
        self.epochs_written &= self.epochs == checkpointed;
        if recovered.bytes_cut > 0 {
            tracing::info!(
                log = self.folder.name,
                bytes = recovered.bytes_cut,
                end = self.log_end_offset,
                "cut what a kill left half-written"
            );
        }
        Ok(recovered)
    }

    /// Makes the indexes of a complete segment anew, from its batch headers. Nothing is cut: records below the recovery point
    /// are what they are, and an index that ends early costs a longer walk.
    pub(super) fn rebuild_indexes(&mut self, index: usize) -> Result<(), LogError> {
        let size = self.segments[index].size;
        self.walk_to(index, i64::MAX)?;
        let (segment, place) = self.segment_and_place(index);
        segment.size = size;
        segment.write_indexes(&place)
    }

    /// The same for a segment that holds everything up to `end_offset`: what is behind the batch that ends there is cut off.
    fn complete_segment(&mut self, index: usize, end_offset: i64) -> Result<(), LogError> {
        let size = self.segments[index].size;
        let reached = self.walk_to(index, end_offset)?;
        let (segment, place) = self.segment_and_place(index);
        let content = segment.size;
        segment.size = size;
        segment.write_indexes(&place)?;
        if reached == end_offset && content < size {
            let path = place.path(segment.base_offset, LOG_SUFFIX);
            let cut = segment.file(&place)?.set_length(content);
            cut.map_err(|error| LogError::io("cut", &path, error))?;
            segment.size = content;
        }
        Ok(())
    }

    /// Learns a segment anew from its batch headers up to `end_offset`, or as far as they go. Returns where they ended.
    fn walk_to(&mut self, index: usize, end_offset: i64) -> Result<i64, LogError> {
        let interval = self.config.index_interval_bytes;
        let (segment, place) = self.segment_and_place(index);
        let size = segment.size;
        let file = segment.file(&place)?;
        segment.clear_indexes(&place)?;
        let log_path = place.path(segment.base_offset, LOG_SUFFIX);
        let path = || log_path.clone();
        let mut walk = BatchWalk::new(&*file, &path, 0, size, SEQUENTIAL_CHUNK);
        let mut reached = segment.base_offset;
        while reached < end_offset {
            match walk.next() {
                Ok(Some(batch)) => {
                    segment.note_batch(&batch, interval);
                    reached = batch.last_offset() + 1;
                }
                Ok(None) => break,
                Err(LogError::Corrupt { reason, .. }) => {
                    tracing::warn!(segment = %log_path.display(), reason, "a segment below the recovery point is damaged");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        segment.push_time_entry();
        Ok(reached)
    }

    /// Whether a segment goes on where the last scanned one ended. A segment starts at the log end offset of its time, so
    /// anything between is lost; unless the distance is more than a segment can span, and nothing was cut off before it.
    fn continues(&self, base_offset: i64, was_cut: bool) -> bool {
        let distance = base_offset - self.log_end_offset;
        distance == 0 || (distance > RELATIVE_OFFSET_MAX && !was_cut)
    }

    /// Removes segments from the end to `index`, the last first, so that a crash in between leaves no hole.
    pub(super) fn drop_segments_from(&mut self, index: usize) -> Result<u64, LogError> {
        let mut bytes = 0;
        self.names_changed += 1;
        while self.segments.len() > index {
            let last = &self.segments[self.segments.len() - 1];
            bytes += last.size;
            self.remove_segment_files(last.base_offset)?;
            self.segments.pop();
        }
        Ok(bytes)
    }

    /// Reads one segment, from its start or from where it may be gone on from, rebuilds its indexes and the epochs, and cuts
    /// its file behind the last acceptable batch.
    fn scan(&mut self, index: usize, resume: Option<&Resume>) -> Result<Scanned, LogError> {
        let is_last = index + 1 == self.segments.len();
        let interval = self.config.index_interval_bytes;
        let (segment, place) = self.segment_and_place(index);
        let path = place.path(segment.base_offset, LOG_SUFFIX);
        let file = segment.file(&place)?;
        // Always the file's own length: what was listed may be older.
        let length = file
            .length()
            .map_err(|error| LogError::io("read", &path, error))?;
        let base_offset = segment.base_offset;
        let mut end_offset = base_offset;
        match resume {
            Some(resume) => {
                end_offset = resume.base_offset;
                self.rewind(index, resume)?;
            }
            None => segment.clear_indexes(&place)?,
        }
        let gaps = self.config.compact || self.compacted;
        let mut reader = BatchReader::new(&*file, length);
        let mut latest_epoch = self.epochs.latest().map_or(-1, |entry| entry.epoch);
        loop {
            let position = self.segments[index].size;
            let furthest = if gaps {
                base_offset + RELATIVE_OFFSET_MAX
            } else {
                end_offset
            };
            let Some(batch) = reader
                .acceptable(position, end_offset..=furthest, latest_epoch)
                .map_err(|error| LogError::io("read", &path, error))?
            else {
                break;
            };
            let epoch = batch.header.partition_leader_epoch;
            if epoch > latest_epoch {
                self.epochs.assign(epoch, batch.header.base_offset);
                latest_epoch = epoch;
            }
            end_offset = batch.last_offset() + 1;
            let (segment, place) = self.segment_and_place(index);
            segment.note_batch(&batch, interval);
            if segment.offset_index.is_full() || segment.time_index.is_full() {
                segment.write_indexes(&place)?;
            }
            if is_last {
                self.note_recent(&batch);
            }
        }
        let (segment, place) = self.segment_and_place(index);
        // It was scanned because nobody knows what of it is durable.
        segment.changed += 1;
        if segment.size < length {
            file.set_length(segment.size)
                .map_err(|error| LogError::io("cut", &path, error))?;
        }
        if !is_last {
            segment.push_time_entry();
        }
        segment.write_indexes(&place)?;
        Ok(Scanned {
            valid: segment.size,
            end_offset,
        })
    }
}

/// Reads whole batches of a segment, one after another.
pub(super) struct BatchReader<'a, F> {
    file: &'a F,
    length: u64,
    buffer: Vec<u8>,
    buffer_position: u64,
}

impl<'a, F: DiskFile> BatchReader<'a, F> {
    pub(super) fn new(file: &'a F, length: u64) -> BatchReader<'a, F> {
        BatchReader {
            file,
            length,
            buffer: Vec::new(),
            buffer_position: 0,
        }
    }

    /// The batch at `position`, if its base offset is among `base_offsets` and it can follow `latest_epoch`.
    pub(super) fn acceptable(
        &mut self,
        position: u64,
        base_offsets: RangeInclusive<i64>,
        latest_epoch: i32,
    ) -> std::io::Result<Option<WalkedBatch>> {
        let left = self.length - position;
        if left < BATCH_HEADER_LENGTH as u64 {
            return Ok(None);
        }
        let Ok(header) = BatchHeader::parse(self.bytes(position, BATCH_HEADER_LENGTH)?) else {
            return Ok(None);
        };
        let size = header.total_length();
        let follows = base_offsets.contains(&header.base_offset)
            && header.last_offset_delta >= 0
            && header.partition_leader_epoch >= latest_epoch
            && header
                .base_offset
                .checked_add(i64::from(header.last_offset_delta) + 1)
                .is_some();
        #[cfg(feature = "mutants")]
        let follows = follows
            || (header.last_offset_delta >= 0
                && taffrail_mutants::is_planted(taffrail_mutants::Mutant::AcceptStaleTail));
        // Checked before the batch is read, so that a length out of stale bytes costs no memory.
        if !follows || size as u64 > left {
            return Ok(None);
        }
        let intact = crc_matches(self.bytes(position, size)?);
        #[cfg(feature = "mutants")]
        let intact =
            intact || taffrail_mutants::is_planted(taffrail_mutants::Mutant::TrustAfterTornBatch);
        if !intact {
            return Ok(None);
        }
        Ok(Some(WalkedBatch {
            header,
            position,
            size: size as u64,
        }))
    }

    fn bytes(&mut self, position: u64, length: usize) -> std::io::Result<&[u8]> {
        let start = position
            .checked_sub(self.buffer_position)
            .map_or(usize::MAX, |start| start as usize);
        let start = match start.checked_add(length) {
            Some(end) if end <= self.buffer.len() => start,
            _ => {
                let wanted = (length.max(CHUNK) as u64).min(self.length - position) as usize;
                self.buffer.resize(wanted, 0);
                self.buffer_position = position;
                self.file.read_exact_at(&mut self.buffer, position)?;
                0
            }
        };
        Ok(&self.buffer[start..start + length])
    }
}
