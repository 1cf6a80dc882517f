use super::world::{World, commit, join, sync};
use crate::error::ErrorKind;
use crate::group::*;
use crate::ids::TopicId;

const WEEK_MS: u64 = 7 * 24 * 3_600 * 1_000;

fn offsets(world: &World) -> Vec<(String, i32, i64)> {
    let offsets = world.coordinator.group("g").into_iter();
    offsets
        .flat_map(Group::offsets)
        .map(|(topic, partition, value)| (topic.to_string(), partition, value.offset))
        .collect()
}

fn wanted(topic: &str, topic_id: TopicId, partitions: &[i32]) -> WantedOffsets {
    WantedOffsets {
        topic: topic.to_owned(),
        topic_id,
        partitions: partitions.to_vec(),
    }
}

/// A commit for partition 0 of `t` in this incarnation of it.
fn commit_to(topic_id: TopicId, offset: i64) -> OffsetCommit {
    let mut request = commit("", -1, &[("t", 0, offset)]);
    request.offsets[0].topic_id = topic_id;
    request
}

#[test]
fn commits_are_read_back_whole() {
    let mut world = World::new(Settings::default());
    assert_eq!(
        world.commit(&commit("", -1, &[("t", 0, 5), ("t", 1, 6)])),
        [None, None]
    );
    let wanted = [
        wanted("t", TopicId::ZERO, &[1, 2]),
        wanted("u", TopicId::ZERO, &[0]),
    ];
    let fetched = world.coordinator.fetch_offsets("g", Some(&wanted));
    let of = |topic: &str, partitions: &[(i32, i64, i32, &str)]| FetchedTopic {
        topic: topic.to_owned(),
        partitions: partitions
            .iter()
            .map(
                |(partition, offset, leader_epoch, metadata)| FetchedOffset {
                    partition: *partition,
                    offset: *offset,
                    leader_epoch: *leader_epoch,
                    metadata: (*metadata).to_owned(),
                },
            )
            .collect(),
    };
    assert_eq!(
        fetched,
        [
            of("t", &[(1, 6, 3, "note"), (2, -1, -1, "")]),
            of("u", &[(0, -1, -1, "")])
        ]
    );
    let all = world.coordinator.fetch_offsets("g", None);
    assert_eq!(all, [of("t", &[(0, 5, 3, "note"), (1, 6, 3, "note")])]);
    let of_other = world.coordinator.fetch_offsets("other", Some(&wanted));
    assert_eq!(of_other[0].partitions[0].offset, -1);
    assert_eq!(world.coordinator.fetch_offsets("other", None), []);
    world.fail_over();
    assert_eq!(
        offsets(&world),
        [("t".to_owned(), 0, 5), ("t".to_owned(), 1, 6)]
    );
}

#[test]
fn commits_are_checked_against_the_group() {
    // In which group (with the first member's id), who commits, what is answered.
    let check = |prepare: fn() -> (World, String),
                 member: Option<&str>,
                 generation: i32,
                 expected: Option<ErrorKind>| {
        let (mut world, id) = prepare();
        let member = member.unwrap_or(&id);
        let reply = world.commit(&commit(member, generation, &[("t", 0, 5)]));
        assert_eq!(
            reply,
            [expected],
            "{member} {generation} in {}",
            world.state()
        );
    };
    let nobody: fn() -> (World, String) = || (World::new(Settings::default()), "m".to_owned());
    check(nobody, Some(""), -1, None);
    check(nobody, None, 1, Some(ErrorKind::GroupIdNotFound));
    let empty: fn() -> (World, String) = || {
        let (mut world, ids) = World::stable(1);
        world.leave(&ids[0], None);
        assert_eq!(world.state(), State::Empty);
        (world, ids[0].clone())
    };
    check(empty, Some(""), -1, None);
    check(empty, None, 2, Some(ErrorKind::UnknownMemberId));
    let stable: fn() -> (World, String) = || {
        let (world, ids) = World::stable(2);
        (world, ids[0].clone())
    };
    check(stable, None, 1, None);
    check(stable, None, 0, Some(ErrorKind::IllegalGeneration));
    check(stable, None, -1, Some(ErrorKind::IllegalGeneration));
    check(stable, Some("x"), 1, Some(ErrorKind::UnknownMemberId));
    check(stable, Some(""), -1, Some(ErrorKind::UnknownMemberId));
    let preparing: fn() -> (World, String) = || {
        let (mut world, ids) = World::stable(2);
        world.join(&join(""));
        assert_eq!(world.state(), State::PreparingRebalance);
        (world, ids[0].clone())
    };
    check(preparing, None, 1, None);
    let completing: fn() -> (World, String) = || {
        let (mut world, ids) = World::stable(1);
        world.join(&join(&ids[0]));
        assert_eq!(world.state(), State::CompletingRebalance);
        (world, ids[0].clone())
    };
    check(completing, None, 2, Some(ErrorKind::RebalanceInProgress));
}

