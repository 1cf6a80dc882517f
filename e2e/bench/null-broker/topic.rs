//! One file a topic (each has one partition), with the position of every batch in memory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Bytes of a record batch before its records.
const BATCH_HEADER: usize = 61;

/// The topics, each made when it is first named.
pub(crate) struct Topics {
    folder: PathBuf,
    /// Told to clients in Metadata.
    pub(crate) port: u16,
    by_name: Mutex<HashMap<String, Arc<Topic>>>,
}

/// One topic.
pub(crate) struct Topic {
    pub(crate) file: File,
    log: Mutex<Log>,
    /// Woken by each append.
    pub(crate) appended: Notify,
}

#[derive(Default)]
struct Log {
    /// Size of the file.
    end: u64,
    next_offset: i64,
    /// Base offset and position of each batch.
    batches: Vec<(i64, u64)>,
}

/// What there is to read from an offset on.
pub(crate) struct Available {
    pub(crate) next_offset: i64,
    pub(crate) position: u64,
    pub(crate) length: usize,
}

impl Topics {
    pub(crate) fn new(folder: PathBuf, port: u16) -> Self {
        Self {
            folder,
            port,
            by_name: Mutex::default(),
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        lock(&self.by_name).keys().cloned().collect()
    }

    pub(crate) fn get(&self, name: &str) -> io::Result<Arc<Topic>> {
        let mut by_name = lock(&self.by_name);
        if let Some(topic) = by_name.get(name) {
            return Ok(Arc::clone(topic));
        }
        let path = self.folder.join(format!("{name}.log"));
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let topic = Arc::new(Topic {
            file,
            log: Mutex::default(),
            appended: Notify::new(),
        });
        by_name.insert(name.to_owned(), Arc::clone(&topic));
        Ok(topic)
    }

    /// Forgets a topic and removes its file, so that a long bench does not fill the disk.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.by_name).remove(name);
        fs::remove_file(self.folder.join(format!("{name}.log")))
    }
}

impl Topic {
    /// Checks and appends record batches; gives the first one's offset, or `None` if a check failed.
    pub(crate) fn append(&self, batches: &mut [u8]) -> io::Result<Option<i64>> {
        let ranges = split(batches);
        if !ranges.iter().all(|range| valid(&batches[range.clone()])) {
            return Ok(None);
        }
        let mut log = lock(&self.log);
        let first = log.next_offset;
        for range in ranges {
            let start = range.start;
            let batch = &mut batches[range];
            let base = log.next_offset;
            batch[..8].copy_from_slice(&base.to_be_bytes());
            let position = log.end + start as u64;
            log.batches.push((base, position));
            log.next_offset = base + i64::from(i32_at(batch, 23)) + 1;
        }
        self.file.write_all_at(batches, log.end)?;
        log.end += batches.len() as u64;
        drop(log);
        self.appended.notify_waiters();
        Ok(Some(first))
    }

    /// What there is from the batch that holds `offset` on, up to `limit` bytes.
    pub(crate) fn available(&self, offset: i64, limit: usize) -> Available {
        let log = lock(&self.log);
        let after = log.batches.partition_point(|(base, _)| *base <= offset);
        let position = if offset >= log.next_offset || after == 0 {
            log.end
        } else {
            log.batches[after - 1].1
        };
        let length = usize::try_from(log.end - position)
            .unwrap_or(usize::MAX)
            .min(limit);
        Available {
            next_offset: log.next_offset,
            position,
            length,
        }
    }

    pub(crate) fn next_offset(&self) -> i64 {
        lock(&self.log).next_offset
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where each batch lies.
fn split(batches: &[u8]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at + BATCH_HEADER <= batches.len() {
        let length = i32_at(&batches[at..], 8) as usize + 12;
        ranges.push(at..at + length);
        at += length;
    }
    ranges
}

/// CRC, and for uncompressed batches the shape of each record: what a broker has to look at before it may answer for a batch.
fn valid(batch: &[u8]) -> bool {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &batch[21..]) as i32;
    let compressed = batch[22] & 7 != 0;
    batch[16] == 2
        && crc == i32_at(batch, 17)
        && (compressed || records_fit(batch, i64::from(i32_at(batch, 57))))
}

/// Every record's length and offset delta are as they must be, and the last one ends where the batch does.
fn records_fit(batch: &[u8], count: i64) -> bool {
    let mut at = BATCH_HEADER;
    for n in 0..count {
        let Some(length) = varint(batch, &mut at) else {
            return false;
        };
        let start = at;
        at += 1; // attributes
        let (Some(_timestamp), Some(delta)) = (varint(batch, &mut at), varint(batch, &mut at))
        else {
            return false;
        };
        if delta != n {
            return false;
        }
        at = start + length as usize;
    }
    at == batch.len()
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A zigzag varint of at most ten bytes.
fn varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
        shift += 7;
    }
}
