//! Transactions of one `__transaction_state` partition: who a transactional id is now, and how each transaction ends.
//!
//! [`Coordinator`] decides; the caller appends a decision's records to the partition, applies them, and only then gives the
//! coordinator its next event. Replies and effects are released when the high watermark has passed the log end of the
//! moment of the decision, also those without records, for they may speak of what is not yet replicated; markers that were
//! written for an end that is then lost would tear the transaction. If the append fails or leadership is lost, the
//! coordinator is dropped and built anew from the log: [`Coordinator::new`], [`Coordinator::apply`] for each record,
//! [`Coordinator::handle_loaded`].
//!
//! Nothing is ever half decided, so Kafka's pending states and its PrepareEpochFence do not exist here: a fence is the
//! abort that it leads to.

mod add_partitions;
mod coordinator;
mod describe;
mod end_transaction;
mod expiry;
mod init_producer_id;
mod markers;
mod record;
mod request;
mod settings;
mod state;
mod transition;

#[cfg(test)]
mod tests;

pub use crate::group::partition_for;
pub use coordinator::Coordinator;
pub use describe::{Description, Filter};
pub use record::{Record, TransactionPartition, TransactionValue, TransactionVersion};
pub use request::{
    AddPartitions, AddPartitionsReply, Decision, Effect, EndToken, EndTransaction,
    EndTransactionReply, InitProducerId, InitProducerIdReply, Markers, ProducerIdAndEpoch, Refused,
    VerifyReply,
};
pub use settings::Settings;
pub use state::State;
