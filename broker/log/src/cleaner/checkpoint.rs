//! How far the logs of a directory are clean: `cleaner-offset-checkpoint`, a fourth of the offset checkpoints.
//!
//! A log's first dirty offset may be too low, never too high: what lies below it is taken for clean, and a tombstone there goes
//! after its time without anybody looking for what it stands for. Therefore it is lowered, durably, before the log is truncated.

use std::fmt;

use crate::checkpoint::{Offsets, format_offsets, parse_offsets, read_if_present, replace};
use crate::directory::LogDirectory;
use crate::disk::Disk;
use crate::error::LogError;

const FILE: &str = "cleaner-offset-checkpoint";

/// The first dirty offsets of a log directory. The file is as in memory after every call that succeeds.
pub struct CleanerCheckpoint<D: Disk> {
    directory: LogDirectory<D>,
    offsets: Offsets,
}

impl<D: Disk> CleanerCheckpoint<D> {
    /// Reads it. A file that is missing or unreadable says nothing, and everything is cleaned anew.
    pub fn load(directory: LogDirectory<D>) -> Result<CleanerCheckpoint<D>, LogError> {
        let path = directory.path().join(FILE);
        let content = read_if_present(directory.disk(), &path)
            .map_err(|error| LogError::io("read", &path, error))?;
        let offsets = content.and_then(|content| {
            let offsets = parse_offsets(&content);
            if offsets.is_none() {
                tracing::warn!(file = %path.display(), "unreadable checkpoint is ignored");
            }
            offsets
        });
        Ok(CleanerCheckpoint {
            directory,
            offsets: offsets.unwrap_or_default(),
        })
    }

    /// A log's first dirty offset, if it was ever cleaned.
    pub fn first_dirty_offset(&self, topic: &str, partition: i32) -> Option<i64> {
        self.offsets.get(&(topic.to_owned(), partition)).copied()
    }

    /// A log was cleaned up to `offset`, and everything that made it so is in place.
    pub fn set(&mut self, topic: &str, partition: i32, offset: i64) -> Result<(), LogError> {
        self.replace(topic, partition, Some(offset))
    }

    /// A log is about to be truncated to `offset`, or to start over there. To be called before it is.
    pub fn lower(&mut self, topic: &str, partition: i32, offset: i64) -> Result<(), LogError> {
        match self.first_dirty_offset(topic, partition) {
            Some(dirty) if dirty > offset => self.replace(topic, partition, Some(offset)),
            Some(_) | None => Ok(()),
        }
    }

    /// A log is about to be removed, or has moved to another directory. To be called before another one of the name is made, which
    /// nothing was cleaned of.
    pub fn forget(&mut self, topic: &str, partition: i32) -> Result<(), LogError> {
        match self.first_dirty_offset(topic, partition) {
            Some(_) => self.replace(topic, partition, None),
            None => Ok(()),
        }
    }

    fn replace(
        &mut self,
        topic: &str,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<(), LogError> {
        self.directory.check_online()?;
        let key = (topic.to_owned(), partition);
        let mut offsets = self.offsets.clone();
        match offset {
            Some(offset) => offsets.insert(key, offset),
            None => offsets.remove(&key),
        };
        let content = format_offsets(&offsets);
        let directory = self.directory.path();
        replace(self.directory.disk(), directory, FILE, content.as_bytes())
            .map_err(|error| LogError::io("write", &directory.join(FILE), error))?;
        self.offsets = offsets;
        Ok(())
    }
}

impl<D: Disk> fmt::Debug for CleanerCheckpoint<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CleanerCheckpoint")
            .field("offsets", &self.offsets)
            .finish_non_exhaustive()
    }
}
