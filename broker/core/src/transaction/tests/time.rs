//! Timeouts of transactions, and transactional ids that expire.

use std::collections::BTreeSet;
use std::time::Duration;

use super::world::{TIMEOUT_MS, World, producer};
use crate::error::ErrorKind::{InvalidProducerIdMapping, ProducerFenced};
use crate::ids::ProducerId;
use crate::transaction::TransactionVersion::{V0, V2};
use crate::transaction::*;

const WEEK_MS: u64 = 7 * 24 * 3_600 * 1_000;
const TIMEOUT: u64 = TIMEOUT_MS as u64;

#[test]
fn a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() {
    for version in [V0, V2] {
        let (mut world, current) = World::in_state(State::Ongoing, version);
        world.pass(TIMEOUT - 1);
        // More partitions do not prolong it.
        assert_eq!(world.add("t", current, &[("q", 0)], version), Ok(()));
        assert_eq!(world.value("t").state, State::Ongoing);
        world.pass(1);
        assert_eq!(world.value("t").state, State::PrepareAbort);
        let markers = world.asked.last().expect("an abort");
        assert_eq!((markers.producer, markers.commit), (producer(1, 1), false));
        world.write_markers(usize::MAX);
        assert_eq!(world.end("t", current, true, version), Err(ProducerFenced));
        assert_eq!(
            world.add("t", current, &[("p", 0)], version),
            Err(ProducerFenced)
        );
        world.pass(TIMEOUT * 2);
        assert_eq!(world.value("t").state, State::CompleteAbort);
    }
}

#[test]
fn in_version_2_a_producer_goes_on_after_its_transaction_timed_out() {
    let (mut world, current) = World::in_state(State::Ongoing, V2);
    world.pass(TIMEOUT);
    world.write_markers(usize::MAX);
    assert_eq!(world.init("t", Some(current)), Ok(producer(1, 1)));
    let (mut world, current) = World::in_state(State::Ongoing, V0);
    world.pass(TIMEOUT);
    world.write_markers(usize::MAX);
    assert_eq!(world.init("t", Some(current)), Err(ProducerFenced));
}

#[test]
fn the_next_transaction_has_its_own_time() {
    let (mut world, current) = World::in_state(State::Ongoing, V0);
    world.pass(TIMEOUT - 1);
    assert_eq!(world.end("t", current, true, V0), Ok(None));
    world.write_markers(usize::MAX);
    assert_eq!(world.add("t", current, &[("p", 0)], V0), Ok(()));
    world.pass(TIMEOUT - 1);
    assert_eq!(world.value("t").state, State::Ongoing);
    world.pass(1);
    assert_eq!(world.value("t").state, State::PrepareAbort);
}

#[test]
fn a_failover_does_not_prolong_a_transaction() {
    let (mut world, _) = World::in_state(State::Ongoing, V2);
    for _ in 0..3 {
        world.pass(TIMEOUT / 4);
        world.fail_over();
    }
    world.pass(TIMEOUT / 4 - 1);
    assert_eq!(world.value("t").state, State::Ongoing);
    world.pass(1);
    assert_eq!(world.value("t").state, State::PrepareAbort);
}

#[test]
fn a_wall_clock_that_jumped_gives_at_most_all_of_the_time_again() {
    let (world, _) = World::in_state(State::Ongoing, V2);
    let check = |jumped_ms: i64, expected_ms: u64| {
        let mut coordinator = world.coordinator.clone();
        let mut effects = Vec::new();
        coordinator.handle_loaded(world.now(), world.wall_ms() + jumped_ms, &mut effects);
        let left = coordinator.next_deadline().expect("it times out");
        assert_eq!(
            left - world.now(),
            Duration::from_millis(expected_ms),
            "{jumped_ms}"
        );
    };
    check(0, TIMEOUT);
    check(-1_000_000_000, TIMEOUT);
    check(1_000, TIMEOUT - 1_000);
    check(1_000_000_000, 0);
}

