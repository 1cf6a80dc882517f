//! Offsets that were committed within transactions (TxnOffsetCommit) and wait for their ends: held per producer, as
//! Kafka's `OffsetMetadataManager` holds them. A commit's marker makes those count that are newer in the log than what
//! counts already; an abort's drops them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::ProducerId;

use super::record::OffsetValue;

/// Which offset: of a group, in a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffsetKey {
    /// The group that commits.
    pub group_id: Arc<str>,
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's index.
    pub partition: i32,
}

/// An offset, and where in `__consumer_offsets` it stands: transactions end in another order than they commit in, and
/// compaction keeps the record of the highest log offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOffset {
    /// Offset of its record in the log.
    pub log_offset: i64,
    /// What was committed.
    pub value: OffsetValue,
}

/// All of one partition of `__consumer_offsets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingOffsets {
    by_producer: BTreeMap<ProducerId, BTreeMap<OffsetKey, LoggedOffset>>,
    /// The same by what they are of. None of the sets is empty.
    producers: BTreeMap<OffsetKey, BTreeSet<ProducerId>>,
}

impl PendingOffsets {
    /// An offset's record in a transactional batch. Another one of the same transaction replaces it.
    pub fn handle_commit(&mut self, producer_id: ProducerId, key: OffsetKey, offset: LoggedOffset) {
        self.producers
            .entry(key.clone())
            .or_default()
            .insert(producer_id);
        self.by_producer
            .entry(producer_id)
            .or_default()
            .insert(key, offset);
    }

    /// An offset's tombstone: what is pending of it must not come back with a marker.
    pub fn handle_tombstone(&mut self, key: &OffsetKey) {
        for producer_id in self.producers.remove(key).unwrap_or_default() {
            if let Some(pending) = self.by_producer.get_mut(&producer_id) {
                pending.remove(key);
                if pending.is_empty() {
                    self.by_producer.remove(&producer_id);
                }
            }
        }
    }

    /// The end of a producer's transaction: what counts from now on. `counting_from` says at which log offset what counts so
    /// far stands, if anything does.
    pub fn handle_marker(
        &mut self,
        producer_id: ProducerId,
        commit: bool,
        counting_from: impl Fn(&OffsetKey) -> Option<i64>,
    ) -> Vec<(OffsetKey, LoggedOffset)> {
        let ended = self.by_producer.remove(&producer_id).unwrap_or_default();
        for key in ended.keys() {
            if let Some(producers) = self.producers.get_mut(key) {
                producers.remove(&producer_id);
                if producers.is_empty() {
                    self.producers.remove(key);
                }
            }
        }
        if !commit {
            return Vec::new();
        }
        ended
            .into_iter()
            .filter(|(key, offset)| counting_from(key).is_none_or(|at| offset.log_offset > at))
            .collect()
    }

    /// Whether a transaction is yet to decide on this offset: UNSTABLE_OFFSET_COMMIT to who wants it stable, and it does not
    /// expire.
    pub fn is_pending(&self, key: &OffsetKey) -> bool {
        self.producers.contains_key(key)
    }

    /// All offsets of a group that transactions are yet to decide on. With any, the group does not expire; a group that is
    /// deleted needs tombstones for these too.
    pub fn of_group<'a>(&'a self, group_id: &Arc<str>) -> impl Iterator<Item = &'a OffsetKey> {
        let first = OffsetKey {
            group_id: Arc::clone(group_id),
            topic: Arc::from(""),
            partition: i32::MIN,
        };
        let group_id = Arc::clone(group_id);
        self.producers
            .range(first..)
            .map(|(key, _)| key)
            .take_while(move |key| key.group_id == group_id)
    }
}
