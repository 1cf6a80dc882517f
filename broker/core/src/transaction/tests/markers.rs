//! Markers: whose end they complete, and whose not.

use super::world::{World, partitions, producer};
use crate::error::ErrorKind::InvalidTxnState;
use crate::transaction::TransactionVersion::{V0, V2};
use crate::transaction::*;

#[test]
fn an_end_is_complete_with_its_last_marker() {
    let (mut world, current) = World::in_state(State::PrepareCommit, V2);
    let unmarked = |world: &World| {
        let description = world.coordinator.describe("t").expect("known");
        description.partitions.len()
    };
    assert_eq!(unmarked(&world), 2);
    world.write_markers(1);
    assert_eq!(
        (world.value("t").state, unmarked(&world)),
        (State::PrepareCommit, 1)
    );
    world.write_markers(1);
    assert_eq!(world.value("t").state, State::CompleteCommit);
    assert_eq!(world.value("t").producer(), current);
    assert!(world.value("t").partitions.is_empty());
}

#[test]
fn markers_that_are_told_twice_count_once() {
    let (mut world, _) = World::in_state(State::PrepareAbort, V2);
    let markers = world.owed[0].clone();
    world.written(&markers, 1);
    world.written(&markers, 1);
    assert_eq!(world.value("t").state, State::PrepareAbort);
    world.written(&markers, 2);
    let before = world.log.len();
    world.written(&markers, 2);
    assert_eq!(world.log.len(), before, "it is complete already");
}

#[test]
fn late_markers_of_an_earlier_end_do_not_complete_the_next_one() {
    // In version 0 producer and epoch are the same both times.
    let (mut world, current) = World::in_state(State::PrepareCommit, V0);
    let late = world.owed[0].clone();
    world.write_markers(usize::MAX);
    assert_eq!(world.add("t", current, &[("p", 0), ("p", 1)], V0), Ok(()));
    assert_eq!(world.end("t", current, false, V0), Ok(None));
    assert_eq!(world.owed[0].producer, late.producer);
    world.written(&late, 2);
    assert_eq!(world.value("t").state, State::PrepareAbort);
    world.write_markers(usize::MAX);
    assert_eq!(world.value("t").state, State::CompleteAbort);
}

#[test]
fn markers_of_what_expired_or_never_was_change_nothing() {
    let (mut world, _) = World::in_state(State::CompleteCommit, V2);
    let markers = world.asked[0].clone();
    let before = world.log.len();
    world.written(&markers, 2);
    let stranger = Markers {
        transactional_id: "u".into(),
        ..markers
    };
    world.written(&stranger, 2);
    assert_eq!(world.log.len(), before);
}

#[test]
fn a_new_coordinator_asks_for_the_markers_that_are_owed() {
    for (state, commit) in [(State::PrepareCommit, true), (State::PrepareAbort, false)] {
        let (mut world, current) = World::in_state(state, V2);
        world.write_markers(1);
        world.fail_over();
        let owed = world.owed.clone();
        assert_eq!(owed.len(), 1);
        assert_eq!(
            (owed[0].producer, owed[0].commit, &owed[0].partitions),
            (current, commit, &partitions(&[("p", 0), ("p", 1)])),
            "all of them: nobody knows which were written"
        );
        world.write_markers(usize::MAX);
        assert!(world.value("t").state.is_at_rest());
    }
    for state in [State::Empty, State::Ongoing, State::CompleteAbort] {
        let (mut world, _) = World::in_state(state, V2);
        world.fail_over();
        assert_eq!(world.owed, [], "{state}");
    }
}

#[test]
fn an_abort_of_nothing_is_complete_at_once() {
    let (mut world, current) = World::in_state(State::Empty, V2);
    let before = world.log.len();
    assert_eq!(world.end("t", current, false, V2), Ok(Some(producer(1, 1))));
    let states: Vec<State> = world.log[before..]
        .iter()
        .map(|record| record.value.as_ref().expect("no tombstone").state)
        .collect();
    assert_eq!(states, [State::PrepareAbort, State::CompleteAbort]);
    assert_eq!(world.asked, []);
    // One that Kafka began and did not complete is completed after a failover.
    world.log.pop();
    world.fail_over();
    assert_eq!(world.value("t").state, State::PrepareAbort);
    world.write_markers(usize::MAX);
    assert_eq!(world.value("t").state, State::CompleteAbort);
}

#[test]
fn a_committed_transaction_is_not_aborted_and_the_other_way_round() {
    for (state, commit) in [(State::CompleteCommit, false), (State::CompleteAbort, true)] {
        let (mut world, current) = World::in_state(state, V0);
        assert_eq!(world.end("t", current, commit, V0), Err(InvalidTxnState));
    }
}
