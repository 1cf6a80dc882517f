//! Proof that nobody else leads, for what is answered out of a leader's memory. What is written is acknowledged by the other
//! replicas, but what is read is not asked of them, and a leader that stood still does not know that it was replaced. Silence
//! proves nothing, since leadership also moves without any, and neither does a fetch that came in just now: it may have been
//! sent long ago. So all others that may lead are made to fetch anew (as Raft's ReadIndex asks a majority): their long polls
//! end, and a fetch that follows an answer given after the question is the proof.

use std::collections::VecDeque;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::{BrokerId, LeaderEpoch};
use taffrail_core::replica::Leader;
use taffrail_core::time::Instant;

use super::{Partition, Replica, Role};
use crate::env::Env;
use crate::replication::Waiter;

/// Those that wait for a proof, by the moment that it has to cover, the earliest first: what covers one covers those before it.
#[derive(Debug, Default)]
pub(super) struct ProofWaiters(VecDeque<(Instant, Arc<Waiter>)>);

impl ProofWaiters {
    fn add(&mut self, moment: Instant, waiter: &Arc<Waiter>) {
        // Those that gave up leave with the next one that comes.
        self.0
            .retain(|(_, waiter)| Arc::strong_count(waiter) > 1 && !waiter.is_over());
        let at = self.0.partition_point(|(other, _)| *other <= moment);
        self.0.insert(at, (moment, Arc::clone(waiter)));
    }

    /// Whether somebody waits for a later fetch of this follower.
    pub(super) fn need_fetch_of(&self, leader: &Leader, broker: BrokerId) -> bool {
        let latest = self.0.back();
        latest.is_some_and(|(moment, _)| leader.needs_fetch_of(broker, *moment))
    }

    pub(super) fn wake_all(&mut self) {
        for (_, waiter) in self.0.drain(..) {
            waiter.wake();
        }
    }
}

impl<E: Env> Partition<E> {
    /// Whether nobody else led before `moment`; if that is not known yet, has followers fetch, and wakes the waiter when it
    /// is worth asking again.
    ///
    /// # Errors
    /// [`ErrorKind::NotLeaderOrFollower`] if this replica does not lead in that epoch.
    pub(crate) fn prove_leadership(
        &self,
        leader_epoch: LeaderEpoch,
        moment: Instant,
        waiter: &Arc<Waiter>,
    ) -> Result<bool, ErrorKind> {
        let mut replica = self.lock();
        let led = match &replica.role {
            Role::Leader(leader) if leader.leader_epoch() == leader_epoch => {
                leader.led_until(moment)
            }
            Role::Leader(_) | Role::Follower(_) | Role::Idle => {
                return Err(ErrorKind::NotLeaderOrFollower);
            }
        };
        if !led {
            replica.proof_waiters.add(moment, waiter);
            replica.waiters.end_polls_of_followers();
        }
        Ok(led)
    }
}

impl<E: Env> Replica<E> {
    /// Wakes those whose proof is complete.
    pub(super) fn wake_proven(&mut self) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        let waiting = &mut self.proof_waiters.0;
        while let Some((_, waiter)) = waiting.pop_front_if(|(moment, _)| leader.led_until(*moment))
        {
            waiter.wake();
        }
    }
}
