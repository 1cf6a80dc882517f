//! All idempotent producers of one partition.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;

use super::entry::{Batch, BatchKind, Entry, KeptBatch, TransactionChange, last_sequence};
use super::refused::Refused;
use super::transactions::{EndedTransaction, Transactions};
use super::verification::{VerificationGuard, Verifications};

/// Part of the producers that are dropped at once when there are too many, so that finding them costs little per
/// append: a sweep of all for each eighth.
const EVICTED_PART: usize = 8;

/// Limits of what is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `producer.id.expiration.ms`: a producer that was silent for longer is forgotten.
    pub expiration: Duration,
    /// How often to look for them (`producer.id.expiration.check.interval.ms`).
    pub expiration_interval: Duration,
    /// How many producers are remembered at most; the longest silent are forgotten first, but none with an open transaction.
    pub producers_max: usize,
}

impl Default for Settings {
    /// Kafka's defaults; 10,000 producers at about 300 bytes are 3 MB in one partition.
    fn default() -> Settings {
        Settings {
            expiration: Duration::from_secs(24 * 3600),
            expiration_interval: Duration::from_secs(600),
            producers_max: 10_000,
        }
    }
}

/// What to do with a batch that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is the next one: append it.
    Append,
    /// It is in the log already: answer success with the offsets and time of then, append nothing.
    Duplicate(KeptBatch),
    /// It would begin a transaction here: call [`Producers::handle_unverified`], ask the transaction's coordinator, and then
    /// check again with the guard.
    Verify,
}

/// What a partition knows of a producer, for whoever has to explain a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'a> {
    /// Its epoch.
    pub epoch: i16,
    /// The sequence that is taken next in this epoch.
    pub next_sequence: i32,
    /// Its last batches, oldest first.
    pub batches: &'a [KeptBatch],
}

/// Whether a truncation left the state as the log now is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// It did.
    Complete,
    /// A producer lost all its kept batches and had earlier ones, or a beginning or an end of a transaction went. Nothing here
    /// may be used until the caller has rebuilt the state from a snapshot and the log.
    Incomplete,
}

/// One producer as a snapshot keeps it (Kafka's `ProducerSnapshot` v1 has the same values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Last sequence number; −1 = none.
    pub last_sequence: i32,
    /// Offset of that record, inclusive; −1 = none.
    pub last_offset: i64,
    /// That batch's last offset − its first; also its last sequence − its first.
    pub offset_delta: i32,
    /// Largest timestamp of the last batch or marker, milliseconds since 1970.
    pub timestamp: i64,
    /// Epoch of the transaction coordinator that wrote the last marker; −1 = none.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction; −1 = none.
    pub current_txn_first_offset: i64,
}

/// State of all idempotent producers of one partition.
///
/// | producer | batch | leader's answer |
/// |---|---|---|
/// | unknown, log never held a record | first sequence 0 | append |
/// | unknown, log never held a record | any other | OUT_OF_ORDER_SEQUENCE_NUMBER (KAFKA-15591: an earlier batch in flight was lost or is late) |
/// | unknown, log held records once | any | append: the state may have expired or been deleted with its records |
/// | known | epoch, first and last sequence of one of the last five | duplicate, with the original offsets |
/// | known | lower epoch | INVALID_PRODUCER_EPOCH |
/// | known | same epoch, sequence after the last (0 follows `i32::MAX`) | append |
/// | known | higher epoch, first sequence 0 | append; the five are forgotten |
/// | known | any other | OUT_OF_ORDER_SEQUENCE_NUMBER |
/// | any | behind one of the same epoch that was refused for a reason that passes, and has not come again | the error of that one (see `refused.rs`) |
/// | transaction open | plain, the next one | INVALID_TXN_STATE |
/// | no transaction open in this epoch | transactional, the next one | verify (see `verification.rs`) |
#[derive(Clone, Debug)]
pub struct Producers {
    settings: Settings,
    entries: BTreeMap<ProducerId, Entry>,
    refused: Refused,
    transactions: Transactions,
    verifications: Verifications,
    expire_at: Instant,
}

impl Producers {
    /// No producers.
    pub fn new(settings: Settings, now: Instant) -> Producers {
        Producers {
            settings,
            entries: BTreeMap::new(),
            refused: Refused::default(),
            transactions: Transactions::default(),
            verifications: Verifications::default(),
            expire_at: now + settings.expiration_interval,
        }
    }

