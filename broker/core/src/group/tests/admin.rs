use super::world::{World, bytes, commit, join, sync};
use crate::error::ErrorKind;
use crate::group::*;

/// `ConsumerProtocolSubscription` 0 of the topic `t`.
const SUBSCRIBED_TO_T: &str = "\0\0\0\0\0\x01\0\x01t";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A stable group of one member of this type that says this of itself.
fn stable_with(protocol_type: &str, metadata: &str) -> (World, String) {
    let mut world = World::new(Settings::default());
    let token = world.join(&JoinGroup {
        protocol_type: protocol_type.to_owned(),
        protocols: vec![("range".to_owned(), bytes(metadata))],
        ..join("")
    });
    world.pass(3_000);
    let id = world.joined(token).unwrap().member_id.clone();
    world.sync(&sync(&id, 1, &[(&id, "mine")]));
    assert_eq!(world.state(), State::Stable);
    (world, id)
}

fn consumer() -> (World, String) {
    stable_with("consumer", SUBSCRIBED_TO_T)
}

#[test]
fn groups_are_listed_by_state_and_type_whatever_their_case() {
    let (mut world, _) = consumer();
    let simple = OffsetCommit {
        group_id: "simple".into(),
        ..commit("", -1, &[("t", 0, 5)])
    };
    world.commit(&simple);
    let check = |states: &[&str], types: &[&str], expected: &[&str]| {
        let filter = ListFilter::new(&names(states), &names(types));
        let listed = world.coordinator.list_groups(&filter);
        let ids: Vec<&str> = listed.iter().map(|group| group.group_id.as_str()).collect();
        assert_eq!(ids, expected, "{states:?} {types:?}");
    };
    check(&[], &[], &["g", "simple"]);
    check(&["Stable"], &[], &["g"]);
    check(&["sTABLE", "empty "], &[], &["g", "simple"]);
    check(&["Empty"], &["Classic"], &["simple"]);
    check(&["no such state"], &[], &[]);
    check(&[], &["consumer"], &[]);
    check(&[], &["consumer", "classic"], &["g", "simple"]);
    check(&[], &["no such type"], &[]);
    let listed = world.coordinator.list_groups(&ListFilter::new(&[], &[]));
    let types: Vec<&str> = listed
        .iter()
        .map(|group| group.protocol_type.as_str())
        .collect();
    assert_eq!(types, ["consumer", ""]);
}

#[test]
fn members_tell_their_assignment_only_while_the_group_is_stable() {
    let (mut world, id) = consumer();
    let described = world.coordinator.describe_group("g").unwrap();
    assert_eq!(
        (
            described.state,
            described.protocol_type.as_str(),
            described.protocol.as_str()
        ),
        (State::Stable, "consumer", "range")
    );
    let member = DescribedMember {
        member_id: id.clone(),
        group_instance_id: None,
        client_id: "c".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        metadata: bytes(SUBSCRIBED_TO_T),
        assignment: bytes("mine"),
    };
    assert_eq!(described.members, std::slice::from_ref(&member));
    world.join(&join(""));
    let described = world.coordinator.describe_group("g").unwrap();
    assert_eq!(
        (described.state, described.protocol.as_str()),
        (State::PreparingRebalance, "")
    );
    let bare = DescribedMember {
        metadata: bytes(""),
        assignment: bytes(""),
        ..member
    };
    assert!(described.members.contains(&bare), "{described:?}");
    assert_eq!(world.coordinator.describe_group("other"), None);
}

