//! Files and folders of a simulated disk: what reads see, and what a crash leaves of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::Random;

const PAGE: usize = 4096;

#[derive(Default)]
pub(super) struct File {
    /// What reads see.
    pub(super) content: Vec<u8>,
    /// What a crash leaves at least.
    pub(super) durable: Vec<u8>,
    /// Pages that were written since the last fsync.
    pub(super) dirty: BTreeSet<usize>,
    /// The shortest length since then.
    pub(super) shortest: usize,
    /// Open handles; they keep a file that has lost its name.
    pub(super) handles: usize,
}

#[derive(Default)]
pub(super) struct Folder {
    pub(super) names: BTreeMap<String, u64>,
    pub(super) durable: BTreeMap<String, u64>,
    /// Changes since the last fsync, in order.
    pub(super) journal: Vec<NameChange>,
}

#[derive(Clone, Hash)]
pub(super) enum NameChange {
    Insert(String, u64),
    Remove(String),
    Rename(String, String),
}

impl Folder {
    pub(super) fn change(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.journal.push(change);
    }

    /// A part of the changes, the first ones, got to the disk.
    pub(super) fn crash(&mut self, random: &mut Random) {
        let kept = random.index_below(self.journal.len() + 1);
        for change in &self.journal[..kept] {
            apply(&mut self.durable, change);
        }
        self.names = self.durable.clone();
        self.journal.clear();
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &NameChange) {
    match change {
        NameChange::Insert(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

impl File {
    pub(super) fn write(&mut self, bytes: &[u8], start: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = start + bytes.len();
        if end > self.content.len() {
            self.content.resize(end, 0);
        }
        self.content[start..end].copy_from_slice(bytes);
        self.dirty.extend(start / PAGE..=(end - 1) / PAGE);
    }

    pub(super) fn set_length(&mut self, length: usize) {
        self.content.resize(length, 0);
        self.shortest = self.shortest.min(length);
        self.dirty.retain(|page| page * PAGE < length);
        // The rest of the last page is zeros now.
        self.dirty
            .extend(length.checked_sub(1).map(|last| last / PAGE));
    }

    pub(super) fn sync(&mut self) {
        self.durable.truncate(self.shortest);
        self.durable.resize(self.content.len(), 0);
        self.shortest = self.content.len();
        for page in std::mem::take(&mut self.dirty) {
            let range = page * PAGE..((page + 1) * PAGE).min(self.content.len());
            self.durable[range.clone()].copy_from_slice(&self.content[range]);
        }
    }

    /// The length is one of those between the last durable and the present one; each dirty page is new or old.
    pub(super) fn crash(&mut self, random: &mut Random) {
        let (old, new) = (self.durable.len(), self.content.len());
        let length = match random.index_below(4) {
            0 => old,
            1 => new,
            _ => old.min(new) + random.index_below(old.abs_diff(new) + 1),
        };
        let all_or_none = random.index_below(3);
        self.durable.resize(length, 0);
        for page in std::mem::take(&mut self.dirty) {
            let kept = match all_or_none {
                0 => false,
                1 => true,
                _ => random.index_below(2) == 0,
            };
            let range = page * PAGE..((page + 1) * PAGE).min(length).min(new);
            if kept && range.start < range.end {
                self.durable[range.clone()].copy_from_slice(&self.content[range]);
            }
        }
        self.content = self.durable.clone();
        self.shortest = length;
        self.handles = 0;
    }
}
