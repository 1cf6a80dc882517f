//! What can go wrong with a log.

use std::io;
use std::path::Path;

/// Why a log did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A read or truncation outside of what the log holds.
    #[error(
        "offset {offset} is outside of the log, which holds {log_start_offset} to {log_end_offset} (exclusive)"
    )]
    OffsetOutOfRange {
        /// What was asked for.
        offset: i64,
        /// First offset that may be read.
        log_start_offset: i64,
        /// Offset of the next record.
        log_end_offset: i64,
    },
    /// Bytes to append that are not batches of magic 2, whole and intact.
    #[error("records cannot be appended: {reason}")]
    InvalidRecords {
        /// What is wrong with them.
        reason: String,
    },
    /// A follower was handed a batch that does not continue its log.
    #[error(
        "a batch at offset {base_offset} does not continue a log that ends at {log_end_offset}"
    )]
    NotContiguous {
        /// The batch's base offset.
        base_offset: i64,
        /// Offset of the next record.
        log_end_offset: i64,
    },
    /// A leader epoch below one that the log already holds.
    #[error("leader epoch {epoch} comes after epoch {latest}")]
    StaleLeaderEpoch {
        /// The epoch at hand.
        epoch: i32,
        /// The newest epoch of the log.
        latest: i32,
    },
    /// A batch that is larger than a whole segment may be.
    #[error("a batch of {bytes} bytes does not fit into a segment of {segment_bytes}")]
    BatchTooLarge {
        /// The batch's size.
        bytes: usize,
        /// `segment.bytes`.
        segment_bytes: u32,
    },
    /// The volume is full. What was written of the batch is cut off again; the log stays readable and may be
    /// appended to when there is room.
    #[error("no room left on the volume of {path}")]
    DiskFull {
        /// The file at hand.
        path: String,
    },
    /// An earlier write or fsync failed. Nothing is appended any more until the broker restarts.
    #[error("the log was closed to writes by an earlier failure: {reason}")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The files do not hold what they must.
    #[error("{path} is damaged: {reason}")]
    Corrupt {
        /// The file at hand.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The file system failed.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder at hand.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl LogError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> LogError {
        let path = path.display().to_string();
        // What an fsync could not write is lost, whatever the reason.
        if is_full(&source) && action != "fsync" {
            return LogError::DiskFull { path };
        }
        LogError::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>) -> LogError {
        LogError::Corrupt {
            path: path.display().to_string(),
            reason: reason.into(),
        }
    }
}

/// Whether there was no room, which is no damage.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
