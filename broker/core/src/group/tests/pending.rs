//! Offsets of transactions count by the order of their records, whatever the order of the ends, and compaction changes
//! nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use crate::group::{LoggedOffset, OffsetKey, OffsetValue, PendingOffsets};
use crate::ids::{ProducerId, TopicId};

/// What a batch of `__consumer_offsets` says, each with one record.
#[derive(Clone, Debug)]
enum Entry {
    Plain(OffsetKey),
    Within(ProducerId, OffsetKey),
    Tombstone(OffsetKey),
    End(ProducerId, bool),
}

type Log = Vec<(i64, Entry)>;

/// What counts, and what does not yet.
#[derive(Clone, Debug, Default, PartialEq)]
struct Offsets {
    counting: BTreeMap<OffsetKey, LoggedOffset>,
    pending: PendingOffsets,
}

fn key(group_id: &str, partition: i32) -> OffsetKey {
    OffsetKey {
        group_id: Arc::from(group_id),
        topic: Arc::from("t"),
        partition,
    }
}

fn logged(log_offset: i64) -> LoggedOffset {
    LoggedOffset {
        log_offset,
        value: OffsetValue {
            offset: log_offset * 10,
            leader_epoch: -1,
            metadata: String::new(),
            commit_timestamp: 0,
            expire_timestamp: -1,
            topic_id: TopicId::ZERO,
        },
    }
}

impl Offsets {
    fn of(log: &[(i64, Entry)]) -> Self {
        let mut offsets = Self::default();
        for (at, entry) in log {
            offsets.apply(*at, entry);
        }
        offsets
    }

    fn apply(&mut self, at: i64, entry: &Entry) {
        match entry {
            Entry::Plain(key) => {
                self.counting.insert(key.clone(), logged(at));
            }
            Entry::Within(producer_id, key) => {
                self.pending
                    .handle_commit(*producer_id, key.clone(), logged(at));
            }
            Entry::Tombstone(key) => {
                self.counting.remove(key);
                self.pending.handle_tombstone(key);
            }
            Entry::End(producer_id, commit) => {
                let counting = &self.counting;
                let newer = self.pending.handle_marker(*producer_id, *commit, |key| {
                    counting.get(key).map(|offset| offset.log_offset)
                });
                self.counting.extend(newer);
            }
        }
    }

    fn counts(&self, key: &OffsetKey) -> Option<i64> {
        self.counting.get(key).map(|offset| offset.log_offset)
    }
}

/// How the transaction of the record at `at` ended; none if it is open.
fn end_of(log: &[(i64, Entry)], producer_id: ProducerId, at: i64) -> Option<bool> {
    log.iter().find_map(|(end, entry)| match entry {
        Entry::End(ender, commit) if *ender == producer_id && *end > at => Some(*commit),
        _ => None,
    })
}

/// What the log says of a key, told from its records alone: the newest that counts, and whether one is undecided.
fn expected(log: &[(i64, Entry)], wanted: &OffsetKey) -> (Option<i64>, bool) {
    let (mut counts, mut pending) = (None, false);
    for (at, entry) in log {
        match entry {
            Entry::Plain(key) if key == wanted => counts = Some(*at),
            Entry::Tombstone(key) if key == wanted => (counts, pending) = (None, false),
            Entry::Within(producer_id, key) if key == wanted => {
                match end_of(log, *producer_id, *at) {
                    Some(true) => counts = Some(*at),
                    Some(false) => {}
                    None => pending = true,
                }
            }
            _ => {}
        }
    }
    (counts, pending)
}