#[test]
fn what_is_too_large_is_refused_alone_or_together() {
    let mut world = World::new(Settings {
        batch_bytes_max: 1_000,
        ..Settings::default()
    });
    let mut request = commit("", -1, &[("t", 0, 5), ("t", 1, 6)]);
    request.offsets[0].metadata = Some("x".repeat(4_097));
    request.offsets[1].metadata = None;
    assert_eq!(
        world.commit(&request),
        [Some(ErrorKind::OffsetMetadataTooLarge), None]
    );
    let many: Vec<(&str, i32, i64)> = (0..10).map(|partition| ("t", partition, 1)).collect();
    assert_eq!(
        world.commit(&commit("", -1, &many)),
        [Some(ErrorKind::InvalidCommitOffsetSize); 10]
    );
    assert_eq!(world.log.len(), 1);
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let (mut world, ids) = World::stable(1);
    for _ in 0..5 {
        world.pass(9_000);
        world.commit(&commit(&ids[0], 1, &[("t", 0, 1)]));
    }
    assert_eq!(world.state(), State::Stable);
}

#[test]
fn offsets_of_nobody_expire_a_retention_after_the_commit() {
    let mut world = World::new(Settings::default());
    world.commit(&commit("", -1, &[("t", 0, 5)]));
    world.pass(WEEK_MS / 2);
    world.commit(&commit("", -1, &[("t", 1, 6)]));
    world.pass(WEEK_MS / 2 + 600_001);
    assert_eq!(offsets(&world), [("t".to_owned(), 1, 6)]);
    world.pass(WEEK_MS);
    assert_eq!(world.state(), State::Dead);
}

#[test]
fn offsets_of_an_empty_group_expire_a_retention_after_it_became_empty() {
    let (mut world, ids) = World::stable(1);
    world.commit(&commit(&ids[0], 1, &[("t", 0, 5)]));
    for _ in 0..WEEK_MS / 9_000 + 100 {
        world.pass(9_000);
        assert_eq!(world.heartbeat(&ids[0], 1), Ok(()));
    }
    // The subscription is not one that can be read, so nothing expires while there are members.
    assert_eq!(offsets(&world).len(), 1);
    world.leave(&ids[0], None);
    world.pass(WEEK_MS - 1);
    assert_eq!((offsets(&world).len(), world.state()), (1, State::Empty));
    world.pass(600_001);
    assert_eq!((offsets(&world).len(), world.state()), (0, State::Dead));
    assert!(matches!(
        world.log.last(),
        Some(Record::Group { value: None, .. })
    ));
    // Nothing is left of it after a reload either.
    world.fail_over();
    assert_eq!(world.coordinator.groups().count(), 0);
}

#[test]
fn offsets_of_topics_without_subscription_expire_under_a_stable_group() {
    let mut world = World::new(Settings {
        offsets_retention: std::time::Duration::from_secs(3_600),
        ..Settings::default()
    });
    let subscription = super::world::bytes("\0\0\0\0\0\x01\0\x01t");
    let request = JoinGroup {
        protocols: vec![("range".to_owned(), subscription)],
        ..join("")
    };
    let token = world.join(&request);
    world.pass(3_000);
    let id = world.joined(token).unwrap().member_id.clone();
    world.sync(&sync(&id, 1, &[]));
    world.commit(&commit(&id, 1, &[("t", 0, 5), ("u", 0, 6)]));
    for _ in 0..500 {
        world.pass(9_000);
        assert_eq!(world.heartbeat(&id, 1), Ok(()));
    }
    assert_eq!(offsets(&world), [("t".to_owned(), 0, 5)]);
}

