//! Truncation: taking back what the leader of a newer epoch does not have. The target comes from leader epochs,
//! never from a high watermark (KIP-101, KIP-279); that is the caller's to know.

use crate::batch_walk::WalkedBatch;
use crate::checkpoint::{CheckpointKind, remove_if_present};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::{EPOCH_CHECKPOINT, Log};
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX};

impl<D: Disk> Log<D> {
    /// Removes every record at or above `offset`; a batch that holds it goes as a whole. Returns the log end offset, which
    /// is lower than `offset` if that was within a batch or a gap.
    /// Producer state must be rebuilt by the caller, from a snapshot that is not above it. Ranges that readers hold
    /// may end early.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<i64, LogError> {
        self.check_writable()?;
        if offset < 0 {
            return Err(self.out_of_range(offset));
        }
        if offset < self.segments[0].base_offset {
            self.truncate_fully_and_start_at(offset, now_ms)?;
            return Ok(self.log_end_offset);
        }
        if offset < self.log_end_offset {
            let result = self.cut_records(offset);
            self.poison_on_any_failure(result)?;
        }
        // Also if no record goes: an epoch may have begun at the log end and never got one (KAFKA-10706).
        let end_offset = self.log_end_offset.min(offset);
        self.epochs_written &= !self.epochs.truncate_from_end(end_offset);
        self.check_invariants();
        Ok(self.log_end_offset)
    }

    /// Drops everything and goes on as an empty log at `offset`: what a follower does whose offsets its leader has no more.
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: i64,
        now_ms: i64,
    ) -> Result<(), LogError> {
        self.check_writable()?;
        if offset < 0 {
            return Err(self.out_of_range(offset));
        }
        let result = self.start_over(offset, now_ms);
        self.poison_on_any_failure(result)?;
        self.check_invariants();
        Ok(())
    }

    /// Removes the segment that starts at `base_offset`, which is damaged, and all behind it. Returns the log end offset, from
    /// which on the records must be fetched anew. For a follower outside of the ISR only: it may go below what is committed.
    pub fn drop_damaged_segment(&mut self, base_offset: i64, now_ms: i64) -> Result<i64, LogError> {
        self.check_writable()?;
        let index = self
            .segments
            .binary_search_by_key(&base_offset, |segment| segment.base_offset)
            .map_err(|_| self.out_of_range(base_offset))?;
        let result = self.drop_damaged(index, now_ms);
        self.poison_on_any_failure(result)?;
        self.epochs_written &= !self.epochs.truncate_from_end(self.log_end_offset);
        self.check_invariants();
        Ok(self.log_end_offset)
    }

    fn start_over(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.truncations += 1;
        let old_start = self.log_start_offset;
        // First the epochs: those of the old records say nothing of the new ones, and without a checkpoint the batches do.
        let epochs_path = self.path.join(EPOCH_CHECKPOINT);
        remove_if_present(self.directory.disk(), &epochs_path)
            .map_err(|error| LogError::io("remove", &epochs_path, error))?;
        self.epochs.clear();
        self.epochs_written = false;
        // Its content may have higher offsets than what comes now.
        self.remove_spare();
        self.drop_segments_durably(0)?;
        let segment = self.new_segment(offset, now_ms)?;
        self.segments.push(segment);
        self.log_end_offset = offset;
        self.note_cut(offset);
        self.recent.clear();
        self.window = None;
        self.set_log_start(offset);
        self.lower_recovery_point()?;
        if self.recovery_point < offset {
            self.set_recovery_point(offset);
        }
        if offset < old_start {
            // A checkpoint above the log end would throw the new records away at the next start.
            self.directory.write_checkpoint(CheckpointKind::LogStart)?;
        }
        self.remove_producer_snapshots_above(-1)
    }

    fn cut_records(&mut self, offset: i64) -> Result<(), LogError> {
        self.truncations += 1;
        let index = self.segment_for(offset);
        let cut = self.locate(index, offset)?;
        self.drop_segments_durably(index + 1)?;
        self.window = None;
        if let Some(cut) = cut {
            self.cut_aborted(index, cut.header.base_offset)?;
            self.cut_segment(index, &cut)?;
        }
        match self.load_active_end() {
            // An index that does not fit its log: the batches tell.
            Err(LogError::Corrupt { .. }) => {
                self.rebuild_indexes(index)?;
                self.load_active_end()?;
            }
            result => result?,
        }
        self.settle_cut()
    }

    /// Removes a damaged segment and everything behind it, so that it can be fetched anew. Nothing of a damaged file is read:
    /// where the segment before turns out damaged, too, that goes as well.
    fn drop_damaged(&mut self, mut index: usize, now_ms: i64) -> Result<(), LogError> {
        while index > 0 {
            self.truncations += 1;
            self.drop_segments_durably(index)?;
            self.window = None;
            index -= 1;
            let loaded = match self.load_active_end() {
                Err(LogError::Corrupt { .. }) => self
                    .rebuild_indexes(index)
                    .and_then(|()| self.load_active_end()),
                loaded => loaded,
            };
            match loaded {
                Err(LogError::Corrupt { .. }) => {}
                loaded => return loaded.and_then(|()| self.settle_cut()),
            }
        }
        self.start_over(self.log_start_offset, now_ms)
    }

    fn settle_cut(&mut self) -> Result<(), LogError> {
        self.note_cut(self.log_end_offset);
        // The log now ends with its last batch, also if the target was in the gap behind it: a log end offset that no
        // record tells would be another one after a restart.
        if self.log_start_offset > self.log_end_offset {
            self.set_log_start(self.log_end_offset);
            self.directory.write_checkpoint(CheckpointKind::LogStart)?;
        }
        self.lower_recovery_point()?;
        self.remove_producer_snapshots_above(self.log_end_offset)
    }

    fn drop_segments_durably(&mut self, index: usize) -> Result<(), LogError> {
        if index < self.segments.len() {
            self.drop_segments_from(index)?;
            self.directory
                .disk()
                .sync_dir(&self.path)
                .map_err(|error| LogError::io("fsync", &self.path, error))?;
        }
        Ok(())
    }

    fn cut_segment(&mut self, index: usize, cut: &WalkedBatch) -> Result<(), LogError> {
        let (segment, place) = self.segment_and_place(index);
        let path = place.path(segment.base_offset, LOG_SUFFIX);
        let file = segment.file(&place)?;
        let relative = cut.header.base_offset - segment.base_offset;
        let index_path = place.path(segment.base_offset, INDEX_SUFFIX);
        let time_path = place.path(segment.base_offset, TIME_INDEX_SUFFIX);
        // Indexes first, durably: an entry that points behind the end of its log, or between newer batches, must never be
        // seen.
        segment
            .offset_index
            .truncate(place.disk, &index_path, |entry| {
                u64::from(entry.position) < cut.position
            })
            .map_err(|error| LogError::io("cut", &index_path, error))?;
        segment
            .time_index
            .truncate(place.disk, &time_path, |entry| {
                i64::from(entry.relative_offset) < relative
            })
            .map_err(|error| LogError::io("cut", &time_path, error))?;
        file.set_length(cut.position)
            .map_err(|error| LogError::io("cut", &path, error))?;
        // What was cut off must never come back: between newer batches it would be taken for what the leader has, for all
        // that anybody asks is the epoch at the end.
        file.sync()
            .map_err(|error| LogError::io("fsync", &path, error))?;
        segment.recycled = false;
        segment.synced_size = segment.synced_size.min(cut.position);
        segment.size = cut.position;
        Ok(())
    }

    /// After the log end went back: records appended from here on are not durable, whatever was before. If the checkpoint
    /// on the disk says otherwise, it is corrected before anything is appended, or recovery would not look at them.
    fn lower_recovery_point(&mut self) -> Result<(), LogError> {
        if self.recovery_point > self.log_end_offset {
            self.set_recovery_point(self.log_end_offset);
        }
        let durable = self
            .directory
            .durable_recovery_point(&self.folder.topic, self.folder.partition);
        if durable.is_some_and(|durable| durable > self.log_end_offset) {
            self.directory
                .write_checkpoint(CheckpointKind::RecoveryPoint)?;
        }
        Ok(())
    }
}
