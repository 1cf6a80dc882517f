//! All transactional ids of one `__transaction_state` partition: finds the one of an event, keeps the deadlines, applies
//! records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;

use super::record::{Record, TransactionPartition, TransactionValue, TransactionVersion};
use super::request::{Effect, EndToken, Refused};
use super::settings::Settings;
use super::state::State;

/// Fresh producer ids that are kept until somebody needs one: more than ever wait at once, for each is asked for.
const SPARE_PRODUCER_IDS_MAX: usize = 16;

/// A transactional id: what the log says of it, and what only this coordinator knows.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    /// Written by [`Coordinator::apply`] only.
    pub(super) value: TransactionValue,
    /// The epoch of the producer before it was raised for that very producer: whoever still names it did not get the
    /// answer. Kafka does not write it either, so that after a failover such a retry is fenced.
    pub(super) last_epoch: Option<i16>,
    /// When the transaction is aborted, if there is one; also its entry in the coordinator's timeouts.
    pub(super) times_out_at: Option<Instant>,
    /// The end that is under way.
    pub(super) token: EndToken,
    /// Partitions that have their marker.
    pub(super) marked: BTreeSet<TransactionPartition>,
}

/// Coordinates the transactional ids of one partition of `__transaction_state`, in one leader epoch.
#[derive(Clone, Debug)]
pub struct Coordinator {
    pub(super) settings: Settings,
    pub(super) transactions: BTreeMap<Arc<str>, Transaction>,
    pub(super) timeouts: BTreeSet<(Instant, Arc<str>)>,
    spare_producer_ids: Vec<ProducerId>,
    pub(super) wants_producer_id: bool,
    last_token: EndToken,
    /// When to look for silent ids, and from which on.
    pub(super) sweep_at: Instant,
    pub(super) sweep_from: Option<Arc<str>>,
}

impl Coordinator {
    /// No transactional ids: apply the log next.
    pub fn new(settings: Settings) -> Coordinator {
        Coordinator {
            settings,
            transactions: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            spare_producer_ids: Vec::new(),
            wants_producer_id: false,
            last_token: EndToken::default(),
            sweep_at: Instant::ZERO,
            sweep_from: None,
        }
    }

    /// Takes a record of the log, when loading and after each decision. Any record is fine in any order.
    pub fn apply(&mut self, record: &Record) {
        let transactional_id = record.transactional_id.as_str();
        let Some(value) = &record.value else {
            if let Some((key, transaction)) = self.transactions.remove_entry(transactional_id)
                && let Some(at) = transaction.times_out_at
            {
                self.timeouts.remove(&(at, key));
            }
            return;
        };
        match self.transactions.get_mut(transactional_id) {
            Some(transaction) => {
                transaction.value = value.clone();
                if value.state != State::Ongoing
                    && let Some(at) = transaction.times_out_at.take()
                {
                    self.timeouts.remove(&(at, Arc::from(transactional_id)));
                }
                if !value.state.is_preparing() {
                    transaction.marked.clear();
                }
            }
            None => {
                let transaction = Transaction {
                    value: value.clone(),
                    last_epoch: None,
                    times_out_at: None,
                    token: EndToken::default(),
                    marked: BTreeSet::new(),
                };
                self.transactions
                    .insert(Arc::from(transactional_id), transaction);
            }
        }
    }

    /// The log is applied to its end. Transactions time out as if this coordinator had seen them begin, as far as the wall
    /// clock tells; ends that are decided get their markers, once more if they had them.
    pub fn handle_loaded(&mut self, now: Instant, wall_ms: i64, effects: &mut Vec<Effect>) {
        self.timeouts.clear();
        for (transactional_id, transaction) in &mut self.transactions {
            transaction.times_out_at = None;
            if transaction.value.state == State::Ongoing {
                let at = now + remaining(&transaction.value, wall_ms);
                transaction.times_out_at = Some(at);
                self.timeouts.insert((at, transactional_id.clone()));
            }
        }
        let preparing: Vec<(Arc<str>, TransactionValue)> = self
            .transactions
            .iter()
            .filter(|(_, transaction)| transaction.value.state.is_preparing())
            .map(|(transactional_id, transaction)| {
                (transactional_id.clone(), transaction.value.clone())
            })
            .collect();
        for (transactional_id, value) in preparing {
            self.begin_markers(&transactional_id, &value, effects);
        }
        self.sweep_at = now + self.settings.expiration_check_interval;
    }

