//! AddPartitionsToTxn and AddOffsetsToTxn: what a transaction writes to is in the log before anything is written.

use crate::error::ErrorKind;
use crate::time::Instant;

use super::coordinator::Coordinator;
use super::expiry::timeout;
use super::markers::record;
use super::record::{TransactionPartition, TransactionValue};
use super::request::{
    AddPartitions, AddPartitionsReply, Decision, ProducerIdAndEpoch, VerifyReply,
};
use super::state::State;

impl Coordinator {
    /// AddPartitionsToTxn or AddOffsetsToTxn: begins a transaction if there is none.
    pub fn handle_add_partitions(
        &mut self,
        now: Instant,
        wall_ms: i64,
        request: &AddPartitions,
    ) -> Decision<AddPartitionsReply> {
        self.add_partitions(now, wall_ms, request)
            .unwrap_or_else(|error| Decision::reply(Err(error)))
    }

    fn add_partitions(
        &mut self,
        now: Instant,
        wall_ms: i64,
        request: &AddPartitions,
    ) -> Result<Decision<AddPartitionsReply>, ErrorKind> {
        let (key, transaction) = self.find(&request.transactional_id)?;
        let value = &transaction.value;
        check_open(value, request.producer)?;
        let has_all = request
            .partitions
            .iter()
            .all(|partition| value.partitions.contains(partition));
        if value.state == State::Ongoing && has_all {
            return Ok(Decision::reply(Ok(())));
        }
        let next = value.with_partitions(&request.partitions, request.version, wall_ms);
        let begins = value.state.is_at_rest();
        let key = key.clone();
        let times_out_at = now + timeout(&next);
        let record = record(&key, next);
        self.check_size(&record)?;
        if begins {
            self.set_timeout(&key, times_out_at);
        }
        Ok(Decision {
            records: vec![record],
            reply: Ok(()),
        })
    }

    /// A partition's leader asks whether a producer may write there: its first batch of a transaction has come, and it may be
    /// late (KAFKA-14561).
    pub fn verify_partitions(
        &self,
        transactional_id: &str,
        producer: ProducerIdAndEpoch,
        partitions: &[TransactionPartition],
    ) -> VerifyReply {
        let found = self.find(transactional_id).and_then(|(_, transaction)| {
            check_open(&transaction.value, producer).map(|()| transaction)
        });
        let check = |partition| match &found {
            Ok(transaction) if transaction.value.partitions.contains(partition) => None,
            // Nothing is lost yet: the client may abort and begin again.
            Ok(_) => Some(ErrorKind::TransactionAbortable),
            Err(error) => Some(*error),
        };
        partitions.iter().map(check).collect()
    }
}

/// Whether this producer may write now.
fn check_open(value: &TransactionValue, producer: ProducerIdAndEpoch) -> Result<(), ErrorKind> {
    if value.producer_id != producer.producer_id {
        return Err(ErrorKind::InvalidProducerIdMapping);
    }
    if value.producer_epoch != producer.epoch {
        return Err(ErrorKind::ProducerFenced);
    }
    if value.state.is_preparing() {
        return Err(ErrorKind::ConcurrentTransactions);
    }
    Ok(())
}
