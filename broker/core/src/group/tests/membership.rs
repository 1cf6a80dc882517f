use super::world::{World, bytes, join, sync};
use crate::error::ErrorKind;
use crate::group::*;

#[test]
fn first_generation_waits_for_more_members_up_to_the_rebalance_timeout() {
    let mut world = World::new(Settings::default());
    let first = world.join(&join(""));
    world.pass(2_999);
    assert_eq!(world.joined(first), None);
    let second = world.join(&join(""));
    // The second came within the first delay, so there is another one.
    world.pass(2);
    assert_eq!(world.joined(first), None);
    world.pass(3_000);
    let leader = world.joined(first).unwrap().clone();
    let follower = world.joined(second).unwrap().clone();
    assert_eq!(
        (leader.error, leader.generation, leader.protocol.as_deref()),
        (None, 1, Some("range"))
    );
    assert_eq!(leader.leader, leader.member_id);
    assert_eq!(leader.members.len(), 2);
    assert_eq!(
        (follower.leader, follower.members.len()),
        (leader.member_id, 0)
    );
    assert_eq!(world.state(), State::CompletingRebalance);
    // Members that keep coming do not prolong it for ever.
    let mut world = World::new(Settings {
        group_size_max: 1_000,
        ..Settings::default()
    });
    let first = world.join(&JoinGroup {
        rebalance_timeout_ms: 10_000,
        ..join("")
    });
    for _ in 0..9 {
        world.join(&JoinGroup {
            rebalance_timeout_ms: 10_000,
            ..join("")
        });
        world.pass(1_000);
        assert_eq!(world.joined(first), None);
    }
    world.pass(1_001);
    assert_eq!(world.joined(first).unwrap().error, None);
}

#[test]
fn assignment_goes_to_all_once_the_leader_brings_it() {
    let mut world = World::new(Settings::default());
    let tokens = [world.join(&join("")), world.join(&join(""))];
    world.pass(9_000);
    let ids = tokens.map(|token| world.joined(token).unwrap().member_id.clone());
    let follower = world.sync(&sync(&ids[1], 1, &[]));
    assert_eq!(world.synced(follower), None);
    assert!(
        world.log.is_empty(),
        "nothing is written before the generation is settled"
    );
    let leader = world.sync(&sync(&ids[0], 1, &[(&ids[0], "a"), ("stranger", "x")]));
    assert_eq!(world.synced(leader).unwrap().assignment, bytes("a"));
    // Nothing assigned is empty bytes, not an absence.
    let reply = world.synced(follower).unwrap();
    assert_eq!((reply.error, &reply.assignment), (None, &bytes("")));
    assert_eq!(world.log.len(), 1);
    let again = world.sync(&sync(&ids[0], 1, &[]));
    assert_eq!(world.synced(again).unwrap().assignment, bytes("a"));
}

#[test]
fn dynamic_members_learn_their_id_before_they_join() {
    let mut world = World::new(Settings::default());
    let asks = JoinGroup {
        requires_known_member_id: true,
        ..join("")
    };
    let token = world.join(&asks);
    let reply = world.joined(token).unwrap().clone();
    assert_eq!(reply.error, Some(ErrorKind::MemberIdRequired));
    assert_eq!(reply.member_id, "c-00000000-0000-0000-0000-000000000001");
    let token = world.join(&JoinGroup {
        requires_known_member_id: true,
        ..join(&reply.member_id)
    });
    world.pass(3_000);
    assert_eq!(world.joined(token).unwrap().error, None);
    // One that never comes back is forgotten, and with it a group that nobody else is in.
    let mut world = World::new(Settings::default());
    let token = world.join(&asks);
    let member_id = world.joined(token).unwrap().member_id.clone();
    world.pass(10_000);
    assert_eq!(world.state(), State::Dead);
    let token = world.join(&join(&member_id));
    assert_eq!(
        world.joined(token).unwrap().error,
        Some(ErrorKind::UnknownMemberId)
    );
}

