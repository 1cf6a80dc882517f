//! JoinGroup: who may join, as whom, and whether that means a rebalance.

use crate::error::ErrorKind;

use super::classic::{Classic, Turn};
use super::member::{Member, milliseconds};
use super::request::{JoinGroup, JoinMember, JoinReply, RequestToken, SyncReply};
use super::state::State;

impl Classic {
    pub(super) fn handle_join(
        &mut self,
        turn: &mut Turn<'_>,
        token: RequestToken,
        request: &JoinGroup,
    ) {
        let reply = if !self.has_room_for(turn, &request.member_id)
            || !self.has_room_for_protocols(turn.settings, request)
        {
            self.turn_away(turn, &request.member_id);
            Some(JoinReply::refused(ErrorKind::GroupMaxSizeReached, ""))
        } else if !self.supports_protocols_of(request) {
            Some(JoinReply::refused(
                ErrorKind::InconsistentGroupProtocol,
                &request.member_id,
            ))
        } else if request.member_id.is_empty() {
            self.join_unknown(turn, token, request)
        } else {
            self.join_known(turn, token, request)
        };
        if let Some(reply) = reply {
            turn.answer_join(token, reply);
        }
    }

    /// Who finds no room is not waited for: a member that comes too late for a limit that was lowered, or one that was
    /// told its id.
    fn turn_away(&mut self, turn: &mut Turn<'_>, member_id: &str) {
        self.pending_join.remove(member_id);
        self.forget_member(turn, member_id);
        self.complete_if_all_joined(turn);
    }

    /// The limit counts those that take part: while members join again, the ones that did.
    fn has_room_for(&self, turn: &Turn<'_>, member_id: &str) -> bool {
        let max = turn.settings.group_size_max;
        let member = self.members.get(member_id);
        match self.state {
            State::Empty | State::Dead => {
                self.pending_join.len() < max || self.pending_join.contains_key(member_id)
            }
            State::PreparingRebalance => {
                let joined = self
                    .members
                    .values()
                    .filter(|member| member.awaiting_join.is_some())
                    .count();
                member.is_some_and(|member| member.awaiting_join.is_some()) || joined < max
            }
            State::CompletingRebalance | State::Stable => {
                member.is_some() || self.members.len() < max
            }
        }
    }

    /// A member without an id. An answer that need not wait is returned, here and below.
    fn join_unknown(
        &mut self,
        turn: &mut Turn<'_>,
        token: RequestToken,
        request: &JoinGroup,
    ) -> Option<JoinReply> {
        let prefix = request
            .group_instance_id
            .as_deref()
            .unwrap_or(&request.client_id);
        let member_id = format!("{prefix}-{}", uuid_text(request.random));
        if let Some(instance_id) = &request.group_instance_id {
            if let Some(old) = self.static_members.get(instance_id).cloned() {
                self.replace_static(turn, token, request, &old, member_id);
                return None;
            }
        } else if request.requires_known_member_id {
            if self.pending_join.len() >= turn.settings.group_size_max {
                return Some(JoinReply::refused(ErrorKind::GroupMaxSizeReached, ""));
            }
            let deadline = turn.now + milliseconds(request.session_timeout_ms);
            self.pending_join.insert(member_id.clone(), deadline);
            return Some(JoinReply::refused(ErrorKind::MemberIdRequired, &member_id));
        }
        self.add_member(turn, token, request, member_id);
        None
    }

    fn join_known(
        &mut self,
        turn: &mut Turn<'_>,
        token: RequestToken,
        request: &JoinGroup,
    ) -> Option<JoinReply> {
        let refused = |error| JoinReply::refused(error, &request.member_id);
        if self.pending_join.contains_key(&request.member_id) {
            // Ids are kept pending only for dynamic members.
            if request.group_instance_id.is_some() {
                return Some(refused(ErrorKind::UnknownMemberId));
            }
            self.add_member(turn, token, request, request.member_id.clone());
            return None;
        }
        let instance_id = request.group_instance_id.as_deref();
        if let Err(error) = self.check_member(&request.member_id, instance_id) {
            return Some(refused(error));
        }
        let same = self
            .members
            .get(&request.member_id)
            .is_some_and(|member| member.protocols == request.protocols);
        let leads = self.leader.as_deref() == Some(request.member_id.as_str());
        match self.state {
            State::PreparingRebalance => {
                self.join_again(turn, token, request);
                self.complete_if_all_joined(turn);
                None
            }
            // It joined already and did not get the answer.
            State::CompletingRebalance if same => Some(self.join_reply(&request.member_id)),
            State::Stable if same && !leads => Some(self.join_reply(&request.member_id)),
            // A leader joins again when partitions or topics changed; it alone sees that.
            State::CompletingRebalance | State::Stable => {
                self.join_again(turn, token, request);
                self.prepare_rebalance(turn);
                None
            }
            State::Empty | State::Dead => Some(refused(ErrorKind::UnknownMemberId)),
        }
    }

