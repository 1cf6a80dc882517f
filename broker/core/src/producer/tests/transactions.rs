//! Transactions as one partition sees them: what is stable, what is verified, which markers are taken.

use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;

fn of(producer_id: i64, producer_epoch: i16, base_sequence: i32, kind: BatchKind) -> Batch {
    Batch {
        producer_id: ProducerId(producer_id),
        producer_epoch,
        base_sequence,
        last_offset_delta: 0,
        max_timestamp: 1_000,
        kind,
    }
}

fn data(producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Batch {
    of(
        producer_id,
        producer_epoch,
        base_sequence,
        BatchKind::Transactional,
    )
}

fn plain(producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Batch {
    of(producer_id, producer_epoch, base_sequence, BatchKind::Plain)
}

fn marker(producer_id: i64, producer_epoch: i16, commit: bool) -> Batch {
    let marker = Marker {
        commit,
        coordinator_epoch: 5,
    };
    of(producer_id, producer_epoch, -1, BatchKind::Marker(marker))
}

/// A log of these batches, each of one record, and the transactions that ended in it.
fn log(batches: &[Batch]) -> (Producers, Vec<EndedTransaction>) {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    let mut ended = Vec::new();
    for (offset, batch) in batches.iter().enumerate() {
        ended.extend(producers.handle_append(Instant::ZERO, batch, offset as i64));
    }
    (producers, ended)
}

#[test]
fn nothing_is_stable_from_the_first_record_of_an_open_transaction_on() {
    let check = |batches: &[Batch], high_watermark: i64, expected: i64| {
        let (mut producers, _) = log(batches);
        for told in [false, true] {
            if told {
                producers.handle_high_watermark(high_watermark);
            }
            let found = producers.last_stable_offset(high_watermark);
            assert_eq!(found, expected, "{batches:?} up to {high_watermark}");
        }
    };
    check(&[], 0, 0);
    check(&[plain(1, 0, 0), plain(1, 0, 1)], 2, 2);
    check(&[plain(1, 0, 0), plain(1, 0, 1)], 1, 1);
    check(&[plain(1, 0, 0), data(2, 0, 0)], 2, 1);
    check(&[plain(1, 0, 0), data(2, 0, 0)], 1, 1);
    // Its marker has to be replicated, too.
    let ended = [data(2, 0, 0), data(2, 0, 1), marker(2, 0, true)];
    check(&ended, 3, 3);
    check(&ended, 2, 0);
    // The earliest counts, whoever ended.
    let two = [data(2, 0, 0), data(3, 0, 0), marker(3, 0, true)];
    check(&two, 3, 0);
    let two = [data(2, 0, 0), data(3, 0, 0), marker(2, 0, false)];
    check(&two, 3, 1);
    // The next one of the same producer.
    let next = [data(2, 0, 0), marker(2, 1, true), data(2, 1, 0)];
    check(&next, 3, 2);
    check(&next, 1, 0);
}

#[test]
fn a_marker_tells_what_it_ended_and_where_the_log_is_stable() {
    let ended =
        |producer_id, first_offset, last_offset, aborted, last_stable_offset| EndedTransaction {
            producer_id: ProducerId(producer_id),
            first_offset,
            last_offset,
            aborted,
            last_stable_offset,
        };
    let check = |batches: &[Batch], expected: &[EndedTransaction]| {
        assert_eq!(log(batches).1, expected, "{batches:?}");
    };
    check(
        &[data(1, 0, 0), marker(1, 0, true)],
        &[ended(1, 0, 1, false, 2)],
    );
    check(
        &[data(1, 0, 0), marker(1, 1, false)],
        &[ended(1, 0, 1, true, 2)],
    );
    // Without records there is nothing to end, also by the same marker once more.
    check(&[marker(1, 0, false)], &[]);
    check(&[plain(1, 0, 0), marker(1, 0, false)], &[]);
    check(
        &[data(1, 0, 0), marker(1, 1, false), marker(1, 1, false)],
        &[ended(1, 0, 1, true, 2)],
    );
    check(
        &[
            plain(9, 0, 0),
            data(1, 0, 0),
            data(2, 0, 0),
            data(1, 0, 1),
            marker(2, 0, false),
            marker(1, 0, false),
        ],
        &[ended(2, 2, 4, true, 1), ended(1, 1, 5, true, 6)],
    );
}

#[test]
fn the_first_batch_of_a_transaction_is_verified_once() {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    let check = |producers: &Producers, batch: Batch, guard| {
        producers.check(Instant::ZERO, &batch, 9, guard)
    };
    let first = data(1, 0, 0);
    assert_eq!(check(&producers, first, None), Ok(Admission::Verify));
    let guard = producers.handle_unverified(Instant::ZERO, &first, false);
    assert_eq!(check(&producers, first, None), Ok(Admission::Verify));
    assert_eq!(check(&producers, first, guard), Ok(Admission::Append));
    producers.handle_append(Instant::ZERO, &first, 9);
    assert_eq!(
        check(&producers, data(1, 0, 1), None),
        Ok(Admission::Append)
    );
    // Nor are retries.
    assert!(matches!(
        check(&producers, first, None),
        Ok(Admission::Duplicate(_))
    ));
    // The next transaction is another question, and so is one of a newer epoch.
    producers.handle_append(Instant::ZERO, &marker(1, 0, true), 10);
    assert_eq!(
        check(&producers, data(1, 0, 1), None),
        Ok(Admission::Verify)
    );
    producers.handle_append(Instant::ZERO, &data(1, 0, 1), 11);
    assert_eq!(
        check(&producers, data(1, 1, 0), None),
        Ok(Admission::Verify)
    );
}

#[test]
fn a_guard_does_not_outlive_the_transaction_that_was_asked_about() {
    const LATE: Result<Admission, ErrorKind> = Err(ErrorKind::InvalidTxnState);
    let after = |meanwhile: &[Batch], batch: Batch| {
        let mut producers = Producers::new(Settings::default(), Instant::ZERO);
        let guard = producers.handle_unverified(Instant::ZERO, &batch, false);
        for (offset, batch) in meanwhile.iter().enumerate() {
            producers.handle_append(Instant::ZERO, batch, offset as i64);
        }
        producers.check(Instant::ZERO, &batch, 9, guard)
    };
    assert_eq!(after(&[], data(1, 0, 0)), Ok(Admission::Append));
    assert_eq!(
        after(&[plain(2, 0, 0)], data(1, 0, 0)),
        Ok(Admission::Append)
    );
    // Aborted while the coordinator was asked: the batch must not begin a transaction that nobody ends.
    assert_eq!(after(&[marker(1, 0, false)], data(1, 0, 0)), LATE);
    // An epoch that is over is told as that, not as a wrong state (KAFKA-19690).
    assert_eq!(
        after(&[marker(1, 1, false)], data(1, 0, 0)),
        Err(ErrorKind::InvalidProducerEpoch)
    );
    // A guard of the time before is not one of now.
    assert_eq!(
        after(&[data(1, 0, 0), marker(1, 0, false)], data(1, 0, 1)),
        LATE
    );
}

#[test]
fn what_was_sent_behind_the_first_batch_does_not_overtake_it() {
    const ORDER: Result<Admission, ErrorKind> = Err(ErrorKind::OutOfOrderSequenceNumber);
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    let ask = |producers: &mut Producers, batch: Batch, raises_epoch| {
        producers
            .handle_unverified(Instant::ZERO, &batch, raises_epoch)
            .expect("there is room")
    };
    let check = |producers: &Producers, batch: Batch, guard| {
        producers.check(Instant::ZERO, &batch, 9, Some(guard))
    };
    let guard = ask(&mut producers, data(1, 0, 7), false);
    assert_eq!(ask(&mut producers, data(1, 0, 4), false), guard);
    assert_eq!(check(&producers, data(1, 0, 7), guard), ORDER);
    assert_eq!(
        check(&producers, data(1, 0, 4), guard),
        Ok(Admission::Append)
    );
    // In a newer epoch counting begins anew.
    assert_eq!(ask(&mut producers, data(1, 1, 5), false), guard);
    assert_eq!(
        check(&producers, data(1, 1, 5), guard),
        Ok(Admission::Append)
    );
    // With an epoch for each transaction the first batch has sequence 0.
    let guard = ask(&mut producers, data(2, 3, 4), true);
    assert_eq!(check(&producers, data(2, 3, 4), guard), ORDER);
    let guard = ask(&mut producers, data(3, 3, 0), true);
    assert_eq!(
        check(&producers, data(3, 3, 0), guard),
        Ok(Admission::Append)
    );
}

#[test]
fn questions_to_coordinators_are_bounded_and_expire() {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    for id in 0..10_000 {
        let guard = producers.handle_unverified(Instant::ZERO, &data(id, 0, 0), true);
        assert!(guard.is_some());
    }
    let beyond = data(10_000, 0, 0);
    assert_eq!(
        producers.handle_unverified(Instant::ZERO, &beyond, true),
        None
    );
    producers.handle_append(Instant::ZERO, &data(7, 0, 0), 0);
    let later = Instant::ZERO + Duration::from_secs(25 * 3600);
    assert!(producers.handle_unverified(later, &beyond, true).is_some());
    producers.handle_timeout(later);
    for id in 0..9_999 {
        let guard = producers.handle_unverified(later, &data(20_000 + id, 0, 0), true);
        assert!(guard.is_some());
    }
}

#[test]
fn records_outside_of_a_transaction_wait_for_its_end() {
    let (producers, _) = log(&[data(1, 0, 0)]);
    let check = |batch| producers.check(Instant::ZERO, &batch, 9, None);
    assert_eq!(check(plain(1, 0, 1)), Err(ErrorKind::InvalidTxnState));
    assert_eq!(
        check(plain(1, 0, 2)),
        Err(ErrorKind::OutOfOrderSequenceNumber)
    );
    assert_eq!(check(plain(2, 0, 0)), Ok(Admission::Append));
}

#[test]
fn markers_are_judged_by_the_rules_of_their_version() {
    const LATE: Result<(), ErrorKind> = Err(ErrorKind::InvalidProducerEpoch);
    let check = |batches: &[Batch], raises_epoch, producer_epoch, coordinator_epoch, expected| {
        let from = MarkerFrom {
            producer_id: ProducerId(1),
            producer_epoch,
            coordinator_epoch,
            raises_epoch,
        };
        assert_eq!(log(batches).0.check_marker(&from), expected, "{from:?}");
    };
    // Nothing known of the producer.
    check(&[], true, 3, 0, Ok(()));
    let open = [data(1, 3, 0)];
    for (epoch, version_0, version_2) in [(2, LATE, LATE), (3, Ok(()), LATE), (4, Ok(()), Ok(()))] {
        check(&open, false, epoch, 0, version_0);
        check(&open, true, epoch, 0, version_2);
    }
    // The same marker again, and one of the transaction before.
    let ended = [data(1, 3, 0), marker(1, 4, true)];
    check(&ended, true, 4, 5, Ok(()));
    check(&ended, true, 3, 5, LATE);
    let next = [data(1, 3, 0), marker(1, 4, true), data(1, 4, 0)];
    check(&next, true, 4, 5, LATE);
    check(&next, true, 5, 5, Ok(()));
    // A coordinator that has been replaced.
    let fenced = Err(ErrorKind::TransactionCoordinatorFenced);
    check(&ended, true, 4, 4, fenced);
    check(&ended, false, 4, 4, fenced);
    check(&ended, false, 4, 6, Ok(()));
    // The last epoch of all cannot be exceeded.
    let last = [data(1, i16::MAX, 0)];
    check(&last, true, i16::MAX, 5, Ok(()));
}

#[test]
fn open_transactions_neither_expire_nor_make_room() {
    let settings = Settings {
        producers_max: 8,
        ..Settings::default()
    };
    let mut producers = Producers::new(settings, Instant::ZERO);
    for id in 0..20 {
        producers.handle_append(Instant::ZERO, &data(id, 0, 0), id);
    }
    assert_eq!(producers.len(), 20);
    producers.handle_append(Instant::ZERO, &marker(0, 0, true), 20);
    producers.handle_append(Instant::ZERO, &plain(30, 0, 0), 21);
    assert_eq!(producers.transaction_since(ProducerId(19)), Some(19));
    let later = Instant::ZERO + Duration::from_secs(25 * 3600);
    producers.handle_timeout(later);
    assert_eq!(
        producers.len(),
        19,
        "all but the one that ended and the plain one"
    );
    assert_eq!(producers.last_stable_offset(22), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Data {
        id: i64,
    },
    Plain {
        id: i64,
    },
    Marker {
        id: i64,
        commit: bool,
        raises_epoch: bool,
    },
    HighWatermark {
        part: u8,
    },
    Truncate {
        part: u8,
    },
    SnapshotRestore,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_i64).prop_map(|id| Step::Data { id }),
        2 => (3..5_i64).prop_map(|id| Step::Plain { id }),
        5 => (0..3_i64, any::<bool>(), any::<bool>())
            .prop_map(|(id, commit, raises_epoch)| Step::Marker { id, commit, raises_epoch }),
        2 => any::<u8>().prop_map(|part| Step::HighWatermark { part }),
        1 => any::<u8>().prop_map(|part| Step::Truncate { part }),
        1 => Just(Step::SnapshotRestore),
    ]
}

/// Producer, first offset and, of one that ended, offset and outcome of its marker.
type Found = (ProducerId, i64, Option<(i64, bool)>);

/// The model: the log as a list, looked through from the start each time.
#[derive(Default)]
struct Model {
    log: Vec<Batch>,
    high_watermark: i64,
    /// A snapshot does not tell of transactions that ended below it.
    unknown_below: i64,
}

impl Model {
    fn transactions(&self) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        for (offset, batch) in (0..).zip(&self.log) {
            let open = found
                .iter_mut()
                .find(|(id, _, end)| *id == batch.producer_id && end.is_none());
            match (batch.kind, open) {
                (BatchKind::Transactional, None) => found.push((batch.producer_id, offset, None)),
                (BatchKind::Marker(marker), Some(open)) => open.2 = Some((offset, marker.commit)),
                _ => {}
            }
        }
        found
    }

    fn last_stable_offset(&self) -> i64 {
        let unstable = self.transactions().into_iter().filter(|(_, _, end)| {
            end.is_none_or(|(marker, _)| {
                marker >= self.high_watermark && marker >= self.unknown_below
            })
        });
        let first = unstable.map(|(_, first_offset, _)| first_offset).min();
        first.map_or(self.high_watermark, |first| first.min(self.high_watermark))
    }

    fn end(&self) -> i64 {
        self.log.len() as i64
    }

    fn next(&self, id: i64) -> (i16, i32) {
        let mine = self.log.iter().filter(|batch| batch.producer_id.0 == id);
        mine.fold((0, 0), |(epoch, sequence), batch| match batch.kind {
            BatchKind::Marker(_) if batch.producer_epoch > epoch => (batch.producer_epoch, 0),
            BatchKind::Marker(_) => (epoch, sequence),
            BatchKind::Transactional | BatchKind::Plain => {
                (batch.producer_epoch, batch.base_sequence + 1)
            }
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn stable_is_what_a_look_through_the_whole_log_finds(steps in prop::collection::vec(step(), 1..80)) {
        let mut model = Model::default();
        let mut producers = Producers::new(Settings::default(), Instant::ZERO);
        for step in steps {
            let append = match step {
                Step::Data { id } => {
                    let (epoch, sequence) = model.next(id);
                    Some(data(id, epoch, sequence))
                }
                Step::Plain { id } => {
                    let (epoch, sequence) = model.next(id);
                    Some(plain(id, epoch, sequence))
                }
                Step::Marker { id, commit, raises_epoch } => {
                    let (epoch, _) = model.next(id);
                    Some(marker(id, epoch + i16::from(raises_epoch), commit))
                }
                Step::HighWatermark { part } => {
                    let more = (model.end() - model.high_watermark) * i64::from(part) / 255;
                    model.high_watermark += more;
                    producers.handle_high_watermark(model.high_watermark);
                    None
                }
                Step::Truncate { part } => {
                    let kept = (model.end() - model.high_watermark) * i64::from(part) / 255;
                    let end = model.high_watermark + kept;
                    model.log.truncate(end as usize);
                    if producers.handle_truncated(end) == Truncation::Incomplete {
                        // As a node does: from the log.
                        producers = log(&model.log).0;
                        model.unknown_below = 0;
                    }
                    None
                }
                Step::SnapshotRestore => {
                    let snapshot: Vec<SnapshotEntry> = producers.snapshot().collect();
                    producers = Producers::restore(Settings::default(), Instant::ZERO, model.end(), snapshot);
                    model.unknown_below = model.end();
                    None
                }
            };
            if let Some(batch) = append {
                let offset = model.end();
                let ended = producers.handle_append(Instant::ZERO, &batch, offset);
                let before: Vec<_> = model.transactions();
                model.log.push(batch);
                let expected = match batch.kind {
                    BatchKind::Marker(marker) => before
                        .iter()
                        .find(|(id, _, end)| *id == batch.producer_id && end.is_none())
                        .map(|(producer_id, first_offset, _)| EndedTransaction {
                            producer_id: *producer_id,
                            first_offset: *first_offset,
                            last_offset: offset,
                            aborted: !marker.commit,
                            last_stable_offset: before
                                .iter()
                                .filter(|(id, _, end)| *id != batch.producer_id && end.is_none())
                                .map(|(_, first_offset, _)| *first_offset)
                                .min()
                                .unwrap_or(offset + 1),
                        }),
                    BatchKind::Transactional | BatchKind::Plain => None,
                };
                prop_assert_eq!(ended, expected);
            }
            prop_assert_eq!(producers.last_stable_offset(model.high_watermark), model.last_stable_offset());
            for (id, first_offset, end) in model.transactions() {
                if end.is_none() {
                    prop_assert_eq!(producers.transaction_since(id), Some(first_offset));
                }
            }
        }
    }
}