/// What a cleaner leaves: below the first open transaction, of each key the newest record that was not aborted.
fn compacted(log: &[(i64, Entry)]) -> Log {
    let is_open = |at: i64, entry: &Entry| match entry {
        Entry::Within(producer_id, _) => end_of(log, *producer_id, at).is_none(),
        _ => false,
    };
    let stable = log
        .iter()
        .position(|(at, entry)| is_open(*at, entry))
        .unwrap_or(log.len());
    let mut newest = BTreeMap::new();
    for (at, entry) in &log[..stable] {
        match entry {
            Entry::Plain(key) | Entry::Tombstone(key) => {
                newest.insert(key.clone(), *at);
            }
            Entry::Within(producer_id, key) if end_of(log, *producer_id, *at) == Some(true) => {
                newest.insert(key.clone(), *at);
            }
            Entry::Within(..) | Entry::End(..) => {}
        }
    }
    let kept: BTreeSet<i64> = newest.into_values().collect();
    let stays = |at: i64, entry: &Entry| {
        at >= log.get(stable).map_or(i64::MAX, |(at, _)| *at)
            || kept.contains(&at)
            || matches!(entry, Entry::End(..))
    };
    log.iter()
        .filter(|(at, entry)| stays(*at, entry))
        .cloned()
        .collect()
}

const GROUPS: [&str; 2] = ["a", "b"];

fn entry() -> impl Strategy<Value = Entry> {
    let keys = (prop::sample::select(&GROUPS[..]), 0..2_i32)
        .prop_map(|(group_id, partition)| key(group_id, partition));
    let producers = (1..4_i64).prop_map(ProducerId);
    prop_oneof![
        2 => keys.clone().prop_map(Entry::Plain),
        4 => (producers.clone(), keys.clone()).prop_map(|(id, key)| Entry::Within(id, key)),
        1 => keys.prop_map(Entry::Tombstone),
        2 => (producers, any::<bool>()).prop_map(|(id, commit)| Entry::End(id, commit)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn live_state_is_what_the_log_says(entries in prop::collection::vec(entry(), 1..40)) {
        let log: Log = (0..).zip(entries).collect();
        let mut live = Offsets::default();
        for (index, (at, entry)) in log.iter().enumerate() {
            live.apply(*at, entry);
            let so_far = &log[..=index];
            for group_id in GROUPS {
                let mut pending = Vec::new();
                for partition in 0..2 {
                    let key = key(group_id, partition);
                    let is_pending = live.pending.is_pending(&key);
                    prop_assert_eq!((live.counts(&key), is_pending), expected(so_far, &key));
                    pending.extend(is_pending.then_some(key));
                }
                let group_id = Arc::from(group_id);
                let of_group: Vec<_> = live.pending.of_group(&group_id).cloned().collect();
                prop_assert_eq!(of_group, pending);
            }
            prop_assert_eq!(&Offsets::of(&compacted(so_far)), &live);
        }
        for producer_id in 1..4 {
            live.apply(i64::MAX, &Entry::End(ProducerId(producer_id), false));
        }
        prop_assert_eq!(live.pending, PendingOffsets::default(), "nothing stays behind");
    }
}

#[test]
fn a_commit_that_is_newer_in_the_log_stays_when_an_older_transaction_ends() {
    let (first, second, key) = (ProducerId(1), ProducerId(2), key("a", 0));
    let mut offsets = Offsets::of(&[
        (0, Entry::Within(first, key.clone())),
        (1, Entry::Within(second, key.clone())),
        (2, Entry::End(second, true)),
    ]);
    assert_eq!(offsets.counts(&key), Some(1));
    assert!(offsets.pending.is_pending(&key), "the first is undecided");
    offsets.apply(3, &Entry::End(first, true));
    assert_eq!(offsets.counts(&key), Some(1));
    assert!(!offsets.pending.is_pending(&key));
}

#[test]
fn what_was_deleted_does_not_come_back_with_a_marker() {
    let (producer_id, key) = (ProducerId(1), key("a", 0));
    let offsets = Offsets::of(&[
        (0, Entry::Within(producer_id, key.clone())),
        (1, Entry::Tombstone(key.clone())),
        (2, Entry::End(producer_id, true)),
    ]);
    assert_eq!(offsets, Offsets::default());
}

#[test]
fn an_abort_leaves_what_counted_before() {
    let (producer_id, key) = (ProducerId(1), key("a", 0));
    let offsets = Offsets::of(&[
        (0, Entry::Plain(key.clone())),
        (1, Entry::Within(producer_id, key.clone())),
        (2, Entry::End(producer_id, false)),
    ]);
    assert_eq!(offsets.counts(&key), Some(0));
    assert!(!offsets.pending.is_pending(&key));
}
