//! The leader epochs of one log and where each began, as `leader-epoch-checkpoint` holds them. Followers find with
//! it where their log and the leader's part (KIP-101, KIP-279). It never touches a file.

/// A leader epoch and the offset of the first record it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// The leader epoch.
    pub epoch: i32,
    /// The log end offset when it began.
    pub start_offset: i64,
}

/// The answer to OffsetForLeaderEpoch: the largest known epoch not above the one asked for, and its end (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch that was found.
    pub epoch: i32,
    /// Where it ended: the start of the next one, or the log end offset.
    pub end_offset: i64,
}

/// Entries that grow strictly in epoch and in start offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// From entries in any order, if they can be what a log holds: both columns must grow strictly.
    pub fn from_entries(entries: Vec<EpochEntry>) -> Option<LeaderEpochs> {
        let grows = entries.windows(2).all(|pair| {
            pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
        });
        let valid = entries
            .iter()
            .all(|entry| entry.epoch >= 0 && entry.start_offset >= 0);
        (grows && valid).then_some(LeaderEpochs { entries })
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest entry.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The epoch of the record at `offset`.
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        let after = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|index| self.entries[index].epoch)
    }

    /// Where the largest epoch not above `epoch` ended. `None` if the epoch is newer than all that is known (the
    /// answer is then "undefined") or nothing is known. An epoch below the first entry ends where that begins
    /// (KAFKA-7415).
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> Option<EpochEnd> {
        let latest = self.latest()?;
        if epoch < 0 || epoch > latest.epoch {
            return None;
        }
        if epoch == latest.epoch {
            return Some(EpochEnd {
                epoch,
                end_offset: log_end_offset,
            });
        }
        let after = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let found = match after.checked_sub(1) {
            Some(index) => self.entries[index].epoch,
            None => epoch,
        };
        Some(EpochEnd {
            epoch: found,
            end_offset: self.entries[after].start_offset,
        })
    }

    /// Notes that `epoch` begins at `start_offset`. Entries that contradict it (same or later offset) go, for a
    /// newer epoch says that their records are not there (KAFKA-7415, KAFKA-10706). Returns whether anything changed.
    pub(crate) fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 || self.latest().is_some_and(|latest| latest.epoch >= epoch) {
            return false;
        }
        let keep = self
            .entries
            .partition_point(|entry| entry.start_offset < start_offset);
        self.entries.truncate(keep);
        self.entries.push(EpochEntry {
            epoch,
            start_offset,
        });
        true
    }

    /// Drops what began at or after `offset`. Returns whether anything changed.
    pub(crate) fn truncate_from_end(&mut self, offset: i64) -> bool {
        let keep = self
            .entries
            .partition_point(|entry| entry.start_offset < offset);
        let changed = keep < self.entries.len();
        self.entries.truncate(keep);
        changed
    }

    /// The log now starts at `offset`: epochs that ended before it go, the one that holds it starts at it. Returns
    /// whether anything changed.
    pub(crate) fn truncate_from_start(&mut self, offset: i64) -> bool {
        let after = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        let Some(holds) = after.checked_sub(1) else {
            return false;
        };
        if holds == 0 && self.entries[0].start_offset == offset {
            return false;
        }
        self.entries.drain(..holds);
        self.entries[0].start_offset = offset;
        true
    }

    pub(crate) fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let entries = entries
            .iter()
            .map(|&(epoch, start_offset)| EpochEntry {
                epoch,
                start_offset,
            })
            .collect();
        LeaderEpochs::from_entries(entries).expect("test entries grow")
    }

    #[test]
    fn end_offset_is_the_start_of_the_next_known_epoch() {
        let known = epochs(&[(2, 10), (4, 20), (5, 25)]);
        let check = |asked: i32, expected: Option<(i32, i64)>| {
            let found = known
                .end_offset_for(asked, 30)
                .map(|end| (end.epoch, end.end_offset));
            assert_eq!(found, expected, "epoch {asked}");
        };
        check(-1, None);
        check(0, Some((0, 10)));
        check(2, Some((2, 20)));
        check(3, Some((2, 20)));
        check(4, Some((4, 25)));
        check(5, Some((5, 30)));
        check(6, None);
        assert_eq!(LeaderEpochs::default().end_offset_for(0, 30), None);
    }

    #[test]
    fn assign_removes_what_contradicts_it() {
        let check = |before: &[(i32, i64)], assign: (i32, i64), after: &[(i32, i64)]| {
            let mut known = epochs(before);
            let changed = known.assign(assign.0, assign.1);
            assert_eq!(known, epochs(after), "{before:?} then {assign:?}");
            assert_eq!(changed, before != after);
        };
        check(&[], (0, 0), &[(0, 0)]);
        check(&[(0, 0)], (1, 5), &[(0, 0), (1, 5)]);
        check(&[(0, 0), (1, 5)], (2, 5), &[(0, 0), (2, 5)]);
        check(&[(0, 0), (1, 5)], (3, 2), &[(0, 0), (3, 2)]);
        check(&[(0, 0), (1, 5)], (1, 9), &[(0, 0), (1, 5)]);
        check(&[(0, 0), (4, 5)], (3, 9), &[(0, 0), (4, 5)]);
    }

    #[test]
    fn truncation_trims_both_ends() {
        let end = |offset: i64, after: &[(i32, i64)]| {
            let mut known = epochs(&[(1, 0), (2, 10), (3, 20)]);
            known.truncate_from_end(offset);
            assert_eq!(known, epochs(after), "end {offset}");
        };
        end(30, &[(1, 0), (2, 10), (3, 20)]);
        end(20, &[(1, 0), (2, 10)]);
        end(11, &[(1, 0), (2, 10)]);
        end(0, &[]);
        let start = |offset: i64, after: &[(i32, i64)]| {
            let mut known = epochs(&[(1, 0), (2, 10), (3, 20)]);
            known.truncate_from_start(offset);
            assert_eq!(known, epochs(after), "start {offset}");
        };
        start(0, &[(1, 0), (2, 10), (3, 20)]);
        start(5, &[(1, 5), (2, 10), (3, 20)]);
        start(10, &[(2, 10), (3, 20)]);
        start(25, &[(3, 25)]);
    }

    #[test]
    fn epoch_at_names_the_epoch_that_holds_an_offset() {
        let known = epochs(&[(1, 5), (3, 20)]);
        for (offset, expected) in [
            (4, None),
            (5, Some(1)),
            (19, Some(1)),
            (20, Some(3)),
            (99, Some(3)),
        ] {
            assert_eq!(known.epoch_at(offset), expected, "offset {offset}");
        }
    }
}