    /// Starts from a snapshot of what lies below `end_offset`; the batches above it follow by [`Producers::handle_append`]. A
    /// monotonic clock does not span a restart, so every producer counts as active now.
    pub fn restore(
        settings: Settings,
        now: Instant,
        end_offset: i64,
        snapshot: impl IntoIterator<Item = SnapshotEntry>,
    ) -> Producers {
        let mut producers = Producers::new(settings, now);
        for kept in snapshot {
            let mut entry = Entry::new(kept.producer_epoch, now);
            entry.last_timestamp = kept.timestamp;
            entry.coordinator_epoch = kept.coordinator_epoch;
            entry.forgot = true;
            if kept.last_sequence >= 0 {
                entry.keep(KeptBatch {
                    first_sequence: first_sequence(kept.last_sequence, kept.offset_delta),
                    last_sequence: kept.last_sequence,
                    base_offset: kept.last_offset - i64::from(kept.offset_delta),
                    last_offset: kept.last_offset,
                    max_timestamp: kept.timestamp,
                });
            }
            if kept.coordinator_epoch >= 0 {
                // It does not say where the marker was.
                producers.transactions.note_change(end_offset - 1);
            }
            if kept.current_txn_first_offset >= 0 {
                let first_offset = kept.current_txn_first_offset;
                entry.transaction_since = Some(first_offset);
                producers.transactions.begin(first_offset, kept.producer_id);
            }
            producers.insert(kept.producer_id, entry);
        }
        producers
    }

    /// The limits in force.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Judges a batch from a client; changes nothing. `log_end_offset` tells whether the partition ever held a record,
    /// `verified` that the coordinator knows of the transaction.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidProducerEpoch`], [`ErrorKind::OutOfOrderSequenceNumber`] or [`ErrorKind::InvalidTxnState`], or what a
    /// batch before it was refused for, by the table above.
    pub fn check(
        &self,
        now: Instant,
        batch: &Batch,
        log_end_offset: i64,
        verified: Option<VerificationGuard>,
    ) -> Result<Admission, ErrorKind> {
        #[cfg(feature = "mutants")]
        if taffrail_mutants::is_planted(taffrail_mutants::Mutant::DropDuplicateDetection) {
            return Ok(Admission::Append);
        }
        let entry = self.entries.get(&batch.producer_id);
        if let Some(kept) = entry.and_then(|entry| entry.duplicate_of(batch)) {
            return Ok(Admission::Duplicate(*kept));
        }
        let judged = match entry {
            Some(entry) => entry.check(batch),
            None if log_end_offset == 0 && !batch.is_marker() && batch.base_sequence != 0 => {
                Err(ErrorKind::OutOfOrderSequenceNumber)
            }
            None => Ok(()),
        };
        if judged != Err(ErrorKind::InvalidProducerEpoch)
            && let Some(error) = self.refused.behind(now, batch)
        {
            return Err(error);
        }
        judged?;
        let goes_on = entry.is_some_and(|entry| entry.has_open_transaction(batch.producer_epoch));
        if batch.kind != BatchKind::Transactional || goes_on {
            return Ok(Admission::Append);
        }
        self.verifications.judge(batch, entry.is_some(), verified)
    }

    /// The coordinator is about to be asked of a batch that would begin a transaction; `raises_epoch` says that its client
    /// has an epoch for each (transaction version 2). The guard is good until the transaction begins or ends here. None if too
    /// many are waited for: the client is to come again.
    pub fn handle_unverified(
        &mut self,
        now: Instant,
        batch: &Batch,
        raises_epoch: bool,
    ) -> Option<VerificationGuard> {
        self.verifications.begin(now, batch, raises_epoch)
    }

    /// A batch was refused for a reason that passes, and not for its sequence: what the client had sent behind it is refused
    /// for the same reason until it comes again.
    pub fn handle_refused(&mut self, now: Instant, batch: &Batch, error: ErrorKind) {
        self.refused.note(now, batch, error);
    }

    /// A batch was found to be a duplicate, and is answered as one.
    pub fn handle_duplicate(&mut self, batch: &Batch) {
        self.refused.settle(batch);
    }

    /// Takes note of a batch that is in the log, of whatever origin. A replica that was told other things before
    /// believes the log: one that comes from a leader is never refused. An aborted transaction that ended with it belongs into
    /// the log's index.
    pub fn handle_append(
        &mut self,
        now: Instant,
        batch: &Batch,
        base_offset: i64,
    ) -> Option<EndedTransaction> {
        self.refused.settle(batch);
        if batch.kind != BatchKind::Plain {
            self.verifications.settle(batch.producer_id);
        }
        let change = match self.entries.get_mut(&batch.producer_id) {
            Some(entry) => {
                if let Err(refusal) = entry.check(batch) {
                    tracing::debug!(
                        producer_id = batch.producer_id.0,
                        epoch = batch.producer_epoch,
                        base_sequence = batch.base_sequence,
                        base_offset,
                        ?refusal,
                        "the log holds a batch that would not be accepted now"
                    );
                }
                entry.push(now, batch, base_offset)
            }
            None => {
                let mut entry = Entry::new(batch.producer_epoch, now);
                entry.forgot = batch.base_sequence > 0;
                let change = entry.push(now, batch, base_offset);
                self.insert(batch.producer_id, entry);
                change
            }
        };
        match (change, batch.kind) {
            (TransactionChange::Begun, _) => {
                self.transactions.begin(base_offset, batch.producer_id);
                None
            }
            (TransactionChange::Ended { first_offset }, BatchKind::Marker(marker)) => {
                let last_stable_offset = self.transactions.end(first_offset, base_offset);
                Some(EndedTransaction {
                    producer_id: batch.producer_id,
                    first_offset,
                    last_offset: base_offset,
                    aborted: !marker.commit,
                    last_stable_offset,
                })
            }
            (TransactionChange::None | TransactionChange::Ended { .. }, _) => None,
        }
    }

