//! A log directory in a temporary folder, and batches to put into its logs.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod cleaning;
pub(crate) mod faulty;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use taffrail_log::{
    FileRange, Log, LogConfig, LogDirectory, LogError, OffsetLookup, OffsetSpec, OpenFiles,
    ReadLimits, RealDisk, RealFile, Searched, TimestampOffset,
};
use taffrail_protocol::records::{Batches, RecordBatchBuilder};
use tempfile::TempDir;

pub(crate) const TOPIC: &str = "orders";
pub(crate) const TOPIC_ID: [u8; 16] = [9; 16];
/// Wall time of all tests that do not say otherwise.
pub(crate) const NOW: i64 = 1_700_000_000_000;

pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) files: Arc<OpenFiles<RealFile>>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Rig {
            folder,
            files: OpenFiles::new(100),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Opens the one log directory. The one before must be dropped: it holds the lock.
    pub(crate) fn directory(&self) -> LogDirectory<RealDisk> {
        self.directory_at(&self.path())
    }

    pub(crate) fn directory_at(&self, path: &Path) -> LogDirectory<RealDisk> {
        LogDirectory::open(
            RealDisk,
            path,
            "cluster",
            1,
            [3; 16],
            Arc::clone(&self.files),
        )
        .expect("a usable folder")
    }

    pub(crate) fn create(&self, config: &LogConfig) -> Log<RealDisk> {
        let log = self
            .directory()
            .create_log(TOPIC, 0, TOPIC_ID, Arc::new(config.clone()), NOW);
        log.expect("a new log")
    }

    /// Opens the log of [`Rig::create`] again.
    pub(crate) fn open(&self, config: &LogConfig) -> Log<RealDisk> {
        let directory = self.directory();
        let folders = directory.folders().expect("readable");
        let (log, _) = directory
            .open_log(&folders[0], Arc::new(config.clone()), NOW)
            .expect("an intact log");
        log
    }

    pub(crate) fn partition(&self) -> PathBuf {
        self.path().join(format!("{TOPIC}-0"))
    }
}

/// Small segments and an index entry for every other batch.
pub(crate) fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 2000,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

/// A batch as a producer sends it; record `n` has timestamp `timestamp + n` and a value of `value_bytes`.
pub(crate) fn batch(count: i32, timestamp: i64, value_bytes: usize) -> Vec<u8> {
    batch_of(count, value_bytes, |number| timestamp + i64::from(number))
}

pub(crate) fn batch_of(count: i32, value_bytes: usize, timestamp: impl Fn(i32) -> i64) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(0, timestamp(0));
    for number in 0..count {
        let value = vec![b'a' + (number % 26) as u8; value_bytes];
        builder.push_at(number, timestamp(number), Some(b"key"), Some(&value), &[]);
    }
    builder.build()
}

/// The same as a leader would have stored it.
pub(crate) fn stored(base_offset: i64, epoch: i32, mut batch: Vec<u8>) -> Vec<u8> {
    taffrail_protocol::records::patch_base_offset_and_epoch(&mut batch, base_offset, epoch);
    batch
}

pub(crate) fn all() -> ReadLimits {
    ReadLimits {
        max_bytes: usize::MAX >> 1,
        min_one: true,
        end_offset: i64::MAX,
    }
}

/// Looks an offset up to the end, whatever it takes.
pub(crate) fn find_offset(
    log: &mut Log<RealDisk>,
    spec: OffsetSpec,
    end_offset: i64,
) -> Result<Option<TimestampOffset>, LogError> {
    let mut lookup = log.find_offset(spec, end_offset)?;
    loop {
        lookup = match lookup {
            OffsetLookup::Known(found) => return Ok(found),
            OffsetLookup::Search(mut search) => match search.run()? {
                Searched::Known(found) => return Ok(found),
                Searched::NotInSegment => log.search_on(search)?,
            },
        };
    }
}

pub(crate) fn bytes(range: &FileRange<RealFile>) -> Vec<u8> {
    let mut out = Vec::new();
    range.read_into(&mut out).expect("the range is there");
    out
}

/// Everything from the log start on, over all segments.
pub(crate) fn read_all(log: &mut Log<RealDisk>) -> Result<Vec<u8>, LogError> {
    let mut out = Vec::new();
    let mut offset = log.log_start_offset();
    while let Some(range) = log.read(offset, all())? {
        let bytes = bytes(&range);
        let last = Batches::new(&bytes)
            .last()
            .expect("whole batches")
            .expect("intact batches");
        offset = last.0.next_offset();
        out.extend_from_slice(&bytes);
    }
    Ok(out)
}
