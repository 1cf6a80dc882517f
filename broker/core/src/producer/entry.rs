//! One producer in one partition: its epoch, its last batches, and since when it has a transaction open.

use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;

/// How many batches of a producer are remembered: as many as a client may have in flight
/// (`max.in.flight.requests.per.connection` of an idempotent producer is at most 5).
pub const BATCHES_KEPT: usize = 5;

/// What a batch header says of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Who produced it; a batch without a producer id is none of this module's business.
    pub producer_id: ProducerId,
    /// The producer's epoch, zero or more.
    pub producer_epoch: i16,
    /// Sequence number of the first record; −1 in a marker.
    pub base_sequence: i32,
    /// Offset of the last record relative to the first: records − 1 unless compacted.
    pub last_offset_delta: i32,
    /// Largest record timestamp, in milliseconds since 1970 (kept to be answered to a duplicate).
    pub max_timestamp: i64,
    /// What the batch is to transactions.
    pub kind: BatchKind,
}

/// What a batch is to the transactions of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Records outside of any.
    Plain,
    /// Records of one.
    Transactional,
    /// The end of one: carries an epoch but no sequence.
    Marker(Marker),
}

/// What ends a transaction in a partition (Kafka's `EndTransactionMarker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Commit or abort.
    pub commit: bool,
    /// Leader epoch of the transaction coordinator's partition.
    pub coordinator_epoch: i32,
}

/// What a batch did to its producer's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionChange {
    None,
    /// It is the first one.
    Begun,
    /// It is the end of the one that began at this offset.
    Ended {
        first_offset: i64,
    },
}

impl Batch {
    /// Whether it is a marker, which has no sequence.
    pub fn is_marker(&self) -> bool {
        matches!(self.kind, BatchKind::Marker(_))
    }

    /// Sequence number of the last record.
    pub fn last_sequence(&self) -> i32 {
        last_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// The sequence number that stands `delta` after `base`: after `i32::MAX` comes 0 (KAFKA-7692).
pub fn last_sequence(base: i32, delta: i32) -> i32 {
    let sum = i64::from(base) + i64::from(delta);
    let wrapped = if sum > i64::from(i32::MAX) {
        sum - i64::from(i32::MAX) - 1
    } else {
        sum
    };
    i32::try_from(wrapped).unwrap_or(0)
}

/// A remembered batch. All its offsets are inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBatch {
    /// Sequence number of its first record.
    pub first_sequence: i32,
    /// Sequence number of its last record.
    pub last_sequence: i32,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// Largest record timestamp, milliseconds since 1970.
    pub max_timestamp: i64,
}

/// A producer's state. `epoch` is −1 only while nothing but a snapshot without batches told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) epoch: i16,
    /// Oldest first; the first `len` are in use.
    batches: [KeptBatch; BATCHES_KEPT],
    len: usize,
    /// Whether earlier batches existed that are no longer kept.
    pub(super) forgot: bool,
    pub(super) last_activity: Instant,
    /// Largest timestamp of the last batch or marker; for snapshots.
    pub(super) last_timestamp: i64,
    pub(super) coordinator_epoch: i32,
    /// First offset of the transaction that is open here.
    pub(super) transaction_since: Option<i64>,
}

impl Entry {
    pub(super) fn new(epoch: i16, now: Instant) -> Entry {
        Entry {
            epoch,
            batches: [KeptBatch::default(); BATCHES_KEPT],
            len: 0,
            forgot: false,
            last_activity: now,
            last_timestamp: -1,
            coordinator_epoch: -1,
            transaction_since: None,
        }
    }

    /// Whether a batch of this epoch goes on with the transaction that is open here.
    pub(super) fn has_open_transaction(&self, epoch: i16) -> bool {
        self.transaction_since.is_some() && epoch == self.epoch
    }

    pub(super) fn batches(&self) -> &[KeptBatch] {
        &self.batches[..self.len]
    }

    pub(super) fn last(&self) -> Option<&KeptBatch> {
        self.batches().last()
    }

    /// The kept batch that this one repeats: same epoch, same first and last sequence number.
    pub(super) fn duplicate_of(&self, batch: &Batch) -> Option<&KeptBatch> {
        if batch.producer_epoch != self.epoch {
            return None;
        }
        let last_sequence = batch.last_sequence();
        self.batches().iter().find(|kept| {
            kept.first_sequence == batch.base_sequence && kept.last_sequence == last_sequence
        })
    }

    /// Whether the batch may follow. Epoch first, then sequence, then the transaction (Kafka's `ProducerAppendInfo`).
    pub(super) fn check(&self, batch: &Batch) -> Result<(), ErrorKind> {
        if batch.producer_epoch < self.epoch {
            return Err(ErrorKind::InvalidProducerEpoch);
        }
        if batch.is_marker() || self.epoch < 0 {
            return Ok(());
        }
        let expected = match self.last() {
            Some(last) if batch.producer_epoch == self.epoch => {
                last_sequence(last.last_sequence, 1)
            }
            // A new epoch begins at 0, and so does one that only a marker told of.
            Some(_) | None => 0,
        };
        if batch.base_sequence != expected {
            return Err(ErrorKind::OutOfOrderSequenceNumber);
        }
        if batch.kind == BatchKind::Plain && self.transaction_since.is_some() {
            return Err(ErrorKind::InvalidTxnState);
        }
        Ok(())
    }

    /// Remembers a batch that is in the log.
    pub(super) fn push(
        &mut self,
        now: Instant,
        batch: &Batch,
        base_offset: i64,
    ) -> TransactionChange {
        if batch.producer_epoch != self.epoch {
            self.forgot |= self.len > 0;
            self.epoch = batch.producer_epoch;
            self.len = 0;
        }
        self.last_activity = now;
        self.last_timestamp = batch.max_timestamp;
        if let BatchKind::Marker(marker) = batch.kind {
            self.coordinator_epoch = marker.coordinator_epoch;
            return match self.transaction_since.take() {
                Some(first_offset) => TransactionChange::Ended { first_offset },
                None => TransactionChange::None,
            };
        }
        let kept = KeptBatch {
            first_sequence: batch.base_sequence,
            last_sequence: batch.last_sequence(),
            base_offset,
            last_offset: base_offset + i64::from(batch.last_offset_delta),
            max_timestamp: batch.max_timestamp,
        };
        self.keep(kept);
        if batch.kind == BatchKind::Transactional && self.transaction_since.is_none() {
            self.transaction_since = Some(base_offset);
            return TransactionChange::Begun;
        }
        TransactionChange::None
    }

    pub(super) fn keep(&mut self, kept: KeptBatch) {
        if self.len == BATCHES_KEPT {
            self.batches.rotate_left(1);
            self.len -= 1;
            self.forgot = true;
        }
        self.batches[self.len] = kept;
        self.len += 1;
    }

    /// Forgets batches that reach to `end_offset` (exclusive end of the log) or beyond. True if any went.
    pub(super) fn truncate(&mut self, end_offset: i64) -> bool {
        let before = self.len;
        while self
            .last()
            .is_some_and(|last| last.last_offset >= end_offset)
        {
            self.len -= 1;
        }
        if let Some(last) = self.last() {
            self.last_timestamp = last.max_timestamp;
        }
        self.len < before
    }
}
