//! The first batch of a transaction waits until the transaction's coordinator has said that it knows of it: a batch that was
//! late, and came after its transaction had ended, would begin one that nobody ends (KAFKA-14561).
//!
//! The answer comes later, and the transaction may have ended meanwhile. So what is asked about has a guard, and the guard
//! goes with the first batch or marker of the producer. What was sent behind the first batch must not overtake it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;

use super::entry::Batch;
use super::states::Admission;

/// Producers of one partition that are asked about at once: 10,000 of about 60 bytes.
const PRODUCERS_MAX: usize = 10_000;

/// Tells one question to a coordinator from every other of this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationGuard(u64);

#[derive(Clone, Copy, Debug)]
struct Verification {
    guard: VerificationGuard,
    epoch: i16,
    lowest_sequence: i32,
    raises_epoch: bool,
    since: Instant,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Verifications {
    asked: BTreeMap<ProducerId, Verification>,
    last_guard: u64,
}

impl Verifications {
    /// The guard of a producer, whose batches that wait share it.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        batch: &Batch,
        raises_epoch: bool,
    ) -> Option<VerificationGuard> {
        if let Some(asked) = self.asked.get_mut(&batch.producer_id) {
            if batch.producer_epoch > asked.epoch {
                (asked.epoch, asked.lowest_sequence) = (batch.producer_epoch, batch.base_sequence);
            } else if batch.producer_epoch == asked.epoch {
                asked.lowest_sequence = asked.lowest_sequence.min(batch.base_sequence);
            }
            return Some(asked.guard);
        }
        if self.asked.len() >= PRODUCERS_MAX {
            return None;
        }
        self.last_guard += 1;
        let guard = VerificationGuard(self.last_guard);
        self.asked.insert(
            batch.producer_id,
            Verification {
                guard,
                epoch: batch.producer_epoch,
                lowest_sequence: batch.base_sequence,
                raises_epoch,
                since: now,
            },
        );
        Some(guard)
    }

    /// Judges a batch that would begin a transaction, and is fine otherwise.
    pub(super) fn judge(
        &self,
        batch: &Batch,
        is_known: bool,
        verified: Option<VerificationGuard>,
    ) -> Result<Admission, ErrorKind> {
        let asked = self.asked.get(&batch.producer_id);
        let Some(verified) = verified else {
            return Ok(Admission::Verify);
        };
        let Some(asked) = asked.filter(|asked| asked.guard == verified) else {
            // Its transaction began or ended here while the coordinator was asked.
            return Err(ErrorKind::InvalidTxnState);
        };
        // With an epoch for each transaction a producer that is not known has written nothing in it.
        let must_be_first = asked.raises_epoch && !is_known;
        if (must_be_first && batch.base_sequence != 0)
            || batch.base_sequence > asked.lowest_sequence
        {
            return Err(ErrorKind::OutOfOrderSequenceNumber);
        }
        Ok(Admission::Append)
    }

    pub(super) fn settle(&mut self, producer_id: ProducerId) {
        self.asked.remove(&producer_id);
    }

    pub(super) fn expire(&mut self, now: Instant, expiration: Duration) {
        self.asked
            .retain(|_, asked| now.saturating_since(asked.since) < expiration);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.asked.clear();
    }
}
