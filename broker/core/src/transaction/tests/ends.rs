//! EndTxn in every state, of both versions.

use super::world::{TIMEOUT_MS, World, producer};
use crate::error::ErrorKind::{
    ConcurrentTransactions, InvalidProducerIdMapping, InvalidRequest, InvalidTxnState,
    ProducerFenced,
};
use crate::transaction::TransactionVersion::{V0, V2};
use crate::transaction::*;

/// What an EndTxn comes to: refused, done without a record, or with records that lead to a state.
type Outcome = Result<Option<State>, crate::error::ErrorKind>;

/// EndTxn by whoever is so many epochs away from the one in the log.
fn check(version: TransactionVersion, state: State, commit: bool, away: i16, expected: Outcome) {
    let (mut world, current) = World::in_state(state, version);
    let before = world.log.len();
    let asking = producer(current.producer_id.0, current.epoch + away);
    let reply = world.end("t", asking, commit, version);
    let found = reply.map(|_| (world.log.len() > before).then(|| world.value("t").state));
    assert_eq!(
        found, expected,
        "{version:?} {state} commit={commit}, {away} epochs away"
    );
    if let Ok(told) = reply {
        // Version 2 tells who the producer is once the markers are written, to a retry as well.
        world.write_markers(usize::MAX);
        let after = world.value("t").producer();
        assert_eq!(told, version.raises_epoch().then_some(after));
    }
}

#[test]
fn version_0_demands_the_epoch_and_answers_retries_by_the_state() {
    let done = Ok(None);
    let check = |state, commit, expected: Outcome| {
        check(V0, state, commit, 0, expected);
        for away in [-1, 1] {
            super::ends::check(V0, state, commit, away, Err(ProducerFenced));
        }
    };
    check(State::Empty, true, Err(InvalidTxnState));
    check(State::Empty, false, Err(InvalidTxnState));
    check(State::Ongoing, true, Ok(Some(State::PrepareCommit)));
    check(State::Ongoing, false, Ok(Some(State::PrepareAbort)));
    check(State::PrepareCommit, true, Err(ConcurrentTransactions));
    check(State::PrepareCommit, false, Err(InvalidTxnState));
    check(State::PrepareAbort, true, Err(InvalidTxnState));
    check(State::PrepareAbort, false, Err(ConcurrentTransactions));
    check(State::CompleteCommit, true, done);
    check(State::CompleteCommit, false, Err(InvalidTxnState));
    check(State::CompleteAbort, true, Err(InvalidTxnState));
    check(State::CompleteAbort, false, done);
}

#[test]
fn version_2_tells_a_retry_from_the_next_end_by_the_epoch() {
    let (retry, current, beyond) = (-1, 0, 1);
    let done = Ok(None);
    let aborted = Ok(Some(State::CompleteAbort));
    let check = |state, commit, away, expected| check(V2, state, commit, away, expected);
    for state in State::ALL {
        for commit in [true, false] {
            check(state, commit, beyond, Err(ProducerFenced));
        }
    }
    check(State::Empty, true, retry, Err(ProducerFenced));
    check(State::Empty, false, retry, Err(ProducerFenced));
    check(State::Empty, true, current, Err(InvalidTxnState));
    check(State::Empty, false, current, aborted);
    check(State::Ongoing, true, retry, Err(ProducerFenced));
    check(
        State::Ongoing,
        true,
        current,
        Ok(Some(State::PrepareCommit)),
    );
    check(
        State::Ongoing,
        false,
        current,
        Ok(Some(State::PrepareAbort)),
    );
    check(
        State::PrepareCommit,
        true,
        retry,
        Err(ConcurrentTransactions),
    );
    check(State::PrepareCommit, false, retry, Err(InvalidTxnState));
    check(State::PrepareCommit, true, current, Err(ProducerFenced));
    check(State::PrepareAbort, true, retry, Err(ProducerFenced));
    check(
        State::PrepareAbort,
        false,
        retry,
        Err(ConcurrentTransactions),
    );
    check(State::PrepareAbort, false, current, Err(ProducerFenced));
    check(State::CompleteCommit, true, retry, done);
    check(State::CompleteCommit, true, current, Err(InvalidTxnState));
    check(State::CompleteCommit, false, retry, Err(InvalidTxnState));
    check(State::CompleteCommit, false, current, aborted);
    check(State::CompleteAbort, true, retry, Err(ProducerFenced));
    check(State::CompleteAbort, true, current, Err(InvalidTxnState));
    check(State::CompleteAbort, false, retry, done);
    check(State::CompleteAbort, false, current, aborted);
}

#[test]
fn nobody_ends_the_transaction_of_another() {
    for version in [V0, V2] {
        let (mut world, current) = World::in_state(State::Ongoing, version);
        let stranger = producer(99, current.epoch);
        assert_eq!(
            world.end("t", stranger, true, version),
            Err(InvalidProducerIdMapping)
        );
        assert_eq!(
            world.end("other", current, true, version),
            Err(InvalidProducerIdMapping)
        );
        assert_eq!(world.end("", current, true, version), Err(InvalidRequest));
        assert_eq!(world.value("t").state, State::Ongoing);
    }
}

