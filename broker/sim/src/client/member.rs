//! A member of a classic group: joins, gives out or takes its part, sends heartbeats, joins again when it must.

use std::time::Duration;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::heartbeat_request::HeartbeatRequest;
use taffrail_protocol::messages::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use taffrail_protocol::messages::join_group_response::JoinGroupResponse;
use taffrail_protocol::messages::sync_group_request::{
    SyncGroupRequest, SyncGroupRequestAssignment,
};

use super::{Client, ClientEnv, PATIENCE, is_transient};
use crate::history::Event;

const SESSION_TIMEOUT_MS: i32 = 6_000;
const REBALANCE_TIMEOUT_MS: i32 = 4_000;
/// An answer to a join comes when all members have joined, or after the rebalance timeout.
const JOIN_PATIENCE: Duration = Duration::from_secs(8);
const HEARTBEAT_PAUSE_MS: u64 = 1_000;

struct Member {
    client: Client,
    env: ClientEnv,
    group: String,
    coordinator: Option<(String, u16)>,
    member_id: String,
}

/// Takes part in a group until it is told to stop.
pub(crate) async fn take_part(env: ClientEnv, group: String) {
    let mut member = Member {
        client: Client::new(env.clone()),
        env,
        group,
        coordinator: None,
        member_id: String::new(),
    };
    while !member.env.is_stopping() {
        if member.coordinator.is_none() {
            member.coordinator = member.client.coordinator(&member.group).await;
        }
        match member.coordinator.clone() {
            Some(address) => {
                if let Err(code) = member.one_generation(&address).await {
                    member.note_error(code);
                    member.env.pause(100).await;
                }
            }
            None => member.env.pause(300).await,
        }
    }
}

impl Member {
    /// Joins, and stays until it must join again. None stands for no answer.
    async fn one_generation(&mut self, address: &(String, u16)) -> Result<(), Option<i16>> {
        let joined = self.join(address).await?;
        self.member_id.clone_from(&joined.member_id);
        if joined.error_code == ErrorCode::MemberIdRequired.code() {
            return Ok(());
        }
        if joined.error_code != 0 {
            return Err(Some(joined.error_code));
        }
        let assignment = self.sync(address, &joined).await?;
        self.env.history.push(Event::Assigned {
            group: self.group.clone(),
            generation: joined.generation_id,
            member: joined.member_id.clone(),
            assignment,
        });
        while !self.env.is_stopping() {
            self.env.pause(HEARTBEAT_PAUSE_MS).await;
            let request = HeartbeatRequest {
                group_id: self.group.clone(),
                generation_id: joined.generation_id,
                member_id: joined.member_id.clone(),
                ..HeartbeatRequest::default()
            };
            let called = self.client.call(address, &request, 4, PATIENCE).await;
            match called.map_err(|_| None)?.0.error_code {
                0 => {}
                code => return Err(Some(code)),
            }
        }
        Ok(())
    }

    async fn join(&mut self, address: &(String, u16)) -> Result<JoinGroupResponse, Option<i16>> {
        let request = JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            rebalance_timeout_ms: REBALANCE_TIMEOUT_MS,
            member_id: self.member_id.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".to_owned(),
                metadata: Vec::new(),
            }],
            ..JoinGroupRequest::default()
        };
        let called = self.client.call(address, &request, 7, JOIN_PATIENCE).await;
        called.map(|(joined, _)| joined).map_err(|_| None)
    }

    async fn sync(
        &mut self,
        address: &(String, u16),
        joined: &JoinGroupResponse,
    ) -> Result<Vec<u8>, Option<i16>> {
        // Whoever leads says for each member who gave it what, and in which generation.
        let assignments = (joined.members.iter())
            .map(|member| SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: assignment_of(joined, &member.member_id),
            })
            .collect();
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignments,
            ..SyncGroupRequest::default()
        };
        let called = self.client.call(address, &request, 5, JOIN_PATIENCE).await;
        let (synced, _) = called.map_err(|_| None)?;
        match synced.error_code {
            0 => Ok(synced.assignment),
            code => Err(Some(code)),
        }
    }

    fn note_error(&mut self, code: Option<i16>) {
        let known = code.and_then(|code| ErrorCode::try_from(code).ok());
        match (known, code) {
            (Some(ErrorCode::UnknownMemberId), _) => self.member_id.clear(),
            // A new generation is under way, or was missed.
            (Some(ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration), _) => {}
            (_, Some(code)) if !is_transient(code) => {
                self.env
                    .refused(format!("a member of group {}", self.group), code);
                self.coordinator = None;
            }
            (_, _) => self.coordinator = None,
        }
    }
}

/// What the leader of a generation gives a member: text that names all of it.
fn assignment_of(joined: &JoinGroupResponse, member: &str) -> Vec<u8> {
    format!("{} {} {member}", joined.leader, joined.generation_id).into_bytes()
}
