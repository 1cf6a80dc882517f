//! A rebalance from its start to the next generation, and how members go.

use crate::error::ErrorKind;

use super::classic::{Classic, InitialDelay, Rebalance, Turn};
use super::request::{JoinReply, LeaveMember, SyncReply};
use super::state::State;

impl Classic {
    /// All members are asked to join again, or the rebalance that runs is complete with this change.
    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance {
            self.complete_if_all_joined(turn);
            return;
        }
        for member in self.members.values_mut() {
            if let Some(token) = member.awaiting_sync.take() {
                member.touch(turn.now);
                turn.answer_sync(token, SyncReply::refused(ErrorKind::RebalanceInProgress));
            }
        }
        self.pending_sync.clear();
        self.pending_sync_deadline = None;
        let timeout = self.rebalance_timeout();
        let delay = turn.settings.initial_rebalance_delay;
        let first = self.state == State::Empty && !delay.is_zero();
        self.rebalance = Some(if first {
            let remaining = timeout.saturating_sub(delay);
            Rebalance {
                deadline: turn.now + delay,
                initial: Some(InitialDelay {
                    remaining,
                    joined: false,
                }),
            }
        } else {
            Rebalance {
                deadline: turn.now + timeout,
                initial: None,
            }
        });
        self.enter(State::PreparingRebalance, turn.wall_ms);
        self.complete_if_all_joined(turn);
    }

    /// Completes a rebalance that nobody is missing in. An initial delay is waited out.
    pub(super) fn complete_if_all_joined(&mut self, turn: &mut Turn<'_>) {
        let delayed = self
            .rebalance
            .as_ref()
            .is_some_and(|rebalance| rebalance.initial.is_some());
        if self.state == State::PreparingRebalance
            && !delayed
            && self.pending_join.is_empty()
            && self
                .members
                .values()
                .all(|member| member.awaiting_join.is_some())
        {
            self.complete_rebalance(turn);
        }
    }

    /// The rebalance's time is up: an initial delay may be prolonged, else it goes on with who is there.
    pub(super) fn handle_rebalance_timeout(&mut self, turn: &mut Turn<'_>) {
        if let Some(rebalance) = &mut self.rebalance
            && let Some(initial) = &mut rebalance.initial
            && initial.joined
            && !initial.remaining.is_zero()
        {
            let longer = turn.settings.initial_rebalance_delay.min(initial.remaining);
            initial.remaining -= longer;
            initial.joined = false;
            rebalance.deadline = turn.now + longer;
            return;
        }
        self.complete_rebalance(turn);
    }

    /// The next generation: of those that joined and of static members, who may be away until their session ends.
    fn complete_rebalance(&mut self, turn: &mut Turn<'_>) {
        let missing: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| {
                member.awaiting_join.is_none() && member.group_instance_id.is_none()
            })
            .map(|(id, _)| id.clone())
            .collect();
        for member_id in &missing {
            self.forget_member(turn, member_id);
        }
        if !self.leader_has_joined() && !self.members.is_empty() {
            // Only static members, none of them here: nobody could lead. Wait another round.
            let deadline = turn.now + self.rebalance_timeout();
            self.rebalance = Some(Rebalance {
                deadline,
                initial: None,
            });
            return;
        }
        self.rebalance = None;
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if self.members.is_empty() {
            self.protocol = None;
            self.leader = None;
            self.enter(State::Empty, turn.wall_ms);
            turn.records.push(self.record(turn.group_id));
            return;
        }
        self.protocol = self.select_protocol();
        self.enter(State::CompletingRebalance, turn.wall_ms);
        self.pending_sync = self.members.keys().cloned().collect();
        self.pending_sync_deadline = Some(turn.now + self.rebalance_timeout());
        for member_id in self.pending_sync.clone() {
            let reply = self.join_reply(&member_id);
            if let Some(member) = self.members.get_mut(&member_id)
                && let Some(token) = member.awaiting_join.take()
            {
                member.touch(turn.now);
                turn.answer_join(token, reply);
            }
        }
    }

    /// Makes sure that the leader is one that joined, if any did.
    fn leader_has_joined(&mut self) -> bool {
        let joined = |id: &String| {
            self.members
                .get(id)
                .is_some_and(|member| member.awaiting_join.is_some())
        };
        if self.leader.as_ref().is_some_and(joined) {
            return true;
        }
        let first = self.members.keys().find(|id| joined(id)).cloned();
        match first {
            Some(member_id) => {
                self.leader = Some(member_id);
                true
            }
            None => false,
        }
    }

    /// Members leave of their own will, or by an operator's. All go before the others are asked to join, so that one
    /// rebalance is enough.
    pub(super) fn handle_leave(
        &mut self,
        turn: &mut Turn<'_>,
        leaving: &[LeaveMember],
    ) -> Vec<(LeaveMember, Option<ErrorKind>)> {
        let before = self.members.len();
        let mut leave = |member: &LeaveMember| (member.clone(), self.leave(turn, member).err());
        let results = leaving.iter().map(&mut leave).collect();
        if self.members.len() < before {
            self.go_on_without(turn);
        } else {
            // One that was only told its id may have been the last to be waited for.
            self.complete_if_all_joined(turn);
        }
        results
    }

    fn leave(&mut self, turn: &mut Turn<'_>, leaving: &LeaveMember) -> Result<(), ErrorKind> {
        let member_id = match &leaving.group_instance_id {
            None => leaving.member_id.clone(),
            Some(instance_id) => match self.static_members.get(instance_id) {
                None => return Err(ErrorKind::UnknownMemberId),
                Some(holder) if !leaving.member_id.is_empty() && *holder != leaving.member_id => {
                    return Err(ErrorKind::FencedInstanceId);
                }
                Some(holder) => holder.clone(),
            },
        };
        if self.pending_join.remove(&member_id).is_some() {
            return Ok(());
        }
        if !self.members.contains_key(&member_id) {
            return Err(ErrorKind::UnknownMemberId);
        }
        self.forget_member(turn, &member_id);
        Ok(())
    }

    /// Members are gone, and the others share what they had.
    pub(super) fn go_on_without(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(turn),
            State::PreparingRebalance => self.complete_if_all_joined(turn),
            State::Empty | State::Dead => {}
        }
    }

    pub(super) fn forget_member(&mut self, turn: &mut Turn<'_>, member_id: &str) {
        let Some(member) = self.remove_member(member_id) else {
            return;
        };
        if let Some(token) = member.awaiting_join {
            turn.answer_join(
                token,
                JoinReply::refused(ErrorKind::UnknownMemberId, member_id),
            );
        }
        if let Some(token) = member.awaiting_sync {
            turn.answer_sync(token, SyncReply::refused(ErrorKind::UnknownMemberId));
        }
        if let Some(instance_id) = &member.group_instance_id
            && self
                .static_members
                .get(instance_id)
                .is_some_and(|holder| holder == member_id)
        {
            self.static_members.remove(instance_id);
        }
        self.pending_sync.remove(member_id);
        if self.leader.as_deref() == Some(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
    }
}
