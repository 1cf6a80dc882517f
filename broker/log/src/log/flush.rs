//! Making records durable. A flush is taken from the log under its lock, run without it (an fsync may take long, and
//! appends go on meanwhile), and its result brought back under the lock, where it moves the recovery point.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::identity::PARTITION_METADATA;
use crate::log::Log;
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, Segment, TIME_INDEX_SUFFIX};

/// What is to be fsynced, in order.
#[must_use = "a flush does nothing until it is run and its result given to `finish_flush`"]
pub struct Flush<D: Disk> {
    disk: D,
    folder: PathBuf,
    /// The topic id's file, and the folder that the log's folder is in, if they are not durable yet.
    identity: Option<(PathBuf, PathBuf)>,
    logs: Vec<(PathBuf, Arc<D::File>)>,
    indexes: Vec<PathBuf>,
    sync_names: bool,
    flushed: Flushed,
}

/// What a flush made durable.
#[derive(Clone, Debug)]
pub struct Flushed {
    end_offset: i64,
    /// How often names in the folder had changed when it began.
    names_changed: u64,
    /// How often the log had been truncated when it began.
    truncations: u64,
    /// The segments in it: base offset, how often the file had changed, and bytes of content.
    segments: Vec<(i64, u64, u64)>,
}

impl<D: Disk> Flush<D> {
    /// Runs it. The first failure ends it; it must not be tried again, for the kernel forgets what it could not write.
    pub fn run(self) -> Result<Flushed, LogError> {
        if let Some((topic_id, parent)) = &self.identity {
            sync_if_present(&self.disk, topic_id)?;
            let synced = self.disk.sync_dir(parent);
            synced.map_err(|error| LogError::io("fsync", parent, error))?;
        }
        for (path, file) in &self.logs {
            file.sync()
                .map_err(|error| LogError::io("fsync", path, error))?;
        }
        for path in &self.indexes {
            sync_if_present(&self.disk, path)?;
        }
        if self.sync_names {
            self.disk
                .sync_dir(&self.folder)
                .map_err(|error| LogError::io("fsync", &self.folder, error))?;
        }
        Ok(self.flushed)
    }
}

/// An index that was never written is not there, nor is one whose segment was removed meanwhile.
fn sync_if_present<D: Disk>(disk: &D, path: &Path) -> Result<(), LogError> {
    match disk.open(path).and_then(|file| file.sync()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| LogError::io("fsync", path, error)),
    }
}

impl<D: Disk> Log<D> {
    /// What must be fsynced so that every record below `end_offset` (the log end, if it is beyond) is durable; `None` if
    /// it already is. The epoch checkpoint is small and written here, when it changed.
    pub fn begin_flush(&mut self, end_offset: i64) -> Result<Option<Flush<D>>, LogError> {
        self.check_writable()?;
        let end_offset = end_offset.min(self.log_end_offset);
        let pending = self
            .segments
            .iter()
            .any(|segment| segment.base_offset < end_offset && segment.is_unsynced());
        if end_offset <= self.recovery_point && !pending {
            return Ok(None);
        }
        let closed = self.segments.len() - 1;
        self.take_flush(end_offset, closed).map(Some)
    }

    /// The same for all that there is, and for the indexes of the active segment: what a start after a kill, or after a loss
    /// of power, then reads begins at the log end of now.
    pub fn begin_flush_with_indexes(&mut self) -> Result<Option<Flush<D>>, LogError> {
        if self.unflushed_bytes() == 0 {
            return Ok(None);
        }
        self.write_indexes()?;
        let all = self.segments.len();
        self.take_flush(i64::MAX, all).map(Some)
    }