    /// A fresh producer id, which nobody had before, for whoever was told [`Refused::NeedsProducerId`], or for a transaction
    /// whose timeout waits for one ([`Coordinator::wants_producer_id`]).
    pub fn handle_producer_id(&mut self, producer_id: ProducerId) {
        if self.spare_producer_ids.len() < SPARE_PRODUCER_IDS_MAX {
            self.spare_producer_ids.push(producer_id);
        }
        self.wants_producer_id = false;
    }

    /// Whether a transaction cannot be aborted for want of a fresh producer id.
    pub fn wants_producer_id(&self) -> bool {
        self.wants_producer_id
    }

    /// When to call [`Coordinator::handle_timeout`]; may be earlier than anything happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sweep_at = (!self.transactions.is_empty()).then_some(self.sweep_at);
        let timeout = self.timeouts.first().map(|(at, _)| *at);
        timeout.into_iter().chain(sweep_at).min()
    }

    /// The configuration it runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All transactional ids in their order, with what the log says of them.
    pub fn transactions(&self) -> impl Iterator<Item = (&str, &TransactionValue)> {
        self.transactions
            .iter()
            .map(|(transactional_id, transaction)| (&**transactional_id, &transaction.value))
    }

    /// What the log says of one transactional id.
    pub fn transaction(&self, transactional_id: &str) -> Option<&TransactionValue> {
        Some(&self.transactions.get(transactional_id)?.value)
    }

    /// The records that say all of it: the log as compaction would leave it.
    pub fn snapshot(&self) -> Vec<Record> {
        self.transactions()
            .map(|(transactional_id, value)| Record {
                transactional_id: transactional_id.to_owned(),
                value: Some(value.clone()),
            })
            .collect()
    }

    /// The transactional id that a client speaks of.
    pub(super) fn find(
        &self,
        transactional_id: &str,
    ) -> Result<(&Arc<str>, &Transaction), ErrorKind> {
        if transactional_id.is_empty() {
            return Err(ErrorKind::InvalidRequest);
        }
        self.transactions
            .get_key_value(transactional_id)
            .ok_or(ErrorKind::InvalidProducerIdMapping)
    }

    /// What of a transactional id is not in the log.
    pub(super) fn set_last_epoch(&mut self, transactional_id: &str, last_epoch: Option<i16>) {
        if let Some(transaction) = self.transactions.get_mut(transactional_id) {
            transaction.last_epoch = last_epoch;
        }
    }

    /// A producer id for a transaction that may need one to end in this version.
    pub(super) fn fresh_for_end(
        &mut self,
        value: &TransactionValue,
        version: TransactionVersion,
    ) -> Result<Option<ProducerId>, Refused> {
        if version.raises_epoch() && value.is_epoch_exhausted() {
            self.take_producer_id().map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn take_producer_id(&mut self) -> Result<ProducerId, Refused> {
        self.spare_producer_ids
            .pop()
            .ok_or(Refused::NeedsProducerId)
    }

    pub(super) fn next_token(&mut self) -> EndToken {
        self.last_token.0 += 1;
        self.last_token
    }

    /// Whether one record fits into a batch. What does not is refused as Kafka does (MESSAGE_TOO_LARGE is not the client's).
    pub(super) fn check_size(&self, record: &Record) -> Result<(), ErrorKind> {
        if record.bytes_about() > self.settings.batch_bytes_max {
            return Err(ErrorKind::UnknownServerError);
        }
        Ok(())
    }
}

/// How long a transaction that another coordinator saw begin may still take. A wall clock that jumped may cost it all of its
/// time or give it all of it again, but nothing worse.
fn remaining(value: &TransactionValue, wall_ms: i64) -> Duration {
    let timeout_ms = i64::from(value.timeout_ms).max(0);
    let age_ms = wall_ms.saturating_sub(value.start_ms).clamp(0, timeout_ms);
    Duration::from_millis(u64::try_from(timeout_ms - age_ms).unwrap_or(0))
}
