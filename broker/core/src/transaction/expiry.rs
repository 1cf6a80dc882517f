//! What time does: transactions that take too long are aborted, ids that nobody uses are forgotten.

use std::sync::Arc;
use std::time::Duration;

use crate::time::Instant;

use super::coordinator::Coordinator;
use super::record::{Record, TransactionValue};
use super::request::{Effect, Refused};

/// Tombstones written at one timeout: some 100 bytes each, so that they fit into one batch of 1 MiB.
const EXPIRED_PER_TURN_MAX: usize = 1_000;
/// Transactions aborted at one timeout; the next call takes more.
const TIMED_OUT_PER_TURN_MAX: usize = 100;
/// A transaction that waits for a fresh producer id is looked at again after this.
const PRODUCER_ID_PAUSE: Duration = Duration::from_secs(1);

/// How long a transaction may take.
pub(super) fn timeout(value: &TransactionValue) -> Duration {
    Duration::from_millis(u64::try_from(value.timeout_ms).unwrap_or(0))
}

impl Coordinator {
    /// Time passed: transactions time out, silent ids go. The records may be split.
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        wall_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Vec<Record> {
        let mut records = Vec::new();
        let due: Vec<Arc<str>> = self
            .timeouts
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(TIMED_OUT_PER_TURN_MAX)
            .map(|(_, transactional_id)| transactional_id.clone())
            .collect();
        for transactional_id in due {
            let Some(value) = self.transaction(&transactional_id).cloned() else {
                continue;
            };
            match self.fence(&transactional_id, &value, wall_ms, effects) {
                Ok(aborted) => {
                    tracing::info!(%transactional_id, producer_id = value.producer_id.0, timeout_ms = value.timeout_ms, "a transaction took too long and is aborted");
                    records.extend(aborted);
                }
                Err(Refused::NeedsProducerId) => {
                    self.wants_producer_id = true;
                    self.set_timeout(&transactional_id, now + PRODUCER_ID_PAUSE);
                }
                Err(Refused::Error(error)) => {
                    tracing::error!(%transactional_id, ?error, "a transaction that took too long cannot be aborted");
                    self.set_timeout(&transactional_id, now + PRODUCER_ID_PAUSE);
                }
            }
        }
        // What has just been decided is not applied yet, so the sweep waits for the next call.
        if self.sweep_at <= now && records.is_empty() {
            self.sweep(now, wall_ms, &mut records);
        }
        records
    }

    /// When a transaction is aborted, if it is still there then.
    pub(super) fn set_timeout(&mut self, key: &Arc<str>, at: Instant) {
        let Some(transaction) = self.transactions.get_mut(key) else {
            return;
        };
        if let Some(before) = transaction.times_out_at.replace(at) {
            self.timeouts.remove(&(before, key.clone()));
        }
        self.timeouts.insert((at, key.clone()));
    }

    fn sweep(&mut self, now: Instant, wall_ms: i64, records: &mut Vec<Record>) {
        let expiration = self.settings.transactional_id_expiration.as_millis();
        let expired_before = wall_ms.saturating_sub(i64::try_from(expiration).unwrap_or(i64::MAX));
        let from = self.sweep_from.take();
        let rest = self
            .transactions
            .iter()
            .filter(|(key, _)| from.as_ref().is_none_or(|from| *key >= from));
        for (key, transaction) in rest {
            let value = &transaction.value;
            if !value.state.is_at_rest() || value.last_update_ms > expired_before {
                continue;
            }
            if records.len() == EXPIRED_PER_TURN_MAX {
                self.sweep_from = Some(key.clone());
                self.sweep_at = now;
                return;
            }
            records.push(Record {
                transactional_id: key.to_string(),
                value: None,
            });
        }
        self.sweep_at = now + self.settings.expiration_check_interval;
    }
}