#[test]
fn every_end_of_version_2_raises_the_epoch_and_markers_carry_the_raised_one() {
    let (mut world, mut current) = World::in_state(State::Empty, V2);
    for round in 0..3 {
        assert_eq!(current, producer(1, round));
        assert_eq!(world.add("t", current, &[("p", 0)], V2), Ok(()));
        let told = world.end("t", current, round % 2 == 0, V2).expect("ends");
        let markers = world.asked.last().expect("markers");
        assert_eq!(markers.producer, producer(1, round + 1));
        assert_eq!(markers.commit, round % 2 == 0);
        world.write_markers(usize::MAX);
        current = told.expect("version 2 tells");
    }
}

#[test]
fn version_0_keeps_the_epoch_from_one_transaction_to_the_next() {
    let (mut world, current) = World::in_state(State::CompleteCommit, V0);
    assert_eq!(world.add("t", current, &[("q", 0)], V0), Ok(()));
    assert_eq!(world.end("t", current, false, V0), Ok(None));
    let markers = world.asked.last().expect("markers");
    assert_eq!(
        (markers.producer, markers.commit, markers.partitions.len()),
        (current, false, 1)
    );
}

/// A producer of version 2 whose epoch is the last one.
fn with_last_epoch() -> (World, ProducerIdAndEpoch) {
    let (mut world, _) = World::in_state(State::Empty, V2);
    let mut value = world.value("t").clone();
    value.producer_epoch = i16::MAX - 1;
    let record = Record {
        transactional_id: "t".to_owned(),
        value: Some(value),
    };
    world.finish(vec![record], Vec::new());
    let last = world.value("t").producer();
    assert_eq!(last, producer(1, i16::MAX - 1));
    (world, last)
}

#[test]
fn an_end_with_the_last_epoch_goes_on_with_a_fresh_producer_id() {
    for commit in [true, false] {
        let (mut world, last) = with_last_epoch();
        assert_eq!(world.add("t", last, &[("p", 0)], V2), Ok(()));
        let fresh = producer(2, 0);
        assert_eq!(world.end("t", last, commit, V2), Ok(Some(fresh)));
        let markers = world.asked.last().expect("markers").clone();
        assert_eq!(markers.producer, producer(1, i16::MAX));
        // The answer was lost, before and after the markers.
        assert_eq!(
            world.end("t", last, commit, V2),
            Err(ConcurrentTransactions)
        );
        world.write_markers(usize::MAX);
        assert_eq!(world.value("t").producer(), fresh);
        assert_eq!(world.end("t", last, commit, V2), Ok(Some(fresh)));
        // Also a failover keeps that, for it is in the log.
        world.fail_over();
        assert_eq!(world.end("t", last, commit, V2), Ok(Some(fresh)));
        assert_eq!(world.add("t", fresh, &[("p", 0)], V2), Ok(()));
        assert_eq!(
            world.end("t", last, commit, V2),
            Err(InvalidProducerIdMapping)
        );
    }
}

#[test]
fn an_abort_of_nothing_with_the_last_epoch_goes_on_with_a_fresh_producer_id() {
    let (mut world, last) = with_last_epoch();
    assert_eq!(world.end("t", last, false, V2), Ok(Some(producer(2, 0))));
    assert_eq!(world.value("t").state, State::CompleteAbort);
    assert_eq!(world.asked, []);
}

#[test]
fn a_fence_with_the_last_epoch_goes_on_with_a_fresh_producer_id() {
    let (mut world, last) = with_last_epoch();
    assert_eq!(world.add("t", last, &[("p", 0)], V2), Ok(()));
    assert_eq!(world.init("t", None), Err(ConcurrentTransactions));
    assert_eq!(
        world.asked.last().expect("markers").producer,
        producer(1, i16::MAX)
    );
    world.write_markers(usize::MAX);
    assert_eq!(world.value("t").producer(), producer(2, 0));
    assert_eq!(world.init("t", None), Ok(producer(2, 1)));
}

#[test]
fn a_client_of_version_0_that_is_fenced_with_the_last_epoch_is_replaced_by_a_fresh_producer_id() {
    let (mut world, _) = World::in_state(State::Empty, V0);
    let mut value = world.value("t").clone();
    value.producer_epoch = i16::MAX - 1;
    let record = Record {
        transactional_id: "t".to_owned(),
        value: Some(value),
    };
    world.finish(vec![record], Vec::new());
    let last = producer(1, i16::MAX - 1);
    assert_eq!(world.add("t", last, &[("p", 0)], V0), Ok(()));
    assert_eq!(world.init("t", None), Err(ConcurrentTransactions));
    assert_eq!(
        world.asked.last().expect("markers").producer,
        producer(1, i16::MAX)
    );
    world.write_markers(usize::MAX);
    assert_eq!(world.init("t", None), Ok(producer(2, 0)));
}

#[test]
fn a_producer_that_was_fenced_by_version_0_is_not_told_the_epoch_that_fenced_it() {
    for epoch in [0, i16::MAX - 1] {
        let (mut world, _) = World::in_state(State::Empty, V0);
        let mut value = world.value("t").clone();
        value.producer_epoch = epoch;
        let record = Record {
            transactional_id: "t".to_owned(),
            value: Some(value),
        };
        world.finish(vec![record], Vec::new());
        let before = producer(1, epoch);
        assert_eq!(world.add("t", before, &[("p", 0)], V0), Ok(()));
        world.pass(2 * u64::try_from(TIMEOUT_MS).expect("positive"));
        assert_eq!(world.value("t").state, State::PrepareAbort);
        assert_eq!(world.value("t").producer(), producer(1, epoch + 1));
        for _ in 0..2 {
            assert_eq!(world.end("t", before, false, V2), Err(ProducerFenced));
            world.write_markers(usize::MAX);
        }
    }
}
