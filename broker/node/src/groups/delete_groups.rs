//! DeleteGroups: groups without members go, with all of their offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_protocol::messages::DeleteGroupsRequest;
use taffrail_protocol::messages::delete_groups_response::{
    DeletableGroupResult, DeleteGroupsResponse,
};

use super::named::each_once;
use super::shard::Shard;
use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::optional_code;

/// Handles a DeleteGroups request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut results: BTreeMap<String, Option<ErrorKind>> = BTreeMap::new();
    let mut by_shard: BTreeMap<i32, (Arc<Shard<E>>, Vec<String>)> = BTreeMap::new();
    for group_id in each_once(request.groups_names) {
        let found = find(&broker, &context, &group_id);
        results.insert(group_id.clone(), found.as_ref().err().copied());
        if let Ok(shard) = found {
            let partition = shard.partition().id.partition;
            let (_, groups) = by_shard.entry(partition).or_insert((shard, Vec::new()));
            groups.push(group_id);
        }
    }
    // All decide before anything is waited for.
    let mut decided = Vec::with_capacity(by_shard.len());
    for (shard, groups) in by_shard.into_values() {
        let reply = shard.decide(&broker, |turn| {
            turn.coordinator.handle_delete_groups(&groups)
        });
        decided.push((shard, groups, reply));
    }
    for (shard, groups, reply) in decided {
        let deleted = match reply {
            Ok(reply) => shard.committed(&broker, reply).await,
            Err(error) => Err(error),
        };
        let errors = deleted.unwrap_or_else(|error| vec![Some(error); groups.len()]);
        results.extend(groups.into_iter().zip(errors));
    }
    DeleteGroupsResponse {
        results: results.into_iter().map(result).collect(),
        ..DeleteGroupsResponse::default()
    }
}

fn find<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    group_id: &str,
) -> Result<Arc<Shard<E>>, ErrorKind> {
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), group_id)
    {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    broker
        .groups
        .shard_of_any(&broker.cluster.image(), group_id)
}

fn result((group_id, error): (String, Option<ErrorKind>)) -> DeletableGroupResult {
    let error_message = match error {
        Some(ErrorKind::NonEmptyGroup) => Some(format!(
            "Group {group_id} has members: stop them, or have them removed, and delete it then."
        )),
        Some(ErrorKind::GroupIdNotFound) => Some(format!("There is no group {group_id}.")),
        Some(_) | None => None,
    };
    DeletableGroupResult {
        group_id,
        error_code: optional_code(error),
        error_message,
    }
}