#[test]
fn a_group_is_deleted_only_without_members() {
    let (mut world, id) = consumer();
    assert_eq!(
        world.delete_group("other"),
        Some(ErrorKind::GroupIdNotFound)
    );
    world.commit(&commit(&id, 1, &[("t", 0, 5), ("u", 1, 6)]));
    assert_eq!(world.delete_group("g"), Some(ErrorKind::NonEmptyGroup));
    let newcomer = world.join(&join(""));
    assert_eq!(world.state(), State::PreparingRebalance);
    assert_eq!(world.delete_group("g"), Some(ErrorKind::NonEmptyGroup));
    world.join(&join(&id));
    assert_eq!(world.state(), State::CompletingRebalance);
    assert_eq!(world.delete_group("g"), Some(ErrorKind::NonEmptyGroup));
    let other = world.joined(newcomer).unwrap().member_id.clone();
    world.leave(&id, None);
    world.leave(&other, None);
    assert_eq!(world.state(), State::Empty);
    let before = world.log.len();
    assert_eq!(world.delete_group("g"), None);
    let tombstones = &world.log[before..];
    assert!(
        matches!(
            tombstones,
            [
                Record::Offset { value: None, .. },
                Record::Offset { value: None, .. },
                Record::Group { value: None, .. }
            ]
        ),
        "{tombstones:?}"
    );
    assert_eq!(
        (world.state(), world.coordinator.groups().count()),
        (State::Dead, 0)
    );
    world.fail_over();
    assert_eq!(world.coordinator.groups().count(), 0);
}

#[test]
fn a_group_of_offsets_alone_and_one_of_ids_alone_are_deleted() {
    let mut world = World::new(Settings::default());
    world.commit(&commit("", -1, &[("t", 0, 5)]));
    assert_eq!(world.delete_group("g"), None);
    assert_eq!(world.state(), State::Dead);
    let token = world.join(&JoinGroup {
        requires_known_member_id: true,
        ..join("")
    });
    let id = world.joined(token).unwrap().member_id.clone();
    assert_eq!(world.delete_group("g"), None);
    assert_eq!(world.state(), State::Dead);
    let token = world.join(&join(&id));
    assert_eq!(
        world.joined(token).unwrap().error,
        Some(ErrorKind::UnknownMemberId)
    );
    world.pass(60_000);
}

#[test]
fn offsets_are_deleted_but_for_topics_that_members_read() {
    let mut nobody = World::new(Settings::default());
    assert_eq!(
        nobody.delete_offsets(&[("t", &[0])]),
        Err(ErrorKind::GroupIdNotFound)
    );
    let check =
        |prepare: fn() -> (World, String), of_t: Option<ErrorKind>, of_u: Option<ErrorKind>| {
            let (mut world, id) = prepare();
            world.commit(&commit(&id, 1, &[("t", 0, 5), ("u", 0, 6), ("u", 1, 7)]));
            let before = world.log.len();
            let reply = world.delete_offsets(&[("t", &[0]), ("u", &[0, 9])]);
            assert_eq!(reply, Ok(vec![of_t, of_u, of_u]), "{id}");
            let left = world.coordinator.group("g").unwrap().offsets().count();
            let gone = usize::from(of_t.is_none()) + usize::from(of_u.is_none());
            assert_eq!(left, 3 - gone);
            assert_eq!(
                world.log.len(),
                before + gone,
                "nothing is written for what was not there"
            );
        };
    let subscribed = Some(ErrorKind::GroupSubscribedToTopic);
    check(consumer, subscribed, None);
    // What cannot be told counts as read.
    check(
        || stable_with("consumer", "not a subscription"),
        subscribed,
        subscribed,
    );
    let empty: fn() -> (World, String) = || {
        let (mut world, id) = consumer();
        world.commit(&commit(&id, 1, &[("t", 0, 5), ("u", 0, 6), ("u", 1, 7)]));
        world.leave(&id, None);
        (world, id)
    };
    let (mut world, _) = empty();
    let before = world.log.len();
    // One that is named again goes once.
    assert_eq!(
        world.delete_offsets(&[("t", &[0, 0]), ("u", &[0, 1]), ("u", &[1])]),
        Ok(vec![None; 5])
    );
    assert_eq!(world.coordinator.fetch_offsets("g", None), []);
    assert_eq!(world.log.len(), before + 3);
    let (mut world, _) = stable_with("connect", "x");
    assert_eq!(
        world.delete_offsets(&[("t", &[0])]),
        Err(ErrorKind::NonEmptyGroup)
    );
}
