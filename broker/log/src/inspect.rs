//! A replica's files as they lie, read without opening a log: for people who look at them. Nothing is ever written.

use std::path::{Path, PathBuf};

use taffrail_protocol::records::{BATCH_HEADER_LENGTH, BatchHeader, crc_matches};

use crate::checkpoint::{Offsets, parse_epochs, parse_offsets};
use crate::disk::DiskFile;
use crate::epochs::EpochEntry;
use crate::error::LogError;
use crate::identity::parse_topic_id;
use crate::index::{IndexEntry, OffsetEntry, TimeEntry};
use crate::real_disk::{RealDisk, RealFile};
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, parse_file_name};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Which of a replica's files this is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Record batches from this offset on.
    Log(i64),
    /// The offset index of the segment with this base offset.
    Index(i64),
    /// Its time index.
    TimeIndex(i64),
    /// The producers' state as of this offset.
    ProducerSnapshot(i64),
    /// Leader epochs.
    Epochs,
    /// The topic's id.
    PartitionMetadata,
    /// One of the offset checkpoints of a log directory.
    Checkpoint,
}

/// A batch as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredBatch<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// Where it starts in the file.
    pub position: u64,
    /// All of its bytes.
    pub bytes: &'a [u8],
    /// Whether its checksum matches.
    pub is_valid: bool,
}

/// The batches of one segment file, in order.
#[derive(Debug)]
pub struct StoredBatches {
    file: RealFile,
    path: PathBuf,
    length: u64,
    position: u64,
    buffer: Vec<u8>,
    buffer_position: u64,
}

impl FileKind {
    /// `None` for a name that none of a replica's files has.
    pub fn of(path: &Path) -> Option<FileKind> {
        let name = path.file_name()?.to_str()?;
        let numbered = |suffix| parse_file_name(name, suffix);
        match name {
            "leader-epoch-checkpoint" => Some(FileKind::Epochs),
            "partition.metadata" => Some(FileKind::PartitionMetadata),
            "recovery-point-offset-checkpoint"
            | "log-start-offset-checkpoint"
            | "replication-offset-checkpoint" => Some(FileKind::Checkpoint),
            _ => numbered(LOG_SUFFIX)
                .map(FileKind::Log)
                .or_else(|| numbered(INDEX_SUFFIX).map(FileKind::Index))
                .or_else(|| numbered(TIME_INDEX_SUFFIX).map(FileKind::TimeIndex))
                .or_else(|| numbered(".snapshot").map(FileKind::ProducerSnapshot)),
        }
    }
}

impl StoredBatches {
    /// The batches of the file at `path`.
    pub fn open(path: &Path) -> Result<StoredBatches, LogError> {
        let failed = |error| LogError::io("read", path, error);
        let file = RealDisk.open_to_read(path).map_err(failed)?;
        let length = file.length().map_err(failed)?;
        Ok(StoredBatches {
            file,
            path: path.to_owned(),
            length,
            position: 0,
            buffer: Vec::new(),
            buffer_position: 0,
        })
    }

    /// Bytes in the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where the next batch starts.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next batch, whatever its offset and checksum; `None` at the end of the file. What is no batch is an error, and
    /// then there is no next one.
    pub fn next_batch(&mut self) -> Result<Option<StoredBatch<'_>>, LogError> {
        let position = self.position;
        if position == self.length {
            return Ok(None);
        }
        let no_batch = LogError::corrupt(
            &self.path,
            format!(
                "no whole batch at position {position}, {} bytes before the end",
                self.length - position
            ),
        );
        let Some(start) = self.fill(BATCH_HEADER_LENGTH)? else {
            return Err(no_batch);
        };
        let header = match BatchHeader::parse(&self.buffer[start..]) {
            Ok(header) if header.last_offset_delta >= 0 => header,
            Ok(_) | Err(_) => return Err(no_batch),
        };
        let size = header.total_length();
        let Some(start) = self.fill(size)? else {
            return Err(no_batch);
        };
        self.position += size as u64;
        let bytes = &self.buffer[start..start + size];
        Ok(Some(StoredBatch {
            header,
            position,
            bytes,
            is_valid: crc_matches(bytes),
        }))
    }

    /// Has the next `length` bytes in the buffer and tells where they start; `None` if the file ends before.
    fn fill(&mut self, length: usize) -> Result<Option<usize>, LogError> {
        let left = self.length - self.position;
        if length as u64 > left {
            return Ok(None);
        }
        let start = (self.position - self.buffer_position) as usize;
        if start + length <= self.buffer.len() {
            return Ok(Some(start));
        }
        let wanted = (length.max(CHUNK) as u64).min(left) as usize;
        self.buffer.resize(wanted, 0);
        self.buffer_position = self.position;
        self.file
            .read_exact_at(&mut self.buffer, self.position)
            .map_err(|error| LogError::io("read", &self.path, error))?;
        Ok(Some(0))
    }
}

/// The entries of an offset index: offset minus the segment's base offset, position.
pub fn offset_index(content: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let entries = content.chunks_exact(OffsetEntry::BYTES);
    entries
        .map(OffsetEntry::decode)
        .map(|entry| (entry.relative_offset, entry.position))
}

/// The entries of a time index: timestamp, offset minus the segment's base offset.
pub fn time_index(content: &[u8]) -> impl Iterator<Item = (i64, u32)> + '_ {
    let entries = content.chunks_exact(TimeEntry::BYTES);
    entries
        .map(TimeEntry::decode)
        .map(|entry| (entry.timestamp, entry.relative_offset))
}

/// The leader epochs of a checkpoint; `None` if it is damaged.
pub fn epochs(content: &[u8]) -> Option<Vec<EpochEntry>> {
    parse_epochs(content).map(|epochs| epochs.entries().to_vec())
}

/// The offsets of a checkpoint; `None` if it is damaged.
pub fn checkpoint(content: &[u8]) -> Option<Offsets> {
    parse_offsets(content)
}

/// The topic id in a `partition.metadata`; `None` if it is damaged.
pub fn topic_id(content: &[u8]) -> Option<[u8; 16]> {
    parse_topic_id(content)
}
