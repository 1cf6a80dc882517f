//! Whose offsets are taken, and who is told them.

use super::world::{Client, World};
use crate::error::ErrorKind;
use crate::group::consumer::ConsumerGroup;
use crate::ids::TopicId;

#[test]
fn offsets_are_taken_in_the_epoch_of_now_and_in_those_since_the_partition_was_got() {
    let mut world = World::new(&[4]);
    let mut clients = [Client::new("m1", &["a"]), Client::new("m2", &["a"])];
    world.settle(&mut clients);
    let topic = TopicId([1; 16]);
    let check = |member: &str, epoch, partition| {
        let group = &world.group;
        group.check_commit(member, epoch, topic, partition)
    };
    // It has had 0 since epoch 1, and the other one has 3 since epoch 2.
    assert_eq!(check("m1", 2, 0), Ok(()));
    assert_eq!(check("m1", 1, 0), Ok(()));
    assert_eq!(check("m1", 3, 0), Err(ErrorKind::StaleMemberEpoch));
    assert_eq!(check("m2", 1, 3), Err(ErrorKind::StaleMemberEpoch));
    assert_eq!(check("m1", 1, 3), Err(ErrorKind::StaleMemberEpoch));
    assert_eq!(check("m3", 2, 0), Err(ErrorKind::UnknownMemberId));
    assert_eq!(check("", -1, 0), Err(ErrorKind::UnknownMemberId));
    let empty = ConsumerGroup::default();
    assert_eq!(empty.check_commit("", -1, topic, 0), Ok(()));
}

#[test]
fn offsets_are_told_to_members_in_their_epoch_and_to_who_is_none() {
    let mut world = World::new(&[4]);
    let mut one = Client::new("m1", &["a"]);
    world.beat(&mut one).expect("a member");
    let check = |member, epoch| world.group.check_fetch(member, epoch);
    assert_eq!(check(Some("m1"), 1), Ok(()));
    assert_eq!(check(Some("m1"), 0), Err(ErrorKind::StaleMemberEpoch));
    assert_eq!(check(Some("m2"), 1), Err(ErrorKind::UnknownMemberId));
    assert_eq!(check(None, -1), Ok(()));
    assert_eq!(check(None, 1), Err(ErrorKind::UnknownMemberId));
}
