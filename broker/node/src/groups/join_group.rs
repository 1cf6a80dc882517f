//! JoinGroup: a member wants to be part of the next generation.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{JoinGroup, JoinReply, check_protocols};
use taffrail_protocol::messages::JoinGroupRequest;
use taffrail_protocol::messages::join_group_response::{
    JoinGroupResponse, JoinGroupResponseMember,
};

use super::soon::{begins_by, shard_soon};
use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::{Env, random_id};
use crate::errors::optional_code;

/// First version that names the protocol with null.
const NULL_PROTOCOL_VERSION: i16 = 7;

/// Handles a JoinGroup request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let member_id = request.member_id.clone();
    let reply = join(&broker, &context, request)
        .await
        .unwrap_or_else(|error| JoinReply {
            error: Some(error),
            generation: -1,
            member_id,
            ..JoinReply::default()
        });
    JoinGroupResponse {
        error_code: optional_code(reply.error),
        generation_id: reply.generation,
        protocol_type: reply.protocol_type,
        protocol_name: if context.version >= NULL_PROTOCOL_VERSION {
            reply.protocol
        } else {
            Some(reply.protocol.unwrap_or_default())
        },
        leader: reply.leader,
        skip_assignment: reply.skip_assignment,
        member_id: reply.member_id,
        members: reply
            .members
            .into_iter()
            .map(|member| JoinGroupResponseMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                metadata: member.metadata.to_vec(),
            })
            .collect(),
        ..JoinGroupResponse::default()
    }
}

async fn join<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: JoinGroupRequest,
) -> Result<JoinReply, ErrorKind> {
    if !broker.authorizer.allows(
        &context.principal,
        access_of(context.api),
        &request.group_id,
    ) {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    if request.group_id.is_empty() {
        return Err(ErrorKind::InvalidGroupId);
    }
    let shard = shard_soon(broker, &request.group_id, begins_by(broker)).await?;
    let protocols = request.protocols.iter();
    let protocols = protocols.map(|protocol| (protocol.name.as_str(), protocol.metadata.len()));
    check_protocols(&broker.groups.settings, protocols)?;
    let request = JoinGroup {
        group_id: request.group_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        client_id: context.client_id.clone().unwrap_or_default(),
        client_host: format!("/{}", context.host),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: if context.version >= 1 {
            request.rebalance_timeout_ms
        } else {
            request.session_timeout_ms
        },
        protocol_type: request.protocol_type,
        protocols: request
            .protocols
            .into_iter()
            .map(|protocol| (protocol.name, Arc::from(protocol.metadata)))
            .collect(),
        requires_known_member_id: context.version >= 4,
        supports_skipping_assignment: context.version >= 9,
        random: u128::from_be_bytes(random_id(&broker.env)),
    };
    let receiver = shard.join(broker, |turn, token| {
        turn.coordinator
            .handle_join_group(turn.now, turn.wall_ms, token, &request, turn.effects)
    })?;
    // The sender goes with the coordinator: it moved, and the client has to look for it.
    let reply = receiver.await.map_err(|_| ErrorKind::NotCoordinator)?;
    shard.committed(broker, reply).await
}