    /// The log was cut to `end_offset` (exclusive): batches that reach beyond it are forgotten.
    #[must_use]
    pub fn handle_truncated(&mut self, end_offset: i64) -> Truncation {
        let mut outcome = if self.transactions.changed_from(end_offset) {
            Truncation::Incomplete
        } else {
            Truncation::Complete
        };
        self.entries.retain(|_, entry| {
            if !entry.truncate(end_offset) || entry.last().is_some() {
                return true;
            }
            if entry.forgot {
                outcome = Truncation::Incomplete;
            }
            false
        });
        outcome
    }

    /// The log was dropped and starts anew.
    pub fn handle_restarted(&mut self) {
        self.entries.clear();
        self.refused.clear();
        self.transactions = Transactions::default();
        self.verifications.clear();
    }

    /// The high watermark moved up to `high_watermark` (exclusive): transactions whose marker is below it are over.
    pub fn handle_high_watermark(&mut self, high_watermark: i64) {
        self.transactions.handle_high_watermark(high_watermark);
    }

    /// The first offset (exclusive end) that read_committed may not see yet: the first of a transaction that is open, or
    /// whose marker is not below the high watermark, and that high watermark itself.
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let unstable = self.transactions.first_unstable_offset(high_watermark);
        unstable.map_or(high_watermark, |unstable| unstable.min(high_watermark))
    }

    /// Since when one producer has a transaction open here.
    pub fn transaction_since(&self, producer_id: ProducerId) -> Option<i64> {
        self.entries.get(&producer_id)?.transaction_since
    }

    /// When to call [`Producers::handle_timeout`]; `None` = there is nothing to expire.
    pub fn next_deadline(&self) -> Option<Instant> {
        let expires =
            !self.entries.is_empty() || !self.refused.is_empty() || !self.verifications.is_empty();
        expires.then_some(self.expire_at)
    }

    /// Forgets the producers that were silent for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.expire_at {
            return;
        }
        self.expire_at = now + self.settings.expiration_interval;
        let expiration = self.settings.expiration;
        self.entries.retain(|_, entry| {
            entry.transaction_since.is_some()
                || now.saturating_since(entry.last_activity) < expiration
        });
        self.refused.expire(now);
        self.verifications.expire(now, expiration);
    }

    /// All producers in the order of their ids, for a snapshot.
    pub fn snapshot(&self) -> impl Iterator<Item = SnapshotEntry> + '_ {
        self.entries.iter().map(|(producer_id, entry)| {
            let last = entry.last();
            SnapshotEntry {
                producer_id: *producer_id,
                producer_epoch: entry.epoch,
                last_sequence: last.map_or(-1, |last| last.last_sequence),
                last_offset: last.map_or(-1, |last| last.last_offset),
                offset_delta: last.map_or(0, |last| {
                    i32::try_from(last.last_offset - last.base_offset).unwrap_or(0)
                }),
                timestamp: entry.last_timestamp,
                coordinator_epoch: entry.coordinator_epoch,
                current_txn_first_offset: entry.transaction_since.unwrap_or(-1),
            }
        })
    }

    /// What is known of one producer; nothing of one that was never seen or is forgotten.
    pub fn known(&self, producer_id: ProducerId) -> Option<Known<'_>> {
        self.entries.get(&producer_id).map(|entry| Known {
            epoch: entry.epoch,
            next_sequence: (entry.last()).map_or(0, |last| last_sequence(last.last_sequence, 1)),
            batches: entry.batches(),
        })
    }

    /// The kept batches of one producer, oldest first.
    pub fn batches(&self, producer_id: ProducerId) -> &[KeptBatch] {
        self.entries.get(&producer_id).map_or(&[], Entry::batches)
    }

    /// How many producers are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none are.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn entry(&self, producer_id: ProducerId) -> Option<&Entry> {
        self.entries.get(&producer_id)
    }

    fn insert(&mut self, producer_id: ProducerId, entry: Entry) {
        if self.entries.len() >= self.settings.producers_max.max(1) {
            self.evict();
        }
        self.entries.insert(producer_id, entry);
    }

    /// Open transactions stay, however many: their coordinators bound them.
    fn evict(&mut self) {
        let mut by_activity: Vec<(Instant, ProducerId)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.transaction_since.is_none())
            .map(|(id, entry)| (entry.last_activity, *id))
            .collect();
        let evicted = (by_activity.len() / EVICTED_PART).max(1);
        if by_activity.is_empty() {
            return;
        }
        by_activity.select_nth_unstable(evicted - 1);
        for (_, producer_id) in &by_activity[..evicted] {
            self.entries.remove(producer_id);
        }
    }
}

fn first_sequence(last: i32, delta: i32) -> i32 {
    let first = i64::from(last) - i64::from(delta);
    let wrapped = if first < 0 {
        first + i64::from(i32::MAX) + 1
    } else {
        first
    };
    i32::try_from(wrapped).unwrap_or(0)
}
