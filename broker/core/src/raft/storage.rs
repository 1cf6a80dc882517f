//! The part of the log that the `raft` crate reads: kept in memory, rebuilt at start from what the shell persisted.

use raft::eraftpb;
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use super::convert;
use super::types::{Entry, Persisted, RaftError, Snapshot};

/// Entries after a compaction point, and the newest snapshot. The snapshot may stand above the compaction point: entries
/// below it are kept for a while, so that a voter that is a little behind needs no snapshot.
pub(super) struct MemoryLog {
    hard_state: eraftpb::HardState,
    /// The members as of the last entry that was handed out to be applied.
    conf_state: eraftpb::ConfState,
    /// The index as of which they are.
    members_since: u64,
    /// Index and term of the last entry that was dropped.
    compacted: (u64, u64),
    entries: Vec<eraftpb::Entry>,
    snapshot: Option<eraftpb::Snapshot>,
}

impl MemoryLog {
    /// Checks what was persisted. Voters come from the snapshot, or else from the bootstrap configuration.
    pub(super) fn new(
        persisted: Persisted,
        bootstrap: eraftpb::ConfState,
    ) -> Result<Self, RaftError> {
        let Persisted {
            mut hard_state,
            snapshot,
            entries,
        } = persisted;
        let snapshot = match snapshot {
            Some(snapshot) => {
                convert::check_snapshot(&snapshot)?;
                Some(convert::snapshot_to_raft(snapshot))
            }
            None => None,
        };
        let (compacted, conf_state) = match &snapshot {
            Some(snapshot) => {
                let metadata = snapshot.get_metadata();
                (
                    (metadata.index, metadata.term),
                    metadata.get_conf_state().clone(),
                )
            }
            None => ((0, 0), bootstrap),
        };
        for entry in &entries {
            convert::check_entry(entry).map_err(RaftError::Damaged)?;
        }
        let entries = after_snapshot(entries, compacted);
        let (mut index, mut term) = compacted;
        for entry in &entries {
            if entry.index != index + 1 {
                return Err(RaftError::Damaged("entries do not follow each other"));
            }
            if entry.term < term {
                return Err(RaftError::Damaged("terms of entries go back"));
            }
            (index, term) = (entry.index, entry.term);
        }
        if hard_state.term < term {
            // Stopped between writing entries and the hard state that goes with them. It cannot have voted in that term: a
            // vote leaves only after its hard state is on disk.
            (hard_state.term, hard_state.vote) = (term, None);
        }
        // A snapshot is persisted before the hard state that follows from it.
        hard_state.commit = hard_state.commit.max(compacted.0);
        if hard_state.commit > index {
            return Err(RaftError::Damaged("committed entries are missing"));
        }
        Ok(Self {
            hard_state: convert::hard_state_to_raft(&hard_state),
            conf_state,
            members_since: compacted.0,
            compacted,
            entries,
            snapshot,
        })
    }

    pub(super) fn snapshot_index(&self) -> u64 {
        let snapshot = self.snapshot.as_ref();
        snapshot.map_or(0, |snapshot| snapshot.get_metadata().index)
    }

    /// The newest snapshot, for those who need entries that are gone.
    pub(super) fn newest_snapshot(&self) -> Option<Snapshot> {
        self.snapshot.as_ref().map(convert::snapshot_from_raft)
    }

    /// Entries `first` to `last`, at least one and then no more than `bytes_max` of data; `None` if the first is gone.
    pub(super) fn read(&self, first: u64, last: u64, bytes_max: u64) -> Option<Vec<Entry>> {
        let position = |index: u64| {
            index
                .checked_sub(self.compacted.0 + 1)
                .map(|position| position as usize)
        };
        let (from, to) = (position(first)?, position(last + 1)?);
        let wanted = self.entries.get(from..to).unwrap_or_default();
        let mut bytes = 0;
        let fits = wanted.iter().take_while(|entry| {
            let is_first = bytes == 0 && entry.index == first;
            bytes += entry.data.len() as u64;
            is_first || bytes <= bytes_max
        });
        Some(fits.map(convert::entry_from_raft).collect())
    }