#[test]
fn an_explicit_retention_overrides_the_brokers() {
    let mut world = World::new(Settings::default());
    let request = OffsetCommit {
        retention_time_ms: Some(1_000),
        ..commit("", -1, &[("t", 0, 5)])
    };
    world.commit(&request);
    world.pass(600_001);
    assert_eq!(world.state(), State::Dead);
}

#[test]
fn tombstones_come_in_portions() {
    let mut world = World::new(Settings::default());
    for first in (0..2_500).step_by(500) {
        let many: Vec<(&str, i32, i64)> = (first..first + 500)
            .map(|partition| ("t", partition, 1))
            .collect();
        world.commit(&commit("", -1, &many));
    }
    world.now_ms += WEEK_MS;
    let before = world.log.len();
    world.timeout();
    assert_eq!(world.log.len(), before + 1_000);
    world.pass(0);
    assert_eq!(
        (world.log.len(), world.state()),
        (before + 2_500, State::Dead)
    );
}

#[test]
fn offsets_of_removed_topics_go() {
    let mut world = World::new(Settings::default());
    world.commit(&commit("", -1, &[("t", 0, 5), ("u", 0, 6)]));
    world.remove_topic(TopicId([1; 16]), "t");
    assert_eq!(offsets(&world), [("u".to_owned(), 0, 6)]);
}

#[test]
fn offsets_of_a_topic_are_none_of_another_one_of_its_name() {
    let (old, new) = (TopicId([1; 16]), TopicId([2; 16]));
    let mut world = World::new(Settings::default());
    world.commit(&commit_to(old, 5));
    let offset_in = |world: &World, topic_id| {
        let wanted = [wanted("t", topic_id, &[0])];
        world.coordinator.fetch_offsets("g", Some(&wanted))[0].partitions[0].offset
    };
    assert_eq!(offset_in(&world, old), 5);
    assert_eq!(
        offset_in(&world, TopicId::ZERO),
        5,
        "older clients name no id"
    );
    assert_eq!(offset_in(&world, new), -1);
    // The new topic is there and used before this coordinator hears that the old one is gone.
    world.commit(&commit_to(new, 7));
    world.remove_topic(old, "t");
    assert_eq!(offset_in(&world, new), 7);
    world.remove_topic(new, "t");
    assert_eq!(world.state(), State::Dead);
}

#[test]
fn what_kafkas_format_cannot_hold_is_refused() {
    let long = "x".repeat(32_001);
    let mut world = World::new(Settings {
        offset_metadata_bytes_max: 4_096,
        ..Settings::default()
    });
    let request = OffsetCommit {
        group_id: long.as_str().into(),
        ..commit("", -1, &[("t", 0, 5)])
    };
    assert_eq!(world.commit(&request), [Some(ErrorKind::InvalidGroupId)]);
    let mut check = |request: JoinGroup, expected| {
        let token = world.join(&request);
        assert_eq!(world.joined(token).unwrap().error, Some(expected));
    };
    let group_id = long.clone();
    check(
        JoinGroup {
            group_id,
            ..join("")
        },
        ErrorKind::InvalidGroupId,
    );
    let client_id = long.clone();
    check(
        JoinGroup {
            client_id,
            ..join("")
        },
        ErrorKind::InvalidRequest,
    );
    let group_instance_id = Some(long.clone());
    check(
        JoinGroup {
            group_instance_id,
            ..join("")
        },
        ErrorKind::InvalidRequest,
    );
    let protocols = vec![(long, super::world::bytes(""))];
    check(
        JoinGroup {
            protocols,
            ..join("")
        },
        ErrorKind::InvalidRequest,
    );
    assert_eq!(world.coordinator.groups().count(), 0);
}
