//! One member of a classic group.

use std::time::Duration;

use crate::time::Instant;

use super::record::{Bytes, MemberValue};
use super::request::{JoinGroup, RequestToken};

/// How long a new member may wait for its first rebalance without a sign of life: it cannot heartbeat yet, and the
/// rebalance may take as long as the others' timeouts (Kafka's `CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`).
const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// A member as the coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
    /// The client's `client.id`.
    pub client_id: String,
    /// The address it came from.
    pub client_host: String,
    /// In milliseconds.
    pub rebalance_timeout_ms: i32,
    /// In milliseconds.
    pub session_timeout_ms: i32,
    /// Supported protocols and the metadata for each, preferred first.
    pub protocols: Vec<(String, Bytes)>,
    /// Of the current generation; empty until the leader assigned.
    pub assignment: Bytes,
    pub(super) awaiting_join: Option<RequestToken>,
    pub(super) awaiting_sync: Option<RequestToken>,
    /// When its session ends; `None` while a request of it waits here, for then it cannot heartbeat.
    pub(super) deadline: Option<Instant>,
}

impl Member {
    /// A member that never took part in a rebalance.
    pub(super) fn joining(now: Instant, token: RequestToken, request: &JoinGroup) -> Member {
        Member {
            group_instance_id: request.group_instance_id.clone(),
            client_id: request.client_id.clone(),
            client_host: request.client_host.clone(),
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocols: request.protocols.clone(),
            assignment: Bytes::default(),
            awaiting_join: Some(token),
            awaiting_sync: None,
            deadline: Some(now + NEW_MEMBER_JOIN_TIMEOUT),
        }
    }

    /// A member of a generation that was read from the log. Its session starts now.
    pub(super) fn loaded(now: Instant, protocol: Option<&str>, value: &MemberValue) -> Member {
        let mut member = Member {
            group_instance_id: value.group_instance_id.clone(),
            client_id: value.client_id.clone(),
            client_host: value.client_host.clone(),
            rebalance_timeout_ms: value.rebalance_timeout_ms,
            session_timeout_ms: value.session_timeout_ms,
            protocols: vec![(
                protocol.unwrap_or_default().to_owned(),
                value.subscription.clone(),
            )],
            assignment: value.assignment.clone(),
            awaiting_join: None,
            awaiting_sync: None,
            deadline: None,
        };
        member.touch(now);
        member
    }

    pub(super) fn value(&self, member_id: &str, protocol: Option<&str>) -> MemberValue {
        MemberValue {
            member_id: member_id.to_owned(),
            group_instance_id: self.group_instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            subscription: self.metadata(protocol),
            assignment: self.assignment.clone(),
        }
    }

    /// Takes what a member says of itself when it joins again.
    pub(super) fn update(&mut self, request: &JoinGroup) {
        self.client_id.clone_from(&request.client_id);
        self.client_host.clone_from(&request.client_host);
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        self.session_timeout_ms = request.session_timeout_ms;
        self.protocols.clone_from(&request.protocols);
    }

    /// Its session goes on from now.
    pub(super) fn touch(&mut self, now: Instant) {
        self.deadline = Some(now + milliseconds(self.session_timeout_ms));
    }

    /// Its metadata for a protocol; empty if it has none.
    pub fn metadata(&self, protocol: Option<&str>) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| Some(name.as_str()) == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }
}

/// A time-out of the wire as a duration; a negative one is none at all.
pub(super) fn milliseconds(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