#[test]
fn a_timeout_that_needs_a_producer_id_waits_for_one() {
    let (mut world, _) = World::in_state(State::Empty, V2);
    let mut value = world.value("t").clone();
    value.producer_epoch = i16::MAX - 1;
    let record = Record {
        transactional_id: "t".to_owned(),
        value: Some(value),
    };
    world.finish(vec![record], Vec::new());
    let last = producer(1, i16::MAX - 1);
    assert_eq!(world.add("t", last, &[("p", 0)], V2), Ok(()));
    world.now_ms += TIMEOUT;
    let mut effects = Vec::new();
    let (now, wall_ms) = (world.now(), world.wall_ms());
    let records = world.coordinator.handle_timeout(now, wall_ms, &mut effects);
    assert_eq!((records.len(), effects.len()), (0, 0));
    assert!(world.coordinator.wants_producer_id());
    assert!(world.coordinator.next_deadline() > Some(now), "no spinning");
    world.give_producer_id();
    assert!(!world.coordinator.wants_producer_id());
    world.pass(1_000);
    assert_eq!(world.value("t").state, State::PrepareAbort);
    world.write_markers(usize::MAX);
    assert_eq!(world.value("t").producer(), producer(2, 0));
}

#[test]
fn silent_ids_expire_unless_they_have_a_transaction() {
    for state in State::ALL {
        let (mut world, current) = World::in_state(state, V2);
        // Straight to the end, past the transaction's own timeout.
        world.now_ms += WEEK_MS + 3_600_000;
        if state == State::Ongoing {
            world.timeout();
            assert_eq!(world.value("t").state, State::PrepareAbort);
        }
        world.timeout();
        let expired = world.coordinator.transaction("t").is_none();
        assert_eq!(expired, state.is_at_rest(), "{state}");
        if expired {
            assert_eq!(world.log.last().map(|record| &record.value), Some(&None));
            assert_eq!(
                world.add("t", current, &[("p", 0)], V2),
                Err(InvalidProducerIdMapping)
            );
            assert_eq!(world.init("t", Some(current)), Ok(producer(2, 0)));
        }
    }
}

#[test]
fn what_is_used_does_not_expire() {
    let (mut world, mut current) = World::in_state(State::Empty, V2);
    for _ in 0..4 {
        world.pass(WEEK_MS / 2);
        assert_eq!(world.add("t", current, &[("p", 0)], V2), Ok(()));
        let told = world.end("t", current, true, V2).expect("ends");
        current = told.expect("version 2 tells");
        world.write_markers(usize::MAX);
    }
    world.pass(WEEK_MS + 3_600_001);
    assert!(world.coordinator.transaction("t").is_none());
}

#[test]
fn tombstones_come_in_portions() {
    let mut world = World::new(V2);
    for index in 0..2_500 {
        assert!(world.init(&format!("t{index}"), None).is_ok());
    }
    world.now_ms += WEEK_MS + 3_600_000;
    let before = world.log.len();
    world.timeout();
    assert_eq!(world.log.len(), before + 1_000);
    world.pass(0);
    assert_eq!(world.log.len(), before + 2_500);
    assert_eq!(world.coordinator.next_deadline(), None);
}

#[test]
fn a_list_shows_what_is_asked_for() {
    let (mut world, current) = World::in_state(State::Ongoing, V2);
    assert!(world.init("u", None).is_ok());
    world.pass(1_000);
    let check = |filter: Filter, expected: &[&str]| {
        let found: Vec<&str> = world
            .coordinator
            .list(world.wall_ms(), &filter)
            .map(|(id, _)| id)
            .collect();
        assert_eq!(found, expected, "{filter:?}");
    };
    let any = Filter::default;
    check(any(), &["t", "u"]);
    let producer_ids = |ids: &[i64]| Some(ids.iter().map(|id| ProducerId(*id)).collect());
    check(
        Filter {
            producer_ids: producer_ids(&[current.producer_id.0]),
            ..any()
        },
        &["t"],
    );
    check(
        Filter {
            producer_ids: producer_ids(&[9]),
            ..any()
        },
        &[],
    );
    let states = |states: &[State]| Some(BTreeSet::from_iter(states.iter().copied()));
    check(
        Filter {
            states: states(&[State::Empty, State::PrepareAbort]),
            ..any()
        },
        &["u"],
    );
    check(
        Filter {
            states: states(&[]),
            ..any()
        },
        &[],
    );
    // As in Kafka, one without a transaction has been going on since 1970.
    let longer_than = |ms| Filter {
        longer_than_ms: Some(ms),
        ..any()
    };
    check(longer_than(999), &["t", "u"]);
    check(longer_than(1_000), &["u"]);
}
