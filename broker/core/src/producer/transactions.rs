//! Transactions of one partition: those that are open, and those that ended and whose marker is not yet replicated. Both
//! hold back what read_committed sees.

use std::collections::BTreeMap;

use crate::error::ErrorKind;
use crate::ids::ProducerId;

use super::states::Producers;

/// A transaction that ended in this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker, inclusive.
    pub last_offset: i64,
    /// Whether readers have to leave its records out.
    pub aborted: bool,
    /// First offset of the earliest transaction that is still open, or the offset behind the marker.
    pub last_stable_offset: i64,
}

/// A marker that a transaction coordinator wants written, and by which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerFrom {
    /// Whose transaction it ends.
    pub producer_id: ProducerId,
    /// The epoch that it carries.
    pub producer_epoch: i16,
    /// Leader epoch of the coordinator's partition.
    pub coordinator_epoch: i32,
    /// Whether the end of a transaction raises the epoch (transaction version 2).
    pub raises_epoch: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Transactions {
    /// First offset → producer.
    open: BTreeMap<i64, ProducerId>,
    /// First offset → offset of the marker.
    ended: BTreeMap<i64, i64>,
    /// Offset of the newest batch that began or ended one.
    changed_at: Option<i64>,
}

impl Transactions {
    pub(super) fn begin(&mut self, first_offset: i64, producer_id: ProducerId) {
        self.open.insert(first_offset, producer_id);
        self.note_change(first_offset);
    }

    /// One began or ended at this offset, or perhaps at a lower one.
    pub(super) fn note_change(&mut self, offset: i64) {
        self.changed_at = self.changed_at.max(Some(offset));
    }

    /// Where the log is stable to, as the index has it.
    pub(super) fn end(&mut self, first_offset: i64, marker_offset: i64) -> i64 {
        self.open.remove(&first_offset);
        self.ended.insert(first_offset, marker_offset);
        self.note_change(marker_offset);
        let next = self.open.first_key_value();
        next.map_or(marker_offset + 1, |(first_offset, _)| *first_offset)
    }

    /// Whether one began or ended at or above an offset.
    pub(super) fn changed_from(&self, offset: i64) -> bool {
        self.changed_at.is_some_and(|at| at >= offset)
    }

    pub(super) fn handle_high_watermark(&mut self, high_watermark: i64) {
        self.ended
            .retain(|_, marker_offset| *marker_offset >= high_watermark);
    }

    pub(super) fn first_unstable_offset(&self, high_watermark: i64) -> Option<i64> {
        let undecided = self.open.keys().next();
        let unreplicated = self
            .ended
            .iter()
            .find(|(_, marker_offset)| **marker_offset >= high_watermark)
            .map(|(first_offset, _)| first_offset);
        undecided.into_iter().chain(unreplicated).min().copied()
    }
}

impl Producers {
    /// Whether a leader may write a marker (Kafka's `ProducerAppendInfo.appendEndTxnMarker`). Where every end raises the epoch,
    /// a marker has to be of a higher one than all records, or it is late and would end the next transaction; the same epoch
    /// again, with nothing open, is the same marker again (KAFKA-19999).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidProducerEpoch`]; [`ErrorKind::TransactionCoordinatorFenced`] if a later coordinator has written one.
    pub fn check_marker(&self, marker: &MarkerFrom) -> Result<(), ErrorKind> {
        let Some(entry) = self.entry(marker.producer_id) else {
            return Ok(());
        };
        let is_again = marker.producer_epoch == entry.epoch
            && (entry.transaction_since.is_none() || marker.producer_epoch == i16::MAX);
        let is_late = if marker.raises_epoch {
            marker.producer_epoch <= entry.epoch && !is_again
        } else {
            marker.producer_epoch < entry.epoch
        };
        if is_late {
            return Err(ErrorKind::InvalidProducerEpoch);
        }
        if marker.coordinator_epoch < entry.coordinator_epoch {
            return Err(ErrorKind::TransactionCoordinatorFenced);
        }
        Ok(())
    }
}
