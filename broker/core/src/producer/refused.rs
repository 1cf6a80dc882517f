//! What was refused for a reason that passes, so that what the same client had sent behind it is refused alike.
//!
//! A client has up to five batches under way. Say that the ISR is too small when the first (sequence 10) comes, and large
//! enough when the second (sequence 15) comes: judged alone, the second leaves a gap. OUT_OF_ORDER_SEQUENCE_NUMBER would be
//! true and harmful: librdkafka then begins a new epoch for *all* partitions and numbers anew what it has not heard of,
//! also what stands in another partition's log, where it then stands twice. So the second gets the error of the first, and
//! both come again in order.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;

use super::entry::Batch;

/// How long a refused batch is waited for: longer than a client pauses before it tries again. One that never comes again was
/// given up, and what follows is judged for itself.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Producers of one partition that are remembered so: 1024 of about 40 bytes. Beyond, they are judged as if nothing had been.
const PRODUCERS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Refusal {
    epoch: i16,
    base_sequence: i32,
    error: ErrorKind,
    at: Instant,
}

impl Refusal {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.at) >= KEPT_FOR
    }
}

/// The first refused batch of each producer.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
    first: BTreeMap<ProducerId, Refusal>,
}

impl Refused {
    /// A batch was refused.
    pub(super) fn note(&mut self, now: Instant, batch: &Batch, error: ErrorKind) {
        if batch.is_marker() {
            return;
        }
        let earlier = self.first.get(&batch.producer_id).filter(|refusal| {
            refusal.epoch == batch.producer_epoch
                && !refusal.is_over(now)
                && follows(refusal.base_sequence, batch.base_sequence)
        });
        if earlier.is_some() {
            return;
        }
        if self.first.len() >= PRODUCERS_MAX && !self.first.contains_key(&batch.producer_id) {
            self.expire(now);
            if self.first.len() >= PRODUCERS_MAX {
                return;
            }
        }
        let refusal = Refusal {
            epoch: batch.producer_epoch,
            base_sequence: batch.base_sequence,
            error,
            at: now,
        };
        self.first.insert(batch.producer_id, refusal);
    }

    /// The error of the batch that this one was sent behind, unless that one has come again since.
    pub(super) fn behind(&self, now: Instant, batch: &Batch) -> Option<ErrorKind> {
        let refusal = self.first.get(&batch.producer_id)?;
        let holds = refusal.epoch == batch.producer_epoch
            && !batch.is_marker()
            && !refusal.is_over(now)
            && follows(refusal.base_sequence, batch.base_sequence);
        holds.then_some(refusal.error)
    }

    /// A batch is in the log.
    pub(super) fn settle(&mut self, batch: &Batch) {
        let settled = self.first.get(&batch.producer_id).is_some_and(|refusal| {
            refusal.epoch != batch.producer_epoch
                || !follows(batch.base_sequence, refusal.base_sequence)
        });
        if settled {
            self.first.remove(&batch.producer_id);
        }
    }

    /// Forgets those that were given up.
    pub(super) fn expire(&mut self, now: Instant) {
        self.first.retain(|_, refusal| !refusal.is_over(now));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.first.clear();
    }
}

/// Whether `later` comes after `earlier`, of sequence numbers that begin anew after `i32::MAX`.
fn follows(earlier: i32, later: i32) -> bool {
    let ahead = later.wrapping_sub(earlier) & i32::MAX;
    ahead != 0 && ahead < 1 << 30
}
