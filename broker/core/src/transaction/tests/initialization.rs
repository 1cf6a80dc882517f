//! InitProducerId and AddPartitionsToTxn: who may be a transactional id, and who is fenced.

use super::world::{TIMEOUT_MS, World, partitions, producer};
use crate::error::ErrorKind::{
    ConcurrentTransactions, CoordinatorNotAvailable, InvalidProducerIdMapping, InvalidRequest,
    InvalidTransactionTimeout, ProducerFenced, TransactionAbortable, UnknownServerError,
};
use crate::transaction::TransactionVersion::{V0, V2};
use crate::transaction::*;

#[test]
fn a_new_id_gets_a_fresh_producer_and_every_start_after_it_the_next_epoch() {
    let mut world = World::new(V2);
    for epoch in 0..3 {
        assert_eq!(world.init("t", None), Ok(producer(1, epoch)));
    }
    assert_eq!(world.init("u", None), Ok(producer(2, 0)));
    // What a producer of an expired id names is no matter: nobody else can have it.
    assert_eq!(world.init("v", Some(producer(7, 3))), Ok(producer(3, 0)));
}

#[test]
fn requests_are_checked_before_anything_is_looked_up() {
    let mut world = World::new(V2);
    let mut check = |id: &str, timeout_ms, expected| {
        let request = InitProducerId {
            transactional_id: id.to_owned(),
            timeout_ms,
            expected: None,
        };
        assert_eq!(world.init_with(&request), expected, "{id:?} {timeout_ms}");
    };
    check("", TIMEOUT_MS, Err(InvalidRequest));
    check("t", 0, Err(InvalidTransactionTimeout));
    check("t", -1, Err(InvalidTransactionTimeout));
    check("t", 900_001, Err(InvalidTransactionTimeout));
    check("t", 900_000, Ok(producer(1, 0)));
}

#[test]
fn a_producer_that_goes_on_is_raised_and_may_ask_again() {
    for state in [State::Empty, State::CompleteCommit, State::CompleteAbort] {
        let (mut world, current) = World::in_state(state, V0);
        let next = producer(1, current.epoch + 1);
        assert_eq!(world.init("t", Some(current)), Ok(next), "{state}");
        // The answer was lost.
        assert_eq!(world.init("t", Some(current)), Ok(next), "{state}");
        assert_eq!(
            world.init("t", Some(producer(1, current.epoch + 2))),
            Err(ProducerFenced)
        );
        assert_eq!(
            world.init("t", Some(producer(9, current.epoch))),
            Err(ProducerFenced)
        );
        // Another one starts: now the first is fenced, and its retry too.
        assert_eq!(world.init("t", None), Ok(producer(1, current.epoch + 2)));
        assert_eq!(world.init("t", Some(next)), Err(ProducerFenced));
        assert_eq!(world.init("t", Some(current)), Err(ProducerFenced));
    }
}

#[test]
fn a_failover_forgets_who_asked_last_and_fences_the_retry() {
    let (mut world, current) = World::in_state(State::Empty, V2);
    assert!(world.init("t", Some(current)).is_ok());
    world.fail_over();
    assert_eq!(world.init("t", Some(current)), Err(ProducerFenced));
}

#[test]
fn a_start_aborts_the_transaction_that_is_open_and_fences_its_producer() {
    for version in [V0, V2] {
        let (mut world, old) = World::in_state(State::Ongoing, version);
        assert_eq!(world.init("t", None), Err(ConcurrentTransactions));
        let markers = world.asked.last().expect("an abort").clone();
        assert_eq!(
            (markers.producer, markers.commit, markers.version),
            (producer(1, 1), false, version)
        );
        assert_eq!(markers.partitions, partitions(&[("p", 0), ("p", 1)]));
        assert_eq!(world.init("t", None), Err(ConcurrentTransactions));
        assert_eq!(
            world.end("t", old, true, version),
            Err(ProducerFenced),
            "{version:?}"
        );
        world.write_markers(usize::MAX);
        // The epoch of the markers was nobody's.
        assert_eq!(world.init("t", None), Ok(producer(1, 2)));
        assert_eq!(
            world.add("t", old, &[("p", 0)], version),
            Err(ProducerFenced)
        );
    }
}

#[test]
fn one_that_is_fenced_does_not_abort_the_transaction_of_its_successor() {
    let (mut world, old) = World::in_state(State::Empty, V2);
    let new = world.init("t", None).expect("starts");
    assert_eq!(world.add("t", new, &[("p", 0)], V2), Ok(()));
    assert_eq!(world.init("t", Some(old)), Err(ProducerFenced));
    assert_eq!(world.value("t").state, State::Ongoing);
    // The producer itself may: it has lost its place and begins anew.
    assert_eq!(world.init("t", Some(new)), Err(ConcurrentTransactions));
    assert_eq!(world.value("t").state, State::PrepareAbort);
}

