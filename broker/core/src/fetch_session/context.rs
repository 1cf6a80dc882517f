//! One fetch on its way: which partitions to read, and which of them belong into the answer.

use crate::time::Instant;

use super::session::{CachedPartition, PartitionKey, Session, Slot};

/// What kind of fetch this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchKind {
    /// No session is wanted, or none is left: all partitions are answered.
    Sessionless,
    /// All partitions are answered, and a session is made of them if there is room.
    Full,
    /// Of an existing session: only partitions with news are answered, and none at all is an answer too.
    Incremental,
}

/// What was found out about a partition, as far as the session must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether records are returned.
    pub has_records: bool,
    /// The high watermark that the answer tells.
    pub high_watermark: i64,
    /// The log start that the answer tells.
    pub log_start_offset: i64,
    /// Whether the client is sent to another replica.
    pub has_preferred_read_replica: bool,
    /// Whether the answer is an error or a diverging epoch, which must be told until it is over.
    pub is_error_or_diverging: bool,
}

/// A session taken out of the cache, or the partitions of a fetch without one.
///
/// Dropping it loses the session: the client is then told that it does not exist and makes a new one.
#[derive(Clone, Debug)]
pub struct FetchContext<H> {
    pub(super) kind: FetchKind,
    pub(super) id: i32,
    /// That of the cache's entry, to know it again.
    pub(super) serial: u64,
    pub(super) follower: bool,
    pub(super) topic_ids: bool,
    /// When the answer before the last one was given, and when the last one was.
    pub(super) answered: [Option<Instant>; 2],
    /// The epoch that the next fetch of the session must carry.
    pub(super) next_epoch: i32,
    pub(super) session: Session<H>,
    served: Vec<Slot>,
}

impl<H> FetchContext<H> {
    pub(super) fn new(kind: FetchKind, follower: bool, topic_ids: bool) -> FetchContext<H> {
        FetchContext {
            kind,
            id: 0,
            serial: 0,
            follower,
            topic_ids,
            answered: [None; 2],
            next_epoch: 1,
            session: Session::new(),
            served: Vec::new(),
        }
    }

    /// What kind of fetch this is.
    pub fn kind(&self) -> FetchKind {
        self.kind
    }

    /// The session's id for the answer of an incremental fetch; 0 otherwise, then
    /// [`Sessions::handle_answered`](super::Sessions::handle_answered) tells it.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// A moment before which this fetch was certainly not made up. A client has at most two fetches of a session under way, and
    /// makes up the second one after the answer to the one before the first: so what proves something is the answer before
    /// the last one.
    pub fn made_after(&self) -> Option<Instant> {
        self.answered[0]
    }

    pub(super) fn note_answered(&mut self, now: Instant) {
        self.answered = [self.answered[1], Some(now)];
    }

    /// How many partitions are to be read.
    pub fn len(&self) -> usize {
        self.session.len()
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.session.len() == 0
    }

    /// The partitions in the order in which to serve them: those that had to wait longest first.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &CachedPartition<H>)> {
        self.session.iter()
    }

    /// The first partition to serve; with [`FetchContext::after`] a walk that leaves the context free to change.
    pub fn first(&self) -> Option<Slot> {
        self.session.first()
    }

    /// The partition to serve after that one.
    pub fn after(&self, slot: Slot) -> Option<Slot> {
        self.session.after(slot)
    }

    /// A partition, if the slot is in use.
    pub fn get(&self, slot: Slot) -> Option<&CachedPartition<H>> {
        self.session.get(slot)
    }

    /// A partition, to put its handle.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut CachedPartition<H>> {
        self.session.get_mut(slot)
    }

    /// The slot of a partition.
    pub fn find(&self, key: &PartitionKey) -> Option<Slot> {
        self.session.find(key)
    }

    /// Whether the partition has news for the client, without noting anything: to decide if a wait is over.
    pub fn has_news(&self, slot: Slot, answer: &Answer) -> bool {
        let news = |partition: &CachedPartition<H>| {
            answer.has_records
                || answer.high_watermark != partition.high_watermark
                || answer.log_start_offset != partition.log_start_offset
                || answer.has_preferred_read_replica
                || answer.is_error_or_diverging
        };
        self.session.get(slot).is_some_and(news)
    }

    /// Whether the partition belongs into the answer (Kafka's `CachedPartition.maybeUpdateResponseData`), and notes
    /// what the client is told. Call once for each partition of the answer that is sent.
    pub fn include(&mut self, slot: Slot, answer: &Answer) -> bool {
        let included = self.has_news(slot, answer) || self.kind != FetchKind::Incremental;
        if let Some(partition) = self.session.get_mut(slot) {
            // After an error the client must hear when it is over, even if the numbers are as before.
            partition.high_watermark = if answer.is_error_or_diverging {
                -1
            } else {
                answer.high_watermark
            };
            partition.log_start_offset = answer.log_start_offset;
        }
        if answer.has_records {
            self.served.push(slot);
        }
        included
    }

    /// Those that got records wait behind the others next time, in the order in which they were served.
    pub(super) fn rotate(&mut self) {
        for slot in std::mem::take(&mut self.served) {
            self.session.move_to_end(slot);
        }
    }
}
