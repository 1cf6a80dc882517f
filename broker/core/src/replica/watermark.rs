//! The watermarks that a leader computes from what its replicas have.

use crate::time::Instant;

use super::leader::{Effect, Leader};
use super::progress::Replica;

impl Leader {
    pub(super) fn advance(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.raise_high_watermark(now) {
            effects.push(Effect::HighWatermark(self.high_watermark));
        }
    }

    pub(super) fn raise_high_watermark(&mut self, now: Instant) -> bool {
        let mut isr_len = 0;
        let mut smallest = if self.settings.flush_ack {
            self.flushed_offset
        } else {
            self.log_end_offset
        };
        #[cfg(feature = "mutants")]
        if taffrail_mutants::is_planted(taffrail_mutants::Mutant::AckBeforeFsync) {
            smallest = self.log_end_offset;
        }
        for replica in &self.replicas {
            isr_len += usize::from(replica.in_isr);
            if replica.broker == self.me {
                continue;
            }
            let counts = replica.in_isr || replica.joining || self.about_to_join(replica, now);
            if counts {
                // One that has not fetched in this epoch may have anything.
                smallest = smallest.min(replica.log_end_offset.unwrap_or(i64::MIN));
            }
        }
        if smallest <= self.high_watermark || isr_len < self.min_isr() || self.has_eligible {
            return false;
        }
        self.high_watermark = smallest;
        assert!(
            self.log_start_offset <= smallest && smallest <= self.log_end_offset,
            "log start <= high watermark <= log end"
        );
        true
    }

    pub(super) fn about_to_join(&self, replica: &Replica, now: Instant) -> bool {
        replica.log_end_offset.is_some()
            && replica.caught_up(now, self.log_end_offset, self.settings.replica_lag_time_max)
            && replica.eligible()
    }

    pub(super) fn advance_low_watermark(&mut self, effects: &mut Vec<Effect>) {
        let smallest = self.smallest_log_start();
        let moved = smallest > self.low_watermark;
        if let (true, Some(offset)) = (moved, smallest) {
            effects.push(Effect::LowWatermark(offset));
        }
        self.low_watermark = smallest;
    }

    pub(super) fn smallest_log_start(&self) -> Option<i64> {
        let mut smallest = self.log_start_offset;
        for replica in &self.replicas {
            if replica.broker != self.me && replica.alive() {
                smallest = smallest.min(replica.log_start_offset?);
            }
        }
        Some(smallest)
    }
}
