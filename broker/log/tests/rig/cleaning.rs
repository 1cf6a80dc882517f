//! Cleans a log from beginning to end, and tells what is in it.

use taffrail_log::cleaner::{ActiveProducers, CleaningStep, CompactionConfig};
use taffrail_log::{Disk, Log, LogConfig, LogError, ReadLimits};

use taffrail_protocol::records::{
    BatchHeader, Batches, RecordBatchBuilder, RecordIter, uncompressed_records,
};

use crate::rig::{NOW, small_segments};

/// How a log is cleaned.
#[derive(Clone)]
pub(crate) struct Clean {
    pub(crate) checkpointed: Option<i64>,
    pub(crate) stable_end: i64,
    pub(crate) config: CompactionConfig,
    pub(crate) producers: ActiveProducers,
    pub(crate) map_bytes_max: usize,
    pub(crate) step_bytes: u64,
    pub(crate) now_ms: i64,
}

impl Clean {
    pub(crate) fn all(now_ms: i64) -> Clean {
        Clean {
            checkpointed: None,
            stable_end: i64::MAX,
            config: CompactionConfig::default(),
            producers: ActiveProducers::new(),
            map_bytes_max: 1 << 20,
            step_bytes: 500,
            now_ms,
        }
    }

    /// Returns where the first dirty offset is then; `None` if there was nothing to clean.
    pub(crate) fn run<D: Disk>(&self, log: &mut Log<D>) -> Result<Option<i64>, LogError> {
        let range = log.dirty_range(
            self.checkpointed,
            self.stable_end,
            &self.config,
            self.now_ms,
        )?;
        let begun = log.begin_cleaning(
            range,
            &self.config,
            self.producers.clone(),
            self.map_bytes_max,
            self.now_ms,
        )?;
        let Some(mut cleaning) = begun else {
            return Ok(None);
        };
        loop {
            match cleaning.step(self.step_bytes)? {
                CleaningStep::More(bytes) => assert!(bytes >= self.step_bytes),
                CleaningStep::Swap(_) => {
                    let retired = log.swap_cleaned(&mut cleaning)?;
                    retired.expect("nothing changed meanwhile").remove()?;
                }
                CleaningStep::Done(offset) => {
                    let progress = cleaning.progress();
                    assert!(
                        progress.bytes_read <= progress.bytes_to_read,
                        "{progress:?}"
                    );
                    assert_eq!(progress.end_offset, offset);
                    assert!(progress.swapped_offset >= offset);
                    assert!(progress.map_bytes <= self.map_bytes_max.max(48));
                    return Ok(Some(offset));
                }
            }
        }
    }
}

/// A record as it is in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
}

/// All batches of a log as a reader gets them that asks on behind the last one, with their records.
pub(crate) fn read_batches<D: Disk>(log: &mut Log<D>) -> Vec<(BatchHeader, Vec<Seen>)> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    let limits = ReadLimits {
        max_bytes: 5000,
        min_one: true,
        end_offset: i64::MAX,
    };
    while let Some(range) = log.read(offset, limits).expect("readable") {
        let mut bytes = Vec::new();
        range.read_into(&mut bytes).expect("the range is there");
        for batch in Batches::new(&bytes) {
            let (header, batch) = batch.expect("whole batches");
            assert!(header.last_offset() >= offset, "nothing comes twice");
            offset = header.next_offset();
            found.push((header, records_of(&bytes[batch])));
        }
    }
    found
}

pub(crate) fn records_of(batch: &[u8]) -> Vec<Seen> {
    let (header, records) = uncompressed_records(batch, 1 << 20).expect("intact");
    let records = RecordIter::new(&header, &records).map(|record| {
        let record = record.expect("intact");
        Seen {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
        }
    });
    records.collect()
}

/// The records of all batches that are no markers.
pub(crate) fn read_records<D: Disk>(log: &mut Log<D>) -> Vec<Seen> {
    let batches = read_batches(log).into_iter();
    batches
        .filter(|(header, _)| !header.attributes.is_control())
        .flat_map(|(_, records)| records)
        .collect()
}

/// A batch of these keys and values, all at one time.
pub(crate) fn keyed(records: &[(&str, Option<&str>)], timestamp: i64) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(0, timestamp);
    for (key, value) in records {
        builder.push(Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    }
    builder.build()
}

pub(crate) fn compacted() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        ..small_segments()
    }
}

/// So many records, one a batch, of 7 keys; the last segment is new.
pub(crate) fn fill<D: Disk>(log: &mut Log<D>, count: usize) {
    for number in 0..count {
        let key = format!("key{}", number % 7);
        let value = format!("{number:0200}");
        let mut batch = keyed(&[(&key, Some(&value))], NOW + number as i64);
        log.append_leader(&mut batch, 1, NOW).expect("room");
    }
    log.roll(NOW).expect("room");
    log.flush().expect("durable");
}