#[test]
fn an_end_under_way_is_waited_for() {
    for state in [State::PrepareCommit, State::PrepareAbort] {
        let (mut world, current) = World::in_state(state, V2);
        for expected in [None, Some(current)] {
            assert_eq!(world.init("t", expected), Err(ConcurrentTransactions));
        }
        assert_eq!(
            world.add("t", current, &[("p", 0)], V2),
            Err(ConcurrentTransactions)
        );
    }
}

#[test]
fn a_start_with_the_last_epoch_gets_a_fresh_producer_id() {
    let last = producer(1, i16::MAX - 1);
    let world_with_last = || {
        let (mut world, _) = World::in_state(State::Empty, V0);
        let mut value = world.value("t").clone();
        value.producer_epoch = last.epoch;
        let record = Record {
            transactional_id: "t".to_owned(),
            value: Some(value),
        };
        world.finish(vec![record], Vec::new());
        world
    };
    let mut world = world_with_last();
    assert_eq!(world.init("t", None), Ok(producer(2, 0)));
    assert_eq!(world.init("t", Some(last)), Err(ProducerFenced));
    // One that goes on may ask again with the id that it had.
    let mut world = world_with_last();
    assert_eq!(world.init("t", Some(last)), Ok(producer(2, 0)));
    assert_eq!(world.init("t", Some(last)), Ok(producer(2, 0)));
    assert_eq!(
        world.init("t", Some(producer(1, last.epoch - 1))),
        Err(ProducerFenced)
    );
}

#[test]
fn partitions_are_added_by_the_producer_of_now_alone() {
    for version in [V0, V2] {
        let (mut world, current) = World::in_state(State::Empty, version);
        let mut check = |id: &str, asking, expected| {
            assert_eq!(world.add(id, asking, &[("p", 0)], version), expected);
        };
        check("", current, Err(InvalidRequest));
        check("u", current, Err(InvalidProducerIdMapping));
        check("t", producer(9, 0), Err(InvalidProducerIdMapping));
        check("t", producer(1, 1), Err(ProducerFenced));
        check("t", producer(1, -1), Err(ProducerFenced));
        check("t", current, Ok(()));
    }
}

#[test]
fn partitions_that_are_there_are_not_written_again() {
    let (mut world, current) = World::in_state(State::Ongoing, V2);
    let before = world.log.len();
    assert_eq!(world.add("t", current, &[("p", 1)], V2), Ok(()));
    assert_eq!(world.log.len(), before);
    assert_eq!(world.add("t", current, &[("p", 1), ("q", 0)], V2), Ok(()));
    assert_eq!(
        world
            .value("t")
            .partitions
            .iter()
            .cloned()
            .collect::<Vec<_>>(),
        partitions(&[("p", 0), ("p", 1), ("q", 0)])
    );
    assert_eq!(world.log.len(), before + 1);
}

#[test]
fn a_leader_learns_whether_a_producer_may_write_to_its_partition() {
    let check = |state, asking: fn(ProducerIdAndEpoch) -> ProducerIdAndEpoch, expected: [_; 2]| {
        let (world, current) = World::in_state(state, V0);
        let asked = partitions(&[("p", 0), ("q", 0)]);
        let found = world
            .coordinator
            .verify_partitions("t", asking(current), &asked);
        assert_eq!(found, expected, "{state}");
    };
    let current: fn(ProducerIdAndEpoch) -> ProducerIdAndEpoch = |current| current;
    check(State::Ongoing, current, [None, Some(TransactionAbortable)]);
    check(
        State::Ongoing,
        |current| producer(current.producer_id.0, current.epoch + 1),
        [Some(ProducerFenced); 2],
    );
    check(
        State::Ongoing,
        |_| producer(9, 0),
        [Some(InvalidProducerIdMapping); 2],
    );
    // The batch came after the marker of its transaction, or before its transaction began.
    for state in [State::Empty, State::CompleteCommit, State::CompleteAbort] {
        check(state, current, [Some(TransactionAbortable); 2]);
    }
    for state in [State::PrepareCommit, State::PrepareAbort] {
        check(state, current, [Some(ConcurrentTransactions); 2]);
    }
}

#[test]
fn ids_and_partitions_are_bounded() {
    let mut world = World::with(Settings {
        transactional_ids_max: 1,
        batch_bytes_max: 1_000,
        ..Settings::default()
    });
    let current = world.init("t", None).expect("the only one");
    assert_eq!(world.init("u", None), Err(CoordinatorNotAvailable));
    let many: Vec<(&str, i32)> = (0..100).map(|partition| ("p", partition)).collect();
    assert_eq!(
        world.add("t", current, &many, V2),
        Err(UnknownServerError),
        "a record that no batch could hold"
    );
    assert_eq!(world.value("t").state, State::Empty);
    assert_eq!(world.add("t", current, &many[..20], V2), Ok(()));
}
