//! One coordinator at work: decide, append, apply, then answer when the high watermark has passed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{
    Coordinator, Decision, Effect, JoinReply, Record, RequestToken, SyncReply,
};
use taffrail_core::ids::LeaderEpoch;
use taffrail_core::replica::Acknowledgement;
use taffrail_core::time::Instant;
use tokio::sync::oneshot;

use super::bytes;
use crate::broker::Broker;
use crate::env::Env;
use crate::partition::Partition;
use crate::replication::Waiter;

/// A reply with the offset that must be committed before it is given.
#[derive(Debug)]
pub(super) struct Reply<R> {
    pub(super) reply: R,
    pub(super) end_offset: i64,
}

/// One partition's coordinator in one leader epoch.
pub(super) struct Shard<E: Env> {
    partition: Arc<Partition<E>>,
    epoch: LeaderEpoch,
    state: Mutex<State>,
}

struct State {
    coordinator: Coordinator,
    joins: BTreeMap<RequestToken, oneshot::Sender<Reply<JoinReply>>>,
    syncs: BTreeMap<RequestToken, oneshot::Sender<Reply<SyncReply>>>,
    next_token: u64,
    effects: Vec<Effect>,
    /// Exclusive end of what this coordinator, or one before it, appended.
    end_offset: i64,
    /// An append failed: nothing may be decided any more.
    failed: bool,
}

/// What decides: the coordinator, its effects, and the two clocks.
pub(super) struct Turn<'a> {
    pub(super) coordinator: &'a mut Coordinator,
    pub(super) effects: &'a mut Vec<Effect>,
    pub(super) now: Instant,
    pub(super) wall_ms: i64,
}

impl<E: Env> Shard<E> {
    /// A coordinator that has read its log up to `end_offset`.
    pub(super) fn new(
        partition: Arc<Partition<E>>,
        epoch: LeaderEpoch,
        coordinator: Coordinator,
        end_offset: i64,
    ) -> Arc<Self> {
        Arc::new(Self {
            partition,
            epoch,
            state: Mutex::new(State {
                coordinator,
                joins: BTreeMap::new(),
                syncs: BTreeMap::new(),
                next_token: 0,
                effects: Vec::new(),
                end_offset,
                failed: false,
            }),
        })
    }

    pub(super) fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Decides nothing any more: everybody who waits is told to look elsewhere.
    pub(super) fn retire(&self) {
        self.lock().fail();
    }

    pub(super) fn partition(&self) -> &Arc<Partition<E>> {
        &self.partition
    }

