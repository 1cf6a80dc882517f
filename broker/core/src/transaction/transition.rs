//! What the log says next of a transactional id: one function for each change, each from the value that stands.

use std::collections::BTreeSet;

use crate::ids::ProducerId;

use super::record::{TransactionPartition, TransactionValue, TransactionVersion};
use super::request::ProducerIdAndEpoch;
use super::state::State;

/// The last epoch that a client ever has; the one above is left for the marker that fences it.
pub(super) const EPOCH_MAX: i16 = i16::MAX - 1;

/// No transaction began.
const NO_START: i64 = -1;

impl TransactionValue {
    /// A transactional id that was never seen.
    pub(super) fn first(producer_id: ProducerId, timeout_ms: i32, wall_ms: i64) -> Self {
        TransactionValue {
            producer_id,
            previous_producer_id: Some(producer_id),
            next_producer_id: None,
            producer_epoch: 0,
            timeout_ms,
            state: State::Empty,
            partitions: BTreeSet::new(),
            last_update_ms: wall_ms,
            start_ms: NO_START,
            client_version: TransactionVersion::V0,
        }
    }

    /// Who produces now.
    pub fn producer(&self) -> ProducerIdAndEpoch {
        ProducerIdAndEpoch::new(self.producer_id, self.producer_epoch)
    }

    /// Whether there is no epoch left that a client may have.
    pub(super) fn is_epoch_exhausted(&self) -> bool {
        self.producer_epoch >= EPOCH_MAX
    }

    /// InitProducerId: no transaction, by this producer.
    pub(super) fn initialized(
        &self,
        producer: ProducerIdAndEpoch,
        timeout_ms: i32,
        wall_ms: i64,
    ) -> Self {
        TransactionValue {
            producer_id: producer.producer_id,
            producer_epoch: producer.epoch,
            timeout_ms,
            partitions: BTreeSet::new(),
            start_ms: NO_START,
            ..self.changed(State::Empty, wall_ms)
        }
    }

    /// Partitions were added, which begins a transaction if there was none.
    pub(super) fn with_partitions(
        &self,
        added: &[TransactionPartition],
        version: TransactionVersion,
        wall_ms: i64,
    ) -> Self {
        let mut next = self.changed(State::Ongoing, wall_ms);
        if self.state.is_at_rest() {
            next.start_ms = wall_ms;
        }
        next.partitions.extend(added.iter().cloned());
        next.client_version = version;
        next
    }

    /// The client ends its transaction. `fresh` is the producer id to go on with, given if epochs are used up.
    pub(super) fn prepared(
        &self,
        commit: bool,
        version: TransactionVersion,
        fresh: Option<ProducerId>,
        wall_ms: i64,
    ) -> Self {
        let state = if commit {
            State::PrepareCommit
        } else {
            State::PrepareAbort
        };
        let mut next = self.changed(state, wall_ms);
        if self.state.is_at_rest() {
            // An abort of what has not begun (version 2): the client did not know. It still has to have begun some time.
            next.start_ms = wall_ms;
        }
        if version.raises_epoch() {
            next.producer_epoch = self.producer_epoch.saturating_add(1);
        }
        next.next_producer_id = fresh;
        next.client_version = version;
        next
    }

    /// The coordinator aborts the transaction, and whoever has its epoch is fenced.
    pub(super) fn fenced(
        &self,
        version: TransactionVersion,
        fresh: Option<ProducerId>,
        wall_ms: i64,
    ) -> Self {
        let mut next = self.prepared(false, version, fresh, wall_ms);
        next.producer_epoch = self.producer_epoch.saturating_add(1);
        next
    }

    /// All markers are written.
    pub(super) fn completed(&self, wall_ms: i64) -> Self {
        assert!(self.state.is_preparing(), "an end was decided: {self:?}");
        let state = if self.state == State::PrepareCommit {
            State::CompleteCommit
        } else {
            State::CompleteAbort
        };
        let mut next = self.changed(state, wall_ms);
        if let Some(fresh) = self
            .next_producer_id
            .filter(|_| self.client_version.raises_epoch())
        {
            next.producer_id = fresh;
            next.producer_epoch = 0;
        }
        next.next_producer_id = None;
        next.partitions = BTreeSet::new();
        next
    }

    fn changed(&self, state: State, wall_ms: i64) -> Self {
        TransactionValue {
            state,
            previous_producer_id: Some(self.producer_id),
            last_update_ms: wall_ms,
            ..self.clone()
        }
    }
}
