//! The partitions of one session, in the order in which they are served.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{LeaderEpoch, TopicId};

/// How a client names a topic: by id since Fetch v13, by name before. One session never mixes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKey {
    /// By id.
    Id(TopicId),
    /// By name.
    Name(Arc<str>),
}

/// One partition as a client names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicKey,
    /// The partition's index.
    pub partition: i32,
}

/// From where, and how much, of a partition is wanted; what a fetch says each time and a session remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The next offset wanted.
    pub fetch_offset: i64,
    /// Bytes wanted at most.
    pub max_bytes: i32,
    /// The leader epoch expected; `None` = not checked.
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last record the client has; `None` = not said.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// The first kept offset of a follower; −1 from a consumer.
    pub log_start_offset: i64,
}

/// Names a partition within one session as long as the session has it; small and dense, so that callers may index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// One partition of a session. `H` is whatever the caller wants to find again without a look-up.
#[derive(Clone, Debug)]
pub struct CachedPartition<H> {
    /// Which.
    pub key: PartitionKey,
    /// What is wanted of it.
    pub position: Position,
    /// The caller's own; empty when the partition enters the session.
    pub handle: Option<H>,
    /// What the client was told last; −1 = tell it again in any case.
    pub(super) high_watermark: i64,
    pub(super) log_start_offset: i64,
    before: Option<u32>,
    after: Option<u32>,
}

/// The partitions of a session: a list, linked through a vector, so that one that was served can go to its end.
#[derive(Clone, Debug)]
pub(super) struct Session<H> {
    slots: Vec<Option<CachedPartition<H>>>,
    free: Vec<u32>,
    index: BTreeMap<PartitionKey, u32>,
    first: Option<u32>,
    last: Option<u32>,
}

impl<H> Session<H> {
    pub(super) fn new() -> Session<H> {
        Session {
            slots: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            first: None,
            last: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Adds a partition at the end, or updates the position of one that is there. Whoever names it without having come any further
    /// in the same leader epoch may not have taken what it was told, and is told again: a follower drops an answer that a new epoch
    /// has overtaken.
    pub(super) fn put(&mut self, key: PartitionKey, position: Position) {
        if let Some(slot) = self.index.get(&key) {
            if let Some(partition) = &mut self.slots[*slot as usize] {
                let before = std::mem::replace(&mut partition.position, position);
                let came_further = before.current_leader_epoch == position.current_leader_epoch
                    && before.fetch_offset < position.fetch_offset;
                if !came_further {
                    partition.high_watermark = -1;
                }
            }
            return;
        }
        let partition = CachedPartition {
            key: key.clone(),
            position,
            handle: None,
            high_watermark: -1,
            log_start_offset: -1,
            before: None,
            after: None,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(partition);
                slot
            }
            None => {
                self.slots.push(Some(partition));
                u32::try_from(self.slots.len() - 1)
                    .expect("the cache limits the partitions of a session")
            }
        };
        self.index.insert(key, slot);
        self.link_last(slot);
    }

    pub(super) fn forget(&mut self, key: &PartitionKey) {
        if let Some(slot) = self.index.remove(key) {
            self.unlink(slot);
            self.slots[slot as usize] = None;
            self.free.push(slot);
        }
    }

    pub(super) fn move_to_end(&mut self, slot: Slot) {
        if self.last != Some(slot.0) && self.get(slot).is_some() {
            self.unlink(slot.0);
            self.link_last(slot.0);
        }
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&CachedPartition<H>> {
        self.slots.get(slot.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut CachedPartition<H>> {
        self.slots.get_mut(slot.0 as usize)?.as_mut()
    }

    pub(super) fn find(&self, key: &PartitionKey) -> Option<Slot> {
        self.index.get(key).copied().map(Slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &CachedPartition<H>)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let slot = Slot(next?);
            let partition = self.get(slot)?;
            next = partition.after;
            Some((slot, partition))
        })
    }

    pub(super) fn first(&self) -> Option<Slot> {
        self.first.map(Slot)
    }

    pub(super) fn after(&self, slot: Slot) -> Option<Slot> {
        self.get(slot)?.after.map(Slot)
    }

    fn link_last(&mut self, slot: u32) {
        let before = self.last.replace(slot);
        match before.and_then(|before| self.get_mut(Slot(before))) {
            Some(partition) => partition.after = Some(slot),
            None => self.first = Some(slot),
        }
        if let Some(partition) = self.get_mut(Slot(slot)) {
            partition.before = before;
            partition.after = None;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some((before, after)) = self
            .get(Slot(slot))
            .map(|partition| (partition.before, partition.after))
        else {
            return;
        };
        match before.and_then(|before| self.get_mut(Slot(before))) {
            Some(partition) => partition.after = after,
            None => self.first = after,
        }
        match after.and_then(|after| self.get_mut(Slot(after))) {
            Some(partition) => partition.before = before,
            None => self.last = before,
        }
    }
}