    /// Looks at the coordinator without deciding.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Coordinator) -> R) -> R {
        look(&self.lock().coordinator)
    }

    /// As `look`, for an answer that promises nothing: it may speak of what is not replicated yet, or of the past if this
    /// broker stood still, and is given at once, also where too few replicas are in sync for anything to be decided.
    pub(super) fn read<R>(&self, look: impl FnOnce(&Coordinator) -> R) -> Result<R, ErrorKind> {
        let state = self.lock();
        if state.failed {
            return Err(ErrorKind::NotCoordinator);
        }
        Ok(look(&state.coordinator))
    }

    /// A heartbeat changes no replicated state and is answered at once.
    pub(super) fn heartbeat(
        &self,
        now: Instant,
        request: &taffrail_core::group::Heartbeat,
    ) -> Result<(), ErrorKind> {
        let mut state = self.lock();
        if state.failed {
            return Err(ErrorKind::NotCoordinator);
        }
        state.coordinator.handle_heartbeat(now, request)
    }

    /// Decides, appends and applies. The reply is for [`Shard::committed`].
    pub(super) fn decide<R>(
        self: &Arc<Self>,
        broker: &Arc<Broker<E>>,
        decide: impl FnOnce(Turn<'_>) -> Decision<R>,
    ) -> Result<Reply<R>, ErrorKind> {
        let mut state = self.lock();
        let reply = self.decide_locked(&mut state, broker, decide);
        let failed = state.failed;
        drop(state);
        if failed {
            broker.groups.reload(broker, self);
        }
        broker.groups.wake_timer();
        reply
    }

    /// As `decide`, for a JoinGroup: its reply comes by the receiver.
    pub(super) fn join(
        self: &Arc<Self>,
        broker: &Arc<Broker<E>>,
        decide: impl FnOnce(Turn<'_>, RequestToken) -> Vec<Record>,
    ) -> Result<oneshot::Receiver<Reply<JoinReply>>, ErrorKind> {
        let (sender, receiver) = oneshot::channel();
        let token = {
            let mut state = self.lock();
            let token = state.take_token();
            state.joins.retain(|_, waiting| !waiting.is_closed());
            state.joins.insert(token, sender);
            token
        };
        self.decide(broker, |turn| Decision {
            records: decide(turn, token),
            reply: (),
        })?;
        Ok(receiver)
    }

    /// As `join`, for a SyncGroup.
    pub(super) fn sync(
        self: &Arc<Self>,
        broker: &Arc<Broker<E>>,
        decide: impl FnOnce(Turn<'_>, RequestToken) -> Vec<Record>,
    ) -> Result<oneshot::Receiver<Reply<SyncReply>>, ErrorKind> {
        let (sender, receiver) = oneshot::channel();
        let token = {
            let mut state = self.lock();
            let token = state.take_token();
            state.syncs.retain(|_, waiting| !waiting.is_closed());
            state.syncs.insert(token, sender);
            token
        };
        self.decide(broker, |turn| Decision {
            records: decide(turn, token),
            reply: (),
        })?;
        Ok(receiver)
    }

    /// Time passed.
    pub(super) fn handle_timeout(self: &Arc<Self>, broker: &Arc<Broker<E>>, now: Instant) {
        let due = self.next_deadline().is_some_and(|deadline| deadline <= now);
        if !due {
            return;
        }
        let decided = self.decide_quietly(broker, |turn| Decision {
            records: turn
                .coordinator
                .handle_timeout(turn.now, turn.wall_ms, turn.effects),
            reply: (),
        });
        if let Err(error) = decided {
            tracing::debug!(partition = %self.partition.name(), ?error, "a coordinator's timers had to wait");
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let state = self.lock();
        if state.failed {
            None
        } else {
            state.coordinator.next_deadline()
        }
    }

    /// As `decide`, but called by the timer, which it need not wake.
    pub(super) fn decide_quietly<R>(
        self: &Arc<Self>,
        broker: &Arc<Broker<E>>,
        decide: impl FnOnce(Turn<'_>) -> Decision<R>,
    ) -> Result<Reply<R>, ErrorKind> {
        let mut state = self.lock();
        let reply = self.decide_locked(&mut state, broker, decide);
        let failed = state.failed;
        drop(state);
        if failed {
            broker.groups.reload(broker, self);
        }
        reply
    }

    /// Waits until what a reply speaks of is committed.
    pub(super) async fn committed<R>(
        &self,
        broker: &Arc<Broker<E>>,
        reply: Reply<R>,
    ) -> Result<R, ErrorKind> {
        let deadline = broker.env.now() + broker.groups.commit_timeout;
        self.committed_by(broker, reply.end_offset, deadline)
            .await?;
        Ok(reply.reply)
    }

    /// As `committed`, of what ends at this offset, until this deadline.
    pub(super) async fn committed_by(
        &self,
        broker: &Broker<E>,
        end_offset: i64,
        deadline: Instant,
    ) -> Result<(), ErrorKind> {
        loop {
            let waiter = Waiter::new(1);
            match self
                .partition
                .wait_for_commit(end_offset, self.epoch, &waiter)
                .map_err(|_| ErrorKind::NotCoordinator)?
            {
                Acknowledgement::Committed => return Ok(()),
                Acknowledgement::TooFew => return Err(ErrorKind::CoordinatorNotAvailable),
                Acknowledgement::Waiting => {}
            }
            if broker.env.now() >= deadline {
                return Err(ErrorKind::CoordinatorNotAvailable);
            }
            waiter.wait(&broker.env, deadline).await;
        }
    }

    /// Has the proof begin that [`Shard::coordinated_until`] waits for. It goes on as long as the waiter is held, also while
    /// something else is waited for.
    pub(super) fn begin_proof(&self, moment: Instant) -> Arc<Waiter> {
        let waiter = Waiter::new(1);
        // Whether it is complete, or cannot be, is asked again by whoever needs it.
        let _ = self.partition.prove_leadership(self.epoch, moment, &waiter);
        waiter
    }

    /// Waits until it is certain that no other broker coordinated before `moment`, so that what was decided here until then is all
    /// that was decided.
    pub(super) async fn coordinated_until(
        &self,
        broker: &Broker<E>,
        moment: Instant,
        deadline: Instant,
    ) -> Result<(), ErrorKind> {
        loop {
            let waiter = Waiter::new(1);
            let proven = self
                .partition
                .prove_leadership(self.epoch, moment, &waiter)
                .map_err(|_| ErrorKind::NotCoordinator)?;
            if proven {
                return Ok(());
            }
            if broker.env.now() >= deadline {
                return Err(ErrorKind::NotCoordinator);
            }
            waiter.wait(&broker.env, deadline).await;
        }
    }

    fn decide_locked<R>(
        &self,
        state: &mut State,
        broker: &Broker<E>,
        decide: impl FnOnce(Turn<'_>) -> Decision<R>,
    ) -> Result<Reply<R>, ErrorKind> {
        if state.failed {
            return Err(ErrorKind::NotCoordinator);
        }
        // Asked before, so that a passing lack of replicas does not cost the coordinator.
        self.partition
            .check_own_append(self.epoch)
            .map_err(refusal)?;
        let (now, wall_ms) = (broker.env.now(), broker.env.wall_ms());
        let mut effects = std::mem::take(&mut state.effects);
        let decision = decide(Turn {
            coordinator: &mut state.coordinator,
            effects: &mut effects,
            now,
            wall_ms,
        });
        for records in bytes::batches(&decision.records, broker.groups.settings.batch_bytes_max) {
            let appended = bytes::encode(records, wall_ms)
                .map_err(|reason| tracing::error!(reason, "a coordinator's records cannot be written"))
                .and_then(|mut batch| {
                    self.partition.append_own(&broker.env, self.epoch, &mut batch).map_err(|error| {
                        tracing::warn!(partition = %self.partition.name(), ?error, "a coordinator could not append");
                    })
                });
            match appended {
                Ok(appended) => state.end_offset = appended.end_offset,
                Err(()) => {
                    state.fail();
                    return Err(ErrorKind::NotCoordinator);
                }
            }
            for record in records {
                state.coordinator.apply(record);
            }
        }
        state.release(&mut effects);
        state.effects = effects;
        Ok(Reply {
            reply: decision.reply,
            end_offset: state.end_offset,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }
}

impl State {
    fn take_token(&mut self) -> RequestToken {
        self.next_token += 1;
        RequestToken(self.next_token)
    }

    /// Hands replies to those that wait; a client that went away has dropped its receiver.
    fn release(&mut self, effects: &mut Vec<Effect>) {
        let end_offset = self.end_offset;
        for effect in effects.drain(..) {
            match effect {
                Effect::JoinAnswered { token, reply } => {
                    if let Some(waiting) = self.joins.remove(&token) {
                        let _gone = waiting.send(Reply { reply, end_offset });
                    }
                }
                Effect::SyncAnswered { token, reply } => {
                    if let Some(waiting) = self.syncs.remove(&token) {
                        let _gone = waiting.send(Reply { reply, end_offset });
                    }
                }
            }
        }
    }

    /// Drops the senders, so that everybody who waits is told to ask again.
    fn fail(&mut self) {
        self.failed = true;
        self.joins.clear();
        self.syncs.clear();
    }
}

/// What a client is told when its coordinator may not append (KAFKA-3590): to ask again here, or elsewhere.
fn refusal(error: ErrorKind) -> ErrorKind {
    match error {
        ErrorKind::NotEnoughReplicas | ErrorKind::KafkaStorageError => {
            ErrorKind::CoordinatorNotAvailable
        }
        _ => ErrorKind::NotCoordinator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_replicas_is_told_as_something_that_passes() {
        let check = |error, expected| assert_eq!(refusal(error), expected);
        check(
            ErrorKind::NotEnoughReplicas,
            ErrorKind::CoordinatorNotAvailable,
        );
        check(ErrorKind::NotLeaderOrFollower, ErrorKind::NotCoordinator);
    }
}
