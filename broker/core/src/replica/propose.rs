//! When the leader proposes another in-sync set, and which.

use crate::ids::{BrokerEpoch, BrokerId};
use crate::time::Instant;

use super::isr::{IsrChange, Pending, Proposal};
use super::leader::{Effect, Leader};
use super::progress::Replica;

impl Leader {
    pub(super) fn propose_expand(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.pending.is_some() || now < self.propose_not_before {
            return;
        }
        let mut found = false;
        for position in 0..self.replicas.len() {
            let joins = self.may_join(&self.replicas[position], now);
            self.replicas[position].joining = joins;
            found |= joins;
        }
        if found {
            self.propose(
                IsrChange::Expand,
                |replica| replica.in_isr || replica.joining,
                effects,
            );
        }
    }

    /// A replica may join when it has all that is committed and all that was there when this epoch started, lately
    /// (KAFKA-7128), and the controller would not refuse it.
    pub(super) fn may_join(&self, replica: &Replica, now: Instant) -> bool {
        let reached = self.high_watermark.max(self.epoch_start_offset);
        !replica.in_isr
            && replica.log_end_offset.is_some_and(|end| end >= reached)
            && !self.lags_in_messages(replica)
            && replica.eligible()
            && replica.last_fetch.is_some_and(|last| {
                now.saturating_since(last.at) <= self.settings.replica_lag_time_max
            })
    }

    pub(super) fn propose_shrink(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if now < self.propose_not_before {
            return;
        }
        let me = self.me;
        let (log_end_offset, lag_time_max) =
            (self.log_end_offset, self.settings.replica_lag_time_max);
        let stays = |leader: &Leader, replica: &Replica| {
            replica.broker == me
                || (replica.caught_up(now, log_end_offset, lag_time_max)
                    && !leader.lags_in_messages(replica))
        };
        let all_stay = self
            .replicas
            .iter()
            .filter(|replica| replica.in_isr)
            .all(|replica| stays(self, replica));
        if all_stay {
            return;
        }
        let members: Vec<BrokerId> = self
            .replicas
            .iter()
            .filter(|replica| replica.in_isr && stays(self, replica))
            .map(|replica| replica.broker)
            .collect();
        self.propose(
            IsrChange::Shrink,
            |replica| members.contains(&replica.broker),
            effects,
        );
    }

    pub(super) fn lags_in_messages(&self, replica: &Replica) -> bool {
        match self.settings.replica_lag_messages_max {
            None => false,
            Some(max) => {
                let lag =
                    self.log_end_offset - replica.log_end_offset.unwrap_or(self.log_start_offset);
                lag > max
            }
        }
    }

    pub(super) fn propose(
        &mut self,
        change: IsrChange,
        member: impl Fn(&Replica) -> bool,
        effects: &mut Vec<Effect>,
    ) {
        self.proposal_id_last += 1;
        let new_isr = self
            .replicas
            .iter()
            .filter(|replica| member(replica))
            .map(|replica| {
                let epoch = replica.fetched_epoch.or(replica.standing.epoch());
                (replica.broker, epoch.unwrap_or(BrokerEpoch(-1)))
            })
            .collect();
        let proposal = Proposal {
            id: self.proposal_id_last,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            change,
            new_isr,
        };
        assert!(
            proposal.contains(self.me),
            "a leader never proposes to leave"
        );
        effects.push(Effect::AlterPartition(proposal.clone()));
        self.pending = Some(Pending {
            proposal,
            resend_at: None,
            unanswered_at: None,
        });
    }
}
