//! What stays of a batch (Kafka's `Cleaner.cleanInto` and `MemoryRecords.filterTo`, KIP-534). Offsets, sequences, producer and
//! epochs of a batch never change, whatever is taken out of it: who reads on, and who sends again, must not see a difference.
//!
//! | of a batch | what stays |
//! |---|---|
//! | records of an aborted transaction | nothing |
//! | a record without a key | nothing: only a topic that was not compacted before holds some |
//! | a record older than the newest of its key | nothing |
//! | a record with a value, the newest of its key | it |
//! | a tombstone, the newest of its key | it, until its time is over |
//! | a record behind what the map knows | it |
//! | a marker of whose transaction records were met | it |
//! | another marker | it, until its time is over |
//!
//! The time of tombstones and markers is in their batch, and begins when a cleaning first finds that nothing else keeps them.
//! A batch of which nothing stays goes, unless it is the last of its producer, whose sequence it tells, or the last of the new
//! segment, which must go on to where the next one begins.

use std::borrow::Cow;
use std::collections::BTreeMap;

use taffrail_protocol::records::{
    BatchHeader, Compression, EndTransactionMarker, MarkerError, RecordBatchBuilder, RecordIter,
    RecordsError, TimestampType, set_max_timestamp, uncompressed_records,
};

use crate::cleaner::offset_map::OffsetMap;
use crate::cleaner::transactions::Marker;

/// What a producer that is still known did last; its batch stays, for it may send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRecord {
    /// Offset of its last record; `None` if only its markers are known.
    pub last_offset: Option<i64>,
    /// Its epoch.
    pub producer_epoch: i16,
}

/// [`LastRecord`] by producer id.
pub type ActiveProducers = BTreeMap<i64, LastRecord>;

/// What the batches of one cleaning are judged by.
pub(super) struct Retention<'a> {
    pub(super) map: &'a OffsetMap,
    /// Behind the last offset that the map knows.
    pub(super) map_end: i64,
    pub(super) producers: &'a ActiveProducers,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
    pub(super) decompressed_bytes_max: usize,
}

/// What stays of one batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    AsItIs,
    Rewritten(Vec<u8>),
}

/// What else is known of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its records were aborted, or nothing needs its marker any more.
    pub(super) is_dispensable: bool,
    /// It is the last one of the new segment.
    pub(super) is_last: bool,
}

impl Retention<'_> {
    /// `batch` is whole and its checksum right.
    pub(super) fn keep(
        &self,
        header: &BatchHeader,
        batch: &[u8],
        place: Place,
    ) -> Result<Kept, RecordsError> {
        let is_over =
            header.attributes.has_delete_horizon() && header.base_timestamp <= self.now_ms;
        let kept = if header.attributes.is_control() {
            if place.is_dispensable && is_over {
                Kept::Nothing
            } else if place.is_dispensable
                && header.record_count > 0
                && !header.attributes.has_delete_horizon()
            {
                let (_, records) = self.records(batch)?;
                rewrite(header, &records, Some(self.horizon()), |_, _| true)?
            } else if header.record_count > 0 {
                Kept::AsItIs
            } else {
                Kept::Nothing
            }
        } else if place.is_dispensable {
            Kept::Nothing
        } else {
            self.keep_records(header, batch, is_over)?
        };
        if kept != Kept::Nothing || !(place.is_last || self.is_last_of_producer(header)) {
            return Ok(kept);
        }
        Ok(if header.record_count == 0 {
            Kept::AsItIs
        } else {
            Kept::Rewritten(emptied(header))
        })
    }

    fn keep_records(
        &self,
        header: &BatchHeader,
        batch: &[u8],
        is_over: bool,
    ) -> Result<Kept, RecordsError> {
        let (_, records) = self.records(batch)?;
        let stays = |key: Option<&[u8]>, offset: i64, is_tombstone: bool| {
            offset >= self.map_end
                || key.is_some_and(|key| {
                    let is_newest = self.map.get(key).is_none_or(|newest| offset >= newest);
                    is_newest && !(is_tombstone && is_over)
                })
        };
        let (mut staying, mut tombstones) = (0, false);
        for (index, record) in (0..).zip(RecordIter::new(header, &records)) {
            let record = record.map_err(|source| RecordsError::Record { index, source })?;
            if stays(record.key, record.offset, record.value.is_none()) {
                staying += 1;
                tombstones |= record.value.is_none();
            }
        }
        let gets_horizon = tombstones && !header.attributes.has_delete_horizon();
        if staying == 0 {
            return Ok(Kept::Nothing);
        }
        if staying == header.record_count && !gets_horizon {
            return Ok(Kept::AsItIs);
        }
        let horizon = if header.attributes.has_delete_horizon() {
            Some(header.base_timestamp)
        } else {
            gets_horizon.then(|| self.horizon())
        };
        rewrite(header, &records, horizon, |record, is_tombstone| {
            stays(record.key, record.offset, is_tombstone)
        })
    }

    fn horizon(&self) -> i64 {
        self.now_ms.saturating_add(self.delete_retention_ms)
    }

    fn records<'a>(&self, batch: &'a [u8]) -> Result<(BatchHeader, Cow<'a, [u8]>), RecordsError> {
        uncompressed_records(batch, self.decompressed_bytes_max)
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        let last = self.producers.get(&header.producer_id);
        last.is_some_and(|last| match last.last_offset {
            Some(offset) => header.last_offset() == offset,
            None => header.attributes.is_control() && header.producer_epoch == last.producer_epoch,
        })
    }
}

