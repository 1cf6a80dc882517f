//! The newest committed entries, kept in memory for the brokers that do not vote, and what such a broker is answered.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of committed entries that are kept: a follower that is further behind gets a snapshot instead.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// A run of consecutive committed entries, the newest last. Entries without records are kept too: indexes have no gaps.
#[derive(Default)]
pub(super) struct History {
    entries: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The index of the first entry.
    first: u64,
    records: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// What can be given to a broker that asks for entries from some index on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// Entries of consecutive indexes from the one asked for; none if it is not committed yet.
    Entries(Vec<(u64, Vec<u8>)>),
    /// They are not kept any more.
    TooOld,
}

impl History {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the entry at `index`, which follows the last one.
    pub(super) fn push(&self, index: u64, records: Vec<u8>) {
        let mut kept = self.kept();
        if kept.records.is_empty() || kept.first + kept.records.len() as u64 != index {
            *kept = Kept {
                first: index,
                ..Kept::default()
            };
        }
        kept.bytes += records.len();
        kept.records.push_back(records);
        while kept.bytes > KEPT_BYTES_MAX && kept.records.len() > 1 {
            let dropped = kept.records.pop_front().map_or(0, |records| records.len());
            kept.bytes -= dropped;
            kept.first += 1;
        }
    }

    /// Forgets everything: a snapshot was installed.
    pub(super) fn clear(&self) {
        *self.kept() = Kept::default();
    }

    /// Entries from `from` on, at least one if there is any, else at most `bytes_max` together.
    pub(super) fn from(&self, from: u64, committed: u64, bytes_max: usize) -> Slice {
        let kept = self.kept();
        if from > committed {
            return Slice::Entries(Vec::new());
        }
        let position = from
            .checked_sub(kept.first)
            .and_then(|position| usize::try_from(position).ok());
        let Some(position) = position.filter(|position| *position < kept.records.len()) else {
            return Slice::TooOld;
        };
        let mut bytes = 0;
        let mut entries = Vec::new();
        for (index, records) in (from..=committed).zip(kept.records.range(position..)) {
            bytes += records.len();
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push((index, records.clone()));
        }
        Slice::Entries(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        history: &History,
        from: u64,
        committed: u64,
        bytes_max: usize,
        expected: Option<&[u64]>,
    ) {
        let found = match history.from(from, committed, bytes_max) {
            Slice::Entries(entries) => {
                Some(entries.iter().map(|(index, _)| *index).collect::<Vec<_>>())
            }
            Slice::TooOld => None,
        };
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn entries_are_given_from_where_they_are_asked_for() {
        let history = History::default();
        for index in 5..9 {
            history.push(index, vec![0; 10]);
        }
        check(&history, 4, 8, 100, None);
        check(&history, 5, 8, 100, Some(&[5, 6, 7, 8]));
        check(&history, 7, 8, 100, Some(&[7, 8]));
        check(&history, 5, 8, 25, Some(&[5, 6]));
        check(&history, 5, 8, 1, Some(&[5]));
        check(&history, 9, 8, 100, Some(&[]));
    }

    #[test]
    fn gap_and_clear_begin_anew() {
        let history = History::default();
        history.push(1, vec![1]);
        history.push(7, vec![7]);
        check(&history, 1, 7, 100, None);
        check(&history, 7, 7, 100, Some(&[7]));
        history.clear();
        check(&history, 7, 7, 100, None);
    }

    #[test]
    fn old_entries_make_room() {
        let history = History::default();
        for index in 1..=4 {
            history.push(index, vec![0; KEPT_BYTES_MAX / 2]);
        }
        check(&history, 2, 4, usize::MAX, None);
        check(&history, 3, 4, usize::MAX, Some(&[3, 4]));
    }
}
