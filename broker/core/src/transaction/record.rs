//! What `__transaction_state` holds, as values; their bytes are made elsewhere, in Kafka's formats.

use std::collections::BTreeSet;
use std::fmt;

use crate::ids::ProducerId;

use super::state::State;

/// One keyed record; a `None` value is a tombstone. The last one of a key wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Key `TransactionLogKey`.
    pub transactional_id: String,
    /// Value `TransactionLogValue`; `None` = the id expired.
    pub value: Option<TransactionValue>,
}

/// Bytes of a record beside its strings: numbers, tags and the record's own framing, rounded up.
const RECORD_OVERHEAD_BYTES: usize = 120;
/// Bytes of a partition beside its topic's name.
const PARTITION_BYTES: usize = 16;

impl Record {
    /// How large it is in a batch, rather too much than too little.
    pub fn bytes_about(&self) -> usize {
        let partitions = self.value.as_ref().map_or(0, |value| {
            let bytes = |partition: &TransactionPartition| partition.topic.len() + PARTITION_BYTES;
            value.partitions.iter().map(bytes).sum()
        });
        RECORD_OVERHEAD_BYTES + self.transactional_id.len() + partitions
    }
}

/// A partition of a transaction. Kafka's log names topics and has no ids of theirs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's index.
    pub partition: i32,
}

impl TransactionPartition {
    /// The partition of this index of this topic.
    pub fn new(topic: impl Into<String>, partition: i32) -> TransactionPartition {
        TransactionPartition {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TransactionPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The rules under which a client ends its transactions (Kafka's `TransactionVersion`, KIP-890).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransactionVersion {
    /// The epoch stays the same from one transaction to the next.
    #[default]
    V0,
    /// The same; the log's records are flexible.
    V1,
    /// Every end of a transaction raises the epoch, so that whatever is late of it is told apart from the next.
    V2,
}

impl TransactionVersion {
    /// The level of the feature `transaction.version`.
    pub fn level(self) -> i16 {
        match self {
            TransactionVersion::V0 => 0,
            TransactionVersion::V1 => 1,
            TransactionVersion::V2 => 2,
        }
    }

    /// The version of that level.
    pub fn from_level(level: i16) -> Option<TransactionVersion> {
        match level {
            0 => Some(TransactionVersion::V0),
            1 => Some(TransactionVersion::V1),
            2 => Some(TransactionVersion::V2),
            _ => None,
        }
    }

    /// Whether an end raises the epoch.
    pub fn raises_epoch(self) -> bool {
        self >= TransactionVersion::V2
    }
}

/// All that the log says of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionValue {
    /// Whom it is produced by now.
    pub producer_id: ProducerId,
    /// The producer id before the last change of the record, mostly the same one; `None` = −1.
    pub previous_producer_id: Option<ProducerId>,
    /// The fresh producer id that an end in version 2 goes on with, because epochs are used up; `None` = −1.
    pub next_producer_id: Option<ProducerId>,
    /// The epoch of that producer.
    pub producer_epoch: i16,
    /// How long a transaction may take, in milliseconds.
    pub timeout_ms: i32,
    /// Where it stands.
    pub state: State,
    /// What the transaction has written to; empty unless there is one.
    pub partitions: BTreeSet<TransactionPartition>,
    /// When the record was last changed, milliseconds since 1970.
    pub last_update_ms: i64,
    /// When the transaction began, milliseconds since 1970; −1 = there was none since InitProducerId.
    pub start_ms: i64,
    /// The version by whose rules it was last changed.
    pub client_version: TransactionVersion,
}