#[test]
fn joins_are_refused_with_a_reason() {
    let check = |request: JoinGroup, expected: ErrorKind| {
        let (mut world, _) = World::stable(2);
        let token = world.join(&request);
        let reply = world.joined(token).cloned();
        assert_eq!(
            reply.and_then(|reply| reply.error),
            Some(expected),
            "{request:?}"
        );
        assert_eq!(world.state(), State::Stable);
    };
    check(
        JoinGroup {
            group_id: String::new(),
            ..join("")
        },
        ErrorKind::InvalidGroupId,
    );
    check(
        JoinGroup {
            session_timeout_ms: 5_999,
            ..join("")
        },
        ErrorKind::InvalidSessionTimeout,
    );
    check(
        JoinGroup {
            session_timeout_ms: 1_800_001,
            ..join("")
        },
        ErrorKind::InvalidSessionTimeout,
    );
    check(
        JoinGroup {
            session_timeout_ms: -1,
            ..join("")
        },
        ErrorKind::InvalidSessionTimeout,
    );
    check(
        JoinGroup {
            group_id: "other".to_owned(),
            ..join("x")
        },
        ErrorKind::UnknownMemberId,
    );
    check(join("x"), ErrorKind::UnknownMemberId);
    check(
        JoinGroup {
            protocol_type: "connect".to_owned(),
            ..join("")
        },
        ErrorKind::InconsistentGroupProtocol,
    );
    let other = vec![("sticky".to_owned(), bytes(""))];
    check(
        JoinGroup {
            protocols: other,
            ..join("")
        },
        ErrorKind::InconsistentGroupProtocol,
    );
    check(
        JoinGroup {
            protocols: Vec::new(),
            ..join("")
        },
        ErrorKind::InconsistentGroupProtocol,
    );
    // A group that exists but is full.
    let (mut world, _) = World::stable(4);
    let token = world.join(&join(""));
    assert_eq!(
        world.joined(token).unwrap().error,
        Some(ErrorKind::GroupMaxSizeReached)
    );
}

#[test]
fn members_that_join_again_cause_a_rebalance_only_if_something_changed() {
    let changed = vec![("range".to_owned(), bytes("other topics"))];
    let check = |who: usize, request: fn(&str) -> JoinGroup, expected: State| {
        let (mut world, ids) = World::stable(2);
        let token = world.join(&request(&ids[who]));
        assert_eq!(world.state(), expected, "{who}");
        let at_once = world
            .joined(token)
            .map(|reply| (reply.error, reply.generation));
        let kept = expected == State::Stable;
        assert_eq!(at_once, kept.then_some((None, 1)));
    };
    check(1, join, State::Stable);
    check(0, join, State::PreparingRebalance);
    let (mut world, ids) = World::stable(2);
    world.join(&JoinGroup {
        protocols: changed,
        ..join(&ids[1])
    });
    assert_eq!(world.state(), State::PreparingRebalance);
}

#[test]
fn a_rebalance_asks_all_and_goes_on_without_the_silent() {
    let (mut world, ids) = World::stable(2);
    let newcomer = world.join(&join(""));
    assert_eq!(
        world.heartbeat(&ids[0], 1),
        Err(ErrorKind::RebalanceInProgress)
    );
    let token = world.sync(&sync(&ids[0], 1, &[]));
    assert_eq!(
        world.synced(token).unwrap().error,
        Some(ErrorKind::RebalanceInProgress)
    );
    let back = world.join(&join(&ids[1]));
    assert_eq!(world.joined(back), None);
    // The leader lives on by heartbeats, but does not join within the rebalance timeout.
    for _ in 0..7 {
        world.pass(8_000);
        assert_eq!(
            world.heartbeat(&ids[0], 1),
            Err(ErrorKind::RebalanceInProgress)
        );
    }
    world.pass(4_000);
    let reply = world.joined(back).unwrap();
    assert_eq!(
        (reply.error, reply.generation, reply.members.len()),
        (None, 2, 2)
    );
    assert_eq!(world.joined(newcomer).unwrap().leader, ids[1]);
    assert_eq!(world.heartbeat(&ids[0], 2), Err(ErrorKind::UnknownMemberId));
}

#[test]
fn a_rebalance_is_complete_when_the_last_one_joined() {
    let (mut world, ids) = World::stable(2);
    let leader = world.join(&join(&ids[0]));
    assert_eq!(world.joined(leader), None);
    let other = world.join(&join(&ids[1]));
    assert_eq!(world.joined(leader).unwrap().generation, 2);
    assert_eq!(world.joined(other).unwrap().generation, 2);
}

#[test]
fn sessions_end_without_heartbeats() {
    let (mut world, ids) = World::stable(2);
    world.pass(9_000);
    assert_eq!(world.heartbeat(&ids[0], 1), Ok(()));
    world.pass(2_000);
    assert_eq!(world.state(), State::PreparingRebalance);
    assert_eq!(world.classic().members().len(), 1);
    let token = world.join(&join(&ids[0]));
    assert_eq!(world.joined(token).unwrap().members.len(), 1);
    // And when the last one is gone, the group is empty, which is written down.
    world.pass(20_000);
    assert_eq!(
        (world.state(), world.classic().generation()),
        (State::Empty, 3)
    );
    let Some(Record::Group {
        value: Some(value), ..
    }) = world.log.last()
    else {
        panic!("a group record");
    };
    assert_eq!(
        (
            value.generation,
            value.members.len(),
            value.protocol.as_deref()
        ),
        (3, 0, None)
    );
}

