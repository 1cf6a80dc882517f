//! SyncGroup: the leader brings the assignment, everyone takes theirs.

use std::collections::BTreeMap;

use crate::error::ErrorKind;

use super::classic::{Classic, Turn};
use super::record::Bytes;
use super::request::{RequestToken, SyncGroup, SyncReply};
use super::state::State;

impl Classic {
    pub(super) fn handle_sync(
        &mut self,
        turn: &mut Turn<'_>,
        token: RequestToken,
        request: &SyncGroup,
    ) {
        if let Err(error) = self.check_sync(request) {
            turn.answer_sync(token, SyncReply::refused(error));
            return;
        }
        self.synced(&request.member_id);
        let Some(member) = self.members.get_mut(&request.member_id) else {
            return;
        };
        if self.state == State::Stable {
            member.touch(turn.now);
            let reply = self.sync_reply(&request.member_id);
            turn.answer_sync(token, reply);
            return;
        }
        if let Some(earlier) = member.awaiting_sync.replace(token) {
            turn.answer_sync(earlier, SyncReply::refused(ErrorKind::RebalanceInProgress));
        }
        member.deadline = None;
        if self.leader.as_deref() == Some(request.member_id.as_str()) {
            self.settle(turn, &request.assignments);
        }
    }

    fn check_sync(&self, request: &SyncGroup) -> Result<(), ErrorKind> {
        self.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        self.check_generation(request.generation)?;
        let differs =
            |asked: &Option<String>, ours: &Option<String>| asked.is_some() && asked != ours;
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Err(ErrorKind::InconsistentGroupProtocol);
        }
        match self.state {
            State::CompletingRebalance | State::Stable => Ok(()),
            State::PreparingRebalance => Err(ErrorKind::RebalanceInProgress),
            State::Empty | State::Dead => Err(ErrorKind::UnknownMemberId),
        }
    }

    /// The generation is complete: it is written down, and all who wait are answered.
    fn settle(&mut self, turn: &mut Turn<'_>, assignments: &[(String, Bytes)]) {
        let assignments: BTreeMap<&str, &Bytes> = assignments
            .iter()
            .map(|(member_id, assignment)| (member_id.as_str(), assignment))
            .collect();
        for (member_id, member) in &mut self.members {
            let assigned = assignments.get(member_id.as_str());
            member.assignment = assigned
                .map(|bytes| Bytes::clone(bytes))
                .unwrap_or_default();
        }
        self.enter(State::Stable, turn.wall_ms);
        let record = self.record(turn.group_id);
        if record.bytes_about() > turn.settings.batch_bytes_max {
            self.refuse_generation(turn);
            return;
        }
        turn.records.push(record);
        for member_id in self.members.keys().cloned().collect::<Vec<_>>() {
            let reply = self.sync_reply(&member_id);
            if let Some(member) = self.members.get_mut(&member_id)
                && let Some(token) = member.awaiting_sync.take()
            {
                member.touch(turn.now);
                turn.answer_sync(token, reply);
            }
        }
    }

    /// A generation that cannot be written down: Kafka's clients take this error for what it is, not for a reason to
    /// try again. What was assigned is not kept.
    fn refuse_generation(&mut self, turn: &mut Turn<'_>) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::default();
            if let Some(token) = member.awaiting_sync.take() {
                member.touch(turn.now);
                turn.answer_sync(token, SyncReply::refused(ErrorKind::UnknownServerError));
            }
        }
        self.prepare_rebalance(turn);
    }

    fn sync_reply(&self, member_id: &str) -> SyncReply {
        SyncReply {
            error: None,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: self
                .members
                .get(member_id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default(),
        }
    }

    fn synced(&mut self, member_id: &str) {
        self.pending_sync.remove(member_id);
        if self.pending_sync.is_empty() {
            self.pending_sync_deadline = None;
        }
    }
}