    /// Everything that starts below `end_offset`, and the names; and the indexes of so many segments.
    pub(super) fn take_flush(
        &mut self,
        end_offset: i64,
        indexed: usize,
    ) -> Result<Flush<D>, LogError> {
        if !self.epochs_written {
            self.write_epochs()?;
        }
        let place = self.place();
        let (mut logs, mut indexes, mut segments) = (Vec::new(), Vec::new(), Vec::new());
        for (index, segment) in self
            .segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| segment.base_offset < end_offset && segment.is_unsynced())
        {
            let path = place.path(segment.base_offset, LOG_SUFFIX);
            logs.push((path, segment.file(&place)?));
            segments.push((segment.base_offset, segment.changed, segment.size));
            // What the active one's lack after a power loss costs a walk, and they never show anything wrong.
            if index < indexed {
                indexes.push(place.path(segment.base_offset, INDEX_SUFFIX));
                indexes.push(place.path(segment.base_offset, TIME_INDEX_SUFFIX));
            }
        }
        Ok(Flush {
            disk: self.directory.disk().clone(),
            folder: self.path.clone(),
            identity: (!self.identity_synced).then(|| {
                (
                    self.path.join(PARTITION_METADATA),
                    self.directory.path().to_owned(),
                )
            }),
            logs,
            indexes,
            sync_names: self.names_synced < self.names_changed,
            flushed: Flushed {
                end_offset: end_offset.min(self.log_end_offset),
                names_changed: self.names_changed,
                truncations: self.truncations,
                segments,
            },
        })
    }

    /// Takes note of a flush's result and returns the recovery point. A failure poisons the log.
    pub fn finish_flush(&mut self, result: Result<Flushed, LogError>) -> Result<i64, LogError> {
        let flushed = self.poison_on_any_failure(result)?;
        self.names_synced = self.names_synced.max(flushed.names_changed);
        self.identity_synced = true;
        if flushed.truncations != self.truncations || self.poison.is_some() {
            // What it made durable may be gone, and what is in its place is not.
            return Ok(self.recovery_point);
        }
        for (base_offset, changed, size) in flushed.segments {
            let found = self
                .segments
                .binary_search_by_key(&base_offset, |segment| segment.base_offset);
            if let Ok(index) = found {
                let segment = &mut self.segments[index];
                segment.synced = segment.synced.max(changed);
                segment.synced_size = segment.synced_size.max(size);
            }
        }
        if flushed.end_offset > self.recovery_point {
            self.set_recovery_point(flushed.end_offset);
        }
        Ok(self.recovery_point)
    }

    /// Bytes of the active segment that a power loss may take, and that are read after a kill.
    pub fn unflushed_bytes(&self) -> u64 {
        let active = self.active();
        if active.is_unsynced() {
            active.size.saturating_sub(active.synced_size)
        } else {
            0
        }
    }

    /// All of it at once: every record is durable when this returns.
    pub fn flush(&mut self) -> Result<i64, LogError> {
        match self.begin_flush(i64::MAX)? {
            Some(flush) => self.finish_flush(flush.run()),
            None => Ok(self.recovery_point),
        }
    }

    /// Closes the log for good: the active segment is cut to its content, the indexes are whole, everything is durable.
    /// After this the directory may be marked clean. The caller writes the producer snapshot before.
    pub fn close(mut self) -> Result<(), LogError> {
        self.check_writable()?;
        let sealed = self.seal_active();
        self.poison_on_failure(sealed)?;
        self.sync_aborted()?;
        self.remove_spare();
        // Whatever is pending, also where no record is: the next start trusts every name and length.
        let pending = self.segments.iter().any(Segment::is_unsynced)
            || self.names_synced < self.names_changed
            || self.recovery_point < self.log_end_offset;
        // A log that was made and never used may be lost with the power: nothing was in it.
        let unused = self.created_here && self.log_end_offset == 0 && self.names_changed == 1;
        if pending && !unused {
            let closed = self.segments.len() - 1;
            let flush = self.take_flush(i64::MAX, closed)?;
            self.finish_flush(flush.run())?;
        }
        Ok(())
    }
}
