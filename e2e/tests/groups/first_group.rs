//! The first group of a cluster joins at once.

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::wire;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use taffrail_protocol::messages::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};

#[test]
fn whoever_is_told_to_coordinate_does_so_though_its_topic_was_made_a_moment_ago() -> Result<()> {
    let cluster = Cluster::start(ClusterSpec::new(3)?)?;
    let members = cluster.members();
    let find = FindCoordinatorRequest {
        coordinator_keys: vec!["readers".to_owned()],
        ..FindCoordinatorRequest::default()
    };
    let answer = wire::ask(&members[0].client.address(), &find)?;
    let found = answer.coordinators.first().context("one was asked for")?;
    ensure!(found.error_code == 0, "error {}", found.error_code);
    let join = JoinGroupRequest {
        group_id: "readers".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            ..JoinGroupRequestProtocol::default()
        }],
        ..JoinGroupRequest::default()
    };
    let coordinator = &members[usize::try_from(found.node_id)?];
    let joined = wire::ask(&coordinator.client.address(), &join)?;
    // That it is to come again with the id that it gets is the first thing that a coordinator tells a member.
    let error = ErrorCode::try_from(joined.error_code);
    ensure!(error == Ok(ErrorCode::MemberIdRequired), "{error:?}");
    cluster.finish();
    Ok(())
}
