//! A log that moves to another log directory: what its copy there is brought into line with, and how the copy takes its place.
//! How the records are copied is the caller's: read here, appended there as a follower does.

use std::sync::Arc;

use crate::disk::Disk;
use crate::error::LogError;
use crate::folder::{FolderState, PartitionFolder};
use crate::log::retention::Retired;
use crate::log::{Flush, Log};

/// What of a log its copy has to follow besides records, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Nothing at or above this offset that was copied before still counts.
    cut: i64,
    log_start_offset: i64,
}

impl<D: Disk> Log<D> {
    /// What its copy has to follow. The next call tells of what happened since this one, so the copy must follow this one.
    pub fn take_ends(&mut self) -> Ends {
        let cut = self.cut.take().unwrap_or(i64::MAX);
        Ends {
            cut: cut.min(self.log_end_offset),
            log_start_offset: self.log_start_offset,
        }
    }

    /// Whether records were taken back since [`Log::take_ends`].
    pub fn was_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// As the copy of another log: takes back what that took back, and starts where it starts. The files of segments that
    /// are not needed any more are the caller's to remove.
    pub fn follow_ends(&mut self, ends: Ends, now_ms: i64) -> Result<Retired<D>, LogError> {
        if self.log_end_offset > ends.cut {
            self.truncate_to(ends.cut, now_ms)?;
        }
        if self.log_end_offset < ends.log_start_offset {
            self.truncate_fully_and_start_at(ends.log_start_offset, now_ms)?;
        }
        self.advance_log_start_to(ends.log_start_offset, now_ms)
    }

    /// As a copy of `current` that was left when the broker stopped: takes back what is not in that any more. Both have got
    /// their records from leaders, so the same epoch at the same offset says the same record.
    pub fn cut_to_common(&mut self, current: &Log<D>, now_ms: i64) -> Result<(), LogError> {
        while let Some(latest) = self.epochs.latest() {
            let end = current
                .epochs
                .end_offset_for(latest.epoch, current.log_end_offset);
            let common = match end {
                Some(end) if end.epoch == latest.epoch => {
                    if end.end_offset < self.log_end_offset {
                        self.truncate_to(end.end_offset, now_ms)?;
                    }
                    return Ok(());
                }
                Some(end) => end.end_offset.min(latest.start_offset),
                None => latest.start_offset,
            };
            self.truncate_to(common, now_ms)?;
        }
        Ok(())
    }

    /// As a copy that holds all records of `current`: takes the rest from it, its settings and the epochs that have no records.
    pub fn adopt(&mut self, current: &Log<D>) {
        self.set_config(Arc::clone(&current.config));
        if self.epochs != current.epochs {
            self.epochs = current.epochs.clone();
            self.epochs_written = false;
        }
    }

    /// Everything of the log, also where no record is: names, topic id, indexes.
    pub fn begin_flush_of_all(&mut self) -> Result<Flush<D>, LogError> {
        self.write_indexes()?;
        let all = self.segments.len();
        self.take_flush(i64::MAX, all)
    }

    /// Has this log, a copy that holds all that `current` does and is durable, take its place. Gives the folder that `current`
    /// is left with, to be removed; `None` if it has to be kept.
    ///
    /// If it fails `current` stays the replica, unless its directory has failed. Once it has succeeded this is the replica,
    /// also if its own directory has failed over it.
    pub fn take_place_of(
        &mut self,
        current: &mut Log<D>,
    ) -> Result<Option<PartitionFolder>, LogError> {
        self.check_writable()?;
        current.check_writable()?;
        let FolderState::Future(id) = self.folder.state else {
            return Err(LogError::corrupt(&self.path, "it is no copy of a replica"));
        };
        let live = self.folder.in_state(FolderState::Live);
        self.directory
            .check_free(&live)
            .map_err(|error| LogError::io("rename", &self.path, error))?;
        self.rename(FolderState::Whole(id))?;
        let deleted = current.directory.mark_deleted(&current.folder);
        let deleted = current.poison_on_any_failure(deleted)?;
        match self.rename(FolderState::Live) {
            Ok(()) => Ok(Some(deleted)),
            Err(error) => {
                // The next start would remove it, and it may be all that is left.
                let kept = current.directory.mark_stray(&deleted);
                tracing::error!(
                    replica = current.folder.name,
                    ?kept,
                    %error,
                    "the log directory failed to which the replica was moved; what it was moved from is kept aside"
                );
                Ok(None)
            }
        }
    }

    fn rename(&mut self, state: FolderState) -> Result<(), LogError> {
        let renamed = self.directory.rename_in_use(&self.folder, state);
        self.folder = self.poison_on_any_failure(renamed)?;
        self.path = self.directory.path().join(&self.folder.name);
        Ok(())
    }

    pub(super) fn note_cut(&mut self, offset: i64) {
        self.cut = Some(self.cut.map_or(offset, |cut| cut.min(offset)));
    }
}
