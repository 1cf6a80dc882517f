//! The segment that takes the place of a group of others, while it is written: `.cleaned` files beside theirs, which nobody
//! reads before they are whole and durable.

use std::path::{Path, PathBuf};

use taffrail_protocol::records::BatchHeader;

use crate::append_engine;
use crate::batch_walk::WalkedBatch;
use crate::checkpoint::remove_if_present;
use crate::cleaner::leftovers::{CLEANED_SUFFIX, SEGMENT_SUFFIXES};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::segment::{
    INDEX_SUFFIX, LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, TIME_INDEX_SUFFIX, file_name,
};
use crate::transaction_index::{AbortedTransaction, TRANSACTION_INDEX_SUFFIX};

/// Bytes collected for one write.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Largest segment, for its positions must fit into the index as Kafka reads it.
const BYTES_MAX: u64 = i32::MAX as u64;

pub(crate) struct Output<D: Disk> {
    disk: D,
    folder: PathBuf,
    file: D::File,
    pub(crate) segment: Segment<D::File>,
    index_interval_bytes: u32,
    unwritten: Vec<u8>,
    written: u64,
    aborted: Vec<AbortedTransaction>,
}

impl<D: Disk> Output<D> {
    pub(super) fn create(
        disk: D,
        folder: &Path,
        base_offset: i64,
        index_interval_bytes: u32,
        now_ms: i64,
    ) -> Result<Output<D>, LogError> {
        remove(&disk, folder, base_offset)?;
        let path = folder.join(file_name(base_offset, LOG_SUFFIX) + CLEANED_SUFFIX);
        let file = disk
            .create(&path)
            .map_err(|error| LogError::io("create", &path, error))?;
        Ok(Output {
            disk,
            folder: folder.to_owned(),
            file,
            segment: Segment::empty(base_offset, now_ms),
            index_interval_bytes,
            unwritten: Vec::new(),
            written: 0,
            aborted: Vec::new(),
        })
    }

    /// Appends a batch. Returns the bytes that were written for it, now or for earlier ones.
    pub(super) fn append(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<u64, LogError> {
        let batch_in_file = WalkedBatch {
            header: *header,
            position: self.segment.size,
            size: batch.len() as u64,
        };
        let relative = header.last_offset() - self.segment.base_offset;
        if batch_in_file.end() > BYTES_MAX || relative > RELATIVE_OFFSET_MAX {
            let reason = "the cleaned segment would be larger than one may be";
            return Err(LogError::corrupt(&self.path(LOG_SUFFIX), reason));
        }
        self.segment
            .note_batch(&batch_in_file, self.index_interval_bytes);
        self.unwritten.extend_from_slice(batch);
        let mut written = 0;
        if self.unwritten.len() >= WRITTEN_AT_ONCE {
            written = self.write()?;
        }
        if self.segment.offset_index.is_full() || self.segment.time_index.is_full() {
            self.write_indexes()?;
        }
        Ok(written)
    }

    /// These aborted transactions are still needed.
    pub(super) fn note_aborted(&mut self, aborted: Vec<AbortedTransaction>) {
        self.aborted.extend(aborted);
    }

    /// Completes the files and makes them durable. With `transaction_index` there is one even if nothing is in it, to take the
    /// place of one that has entries.
    pub(super) fn finish(&mut self, transaction_index: bool) -> Result<u64, LogError> {
        let written = self.write()?;
        self.segment.push_time_entry();
        self.write_indexes()?;
        self.sync(&self.file, LOG_SUFFIX)?;
        for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
            let path = self.path(suffix);
            let file = self.disk.open(&path);
            self.sync(
                &file.map_err(|error| LogError::io("open", &path, error))?,
                suffix,
            )?;
        }
        if transaction_index || !self.aborted.is_empty() {
            let path = self.path(TRANSACTION_INDEX_SUFFIX);
            let entries: Vec<u8> = self
                .aborted
                .iter()
                .flat_map(AbortedTransaction::encode)
                .collect();
            let file = self
                .disk
                .create(&path)
                .map_err(|error| LogError::io("create", &path, error))?;
            append_engine::append(&file, &entries, 0)
                .map_err(|error| LogError::io("write", &path, error))?;
            self.sync(&file, TRANSACTION_INDEX_SUFFIX)?;
            self.segment.aborted = self.aborted.len() as u64;
            self.segment.aborted_synced = self.segment.aborted;
        }
        Ok(written)
    }

    /// Removes the files; those that cannot be are removed at the next start.
    pub(super) fn remove(&self) {
        if let Err(error) = remove(&self.disk, &self.folder, self.segment.base_offset) {
            tracing::debug!(%error, "files of a cleaning stay until the next start");
        }
    }

    fn write(&mut self) -> Result<u64, LogError> {
        let written = append_engine::append(&self.file, &self.unwritten, self.written);
        written.map_err(|error| LogError::io("write", &self.path(LOG_SUFFIX), error))?;
        let bytes = self.unwritten.len() as u64;
        self.written += bytes;
        self.unwritten.clear();
        Ok(bytes)
    }

    fn write_indexes(&mut self) -> Result<(), LogError> {
        let path = self.path(INDEX_SUFFIX);
        let written = self.segment.offset_index.write(&self.disk, &path);
        written.map_err(|error| LogError::io("write", &path, error))?;
        let path = self.path(TIME_INDEX_SUFFIX);
        let written = self.segment.time_index.write(&self.disk, &path);
        written.map_err(|error| LogError::io("write", &path, error))
    }

    fn sync(&self, file: &D::File, suffix: &str) -> Result<(), LogError> {
        file.sync()
            .map_err(|error| LogError::io("fsync", &self.path(suffix), error))
    }

    fn path(&self, suffix: &str) -> PathBuf {
        let name = file_name(self.segment.base_offset, suffix) + CLEANED_SUFFIX;
        self.folder.join(name)
    }
}

fn remove<D: Disk>(disk: &D, folder: &Path, base_offset: i64) -> Result<(), LogError> {
    for suffix in SEGMENT_SUFFIXES {
        let path = folder.join(file_name(base_offset, suffix) + CLEANED_SUFFIX);
        remove_if_present(disk, &path).map_err(|error| LogError::io("remove", &path, error))?;
    }
    Ok(())
}