#[test]
fn members_that_do_not_ask_for_their_assignment_leave() {
    let (mut world, ids) = World::stable(2);
    world.join(&join(&ids[0]));
    world.join(&join(&ids[1]));
    world.sync(&sync(&ids[0], 2, &[]));
    assert_eq!(world.state(), State::Stable);
    for _ in 0..8 {
        world.pass(8_000);
        for id in &ids {
            let _ = world.heartbeat(id, 2);
        }
    }
    assert_eq!(world.state(), State::PreparingRebalance);
    assert_eq!(world.classic().members().len(), 1);
}

#[test]
fn leaving_is_immediate() {
    let (mut world, ids) = World::stable(3);
    assert_eq!(world.leave(&ids[0], None), None);
    assert_eq!(world.state(), State::PreparingRebalance);
    assert_eq!(world.leave(&ids[0], None), Some(ErrorKind::UnknownMemberId));
    let token = world.join(&join(&ids[1]));
    assert_eq!(world.leave(&ids[2], None), None);
    assert_eq!(world.joined(token).unwrap().leader, ids[1]);
    // A request of the one that leaves does not wait for ever.
    let waiting = world.sync(&sync(&ids[1], 2, &[]));
    assert_eq!(world.synced(waiting).unwrap().error, None);
    let token = world.join(&join(""));
    assert_eq!(world.leave(&ids[1], None), None);
    assert_eq!(world.joined(token).unwrap().error, None);
    let mut nobody = World::new(Settings::default());
    assert_eq!(nobody.leave("x", None), Some(ErrorKind::UnknownMemberId));
}

#[test]
fn heartbeats_and_syncs_are_checked() {
    let (mut world, ids) = World::stable(2);
    let check = |world: &mut World, member: &str, generation: i32, expected: ErrorKind| {
        assert_eq!(world.heartbeat(member, generation), Err(expected));
        let token = world.sync(&sync(member, generation, &[]));
        assert_eq!(world.synced(token).unwrap().error, Some(expected));
    };
    check(&mut world, "x", 1, ErrorKind::UnknownMemberId);
    check(&mut world, &ids[0], 0, ErrorKind::IllegalGeneration);
    check(&mut world, &ids[0], 2, ErrorKind::IllegalGeneration);
    let token = world.sync(&SyncGroup {
        protocol: Some("sticky".to_owned()),
        ..sync(&ids[0], 1, &[])
    });
    assert_eq!(
        world.synced(token).unwrap().error,
        Some(ErrorKind::InconsistentGroupProtocol)
    );
    let mut nobody = World::new(Settings::default());
    check(&mut nobody, "x", 1, ErrorKind::UnknownMemberId);
}

#[test]
fn the_protocol_that_most_prefer_is_chosen_among_the_common() {
    let check = |members: &[&[&str]], expected: &str| {
        let mut world = World::new(Settings::default());
        let mut last = 0;
        for protocols in members {
            let protocols = protocols
                .iter()
                .map(|name| ((*name).to_owned(), bytes(name)))
                .collect();
            last = world.join(&JoinGroup {
                protocols,
                ..join("")
            });
        }
        world.pass(60_000 - 1);
        assert_eq!(
            world.joined(last).unwrap().protocol.as_deref(),
            Some(expected),
            "{members:?}"
        );
    };
    check(
        &[
            &["range", "sticky"],
            &["sticky", "range"],
            &["sticky", "range"],
        ],
        "sticky",
    );
    check(&[&["sticky", "range"], &["range"]], "range");
    check(&[&["b", "a"], &["a", "b"]], "a");
    check(&[&["x", "b", "a"], &["b", "a"], &["a", "b"]], "b");
}

#[test]
fn a_generation_that_does_not_fit_into_a_batch_is_refused() {
    let mut world = World::new(Settings {
        batch_bytes_max: 1_000,
        ..Settings::default()
    });
    let token = world.join(&join(""));
    world.pass(3_000);
    let id = world.joined(token).unwrap().member_id.clone();
    let large = "x".repeat(1_000);
    let token = world.sync(&sync(&id, 1, &[(&id, &large)]));
    assert_eq!(
        world.synced(token).unwrap().error,
        Some(ErrorKind::UnknownServerError)
    );
    assert_eq!(
        (world.state(), world.log.len()),
        (State::PreparingRebalance, 0)
    );
}

#[test]
fn who_comes_too_late_for_a_limit_that_was_lowered_is_not_waited_for() {
    let (mut world, ids) = World::stable(3);
    world.fail_over_with(Settings {
        group_size_max: 2,
        ..Settings::default()
    });
    let tokens = [&ids[0], &ids[1]].map(|id| world.join(&join(id)));
    assert_eq!(world.state(), State::PreparingRebalance);
    let late = world.join(&join(&ids[2]));
    assert_eq!(
        world.joined(late).unwrap().error,
        Some(ErrorKind::GroupMaxSizeReached)
    );
    for token in tokens {
        assert_eq!(world.joined(token).unwrap().generation, 2);
    }
}
