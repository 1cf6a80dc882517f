//! What is known of one key: which value stands at which offset, and what became of each send.

use std::collections::{BTreeMap, BTreeSet};

use super::event::Kind;

/// A value and its send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Write {
    /// What was told of the send; nothing if no line sent this value.
    pub(super) kind: Option<Kind>,
    /// Who sent it.
    pub(super) process: u32,
    /// The transaction that it belongs to.
    pub(super) txn: Option<u32>,
    /// Where it was put, as far as the sender was told.
    pub(super) offset: Option<i64>,
    /// Whether a poll that succeeded returned it.
    pub(super) read: bool,
}

/// One key. The log is fed by every poll, whatever became of it, and by sends that must have been committed.
#[derive(Debug, Default)]
pub(super) struct KeyLog {
    pub(super) writes: BTreeMap<u64, Write>,
    /// The first value that was seen at each offset; nothing for a record that no client sent like this.
    pub(super) log: BTreeMap<i64, Option<u64>>,
    /// Offsets that showed another value as well.
    pub(super) inconsistent: BTreeSet<i64>,
    /// Values that were read at an offset where another one had been seen before.
    pub(super) elsewhere: BTreeSet<(i64, Option<u64>)>,
}

impl KeyLog {
    /// `value` stands at `offset`.
    pub(super) fn place(&mut self, offset: i64, value: Option<u64>) {
        let first = *self.log.entry(offset).or_insert(value);
        if first != value {
            self.inconsistent.insert(offset);
            self.elsewhere.insert((offset, value));
        }
    }

    /// The offsets at which each value stands.
    pub(super) fn places(&self) -> BTreeMap<u64, Vec<i64>> {
        let mut places: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        let first = self.log.iter().map(|(offset, value)| (*offset, *value));
        for (offset, value) in first.chain(self.elsewhere.iter().copied()) {
            if let Some(value) = value {
                places.entry(value).or_default().push(offset);
            }
        }
        places
    }
}
