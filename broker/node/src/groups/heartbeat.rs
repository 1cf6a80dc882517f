//! Heartbeat: a member lives, and learns whether its generation still stands.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::Heartbeat;
use taffrail_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::optional_code;

/// Handles a Heartbeat request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let error = beat(&broker, &context, request).err();
    HeartbeatResponse {
        error_code: optional_code(error),
        ..HeartbeatResponse::default()
    }
}

fn beat<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: HeartbeatRequest,
) -> Result<(), ErrorKind> {
    if !broker.authorizer.allows(
        &context.principal,
        access_of(context.api),
        &request.group_id,
    ) {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    let found = broker
        .groups
        .shard_of(&broker.cluster.image(), &request.group_id);
    let shard = match found {
        // While it loads nobody's session ends, so the member may take it that all is well (Kafka does).
        Err(ErrorKind::CoordinatorLoadInProgress) => return Ok(()),
        found => found?,
    };
    let heartbeat = Heartbeat {
        group_id: request.group_id,
        generation: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
    };
    shard.heartbeat(broker.env.now(), &heartbeat)
}
