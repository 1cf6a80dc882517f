//! Requests to a transaction coordinator and its replies, free of wire versions.

use std::sync::Arc;

use crate::error::ErrorKind;
use crate::ids::ProducerId;

use super::record::{Record, TransactionPartition, TransactionVersion};

/// Records to append and apply, and the reply to release when they are replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<R> {
    /// In this order; they belong together in one batch, but for those of a timeout, which may be split.
    pub records: Vec<Record>,
    /// The reply.
    pub reply: R,
}

impl<R> Decision<R> {
    pub(super) fn reply(reply: R) -> Decision<R> {
        Decision {
            records: Vec::new(),
            reply,
        }
    }
}

/// What follows from a decision beside its reply. Released like a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Have these markers written, again and again until they are, and tell
    /// [`Coordinator::handle_markers_written`](super::Coordinator::handle_markers_written).
    WriteMarkers(Markers),
}

/// Names one end of one transaction, within the life of a coordinator. Producer and epoch do not: without epochs that rise,
/// those of the next transaction are the same (KAFKA-16352).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndToken(pub u64);

/// The markers that end one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markers {
    /// Whose transaction.
    pub transactional_id: Arc<str>,
    /// Which end of it.
    pub token: EndToken,
    /// Producer and epoch that the markers carry.
    pub producer: ProducerIdAndEpoch,
    /// Commit or abort.
    pub commit: bool,
    /// The rules by which a partition checks the epoch.
    pub version: TransactionVersion,
    /// Where they are to be written.
    pub partitions: Vec<TransactionPartition>,
}

/// One life of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProducerIdAndEpoch {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub epoch: i16,
}

impl ProducerIdAndEpoch {
    /// The life of this epoch of this producer.
    pub fn new(producer_id: ProducerId, epoch: i16) -> ProducerIdAndEpoch {
        ProducerIdAndEpoch { producer_id, epoch }
    }
}

/// Why a request got nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// For the client.
    Error(ErrorKind),
    /// Not for the client: give the coordinator a fresh producer id
    /// ([`Coordinator::handle_producer_id`](super::Coordinator::handle_producer_id)) and ask again.
    NeedsProducerId,
}

impl From<ErrorKind> for Refused {
    fn from(error: ErrorKind) -> Refused {
        Refused::Error(error)
    }
}

/// InitProducerId of a transactional producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerId {
    /// `transactional.id`.
    pub transactional_id: String,
    /// `transaction.timeout.ms`, as sent.
    pub timeout_ms: i32,
    /// Who the producer was so far; `None` from one that has just started.
    pub expected: Option<ProducerIdAndEpoch>,
}

/// Reply to InitProducerId: who the producer is from now on.
pub type InitProducerIdReply = Result<ProducerIdAndEpoch, Refused>;

/// AddPartitionsToTxn or AddOffsetsToTxn (then the group's partition of `__consumer_offsets`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddPartitions {
    /// `transactional.id`.
    pub transactional_id: String,
    /// Who asks.
    pub producer: ProducerIdAndEpoch,
    /// What the producer is about to write to. The node has checked that they exist.
    pub partitions: Vec<TransactionPartition>,
    /// V2 if a partition's leader adds them for the producer.
    pub version: TransactionVersion,
}

/// Reply to AddPartitionsToTxn, the same for all partitions.
pub type AddPartitionsReply = Result<(), ErrorKind>;

/// Reply to a leader that asks whether partitions are in a transaction: one result for each, in its order.
pub type VerifyReply = Vec<Option<ErrorKind>>;

/// EndTxn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndTransaction {
    /// `transactional.id`.
    pub transactional_id: String,
    /// Who asks.
    pub producer: ProducerIdAndEpoch,
    /// Commit or abort.
    pub commit: bool,
    /// V2 from EndTxn v5 on.
    pub version: TransactionVersion,
}

/// Reply to EndTxn: in version 2 who the producer is from now on.
pub type EndTransactionReply = Result<Option<ProducerIdAndEpoch>, Refused>;
