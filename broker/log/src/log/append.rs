//! Appending: as a leader, which gives the batches their offsets and its epoch, or as a follower, which takes them as
//! they are. Both write each run of batches with one call and then take note of it; both roll the segment when due.

use taffrail_protocol::records::{
    BATCH_HEADER_LENGTH, BatchHeader, crc_matches, patch_base_offset_and_epoch,
};

use crate::append_engine;
use crate::batch_walk::WalkedBatch;
use crate::disk::{Disk, DiskFile};
use crate::error::{LogError, is_full};
use crate::log::{Log, RECENT_MAX, RecentBatch};
use crate::segment::{LOG_SUFFIX, NO_TIMESTAMP, RELATIVE_OFFSET_MAX, Segment};

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record that was appended; the log end offset if none was.
    pub first_offset: i64,
    /// Offset of the last record that was appended; one less than `first_offset` if none was.
    pub last_offset: i64,
    /// Bytes appended.
    pub bytes: usize,
    /// Base offset of the newest segment that was started on the way. What is below it should be flushed soon, off
    /// this path ([`Log::begin_flush`]), and the producer state as it was before this append be written as the snapshot
    /// of this offset ([`Log::write_producer_snapshot`]).
    pub rolled: Option<i64>,
}

impl Appended {
    fn nothing(log_end_offset: i64) -> Appended {
        Appended {
            first_offset: log_end_offset,
            last_offset: log_end_offset - 1,
            bytes: 0,
            rolled: None,
        }
    }
}

