//! Where a partition's producers meet its log: read back from the newest snapshot and the batches after it,
//! written beside the segments, rebuilt after a truncation that cut too deep.

use std::time::Duration;

use taffrail_core::config::BrokerConfig;
use taffrail_core::ids::ProducerId;
use taffrail_core::producer::{Batch, Producers, Settings, SnapshotEntry, Truncation};
use taffrail_core::time::Instant;
use taffrail_log::{AbortedTransaction, Disk, LocatedBatch, Log, LogError};
use taffrail_protocol::producer_snapshot::{self, ProducerSnapshotEntry};
use taffrail_protocol::records::Batches;

use crate::partition::producer_batch;

/// Batches of this many bytes are looked through within milliseconds.
const READ_ANYWAY: u64 = 4 << 20;

/// What is remembered of producers, by the broker's configuration.
pub(crate) fn settings(config: &BrokerConfig) -> Settings {
    let millis = |value: i32| Duration::from_millis(u64::try_from(value).unwrap_or(0));
    Settings {
        expiration: millis(config.producer_id_expiration_ms),
        expiration_interval: millis(config.producer_id_expiration_check_interval_ms),
        ..Settings::default()
    }
}

/// The producers as the log has them.
pub(crate) fn load<D: Disk>(log: &mut Log<D>, settings: Settings, now: Instant) -> Producers {
    let (mut producers, from) = newest(log, settings, now);
    let mut aborted = Vec::new();
    for batch in log.batches(from) {
        match batch.map_err(|error| error.to_string()).and_then(read) {
            Ok((Some(batch), base_offset)) => {
                aborted.extend(note_in(&mut producers, now, &batch, base_offset));
            }
            Ok((None, _)) => {}
            Err(error) => {
                tracing::warn!(log = ?log, %error, "producers could not be read back to the end of the log");
                break;
            }
        }
    }
    for aborted in aborted {
        if let Err(error) = log.note_aborted(aborted) {
            tracing::warn!(log = ?log, %error, "an aborted transaction could not be noted again");
            break;
        }
    }
    producers
}

/// A batch with its offset; of a control batch, what is in it.
fn read<F: taffrail_log::DiskFile>(batch: LocatedBatch<F>) -> Result<(Option<Batch>, i64), String> {
    let LocatedBatch { header, range } = batch;
    let mut bytes = Vec::new();
    if header.attributes.is_control() {
        range
            .read_into(&mut bytes)
            .map_err(|error| error.to_string())?;
    }
    Ok((producer_batch(&header, &bytes), header.base_offset))
}

/// Takes note of a batch that is in the log, and puts a transaction that was aborted with it into the log's index.
pub(crate) fn note<D: Disk>(
    log: &mut Log<D>,
    producers: &mut Producers,
    now: Instant,
    batch: &Batch,
    base_offset: i64,
) -> Result<(), LogError> {
    match note_in(producers, now, batch, base_offset) {
        Some(aborted) => log.note_aborted(aborted),
        None => Ok(()),
    }
}

/// Takes note of batches that were appended at once. `rolled` is the base offset of the newest segment that was begun on the way: its
/// snapshot is of all that is below, be it of the same append, and of nothing else.
pub(crate) fn note_all<D: Disk>(
    log: &mut Log<D>,
    producers: &mut Producers,
    now: Instant,
    batches: &[u8],
    mut rolled: Option<i64>,
) -> Result<(), LogError> {
    for (header, range) in Batches::new(batches).flatten() {
        if let Some(offset) = rolled.take_if(|offset| header.base_offset >= *offset) {
            write(log, offset, producers);
        }
        if let Some(batch) = producer_batch(&header, &batches[range]) {
            note(log, producers, now, &batch, header.base_offset)?;
        }
    }
    // Of the new segment nothing fitted any more.
    if let Some(offset) = rolled {
        write(log, offset, producers);
    }
    Ok(())
}

fn note_in(
    producers: &mut Producers,
    now: Instant,
    batch: &Batch,
    base_offset: i64,
) -> Option<AbortedTransaction> {
    let ended = producers.handle_append(now, batch, base_offset)?;
    ended.aborted.then_some(AbortedTransaction {
        producer_id: ended.producer_id.0,
        first_offset: ended.first_offset,
        last_offset: ended.last_offset,
        last_stable_offset: ended.last_stable_offset,
    })
}

