//! What clients were told, in the order in which they learned it. Facts only; the invariants judge them.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::executor::lock;
use crate::trace;

/// A partition of one incarnation of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartitionName {
    /// The topic's name.
    pub topic: String,
    /// The topic's id, as Kafka prints it: a topic that is made again has another.
    pub topic_id: String,
    /// The partition's index.
    pub partition: i32,
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} ({})", self.topic, self.partition, self.topic_id)
    }
}

/// Something that a client was told, or did without being told how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The acks=all answer to a batch.
    Acknowledged {
        /// Who sent it.
        producer: u32,
        /// Whether every value may be in the log only once.
        idempotent: bool,
        /// Where it went.
        partition: PartitionName,
        /// The offset of its first record.
        offset: i64,
        /// The values of its records.
        values: Vec<Vec<u8>>,
    },
    /// What a consumer was shown.
    Fetched {
        /// Where it read.
        partition: PartitionName,
        /// The epoch that it named and the leader confirmed.
        leader_epoch: i32,
        /// How many events there were when it asked.
        asked: usize,
        /// Where it read from.
        position: i64,
        /// Exclusive end of what it may see.
        high_watermark: i64,
        /// Offsets and values, in the order of the answer.
        records: Vec<(i64, Vec<u8>)>,
    },
    /// What ListOffsets gave as the end of a partition.
    EndOffset {
        /// Of which partition.
        partition: PartitionName,
        /// The epoch that was named and the leader confirmed.
        leader_epoch: i32,
        /// How many events there were when it was asked for.
        asked: usize,
        /// Exclusive end.
        offset: i64,
    },
    /// A question that named an epoch in which nobody leads was answered.
    Unfenced {
        /// About which partition.
        partition: PartitionName,
        /// The epoch that it named.
        leader_epoch: i32,
    },
    /// A consumer that goes on where it stopped was told that there is no such offset.
    OutOfRange {
        /// Where it read.
        partition: PartitionName,
        /// The epoch that it named.
        leader_epoch: i32,
        /// Where the log starts.
        log_start_offset: i64,
        /// Where it had read to.
        position: i64,
    },
    /// An error that a client that does everything right never gets.
    Refused {
        /// Who was refused what.
        what: String,
        /// Kafka's error.
        error: String,
    },
    /// A group's commit, answered without an error.
    Committed {
        /// Which group.
        group: String,
        /// Which offset.
        offset: i64,
    },
    /// A group's commit that may or may not have been heard.
    CommitUnknown {
        /// Which group.
        group: String,
        /// Which offset.
        offset: i64,
    },
    /// What a group was told it had committed; -1 for nothing.
    CommittedOffset {
        /// Which group.
        group: String,
        /// Which offset.
        offset: i64,
    },
    /// A member was given its part of a generation.
    Assigned {
        /// Which group.
        group: String,
        /// Which generation.
        generation: i32,
        /// Who it is.
        member: String,
        /// What it was given, of what it was to be given.
        assignment: Vec<u8>,
    },
}

/// All events so far. Clones are the same history.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    events: Arc<Mutex<Vec<Event>>>,
}

impl History {
    /// Adds one.
    pub(crate) fn push(&self, event: Event) {
        tracing::trace!(?event, "learned");
        trace::note(&event);
        lock(&self.events).push(event);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.events).len()
    }

    /// Calls `see` with every event from number `from` on.
    pub(crate) fn since<E>(
        &self,
        from: usize,
        mut see: impl FnMut(usize, &Event) -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, event) in lock(&self.events).iter().enumerate().skip(from) {
            see(number, event)?;
        }
        Ok(())
    }

    /// How many acknowledgements there are.
    pub(crate) fn acknowledgements(&self) -> usize {
        let events = lock(&self.events);
        let acknowledged = |event: &&Event| matches!(event, Event::Acknowledged { .. });
        events.iter().filter(acknowledged).count()
    }
}
