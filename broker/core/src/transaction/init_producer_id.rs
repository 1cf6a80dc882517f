//! InitProducerId: who a transactional id is from now on, and that whoever was it before is fenced.

use std::sync::Arc;

use crate::error::ErrorKind;

use super::coordinator::{Coordinator, Transaction};
use super::markers::record;
use super::record::TransactionValue;
use super::request::{
    Decision, Effect, InitProducerId, InitProducerIdReply, ProducerIdAndEpoch, Refused,
};
use super::state::State;
use super::transition::EPOCH_MAX;

/// Who the producer will be.
enum Next {
    /// The same producer in this epoch, with what it names if it did not get the answer.
    Epoch(ProducerIdAndEpoch, Option<i16>),
    /// A fresh producer id, for epochs are used up.
    FreshId(Option<i16>),
}

impl Coordinator {
    /// InitProducerId.
    pub fn handle_init_producer_id(
        &mut self,
        wall_ms: i64,
        request: &InitProducerId,
        effects: &mut Vec<Effect>,
    ) -> Decision<InitProducerIdReply> {
        self.init_producer_id(wall_ms, request, effects)
            .unwrap_or_else(|refused| Decision::reply(Err(refused)))
    }

    fn init_producer_id(
        &mut self,
        wall_ms: i64,
        request: &InitProducerId,
        effects: &mut Vec<Effect>,
    ) -> Result<Decision<InitProducerIdReply>, Refused> {
        if request.transactional_id.is_empty() {
            return Err(ErrorKind::InvalidRequest.into());
        }
        if !(1..=self.settings.transaction_timeout_ms_max).contains(&request.timeout_ms) {
            return Err(ErrorKind::InvalidTransactionTimeout.into());
        }
        let found = self
            .transactions
            .get_key_value(request.transactional_id.as_str())
            .map(|(key, transaction)| (key.clone(), transaction.clone()));
        let Some((key, transaction)) = found else {
            return self.init_new(wall_ms, request);
        };
        check_producer_id(&transaction.value, request.expected)?;
        match transaction.value.state {
            State::PrepareCommit | State::PrepareAbort => {
                Err(ErrorKind::ConcurrentTransactions.into())
            }
            State::Ongoing => self.fence_for(&key, &transaction, wall_ms, request, effects),
            State::Empty | State::CompleteCommit | State::CompleteAbort => {
                self.init_known(&key, &transaction, wall_ms, request)
            }
        }
    }

    fn init_new(
        &mut self,
        wall_ms: i64,
        request: &InitProducerId,
    ) -> Result<Decision<InitProducerIdReply>, Refused> {
        // Clients try again later, and ids that nobody uses go by themselves.
        if self.transactions.len() >= self.settings.transactional_ids_max {
            return Err(ErrorKind::CoordinatorNotAvailable.into());
        }
        let producer_id = self.take_producer_id()?;
        let value = TransactionValue::first(producer_id, request.timeout_ms, wall_ms);
        Ok(Decision {
            reply: Ok(value.producer()),
            records: vec![record(&request.transactional_id, value)],
        })
    }

    /// A producer starts while its transaction, or that of one before it, is open: that is aborted first, and whoever had it
    /// is fenced. The epoch is not told to anybody: the client asks again and gets the one after.
    fn fence_for(
        &mut self,
        key: &Arc<str>,
        transaction: &Transaction,
        wall_ms: i64,
        request: &InitProducerId,
        effects: &mut Vec<Effect>,
    ) -> Result<Decision<InitProducerIdReply>, Refused> {
        // Kafka lets also one that is fenced abort the transaction of its successor.
        if request
            .expected
            .is_some_and(|expected| expected != transaction.value.producer())
        {
            return Err(ErrorKind::ProducerFenced.into());
        }
        let records = self.fence(key, &transaction.value, wall_ms, effects)?;
        Ok(Decision {
            records,
            reply: Err(ErrorKind::ConcurrentTransactions.into()),
        })
    }

    /// Aborts a transaction on the coordinator's own account, by the rules of the cluster.
    pub(super) fn fence(
        &mut self,
        key: &Arc<str>,
        value: &TransactionValue,
        wall_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<Vec<super::Record>, Refused> {
        let version = self.settings.version;
        let fresh = self.fresh_for_end(value, version)?;
        let last_epoch = version.raises_epoch().then_some(value.producer_epoch);
        self.set_last_epoch(key, last_epoch);
        Ok(self.end(key, value.fenced(version, fresh, wall_ms), wall_ms, effects))
    }

    fn init_known(
        &mut self,
        key: &Arc<str>,
        transaction: &Transaction,
        wall_ms: i64,
        request: &InitProducerId,
    ) -> Result<Decision<InitProducerIdReply>, Refused> {
        let value = &transaction.value;
        let (producer, last_epoch) =
            match next_producer(value, transaction.last_epoch, request.expected)? {
                Next::Epoch(producer, last_epoch) => (producer, last_epoch),
                Next::FreshId(last_epoch) => {
                    let producer_id = self.take_producer_id()?;
                    (ProducerIdAndEpoch::new(producer_id, 0), last_epoch)
                }
            };
        let is_said = value.state == State::Empty
            && value.producer() == producer
            && value.timeout_ms == request.timeout_ms;
        if is_said {
            return Ok(Decision::reply(Ok(producer)));
        }
        self.set_last_epoch(key, last_epoch);
        let next = value.initialized(producer, request.timeout_ms, wall_ms);
        Ok(Decision {
            records: vec![record(key, next)],
            reply: Ok(producer),
        })
    }
}

/// A producer that says who it was must be the one that is, or the one before if that ran out of epochs and may not have got
/// the answer.
fn check_producer_id(
    value: &TransactionValue,
    expected: Option<ProducerIdAndEpoch>,
) -> Result<(), ErrorKind> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let is_previous =
        Some(expected.producer_id) == value.previous_producer_id && expected.epoch >= EPOCH_MAX;
    if expected.producer_id == value.producer_id || is_previous {
        Ok(())
    } else {
        Err(ErrorKind::ProducerFenced)
    }
}

fn next_producer(
    value: &TransactionValue,
    last_epoch: Option<i16>,
    expected: Option<ProducerIdAndEpoch>,
) -> Result<Next, ErrorKind> {
    let epoch = value.producer_epoch;
    // What this producer will name if it does not get the answer; one that has just started will name nothing.
    let named = match expected {
        None => None,
        Some(expected) if expected.epoch == epoch => Some(epoch),
        // The answer to its last request was lost.
        Some(expected) if Some(expected.epoch) == last_epoch => {
            return Ok(Next::Epoch(value.producer(), last_epoch));
        }
        Some(_) => return Err(ErrorKind::ProducerFenced),
    };
    if value.is_epoch_exhausted() {
        return Ok(Next::FreshId(named));
    }
    let raised = ProducerIdAndEpoch::new(value.producer_id, epoch + 1);
    Ok(Next::Epoch(raised, named))
}