/// What a control batch says. A marker that cannot be read is damage.
pub(super) fn marker_of(header: &BatchHeader, batch: &[u8]) -> Result<Marker, MarkerError> {
    if header.record_count == 0 {
        return Ok(Marker::Emptied);
    }
    Ok(match EndTransactionMarker::read(batch)? {
        None => Marker::Other,
        Some(EndTransactionMarker { commit: true, .. }) => Marker::Commit,
        Some(EndTransactionMarker { commit: false, .. }) => Marker::Abort,
    })
}

/// The batch with those of its records that stay.
fn rewrite(
    header: &BatchHeader,
    records: &[u8],
    horizon: Option<i64>,
    stays: impl Fn(&taffrail_protocol::records::Record<'_>, bool) -> bool,
) -> Result<Kept, RecordsError> {
    let mut builder: Option<RecordBatchBuilder> = None;
    for (index, record) in (0..).zip(RecordIter::new(header, records)) {
        let record = record.map_err(|source| RecordsError::Record { index, source })?;
        if !stays(&record, record.value.is_none()) {
            continue;
        }
        let headers: Vec<_> = record
            .headers()
            .map(|header| (header.key, header.value))
            .collect();
        let builder = builder.get_or_insert_with(|| {
            let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
            begin(header, horizon.unwrap_or(record.timestamp))
                .compression(header.attributes.compression().unwrap_or(Compression::None))
                .log_append_time(append_time)
                .delete_horizon(horizon.is_some())
        });
        builder.push_at(
            record.offset_delta,
            record.timestamp,
            record.key,
            record.value,
            &headers,
        );
    }
    Ok(match builder {
        None => Kept::Nothing,
        Some(builder) => {
            Kept::Rewritten(builder.last_offset_delta(header.last_offset_delta).build())
        }
    })
}

/// What stays of a batch that is kept for its offsets and sequence alone.
fn emptied(header: &BatchHeader) -> Vec<u8> {
    let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    let mut batch = begin(header, -1)
        .log_append_time(append_time)
        .last_offset_delta(header.last_offset_delta)
        .build();
    set_max_timestamp(&mut batch, header.max_timestamp);
    batch
}

fn begin(header: &BatchHeader, timestamp: i64) -> RecordBatchBuilder {
    RecordBatchBuilder::new(header.base_offset, timestamp)
        .partition_leader_epoch(header.partition_leader_epoch)
        .producer(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
        .transactional(header.attributes.is_transactional())
        .control(header.attributes.is_control())
}

#[cfg(test)]
mod tests;
