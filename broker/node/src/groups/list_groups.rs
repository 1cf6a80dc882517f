//! ListGroups: the groups that this broker coordinates. A client asks every broker and puts the answers together.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{CLASSIC_TYPE, ListFilter, ListedGroup};
use taffrail_protocol::messages::ListGroupsRequest;
use taffrail_protocol::messages::list_groups_response::{self, ListGroupsResponse};

use crate::access::{Access, Operation, Resource, access_of};
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::optional_code;

/// Handles a ListGroups request.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let (groups, error) = match list(broker, &request) {
        Ok(groups) => (groups, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let shown = groups
        .into_iter()
        .filter(|group| may_see(broker, context, &group.group_id))
        .map(|group| list_groups_response::ListedGroup {
            group_id: group.group_id,
            protocol_type: group.protocol_type,
            group_state: group.state.to_string(),
            group_type: CLASSIC_TYPE.to_owned(),
        });
    ListGroupsResponse {
        error_code: optional_code(error),
        groups: shown.collect(),
        ..ListGroupsResponse::default()
    }
}

/// While one coordinator loads the whole is refused, or its groups would seem to be gone; clients ask again.
fn list<E: Env>(
    broker: &Arc<Broker<E>>,
    request: &ListGroupsRequest,
) -> Result<Vec<ListedGroup>, ErrorKind> {
    let filter = ListFilter::new(&request.states_filter, &request.types_filter);
    let mut groups = Vec::new();
    for shard in broker.groups.all()? {
        let found = shard.read(|coordinator| coordinator.list_groups(&filter));
        // It has just been dropped, to be read back or to move.
        groups.extend(found.map_err(|_| ErrorKind::CoordinatorLoadInProgress)?);
    }
    Ok(groups)
}

/// Who may describe the cluster sees all groups, anybody else those that they may describe.
fn may_see<E: Env>(broker: &Broker<E>, context: &RequestContext, group_id: &str) -> bool {
    let of_group = Access {
        resource: Resource::Group,
        operation: Operation::Describe,
    };
    let allows = |access, name: &str| broker.authorizer.allows(&context.principal, access, name);
    allows(access_of(context.api), "") || allows(of_group, group_id)
}
