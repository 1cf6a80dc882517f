//! DescribeGroups: where a group stands, who its members are, and what they were assigned.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{self, State};
use taffrail_protocol::messages::DescribeGroupsRequest;
use taffrail_protocol::messages::describe_groups_response::{
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};

use super::named::each_once;
use crate::access::access_of;
use crate::api::topics::GROUP_OPERATIONS;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;

/// First version in which a group that is not there is an error (KIP-1043); before it is a Dead one.
const NOT_FOUND_VERSION: i16 = 6;

/// Handles a DescribeGroups request.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let groups = each_once(request.groups).into_iter().map(|group_id| {
        let described = match find(broker, context, &group_id) {
            Ok(Some(found)) => told(found),
            Ok(None) => not_found(context.version, &group_id),
            Err(error) => refused(error),
        };
        let operations = if request.include_authorized_operations && described.error_code == 0 {
            GROUP_OPERATIONS
        } else {
            described.authorized_operations
        };
        DescribedGroup {
            group_id,
            authorized_operations: operations,
            ..described
        }
    });
    DescribeGroupsResponse {
        groups: groups.collect(),
        ..DescribeGroupsResponse::default()
    }
}

fn find<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    group_id: &str,
) -> Result<Option<group::DescribedGroup>, ErrorKind> {
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), group_id)
    {
        return Err(ErrorKind::GroupAuthorizationFailed);
    }
    broker
        .groups
        .shard_of_any(&broker.cluster.image(), group_id)?
        .read(|coordinator| coordinator.describe_group(group_id))
}

fn told(found: group::DescribedGroup) -> DescribedGroup {
    let members = found
        .members
        .into_iter()
        .map(|member| DescribedGroupMember {
            member_id: member.member_id,
            group_instance_id: member.group_instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            member_metadata: member.metadata.to_vec(),
            member_assignment: member.assignment.to_vec(),
        });
    DescribedGroup {
        group_state: found.state.to_string(),
        protocol_type: found.protocol_type,
        protocol_data: found.protocol,
        members: members.collect(),
        ..DescribedGroup::default()
    }
}

fn not_found(version: i16, group_id: &str) -> DescribedGroup {
    let dead = DescribedGroup {
        group_state: State::Dead.to_string(),
        ..DescribedGroup::default()
    };
    if version < NOT_FOUND_VERSION {
        return dead;
    }
    DescribedGroup {
        error_code: code_of(ErrorKind::GroupIdNotFound).code(),
        error_message: Some(format!("There is no group {group_id}.")),
        ..dead
    }
}

fn refused(error: ErrorKind) -> DescribedGroup {
    DescribedGroup {
        error_code: code_of(error).code(),
        ..DescribedGroup::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_not_there_is_dead_and_an_error_from_version_6() {
        let check = |version, expected: i16, message: Option<&str>| {
            let group = not_found(version, "g");
            assert_eq!(
                (group.error_code, group.error_message.as_deref()),
                (expected, message)
            );
            assert_eq!(group.group_state, "Dead");
        };
        check(0, 0, None);
        check(5, 0, None);
        check(6, 69, Some("There is no group g."));
    }
}
