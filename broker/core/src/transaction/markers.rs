//! The end of a transaction: its record, the markers that follow, and the record that all are written.

use std::sync::Arc;

use super::coordinator::Coordinator;
use super::record::{Record, TransactionPartition, TransactionValue};
use super::request::{Effect, Markers};
use super::state::State;

impl Coordinator {
    /// The records of an end. Without partitions there is nothing to wait for, and both ends are one batch.
    pub(super) fn end(
        &mut self,
        transactional_id: &Arc<str>,
        prepared: TransactionValue,
        wall_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Vec<Record> {
        if prepared.partitions.is_empty() {
            let completed = prepared.completed(wall_ms);
            return vec![
                record(transactional_id, prepared),
                record(transactional_id, completed),
            ];
        }
        self.begin_markers(transactional_id, &prepared, effects);
        vec![record(transactional_id, prepared)]
    }

    /// Asks for the markers of an end that is in the log, or is about to be.
    pub(super) fn begin_markers(
        &mut self,
        transactional_id: &Arc<str>,
        value: &TransactionValue,
        effects: &mut Vec<Effect>,
    ) {
        let token = self.next_token();
        if let Some(transaction) = self.transactions.get_mut(transactional_id) {
            transaction.token = token;
            transaction.marked.clear();
        }
        effects.push(Effect::WriteMarkers(Markers {
            transactional_id: transactional_id.clone(),
            token,
            producer: value.producer(),
            commit: value.state == State::PrepareCommit,
            version: value.client_version,
            partitions: value.partitions.iter().cloned().collect(),
        }));
    }

    /// Markers are written and replicated, or their partitions do not exist any more. Those of an end that is over change
    /// nothing, whose ever they are.
    pub fn handle_markers_written(
        &mut self,
        wall_ms: i64,
        markers: &Markers,
        written: &[TransactionPartition],
    ) -> Vec<Record> {
        let key = &markers.transactional_id;
        let Some(transaction) = self.transactions.get_mut(key) else {
            return Vec::new();
        };
        let is_this_end = transaction.token == markers.token
            && transaction.value.producer() == markers.producer
            && transaction.value.state.is_preparing();
        if !is_this_end {
            return Vec::new();
        }
        let partitions = &transaction.value.partitions;
        transaction.marked.extend(
            written
                .iter()
                .filter(|partition| partitions.contains(partition))
                .cloned(),
        );
        if transaction.marked.len() < partitions.len() {
            return Vec::new();
        }
        vec![record(key, transaction.value.completed(wall_ms))]
    }
}

pub(super) fn record(transactional_id: &str, value: TransactionValue) -> Record {
    Record {
        transactional_id: transactional_id.to_owned(),
        value: Some(value),
    }
}
