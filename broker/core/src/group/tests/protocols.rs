use super::world::{World, bytes, join};
use crate::error::ErrorKind;
use crate::group::*;

fn protocols(count: usize, metadata_bytes: usize) -> Vec<(String, Bytes)> {
    let metadata = bytes(&"m".repeat(metadata_bytes));
    (0..count)
        .map(|number| (format!("p{number}"), metadata.clone()))
        .collect()
}

fn with(protocols: Vec<(String, Bytes)>) -> JoinGroup {
    JoinGroup {
        protocols,
        ..join("")
    }
}

/// What a member is told when the first rebalance is over.
fn told(world: &mut World, request: &JoinGroup) -> Option<ErrorKind> {
    let token = world.join(request);
    match world.joined(token) {
        Some(reply) => reply.error,
        None => {
            world.pass(3_000);
            world.joined(token).expect("a rebalance ends").error
        }
    }
}

#[test]
fn protocols_that_could_never_be_used_are_refused() {
    const BATCH: usize = 10_000;
    let check = |protocols: Vec<(String, Bytes)>, expected: Option<ErrorKind>| {
        let mut world = World::new(Settings {
            batch_bytes_max: BATCH,
            ..Settings::default()
        });
        let (count, first) = (protocols.len(), protocols.first().cloned());
        assert_eq!(
            told(&mut world, &with(protocols)),
            expected,
            "{count} like {first:?}"
        );
    };
    let invalid = Some(ErrorKind::InvalidRequest);
    check(protocols(100, 1), None);
    check(protocols(101, 1), invalid);
    check(protocols(200_000, 0), invalid);
    let twice = vec![("range".to_owned(), bytes("")); 2];
    check(twice, invalid);
    check(protocols(1, BATCH - 2), None);
    check(protocols(1, BATCH - 1), invalid);
    check(protocols(4, BATCH - 2), None);
    check(protocols(5, BATCH - 2), invalid);
    check(Vec::new(), Some(ErrorKind::InconsistentGroupProtocol));
}

#[test]
fn the_members_of_a_group_hold_so_much_metadata_and_no_more() {
    let mut world = World::new(Settings {
        batch_bytes_max: 10_000,
        ..Settings::default()
    });
    let large = with(protocols(1, 9_000));
    let tokens: Vec<u64> = (0..8).map(|_| world.join(&large)).collect();
    let ninth = world.join(&large);
    let refusal = Some(ErrorKind::GroupMaxSizeReached);
    assert_eq!(world.joined(ninth).unwrap().error, refusal);
    world.pass(9_000);
    let first = world.joined(tokens[0]).unwrap();
    assert_eq!(first.error, None);
    // Who is a member stays one, if it does not want more.
    let again = JoinGroup {
        member_id: first.member_id.clone(),
        ..large
    };
    let token = world.join(&again);
    assert_eq!(world.joined(token).unwrap().error, None);
}

#[test]
fn a_coordinator_holds_so_much_metadata_and_no_more() {
    let mut world = World::new(Settings {
        protocol_bytes_max: 20_000,
        ..Settings::default()
    });
    let mut told = |group_id: &str| {
        let token = world.join(&JoinGroup {
            group_id: group_id.to_owned(),
            ..with(protocols(1, 9_000))
        });
        world.pass(3_000);
        world.joined(token).unwrap().error
    };
    assert_eq!(told("a"), None);
    assert_eq!(told("b"), None);
    assert_eq!(told("c"), Some(ErrorKind::CoordinatorNotAvailable));
    // Nobody comes for an assignment, so the members go and leave room.
    for _ in 0..30 {
        told("");
    }
    assert_eq!(told("c"), None);
}

#[test]
fn an_assignment_that_cannot_be_written_is_not_kept() {
    let mut world = World::new(Settings {
        batch_bytes_max: 1_000,
        ..Settings::default()
    });
    let token = world.join(&join(""));
    world.pass(3_000);
    let id = world.joined(token).unwrap().member_id.clone();
    let large = "x".repeat(1_000);
    world.sync(&super::world::sync(&id, 1, &[(&id, &large)]));
    let held = &world.classic().members()[&id].assignment;
    assert_eq!(held.len(), 0);
}