/// Writes a snapshot of what lies below `offset`, also one that says that there are no producers: without it the next start
/// reads all of the log for them. It only shortens that, so a failure is told and survived.
pub(crate) fn write<D: Disk>(log: &mut Log<D>, offset: i64, producers: &Producers) {
    let entries: Vec<_> = producers.snapshot().map(|entry| to_bytes(&entry)).collect();
    let written = match producer_snapshot::encode(&entries) {
        Ok(bytes) => {
            let written = if entries.is_empty() {
                log.write_empty_producer_snapshot(offset, &bytes)
            } else {
                log.write_producer_snapshot(offset, &bytes)
            };
            written.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = written {
        tracing::warn!(log = ?log, error, "producer snapshot not written");
    }
}

/// The same for a log that is about to be closed: one without producers and with little in its last segment is read
/// as fast as a snapshot is written.
pub(crate) fn write_last<D: Disk>(log: &mut Log<D>, producers: &Producers) {
    if !producers.is_empty() || log.active_size() > READ_ANYWAY {
        let end_offset = log.log_end_offset();
        write(log, end_offset, producers);
    }
}

/// The log was cut to `offset`: the producers follow, read back if they had forgotten what counts now.
pub(crate) fn truncate<D: Disk>(
    log: &mut Log<D>,
    offset: i64,
    producers: &mut Producers,
    now: Instant,
) {
    match producers.handle_truncated(offset) {
        Truncation::Complete => {}
        Truncation::Incomplete => *producers = load(log, producers.settings(), now),
    }
}

/// The newest snapshot that can be read, and the offset from which on the log must be.
fn newest<D: Disk>(log: &mut Log<D>, settings: Settings, now: Instant) -> (Producers, i64) {
    let offsets = log.producer_snapshots().unwrap_or_else(|error| {
        tracing::warn!(log = ?log, %error, "producer snapshots could not be listed");
        Vec::new()
    });
    for offset in offsets.into_iter().rev() {
        let bytes = log.read_producer_snapshot(offset);
        let decoded = match bytes {
            Ok(Some(bytes)) => producer_snapshot::decode(&bytes).map_err(|error| error.to_string()),
            Ok(None) => continue,
            Err(error) => Err(error.to_string()),
        };
        match decoded {
            Ok(entries) => {
                let entries = entries.iter().map(from_bytes);
                return (Producers::restore(settings, now, offset, entries), offset);
            }
            Err(error) => {
                tracing::warn!(log = ?log, offset, error, "a producer snapshot cannot be read and is left out");
            }
        }
    }
    (Producers::new(settings, now), log.log_start_offset())
}

fn to_bytes(entry: &SnapshotEntry) -> ProducerSnapshotEntry {
    ProducerSnapshotEntry {
        producer_id: entry.producer_id.0,
        producer_epoch: entry.producer_epoch,
        last_sequence: entry.last_sequence,
        last_offset: entry.last_offset,
        offset_delta: entry.offset_delta,
        timestamp: entry.timestamp,
        coordinator_epoch: entry.coordinator_epoch,
        current_txn_first_offset: entry.current_txn_first_offset,
    }
}

fn from_bytes(entry: &ProducerSnapshotEntry) -> SnapshotEntry {
    SnapshotEntry {
        producer_id: ProducerId(entry.producer_id),
        producer_epoch: entry.producer_epoch,
        last_sequence: entry.last_sequence,
        last_offset: entry.last_offset,
        offset_delta: entry.offset_delta,
        timestamp: entry.timestamp,
        coordinator_epoch: entry.coordinator_epoch,
        current_txn_first_offset: entry.current_txn_first_offset,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use taffrail_log::{LogConfig, LogDirectory, OpenFiles, RealDisk};
    use taffrail_protocol::records::{RecordBatchBuilder, patch_base_offset_and_epoch};

    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    /// Else a batch below the new segment that is sent again after the next start would be taken for a new one.
    #[test]
    fn a_snapshot_counts_in_what_came_with_the_batch_that_opened_the_segment() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut batches = Vec::new();
        // The last one is too much for the segment.
        for (offset, (producer_id, sequence, bytes)) in
            (0..).zip([(7, 0, 100), (8, 0, 100), (7, 1, 100), (8, 1, 900)])
        {
            let mut batch = RecordBatchBuilder::new(0, NOW_MS).producer(producer_id, 0, sequence);
            batch.push(None, Some(&vec![b'v'; bytes]), &[]);
            let mut batch = batch.build();
            patch_base_offset_and_epoch(&mut batch, offset, 1);
            batches.extend(batch);
        }
        let files = OpenFiles::new(10);
        let directory = LogDirectory::open(RealDisk, folder.path(), "cluster", 1, [1; 16], files);
        let config = LogConfig {
            segment_bytes: 1_000,
            ..LogConfig::default()
        };
        let directory = directory.expect("a usable folder");
        let made = directory.create_log("orders", 0, [2; 16], Arc::new(config), NOW_MS);
        let mut log = made.expect("a new log");
        let appended = log.append_follower(&batches, 1, NOW_MS).expect("room");
        assert_eq!(appended.rolled, Some(3));

        let (settings, now) = (Settings::default(), Instant::ZERO);
        let mut producers = Producers::new(settings, now);
        note_all(&mut log, &mut producers, now, &batches, appended.rolled).expect("noted");
        assert_eq!(log.producer_snapshots().expect("readable"), [3]);
        let loaded = load(&mut log, settings, now);
        let next = |producers: &Producers| {
            let next = |id| Some(producers.known(ProducerId(id))?.next_sequence);
            (next(7), next(8))
        };
        assert_eq!(next(&loaded), (Some(2), Some(2)));
        assert_eq!(next(&loaded), next(&producers));
    }
}
