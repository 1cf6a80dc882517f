//! What a leader makes of a batch that it refuses: the client's next ones are refused alike, and a refused sequence is told
//! with what is known of the producer.

use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::producer::Batch;
use taffrail_core::time::Instant;

use super::{Partition, Replica};
use crate::env::Env;

/// Between two log lines about refused sequences of one partition: a client that has lost its place is refused over and over.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// When refused sequences were told, and how many were not since.
#[derive(Debug, Default)]
pub(super) struct RefusedSequences {
    told: Option<Instant>,
    untold: u64,
}

impl RefusedSequences {
    /// Whether to tell of one now; then how many went untold before it.
    fn may_tell(&mut self, now: Instant) -> Option<u64> {
        let since = self.told.map(|told| now.saturating_since(told));
        if since.is_some_and(|since| since < TOLD_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

impl<E: Env> Partition<E> {
    /// A producer's batch was refused.
    pub(super) fn note_refused(
        &self,
        replica: &mut Replica<E>,
        now: Instant,
        batch: &Batch,
        error: ErrorKind,
    ) {
        let passes = matches!(
            error,
            ErrorKind::NotEnoughReplicas
                | ErrorKind::NotLeaderOrFollower
                | ErrorKind::KafkaStorageError
        );
        let sequence = matches!(
            error,
            ErrorKind::OutOfOrderSequenceNumber | ErrorKind::InvalidProducerEpoch
        );
        if passes {
            replica.producers.handle_refused(now, batch, error);
        } else if sequence {
            self.tell_refused_sequence(replica, now, batch, error);
        }
    }

    fn tell_refused_sequence(
        &self,
        replica: &mut Replica<E>,
        now: Instant,
        batch: &Batch,
        error: ErrorKind,
    ) {
        let Some(untold) = replica.refused_sequences.may_tell(now) else {
            return;
        };
        let known = replica.producers.known(batch.producer_id);
        let kept = known.map_or(&[][..], |known| known.batches);
        tracing::info!(
            partition = %self.name(),
            producer_id = batch.producer_id.0,
            epoch = batch.producer_epoch,
            base_sequence = batch.base_sequence,
            last_sequence = batch.last_sequence(),
            known_epoch = known.map(|known| known.epoch),
            expected_sequence = known.map(|known| known.next_sequence),
            kept_from_sequence = kept.first().map(|kept| kept.first_sequence),
            kept_from_offset = kept.first().map(|kept| kept.base_offset),
            kept_to_offset = kept.last().map(|kept| kept.last_offset),
            leader_epoch = replica.role.leader_epoch().0,
            untold,
            ?error,
            "a producer's sequence was refused"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_sequences_are_told_once_a_second_with_how_many_were_not() {
        let mut told = RefusedSequences::default();
        let mut at = |ms| told.may_tell(Instant::from_millis(ms));
        assert_eq!(at(0), Some(0));
        assert_eq!((at(1), at(999)), (None, None));
        assert_eq!(at(1000), Some(2));
        assert_eq!(at(2500), Some(0));
    }
}