    fn add_member(
        &mut self,
        turn: &mut Turn<'_>,
        token: RequestToken,
        request: &JoinGroup,
        member_id: String,
    ) {
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| member_id.clone());
        self.pending_join.remove(&member_id);
        if let Some(instance_id) = &request.group_instance_id {
            self.static_members
                .insert(instance_id.clone(), member_id.clone());
        }
        self.insert_member(member_id, Member::joining(turn.now, token, request));
        if let Some(initial) = self
            .rebalance
            .as_mut()
            .and_then(|rebalance| rebalance.initial.as_mut())
        {
            initial.joined = true;
        }
        self.prepare_rebalance(turn);
    }

    /// A member waits for the next generation. An older request of it that still waits is answered and done with.
    fn join_again(&mut self, turn: &mut Turn<'_>, token: RequestToken, request: &JoinGroup) {
        let Some(member) = self.update_member(request) else {
            return;
        };
        let was_waiting = member.awaiting_join.is_some();
        if let Some(earlier) = member.awaiting_join.replace(token) {
            turn.answer_join(
                earlier,
                JoinReply::refused(ErrorKind::RebalanceInProgress, &request.member_id),
            );
        }
        // A member that never was in a generation keeps its limit; the others live as long as they wait.
        if !was_waiting {
            member.deadline = None;
        }
    }

    /// A static member comes back without knowing its id: it takes the place of who had its instance id, who is
    /// fenced. In a stable group nothing need change but the id, so there is no rebalance (KIP-345).
    fn replace_static(
        &mut self,
        turn: &mut Turn<'_>,
        token: RequestToken,
        request: &JoinGroup,
        old: &str,
        member_id: String,
    ) {
        let Some(mut member) = self.remove_member(old) else {
            return;
        };
        if let Some(waiting) = member.awaiting_join.take() {
            turn.answer_join(
                waiting,
                JoinReply::refused(ErrorKind::FencedInstanceId, old),
            );
        }
        if let Some(waiting) = member.awaiting_sync.take() {
            turn.answer_sync(waiting, SyncReply::refused(ErrorKind::FencedInstanceId));
        }
        member.update(request);
        member.touch(turn.now);
        if let Some(instance_id) = &request.group_instance_id {
            self.static_members
                .insert(instance_id.clone(), member_id.clone());
        }
        if self.pending_sync.remove(old) {
            self.pending_sync.insert(member_id.clone());
        }
        let leads = self.leader.as_deref() == Some(old);
        self.insert_member(member_id.clone(), member);
        if leads {
            self.leader = Some(member_id.clone());
        }
        let record = self.record(turn.group_id);
        let fits = record.bytes_about() <= turn.settings.batch_bytes_max;
        if self.state == State::Stable && fits && self.select_protocol() == self.protocol {
            turn.records.push(record);
            let mut reply = self.join_reply(&member_id);
            if leads && request.supports_skipping_assignment {
                reply.skip_assignment = true;
            } else if leads {
                // An older client would assign anew; told of another leader, it only asks for its assignment.
                reply.leader = old.to_owned();
                reply.members.clear();
            }
            turn.answer_join(token, reply);
            return;
        }
        if let Some(member) = self.members.get_mut(&member_id) {
            member.awaiting_join = Some(token);
            member.deadline = None;
        }
        self.prepare_rebalance(turn);
    }

    /// What a member of the current generation is told.
    pub(super) fn join_reply(&self, member_id: &str) -> JoinReply {
        let protocol = self.protocol.as_deref();
        let leads = self.leader.as_deref() == Some(member_id);
        let described = self.members.iter().map(|(id, member)| JoinMember {
            member_id: id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            metadata: member.metadata(protocol),
        });
        JoinReply {
            error: None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: if leads {
                described.collect()
            } else {
                Vec::new()
            },
        }
    }
}

/// As `java.util.UUID` prints itself, which is how clients and tools know member ids.
fn uuid_text(random: u128) -> String {
    let hex = format!("{random:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
