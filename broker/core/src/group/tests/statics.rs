use super::world::{World, bytes, join, sync};
use crate::error::ErrorKind;
use crate::group::*;

fn static_join(member_id: &str, instance_id: &str) -> JoinGroup {
    JoinGroup {
        group_instance_id: Some(instance_id.to_owned()),
        requires_known_member_id: true,
        ..join(member_id)
    }
}

/// Two static members, `one` leading and `two`, with their member ids.
fn stable() -> (World, [String; 2]) {
    let mut world = World::new(Settings::default());
    let tokens = [
        world.join(&static_join("", "one")),
        world.join(&static_join("", "two")),
    ];
    world.pass(9_000);
    let ids = tokens.map(|token| world.joined(token).unwrap().member_id.clone());
    for id in [&ids[1], &ids[0]] {
        world.sync(&sync(id, 1, &[(&ids[0], "a"), (&ids[1], "b")]));
    }
    assert_eq!(world.state(), State::Stable);
    (world, ids)
}

#[test]
fn a_static_member_comes_back_to_its_assignment_without_a_rebalance() {
    let (mut world, ids) = stable();
    let token = world.join(&static_join("", "two"));
    let reply = world.joined(token).unwrap().clone();
    assert_eq!(
        (reply.error, reply.generation, &reply.leader),
        (None, 1, &ids[0])
    );
    assert_ne!(reply.member_id, ids[1]);
    assert_eq!(world.state(), State::Stable);
    assert_eq!(world.log.len(), 2, "the new member id is written down");
    let token = world.sync(&sync(&reply.member_id, 1, &[]));
    assert_eq!(world.synced(token).unwrap().assignment, bytes("b"));
    // Who had the id before is fenced.
    let fenced = Heartbeat {
        group_id: "g".to_owned(),
        generation: 1,
        member_id: ids[1].clone(),
        group_instance_id: Some("two".to_owned()),
    };
    let now = world.now();
    assert_eq!(
        world.coordinator.handle_heartbeat(now, &fenced),
        Err(ErrorKind::FencedInstanceId)
    );
    let token = world.join(&static_join(&ids[1], "two"));
    assert_eq!(
        world.joined(token).unwrap().error,
        Some(ErrorKind::FencedInstanceId)
    );
}

#[test]
fn a_static_leader_that_comes_back_need_not_assign() {
    let check = |supports_skipping_assignment: bool| {
        let (mut world, ids) = stable();
        let request = JoinGroup {
            supports_skipping_assignment,
            ..static_join("", "one")
        };
        let token = world.join(&request);
        let reply = world.joined(token).unwrap();
        assert_eq!(reply.skip_assignment, supports_skipping_assignment);
        assert_eq!(
            reply.members.len(),
            if supports_skipping_assignment { 2 } else { 0 }
        );
        assert_eq!(reply.leader == ids[0], !supports_skipping_assignment);
    };
    check(true);
    check(false);
}

#[test]
fn a_static_member_is_away_until_its_session_ends_and_leaves_by_instance_id() {
    let (mut world, ids) = stable();
    world.pass(9_000);
    assert_eq!(world.heartbeat(&ids[0], 1), Ok(()));
    assert_eq!(world.state(), State::Stable);
    world.pass(2_000);
    assert_eq!(world.state(), State::PreparingRebalance);
    let (mut world, ids) = stable();
    assert_eq!(
        world.leave(&ids[0], Some("two")),
        Some(ErrorKind::FencedInstanceId)
    );
    assert_eq!(
        world.leave("", Some("three")),
        Some(ErrorKind::UnknownMemberId)
    );
    assert_eq!(world.leave("", Some("two")), None);
    assert_eq!(world.state(), State::PreparingRebalance);
}

#[test]
fn static_members_survive_a_fail_over() {
    let (mut world, ids) = stable();
    world.fail_over();
    assert_eq!(world.heartbeat(&ids[0], 1), Ok(()));
    let token = world.join(&static_join("", "two"));
    assert_eq!(world.joined(token).unwrap().generation, 1);
}

#[test]
fn members_that_leave_together_cost_one_rebalance() {
    let mut world = World::new(Settings::default());
    let tokens: Vec<u64> = ["one", "two", "three"]
        .iter()
        .map(|instance_id| world.join(&static_join("", instance_id)))
        .collect();
    world.pass(9_000);
    let ids: Vec<String> = tokens
        .iter()
        .map(|token| world.joined(*token).unwrap().member_id.clone())
        .collect();
    for id in ids.iter().rev() {
        world.sync(&sync(id, 1, &[]));
    }
    // Two have joined again, and one of them leaves with the one that has not.
    let stays = world.join(&static_join(&ids[0], "one"));
    let leaves = world.join(&static_join(&ids[1], "two"));
    let unknown = Some(ErrorKind::UnknownMemberId);
    assert_eq!(
        world.leave_all(&["three", "two", "four"]),
        [None, None, unknown]
    );
    assert_eq!(world.joined(leaves).unwrap().error, unknown);
    let reply = world.joined(stays).unwrap();
    assert_eq!(
        (reply.error, reply.generation, reply.members.len()),
        (None, 2, 1)
    );
    assert_eq!(world.state(), State::CompletingRebalance);
}