    fn last(&self) -> u64 {
        self.compacted.0 + self.entries.len() as u64
    }

    pub(super) fn set_hard_state(&mut self, hard_state: eraftpb::HardState) {
        self.hard_state = hard_state;
    }

    /// Appends; what stands at the first one's index and after is replaced.
    pub(super) fn append(&mut self, entries: &[eraftpb::Entry]) {
        let Some(first) = entries.first() else {
            return;
        };
        let kept = first.index.checked_sub(self.compacted.0 + 1);
        let kept = kept.expect("raft overwrites compacted entries");
        assert!(
            kept <= self.entries.len() as u64,
            "raft leaves a gap in its log"
        );
        self.entries.truncate(kept as usize);
        self.entries.extend_from_slice(entries);
    }

    /// Replaces everything by a leader's snapshot.
    pub(super) fn install(&mut self, snapshot: eraftpb::Snapshot) {
        let metadata = snapshot.get_metadata();
        self.compacted = (metadata.index, metadata.term);
        self.members_since = metadata.index;
        self.conf_state = metadata.get_conf_state().clone();
        self.entries.clear();
        self.snapshot = Some(snapshot);
    }

    /// The members are these from the entry at `index` on.
    pub(super) fn set_members(&mut self, index: u64, members: eraftpb::ConfState) {
        self.members_since = index;
        self.conf_state = members;
    }

    /// Keeps the image at `index` as the newest snapshot and drops all entries below it but the last `kept`.
    pub(super) fn compact(&mut self, index: u64, data: Vec<u8>, kept: u64) -> Option<Snapshot> {
        // Who the members were before their last change is not known any more.
        if index <= self.snapshot_index() || index < self.members_since {
            return None;
        }
        let term = self.term(index).ok()?;
        let mut snapshot = eraftpb::Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = index;
        metadata.term = term;
        metadata.set_conf_state(self.conf_state.clone());
        snapshot.data = data.into();
        let converted = convert::snapshot_from_raft(&snapshot);
        self.snapshot = Some(snapshot);
        let drop_to = index.saturating_sub(kept);
        if drop_to > self.compacted.0 {
            let term = self.term(drop_to).ok()?;
            self.entries.drain(..(drop_to - self.compacted.0) as usize);
            self.compacted = (drop_to, term);
        }
        Some(converted)
    }
}

/// The entries that go on from the snapshot. A stop between writing a leader's snapshot and removing the entries that it
/// replaces leaves some that do not: they have another entry at the snapshot's index.
fn after_snapshot(entries: Vec<Entry>, snapshot: (u64, u64)) -> Vec<eraftpb::Entry> {
    let at_snapshot = entries.iter().find(|entry| entry.index == snapshot.0);
    if at_snapshot.is_some_and(|entry| entry.term != snapshot.1) {
        return Vec::new();
    }
    let after = entries.into_iter().filter(|entry| entry.index > snapshot.0);
    after.map(convert::entry_to_raft).collect()
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(
            self.hard_state.clone(),
            self.conf_state.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low <= self.compacted.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let position = |index: u64| (index - self.compacted.0 - 1) as usize;
        let mut entries = self.entries[position(low)..position(high)].to_vec();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.compacted.0 {
            return Ok(self.compacted.1);
        }
        if index < self.compacted.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let entry = self.entries.get((index - self.compacted.0 - 1) as usize);
        entry
            .map(|entry| entry.term)
            .ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.compacted.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<eraftpb::Snapshot> {
        match &self.snapshot {
            Some(snapshot) if snapshot.get_metadata().index >= request_index => {
                Ok(snapshot.clone())
            }
            _ => Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable)),
        }
    }
}
