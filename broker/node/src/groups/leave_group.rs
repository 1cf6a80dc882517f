//! LeaveGroup: members go, and the others rebalance at once instead of after a session timeout.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{LeaveGroup, LeaveMember, LeaveReply};
use taffrail_protocol::messages::LeaveGroupRequest;
use taffrail_protocol::messages::leave_group_response::{LeaveGroupResponse, MemberResponse};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::optional_code;

/// First version that names several members.
const BATCH_VERSION: i16 = 3;

/// Handles a LeaveGroup request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let reply = leave(&broker, &context, request)
        .await
        .unwrap_or_else(|error| LeaveReply {
            error: Some(error),
            members: Vec::new(),
        });
    if context.version < BATCH_VERSION {
        let error = reply
            .error
            .or_else(|| reply.members.first().and_then(|(_, error)| *error));
        return LeaveGroupResponse {
            error_code: optional_code(error),
            ..LeaveGroupResponse::default()
        };
    }
    LeaveGroupResponse {
        error_code: optional_code(reply.error),
        members: reply
            .members
            .into_iter()
            .map(|(member, error)| MemberResponse {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                error_code: optional_code(error),
            })
            .collect(),
        ..LeaveGroupResponse::default()
    }
}

async fn leave<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: LeaveGroupRequest,
) -> Result<LeaveReply, ErrorKind> {
    if !broker.authorizer.allows(
        &context.principal,
        access_of(context.api),
        &request.group_id,
    ) {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    let shard = broker
        .groups
        .shard_of(&broker.cluster.image(), &request.group_id)?;
    let members = if context.version < BATCH_VERSION {
        vec![LeaveMember {
            member_id: request.member_id,
            group_instance_id: None,
        }]
    } else {
        let named = request.members.into_iter();
        named
            .map(|member| LeaveMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
            })
            .collect()
    };
    let request = LeaveGroup {
        group_id: request.group_id,
        members,
    };
    let reply = shard.decide(broker, |turn| {
        turn.coordinator
            .handle_leave_group(turn.now, turn.wall_ms, &request, turn.effects)
    })?;
    shard.committed(broker, reply).await
}
