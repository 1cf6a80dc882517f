//! The producer snapshot files of a log. What is in them is the caller's; this crate keeps them beside the segments,
//! whole and durable, and removes those that no longer tell anything.

use crate::checkpoint::{read_if_present, remove_if_present, replace};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::Log;
use crate::segment::{file_name, parse_file_name};

const SUFFIX: &str = ".snapshot";

/// Snapshots kept: the newest may have been written by a process that died over it.
const KEPT: usize = 2;

impl<D: Disk> Log<D> {
    /// Writes the producer state as of `offset` (all records below it are counted in), durably, and drops all but the
    /// newest two snapshots. What was aborted below it is durable first, for nobody will look for it there again.
    pub fn write_producer_snapshot(&mut self, offset: i64, state: &[u8]) -> Result<(), LogError> {
        self.check_writable()?;
        self.sync_aborted()?;
        let name = file_name(offset, SUFFIX);
        let result = replace(self.directory.disk(), &self.path, &name, state)
            .map_err(|error| LogError::io("write", &self.path.join(&name), error));
        self.poison_on_failure(result)?;
        self.drop_old_producer_snapshots()
    }

    /// The same, except that a power loss may take it or leave a part of it, which its checksum tells: for a state without
    /// producers, which only saves the next start from looking for some.
    pub fn write_empty_producer_snapshot(
        &mut self,
        offset: i64,
        state: &[u8],
    ) -> Result<(), LogError> {
        self.check_writable()?;
        self.sync_aborted()?;
        let path = self.path.join(file_name(offset, SUFFIX));
        let disk = self.directory.disk();
        let result = remove_if_present(disk, &path)
            .and_then(|()| disk.create(&path))
            .and_then(|file| file.write_all_at(state, 0))
            .map_err(|error| LogError::io("write", &path, error));
        self.poison_on_failure(result)?;
        self.drop_old_producer_snapshots()
    }

    fn drop_old_producer_snapshots(&mut self) -> Result<(), LogError> {
        let offsets = self.producer_snapshots()?;
        for old in offsets.iter().rev().skip(KEPT) {
            self.remove_producer_snapshot(*old)?;
        }
        Ok(())
    }

    /// The offsets of the snapshots that are there, ascending. None is above the log end offset.
    pub fn producer_snapshots(&self) -> Result<Vec<i64>, LogError> {
        let entries = self
            .directory
            .disk()
            .list(&self.path)
            .map_err(|error| LogError::io("list", &self.path, error))?;
        let offsets = entries
            .iter()
            .filter_map(|entry| parse_file_name(&entry.name, SUFFIX));
        Ok(offsets
            .filter(|offset| *offset <= self.log_end_offset)
            .collect())
    }

    /// What the snapshot of an offset holds; `None` if there is none.
    pub fn read_producer_snapshot(&self, offset: i64) -> Result<Option<Vec<u8>>, LogError> {
        let path = self.path.join(file_name(offset, SUFFIX));
        read_if_present(self.directory.disk(), &path)
            .map_err(|error| LogError::io("read", &path, error))
    }

    /// Removes a snapshot, if it is there: one that turned out unreadable, or does not hold any more.
    pub fn remove_producer_snapshot(&mut self, offset: i64) -> Result<(), LogError> {
        let path = self.path.join(file_name(offset, SUFFIX));
        match self.directory.disk().remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LogError::io("remove", &path, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes the snapshots above `offset`: their state counts records that are gone.
    pub(super) fn remove_producer_snapshots_above(&mut self, offset: i64) -> Result<(), LogError> {
        let entries = self
            .directory
            .disk()
            .list(&self.path)
            .map_err(|error| LogError::io("list", &self.path, error))?;
        for above in entries
            .iter()
            .filter_map(|entry| parse_file_name(&entry.name, SUFFIX))
            .filter(|at| *at > offset)
        {
            self.remove_producer_snapshot(above)?;
        }
        Ok(())
    }
}
