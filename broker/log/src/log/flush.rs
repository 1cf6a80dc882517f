//! Making records durable. A flush is taken from the log under its lock, run without it (an fsync may take long, and
//! appends go on meanwhile), and its result brought back under the lock, where it moves the recovery point.

use std::path::PathBuf;
use std::sync::Arc;

use crate::checkpoint::Durability;
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::Log;
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX};

/// What is to be fsynced, in order.
#[must_use = "a flush does nothing until it is run and its result given to `finish_flush`"]
pub struct Flush<D: Disk> {
    disk: D,
    folder: PathBuf,
    logs: Vec<(PathBuf, Arc<D::File>)>,
    indexes: Vec<PathBuf>,
    sync_names: bool,
    names_changed: u64,
    end_offset: i64,
}

/// What a flush made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Everything below this offset.
    pub end_offset: i64,
    /// How many segment files had been made when it began.
    names_changed: u64,
}

impl<D: Disk> Flush<D> {
    /// Runs it. The first failure ends it; it must not be tried again, for the kernel forgets what it could not write.
    pub fn run(self) -> Result<Flushed, LogError> {
        for (path, file) in &self.logs {
            file.sync()
                .map_err(|error| LogError::io("fsync", path, error))?;
        }
        for path in &self.indexes {
            let result = self.disk.open(path).and_then(|file| file.sync());
            match result {
                // An index that was never written, or a segment that was removed meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                result => result.map_err(|error| LogError::io("fsync", path, error))?,
            }
        }
        if self.sync_names {
            self.disk
                .sync_dir(&self.folder)
                .map_err(|error| LogError::io("fsync", &self.folder, error))?;
        }
        Ok(Flushed {
            end_offset: self.end_offset,
            names_changed: self.names_changed,
        })
    }
}

impl<D: Disk> Log<D> {
    /// What must be fsynced so that every record below `end_offset` (the log end, if it is beyond) is durable; `None` if
    /// it already is. The epoch checkpoint is small and written here, when it changed.
    pub fn begin_flush(&mut self, end_offset: i64) -> Result<Option<Flush<D>>, LogError> {
        self.check_writable()?;
        let end_offset = end_offset.min(self.log_end_offset);
        if end_offset <= self.recovery_point {
            return Ok(None);
        }
        if !self.epochs_durable && !self.epochs.entries().is_empty() {
            self.write_epochs(Durability::Power)?;
        }
        let place = self.place();
        let active = self.segments.len() - 1;
        let first = self.segment_for(self.recovery_point);
        let (mut logs, mut indexes) = (Vec::new(), Vec::new());
        for (index, segment) in self.segments.iter().enumerate().skip(first) {
            if segment.base_offset >= end_offset {
                break;
            }
            logs.push((
                place.path(segment.base_offset, LOG_SUFFIX),
                segment.file(&place)?,
            ));
            if index < active {
                indexes.push(place.path(segment.base_offset, INDEX_SUFFIX));
                indexes.push(place.path(segment.base_offset, TIME_INDEX_SUFFIX));
            }
        }
        Ok(Some(Flush {
            disk: self.directory.disk().clone(),
            folder: self.path.clone(),
            logs,
            indexes,
            sync_names: self.names_synced < self.names_changed,
            names_changed: self.names_changed,
            end_offset,
        }))
    }

    /// Takes note of a flush's result and returns the recovery point. A failure poisons the log.
    pub fn finish_flush(&mut self, result: Result<Flushed, LogError>) -> Result<i64, LogError> {
        let flushed = self.poison_on_any_failure(result)?;
        self.names_synced = self.names_synced.max(flushed.names_changed);
        // A truncation meanwhile may have taken back what was flushed.
        let reached = flushed.end_offset.min(self.log_end_offset);
        if reached > self.recovery_point && self.poison.is_none() {
            self.set_recovery_point(reached);
        }
        Ok(self.recovery_point)
    }

    /// All of it at once: every record is durable when this returns.
    pub fn flush(&mut self) -> Result<i64, LogError> {
        let Some(flush) = self.begin_flush(i64::MAX)? else {
            return Ok(self.recovery_point);
        };
        self.finish_flush(flush.run())
    }

    /// Closes the log for good: the active segment is cut to its content, the indexes are whole, everything is durable.
    /// After this the directory may be marked clean. The caller writes the producer snapshot before.
    pub fn close(mut self) -> Result<(), LogError> {
        self.check_writable()?;
        let sealed = self.seal_active();
        self.poison_on_failure(sealed)?;
        self.remove_spare();
        self.flush()?;
        Ok(())
    }
}
