//! SyncGroup: the leader brings the assignment, the others fetch theirs.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{SyncGroup, SyncReply};
use taffrail_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::optional_code;

/// First version that must name the protocol, which is checked (KIP-559).
const PROTOCOL_VERSION: i16 = 5;

/// Handles a SyncGroup request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let reply = sync(&broker, &context, request)
        .await
        .unwrap_or_else(|error| SyncReply {
            error: Some(error),
            ..SyncReply::default()
        });
    SyncGroupResponse {
        error_code: optional_code(reply.error),
        protocol_type: reply.protocol_type,
        protocol_name: reply.protocol,
        assignment: reply.assignment.to_vec(),
        ..SyncGroupResponse::default()
    }
}

async fn sync<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: SyncGroupRequest,
) -> Result<SyncReply, ErrorKind> {
    if !broker.authorizer.allows(
        &context.principal,
        access_of(context.api),
        &request.group_id,
    ) {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    let names_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    if context.version >= PROTOCOL_VERSION && !names_protocol {
        return Err(ErrorKind::InconsistentGroupProtocol);
    }
    let shard = broker
        .groups
        .shard_of(&broker.cluster.image(), &request.group_id)?;
    let request = SyncGroup {
        group_id: request.group_id,
        generation: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol: request.protocol_name,
        assignments: request
            .assignments
            .into_iter()
            .map(|assignment| (assignment.member_id, Arc::from(assignment.assignment)))
            .collect(),
    };
    let receiver = shard.sync(broker, |turn, token| {
        turn.coordinator
            .handle_sync_group(turn.now, turn.wall_ms, token, &request, turn.effects)
    })?;
    let reply = receiver.await.map_err(|_| ErrorKind::NotCoordinator)?;
    shard.committed(broker, reply).await
}
