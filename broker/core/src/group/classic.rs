//! The volatile part of a group: its members, its generation, who waits for what. See [`State`] for the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::time::Instant;

use super::member::{Member, milliseconds};
use super::protocols::Supporters;
use super::record::{GroupValue, Record};
use super::request::{Effect, Heartbeat, JoinReply, RequestToken, SyncReply};
use super::settings::Settings;
use super::state::State;

/// What one event of one group sees, and what it leaves behind.
pub(super) struct Turn<'a> {
    pub(super) now: Instant,
    /// Milliseconds since 1970; only stamps what is written.
    pub(super) wall_ms: i64,
    pub(super) settings: &'a Settings,
    pub(super) group_id: &'a str,
    pub(super) records: Vec<Record>,
    pub(super) effects: &'a mut Vec<Effect>,
}

impl Turn<'_> {
    pub(super) fn answer_join(&mut self, token: RequestToken, reply: JoinReply) {
        self.effects.push(Effect::JoinAnswered { token, reply });
    }

    pub(super) fn answer_sync(&mut self, token: RequestToken, reply: SyncReply) {
        self.effects.push(Effect::SyncAnswered { token, reply });
    }
}

/// A rebalance that waits for members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rebalance {
    pub(super) deadline: Instant,
    /// The first one of an empty group waits its delay out, and longer while members keep coming.
    pub(super) initial: Option<InitialDelay>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InitialDelay {
    /// How much longer than `deadline` it may become.
    pub(super) remaining: Duration,
    /// Whether members came since the last look.
    pub(super) joined: bool,
}

/// A classic group's members and generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classic {
    pub(super) state: State,
    pub(super) protocol_type: Option<String>,
    pub(super) generation: i32,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    /// Changed by [`Classic::insert_member`] and those beside it only.
    pub(super) members: BTreeMap<String, Member>,
    /// Of those members.
    pub(super) supporters: Supporters,
    /// Instance id → member id.
    pub(super) static_members: BTreeMap<String, String>,
    /// Ids given out with MEMBER_ID_REQUIRED, until the member joins with it.
    pub(super) pending_join: BTreeMap<String, Instant>,
    /// Members of this generation that have not asked for their assignment.
    pub(super) pending_sync: BTreeSet<String>,
    pub(super) pending_sync_deadline: Option<Instant>,
    pub(super) rebalance: Option<Rebalance>,
    /// When it entered its state, milliseconds since 1970; −1 = not known.
    pub(super) state_timestamp: i64,
}

impl Classic {
    /// The group as the log last told of it. Sessions start now.
    pub(super) fn loaded(now: Instant, value: &GroupValue) -> Classic {
        let protocol = value.protocol.as_deref();
        let members: BTreeMap<String, Member> = value
            .members
            .iter()
            .map(|member| {
                (
                    member.member_id.clone(),
                    Member::loaded(now, protocol, member),
                )
            })
            .collect();
        let static_members = value
            .members
            .iter()
            .filter_map(|member| {
                Some((member.group_instance_id.clone()?, member.member_id.clone()))
            })
            .collect();
        Classic {
            state: if members.is_empty() {
                State::Empty
            } else {
                State::Stable
            },
            protocol_type: Some(value.protocol_type.clone()).filter(|name| !name.is_empty()),
            generation: value.generation,
            protocol: value.protocol.clone(),
            leader: value
                .leader
                .clone()
                .filter(|leader| members.contains_key(leader)),
            supporters: Supporters::of(members.values()),
            members,
            static_members,
            state_timestamp: value.state_timestamp,
            ..Classic::default()
        }
    }

    /// The settled generation as the log is to have it.
    pub(super) fn record(&self, group_id: &str) -> Record {
        let protocol = self.protocol.as_deref();
        let value = GroupValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_timestamp: self.state_timestamp,
            members: self
                .members
                .iter()
                .map(|(id, member)| member.value(id, protocol))
                .collect(),
        };
        Record::Group {
            group_id: Arc::from(group_id),
            value: Some(value),
        }
    }

    /// Where the group stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// `consumer` for consumers; `None` if nobody ever joined.
    pub fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    /// The chosen protocol.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The current generation; 0 before the first.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// The member that computes assignments.
    pub fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    /// All members by id.
    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Ids that were given out and not yet joined with.
    pub fn pending_members(&self) -> impl Iterator<Item = &str> {
        self.pending_join.keys().map(String::as_str)
    }

    /// Whether nobody is a member or about to become one.
    pub(super) fn is_vacant(&self) -> bool {
        self.members.is_empty() && self.pending_join.is_empty()
    }

    pub(super) fn enter(&mut self, state: State, wall_ms: i64) {
        self.state = state;
        self.state_timestamp = wall_ms;
    }

    /// A sign of life.
    pub(super) fn handle_heartbeat(
        &mut self,
        now: Instant,
        request: &Heartbeat,
    ) -> Result<(), ErrorKind> {
        self.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        self.check_generation(request.generation)?;
        self.touch(now, &request.member_id);
        match self.state {
            State::Stable | State::CompletingRebalance => Ok(()),
            State::PreparingRebalance => Err(ErrorKind::RebalanceInProgress),
            State::Empty | State::Dead => Err(ErrorKind::UnknownMemberId),
        }
    }

    /// Whether this is a member, and the one that holds its instance id.
    pub(super) fn check_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ErrorKind> {
        if let Some(instance_id) = instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorKind::UnknownMemberId),
                Some(holder) if holder != member_id => return Err(ErrorKind::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) {
            Ok(())
        } else {
            Err(ErrorKind::UnknownMemberId)
        }
    }

    pub(super) fn check_generation(&self, generation: i32) -> Result<(), ErrorKind> {
        if generation == self.generation {
            Ok(())
        } else {
            Err(ErrorKind::IllegalGeneration)
        }
    }

    /// A member with a request that waits is alive without this.
    pub(super) fn touch(&mut self, now: Instant, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id)
            && member.awaiting_join.is_none()
            && member.awaiting_sync.is_none()
        {
            member.touch(now);
        }
    }

    /// The longest rebalance timeout of all members: each may need it to finish what it does and join again.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        let longest = self
            .members
            .values()
            .map(|member| member.rebalance_timeout_ms)
            .max();
        milliseconds(longest.unwrap_or(0))
    }

    /// When something happens by time alone.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let sessions = self.members.values().filter_map(|member| member.deadline);
        sessions
            .chain(self.pending_join.values().copied())
            .chain(self.pending_sync_deadline)
            .chain(self.rebalance.as_ref().map(|rebalance| rebalance.deadline))
            .min()
    }
}