impl<D: Disk> Log<D> {
    /// Appends batches that a producer or coordinator made, whole and checked (`validate`). Base offset and leader epoch
    /// are written into `batches`. The epoch must have been assigned, or is now.
    pub fn append_leader(
        &mut self,
        batches: &mut [u8],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, LogError> {
        self.check_writable()?;
        let first_offset = self.log_end_offset;
        let mut next_offset = first_offset;
        let mut position = 0;
        while position < batches.len() {
            let (header, size) = batch_at(&batches[position..])?;
            if size > self.config.segment_bytes as usize {
                return Err(LogError::BatchTooLarge {
                    bytes: size,
                    segment_bytes: self.config.segment_bytes,
                });
            }
            patch_base_offset_and_epoch(
                &mut batches[position..position + size],
                next_offset,
                leader_epoch,
            );
            next_offset = next_offset
                .checked_add(i64::from(header.last_offset_delta) + 1)
                .ok_or_else(|| invalid("the log has no offsets left"))?;
            position += size;
        }
        if position > 0 {
            self.assign_epoch_at(leader_epoch, first_offset)?;
        }
        let mut appended = Appended::nothing(first_offset);
        self.append_runs(batches, now_ms, &mut appended)?;
        Ok(appended)
    }

    /// Appends batches as a leader sent them, in the epoch under which they were fetched. CRC, order and epochs are
    /// checked, records are not looked at. What follows a batch that is cut off at the end, or a batch of a higher
    /// epoch than `leader_epoch` (KAFKA-18723), is left out.
    ///
    /// An empty log may be handed a batch that begins below its end and holds it: the leader's log start was moved into the
    /// batch by DeleteRecords. It then begins with that batch, and its log start stays.
    pub fn append_follower(
        &mut self,
        batches: &[u8],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, LogError> {
        self.check_writable()?;
        if let Some(base_offset) = self.begins_within(batches)? {
            let log_start_offset = self.log_start_offset;
            self.truncate_fully_and_start_at(base_offset, now_ms)?;
            let appended = self.append_follower(batches, leader_epoch, now_ms);
            self.advance_log_start(log_start_offset.min(self.log_end_offset));
            return appended;
        }
        let mut next_offset = self.log_end_offset;
        let mut latest = self.epochs.latest().map_or(-1, |entry| entry.epoch);
        let mut begun = Vec::new();
        let mut position = 0;
        while position < batches.len() {
            let rest = &batches[position..];
            let Some((header, size)) = whole_batch_at(rest)? else {
                break;
            };
            if header.partition_leader_epoch > leader_epoch {
                break;
            }
            if header.base_offset < next_offset {
                let log_end_offset = next_offset;
                return Err(LogError::NotContiguous {
                    base_offset: header.base_offset,
                    log_end_offset,
                });
            }
            if header.partition_leader_epoch < latest {
                return Err(LogError::StaleLeaderEpoch {
                    epoch: header.partition_leader_epoch,
                    latest,
                });
            }
            if !crc_matches(&rest[..size]) {
                return Err(invalid("the checksum of a replicated batch does not match"));
            }
            if header.partition_leader_epoch > latest {
                latest = header.partition_leader_epoch;
                begun.push((latest, header.base_offset));
            }
            next_offset = header
                .last_offset()
                .checked_add(1)
                .ok_or_else(|| invalid("the log has no offsets left"))?;
            position += size;
        }
        for (epoch, start_offset) in begun {
            self.assign_epoch_at(epoch, start_offset)?;
        }
        let mut appended = Appended::nothing(self.log_end_offset);
        match self.append_runs(&batches[..position], now_ms, &mut appended) {
            Ok(()) => Ok(appended),
            Err(error) => {
                // Epochs of batches that are not here would be told to the leader as if they were.
                self.epochs_written &= !self.epochs.truncate_from_end(self.log_end_offset);
                match error {
                    // What fitted before a roll is in the log, and the caller must know.
                    LogError::DiskFull { .. } if appended.bytes > 0 => Ok(appended),
                    error => Err(error),
                }
            }
        }
    }

    /// Where the first of these batches begins, if this log is empty and ends within it.
    fn begins_within(&self, batches: &[u8]) -> Result<Option<i64>, LogError> {
        if self.log_start_offset < self.log_end_offset || self.size() > 0 {
            return Ok(None);
        }
        let first = whole_batch_at(batches)?.filter(|(header, _)| {
            header.base_offset < self.log_end_offset && self.log_end_offset <= header.last_offset()
        });
        Ok(first.map(|(header, _)| header.base_offset))
    }

    /// Starts a new segment at the log end offset, if the active one holds anything.
    pub fn roll(&mut self, now_ms: i64) -> Result<(), LogError> {
        self.check_writable()?;
        if self.active().size > 0 {
            self.roll_at(self.log_end_offset, now_ms)
        } else {
            Ok(())
        }
    }

    /// Writes batches whose offsets are final, rolling where it is due.
    fn append_runs(
        &mut self,
        batches: &[u8],
        now_ms: i64,
        appended: &mut Appended,
    ) -> Result<(), LogError> {
        let mut run_start = 0;
        let mut position = 0;
        while position < batches.len() {
            let (header, size) = batch_at(&batches[position..])?;
            if self.must_roll(&header, (position - run_start) as u64, size, now_ms)? {
                self.append_run(&batches[run_start..position], appended)?;
                run_start = position;
                let base_offset = self.next_base_offset(&header);
                self.roll_at(base_offset, now_ms)?;
                appended.rolled = Some(base_offset);
            }
            if position == 0 {
                appended.first_offset = header.base_offset;
            }
            position += size;
        }
        self.append_run(&batches[run_start..], appended)?;
        self.check_invariants();
        Ok(())
    }

    /// Writes a run of batches to the end of the active segment with as few calls as may be.
    fn append_run(&mut self, run: &[u8], appended: &mut Appended) -> Result<(), LogError> {
        if run.is_empty() {
            return Ok(());
        }
        let (segment, place) = self.active_and_place();
        let file = segment.file(&place)?;
        let (size, base_offset) = (segment.size, segment.base_offset);
        let takes_room = !segment.recycled;
        if let Err(error) = append_engine::append(&*file, run, size) {
            return Err(self.undo_failed_append(&file, size, base_offset, error));
        }
        if takes_room {
            self.directory.room().used(run.len() as u64);
        }
        let index_interval_bytes = self.config.index_interval_bytes;
        let mut position = 0;
        while position < run.len() {
            let (header, batch_size) = batch_at(&run[position..])?;
            let batch = WalkedBatch {
                header,
                position: size + position as u64,
                size: batch_size as u64,
            };
            self.note_appended(&batch, index_interval_bytes);
            position += batch_size;
        }
        appended.last_offset = self.log_end_offset - 1;
        appended.bytes += run.len();
        self.write_full_indexes()
    }

    fn note_appended(&mut self, batch: &WalkedBatch, index_interval_bytes: u32) {
        let (segment, _) = self.active_and_place();
        segment.note_batch(batch, index_interval_bytes);
        self.log_end_offset = batch.last_offset() + 1;
        self.note_recent(batch);
    }

    pub(super) fn note_recent(&mut self, batch: &WalkedBatch) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(RecentBatch {
            base_offset: batch.header.base_offset,
            last_offset: batch.last_offset(),
            position: batch.position,
        });
    }

    /// A full disk is no damage: what was written is cut off and the log goes on when there is room. Everything else is.
    fn undo_failed_append(
        &mut self,
        file: &D::File,
        size: u64,
        base_offset: i64,
        error: std::io::Error,
    ) -> LogError {
        let path = self.segment_path(base_offset);
        if is_full(&error) && file.set_length(size).is_ok() {
            self.segments.last_mut().expect("never empty").recycled = false;
            self.directory.room().exhausted();
            return LogError::DiskFull {
                path: path.display().to_string(),
            };
        }
        let error = LogError::io("write", &path, error);
        self.poison(&error);
        error
    }

    fn write_full_indexes(&mut self) -> Result<(), LogError> {
        let active = self.active();
        if !active.offset_index.is_full() && !active.time_index.is_full() {
            return Ok(());
        }
        let (segment, place) = self.active_and_place();
        match segment.write_indexes(&place) {
            // The entries stay in memory; the records are in the log, and that is what was asked for.
            Err(LogError::DiskFull { .. }) => Ok(()),
            result => self.poison_on_failure(result),
        }
    }

    /// Whether a batch must open a new segment, given that `run` bytes are about to be written to the active one.
    fn must_roll(
        &mut self,
        header: &BatchHeader,
        run: u64,
        size: usize,
        now_ms: i64,
    ) -> Result<bool, LogError> {
        let segment_bytes = u64::from(self.config.segment_bytes);
        let segment_index_bytes = u64::from(self.config.segment_index_bytes);
        let age_max = self
            .config
            .segment_ms
            .saturating_sub(self.config.segment_jitter_ms);
        let (segment, place) = self.active_and_place();
        let content = segment.size + run;
        if content == 0 {
            // An empty segment may still be too far below: its file's name cannot change, so a new one is made.
            return Ok(header.last_offset() - segment.base_offset > RELATIVE_OFFSET_MAX);
        }
        let index_full = |bytes: u64, entry: u64| bytes + entry > segment_index_bytes;
        if content + size as u64 > segment_bytes
            || header.last_offset() - segment.base_offset > RELATIVE_OFFSET_MAX
            || index_full(segment.offset_index.bytes(), 8)
            || index_full(segment.time_index.bytes(), 12)
        {
            return Ok(true);
        }
        if segment.size == 0 {
            return Ok(false);
        }
        // The records' own time, so that replicas roll alike; the clock only if they have none.
        let first = segment.first_timestamp(&place)?.unwrap_or(NO_TIMESTAMP);
        let age = if first > NO_TIMESTAMP && header.max_timestamp > NO_TIMESTAMP {
            header.max_timestamp.saturating_sub(first)
        } else {
            now_ms.saturating_sub(segment.since_ms)
        };
        Ok(age > age_max)
    }

    /// A segment is named by the log end offset, so that recovery sees when the end of the one before is missing; only if
    /// the batch is too far from there for an index entry, by the batch.
    fn next_base_offset(&self, header: &BatchHeader) -> i64 {
        if header.last_offset() - self.log_end_offset > RELATIVE_OFFSET_MAX {
            header.base_offset
        } else {
            self.log_end_offset
        }
    }

    /// Completes the active segment's files and starts the next one.
    pub(super) fn roll_at(&mut self, base_offset: i64, now_ms: i64) -> Result<(), LogError> {
        if self.active().size == 0 && self.active().base_offset < base_offset {
            // Nothing in it and nothing to come: its name is all there is to remove.
            return self.replace_empty_active(base_offset, now_ms);
        }
        let sealed = self.seal_active();
        self.poison_on_failure(sealed)?;
        // Its indexes are complete only now, so the next flush must take it along, even if all its records are durable.
        self.active_and_place().0.changed += 1;
        let made = self.new_segment(base_offset, now_ms);
        let segment = self.poison_on_failure(made)?;
        self.segments.push(segment);
        self.recent.clear();
        Ok(())
    }

    fn replace_empty_active(&mut self, base_offset: i64, now_ms: i64) -> Result<(), LogError> {
        let made = self.new_segment(base_offset, now_ms);
        let segment = self.poison_on_failure(made)?;
        let old = self.segments.pop();
        self.segments.push(segment);
        self.recent.clear();
        let Some(old) = old else { return Ok(()) };
        let removed = self.remove_segment_files(old.base_offset);
        self.poison_on_failure(removed)
    }

    /// Cuts the active segment's file to its content and writes its indexes whole, the largest timestamp last.
    pub(super) fn seal_active(&mut self) -> Result<(), LogError> {
        let (segment, place) = self.active_and_place();
        if segment.recycled {
            let path = place.path(segment.base_offset, LOG_SUFFIX);
            segment
                .file(&place)?
                .set_length(segment.size)
                .map_err(|error| LogError::io("cut", &path, error))?;
            segment.recycled = false;
            segment.changed += 1;
        }
        segment.push_time_entry();
        segment.write_indexes(&place)
    }

    /// Makes the file of a new segment, out of the spare one if there is one.
    pub(super) fn new_segment(
        &mut self,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Segment<D::File>, LogError> {
        self.names_changed += 1;
        let path = self.segment_path(base_offset);
        if let Some(spare) = self.spare.take() {
            return self.recycle(spare, base_offset, now_ms);
        }
        let segment = Segment::empty(base_offset, now_ms);
        let place = self.place();
        place
            .files
            .get(&segment.handle, || place.disk.create(&path))
            .map_err(|error| LogError::io("create", &path, error))?;
        Ok(segment)
    }
}

fn batch_at(bytes: &[u8]) -> Result<(BatchHeader, usize), LogError> {
    whole_batch_at(bytes)?.ok_or_else(|| invalid("a batch is cut off"))
}

/// The batch at the start of `bytes`; `None` if it is cut off.
fn whole_batch_at(bytes: &[u8]) -> Result<Option<(BatchHeader, usize)>, LogError> {
    if bytes.len() < BATCH_HEADER_LENGTH {
        return Ok(None);
    }
    let header = BatchHeader::parse(bytes).map_err(|error| invalid(&error.to_string()))?;
    let size = header.total_length();
    if header.last_offset_delta < 0 || header.base_offset < 0 {
        return Err(invalid("a batch has negative offsets"));
    }
    Ok((size <= bytes.len()).then_some((header, size)))
}

fn invalid(reason: &str) -> LogError {
    LogError::InvalidRecords {
        reason: reason.to_owned(),
    }
}
