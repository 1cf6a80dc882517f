//! EndTxn: commit or abort, and what a client is told that asks once more. See [`State`] for the table.

use crate::error::ErrorKind;

use super::coordinator::Coordinator;
use super::record::TransactionValue;
use super::request::{
    Decision, Effect, EndTransaction, EndTransactionReply, ProducerIdAndEpoch, Refused,
};
use super::state::State;
use super::transition::EPOCH_MAX;

/// What an EndTxn comes to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It has been done: this is a retry.
    Done,
    /// It is to be done.
    End,
}

impl Coordinator {
    /// EndTxn.
    pub fn handle_end_transaction(
        &mut self,
        wall_ms: i64,
        request: &EndTransaction,
        effects: &mut Vec<Effect>,
    ) -> Decision<EndTransactionReply> {
        self.end_transaction(wall_ms, request, effects)
            .unwrap_or_else(|refused| Decision::reply(Err(refused)))
    }

    fn end_transaction(
        &mut self,
        wall_ms: i64,
        request: &EndTransaction,
        effects: &mut Vec<Effect>,
    ) -> Result<Decision<EndTransactionReply>, Refused> {
        let (key, transaction) = self.find(&request.transactional_id)?;
        let (key, value) = (key.clone(), transaction.value.clone());
        let raises_epoch = request.version.raises_epoch();
        let verdict = if raises_epoch {
            judge_v2(&value, request)?
        } else {
            judge_v0(&value, request)?
        };
        if verdict == Verdict::Done {
            return Ok(Decision::reply(Ok(told(&value, raises_epoch))));
        }
        let fresh = self.fresh_for_end(&value, request.version)?;
        if raises_epoch {
            self.set_last_epoch(&key, Some(value.producer_epoch));
        }
        let prepared = value.prepared(request.commit, request.version, fresh, wall_ms);
        let completed = prepared.completed(wall_ms);
        Ok(Decision {
            records: self.end(&key, prepared, wall_ms, effects),
            reply: Ok(told(&completed, raises_epoch)),
        })
    }
}

/// Who the producer is after an end; without epochs that rise nothing is told, for nothing changes.
fn told(value: &TransactionValue, raises_epoch: bool) -> Option<ProducerIdAndEpoch> {
    raises_epoch.then(|| value.producer())
}

fn judge_v0(value: &TransactionValue, request: &EndTransaction) -> Result<Verdict, ErrorKind> {
    if value.producer_id != request.producer.producer_id {
        return Err(ErrorKind::InvalidProducerIdMapping);
    }
    if value.producer_epoch != request.producer.epoch {
        return Err(ErrorKind::ProducerFenced);
    }
    match (value.state, request.commit) {
        (State::Ongoing, _) => Ok(Verdict::End),
        (State::CompleteCommit, true) | (State::CompleteAbort, false) => Ok(Verdict::Done),
        (State::PrepareCommit, true) | (State::PrepareAbort, false) => {
            Err(ErrorKind::ConcurrentTransactions)
        }
        (State::CompleteCommit | State::PrepareCommit, false)
        | (State::CompleteAbort | State::PrepareAbort, true)
        | (State::Empty, _) => Err(ErrorKind::InvalidTxnState),
    }
}

fn judge_v2(value: &TransactionValue, request: &EndTransaction) -> Result<Verdict, ErrorKind> {
    let ProducerIdAndEpoch { producer_id, epoch } = request.producer;
    // Its epochs were used up, and the end went on with a fresh producer id that it did not hear of.
    let is_retry_with_old_id = value.producer_id != producer_id
        && value.previous_producer_id == Some(producer_id)
        && epoch == EPOCH_MAX
        && value.producer_epoch == 0;
    if value.producer_id != producer_id && !is_retry_with_old_id {
        return Err(ErrorKind::InvalidProducerIdMapping);
    }
    // An end of version 0 leaves its producer the epoch: one that is raised all the same fenced it, and is nobody's.
    let is_retry = is_retry_with_old_id
        || (value.producer_id == producer_id
            && value.client_version.raises_epoch()
            && epoch.checked_add(1) == Some(value.producer_epoch));
    let is_current = value.producer_id == producer_id && epoch == value.producer_epoch;
    let may_speak = match value.state {
        State::Ongoing | State::Empty => is_current,
        State::PrepareCommit | State::PrepareAbort => is_retry,
        State::CompleteCommit | State::CompleteAbort => is_retry || is_current,
    };
    if !may_speak {
        return Err(ErrorKind::ProducerFenced);
    }
    match (value.state, request.commit) {
        (State::Ongoing, _) | (State::Empty, false) => Ok(Verdict::End),
        (State::PrepareCommit, true) | (State::PrepareAbort, false) => {
            Err(ErrorKind::ConcurrentTransactions)
        }
        // The coordinator aborted what the client wanted to commit (KAFKA-20785).
        (State::PrepareAbort, true) => Err(ErrorKind::ProducerFenced),
        (State::CompleteAbort, true) if is_retry => Err(ErrorKind::ProducerFenced),
        (State::CompleteCommit, true) | (State::CompleteAbort, false) if is_retry => {
            Ok(Verdict::Done)
        }
        // A client that does not know whether it had begun aborts to be sure.
        (State::CompleteCommit | State::CompleteAbort, false) if !is_retry => Ok(Verdict::End),
        (State::CompleteCommit | State::CompleteAbort | State::Empty, _)
        | (State::PrepareCommit, false) => Err(ErrorKind::InvalidTxnState),
    }
}
