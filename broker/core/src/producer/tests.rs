mod transactions;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::ids::ProducerId;
use crate::time::Instant;

fn batch(producer_epoch: i16, base_sequence: i32, records: i32) -> Batch {
    Batch {
        producer_id: ProducerId(7),
        producer_epoch,
        base_sequence,
        last_offset_delta: records - 1,
        max_timestamp: 1000,
        kind: BatchKind::Plain,
    }
}

fn marker(producer_epoch: i16) -> Batch {
    Batch {
        kind: BatchKind::Marker(Marker {
            commit: true,
            coordinator_epoch: 0,
        }),
        ..batch(producer_epoch, -1, 1)
    }
}

/// Puts `history` into the log, then judges `next`: `Ok(None)` = append, `Ok(Some(offset))` = duplicate of that one.
fn check(history: &[Batch], next: Batch, expected: Result<Option<i64>, ErrorKind>) {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    let mut log_end_offset = 0;
    for batch in history {
        producers.handle_append(Instant::ZERO, batch, log_end_offset);
        log_end_offset += i64::from(batch.last_offset_delta) + 1;
    }
    let found = producers
        .check(Instant::ZERO, &next, log_end_offset, None)
        .map(|admission| match admission {
            Admission::Append => None,
            Admission::Duplicate(kept) => Some(kept.base_offset),
            Admission::Verify => panic!("no transactions here"),
        });
    assert_eq!(found, expected, "after {history:?}, {next:?}");
}

#[test]
fn sequences_are_judged_as_kafka_does() {
    const ORDER: Result<Option<i64>, ErrorKind> = Err(ErrorKind::OutOfOrderSequenceNumber);
    const FENCED: Result<Option<i64>, ErrorKind> = Err(ErrorKind::InvalidProducerEpoch);
    let other = Batch {
        producer_id: ProducerId(1),
        ..batch(0, 0, 1)
    };
    // A fresh log takes only the first batch; one that held records takes any from a stranger.
    check(&[], batch(0, 0, 3), Ok(None));
    check(&[], batch(0, 3, 3), ORDER);
    check(&[other], batch(0, 3, 3), Ok(None));
    // In order, a gap, an overlap.
    check(&[batch(0, 0, 3)], batch(0, 3, 1), Ok(None));
    check(&[batch(0, 0, 3)], batch(0, 4, 1), ORDER);
    check(&[batch(0, 0, 3)], batch(0, 2, 1), ORDER);
    check(&[batch(0, 0, 3)], batch(0, 0, 2), ORDER);
    // Duplicates, of the last five only, of the same epoch only.
    let six: Vec<Batch> = (0..6).map(|n| batch(0, n, 1)).collect();
    check(&six, batch(0, 5, 1), Ok(Some(5)));
    check(&six, batch(0, 1, 1), Ok(Some(1)));
    check(&six, batch(0, 0, 1), ORDER);
    check(
        &[batch(0, 0, 1), batch(1, 0, 1)],
        batch(1, 0, 1),
        Ok(Some(1)),
    );
    check(&[batch(0, 0, 1), batch(1, 0, 1)], batch(0, 0, 1), FENCED);
    // Epochs.
    check(&[batch(1, 0, 1)], batch(0, 1, 1), FENCED);
    check(&[batch(0, 0, 1)], batch(1, 0, 1), Ok(None));
    check(&[batch(0, 0, 1)], batch(1, 1, 1), ORDER);
    // After a marker the new epoch starts at 0, the same epoch goes on.
    check(&[batch(0, 0, 1), marker(1)], batch(1, 0, 1), Ok(None));
    check(&[batch(0, 0, 1), marker(1)], batch(1, 1, 1), ORDER);
    check(&[batch(0, 0, 1), marker(0)], batch(0, 1, 1), Ok(None));
    // Sequence numbers wrap to 0.
    let last = batch(0, i32::MAX - 1, 2);
    check(&[last], batch(0, 0, 1), Ok(None));
    check(&[last], batch(0, i32::MAX, 1), ORDER);
    let across = batch(0, i32::MAX, 3);
    assert_eq!(across.last_sequence(), 1);
    check(&[across], batch(0, 2, 1), Ok(None));
    check(&[across], across, Ok(Some(0)));
}

#[test]
fn followers_take_what_the_leader_took() {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    for (offset, batch) in [batch(3, 40, 1), batch(3, 90, 1), batch(2, 5, 1)]
        .iter()
        .enumerate()
    {
        producers.handle_append(Instant::ZERO, batch, offset as i64);
    }
    assert_eq!(
        producers.check(Instant::ZERO, &batch(2, 6, 1), 3, None),
        Ok(Admission::Append)
    );
}

/// Refuses `refused` of an epoch whose first `in_log` sequences are in the log, then judges `next` after so many milliseconds.
fn check_behind(
    in_log: i32,
    refused: &[Batch],
    next: Batch,
    after_ms: u64,
    expected: Result<Admission, ErrorKind>,
) {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    for sequence in 0..in_log {
        producers.handle_append(Instant::ZERO, &batch(0, sequence, 1), i64::from(sequence));
    }
    for refused in refused {
        producers.handle_refused(Instant::ZERO, refused, ErrorKind::NotEnoughReplicas);
    }
    // Other producers' records are there: an unknown one may begin anywhere.
    let found = producers.check(
        Instant::from_millis(after_ms),
        &next,
        i64::from(in_log) + 1,
        None,
    );
    assert_eq!(found, expected, "{refused:?}, then {next:?}");
}

#[test]
fn what_was_sent_behind_a_refused_batch_is_refused_for_the_same_reason() {
    const SAME: Result<Admission, ErrorKind> = Err(ErrorKind::NotEnoughReplicas);
    const ORDER: Result<Admission, ErrorKind> = Err(ErrorKind::OutOfOrderSequenceNumber);
    const TAKEN: Result<Admission, ErrorKind> = Ok(Admission::Append);
    let one = [batch(0, 2, 1)];
    // The next in the queue, and one far behind; the refused one itself is judged by its own sequence.
    check_behind(2, &one, batch(0, 3, 4), 1, SAME);
    check_behind(2, &one, batch(0, 9, 1), 1, SAME);
    check_behind(2, &one, batch(0, 2, 1), 1, TAKEN);
    // All of the pipeline were refused: the first counts.
    let three = [batch(0, 2, 1), batch(0, 3, 1), batch(0, 4, 1)];
    check_behind(2, &three, batch(0, 3, 1), 1, SAME);
    check_behind(2, &three, batch(0, 2, 1), 1, TAKEN);
    // A producer that is not known could begin anywhere, but not behind what it was refused.
    check_behind(0, &[batch(0, 7, 1)], batch(0, 8, 1), 1, SAME);
    check_behind(0, &[batch(0, 7, 1)], batch(0, 7, 1), 1, TAKEN);
    // In the log already and refused as a retry: what follows waits for its answer.
    check_behind(3, &one, batch(0, 3, 1), 1, SAME);
    // Another epoch, another producer, and time.
    check_behind(2, &one, batch(1, 0, 1), 1, TAKEN);
    check_behind(2, &one, batch(1, 1, 1), 1, ORDER);
    check_behind(
        2,
        &one,
        Batch {
            producer_id: ProducerId(1),
            ..batch(0, 5, 1)
        },
        1,
        TAKEN,
    );
    check_behind(2, &one, batch(0, 3, 1), 60_000, ORDER);
    // Sequence numbers wrap to 0.
    check_behind(0, &[batch(0, i32::MAX, 1)], batch(0, 0, 1), 1, SAME);
}

#[test]
fn a_refused_batch_that_came_again_refuses_nothing() {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    let check = |producers: &Producers, next: Batch| producers.check(Instant::ZERO, &next, 9, None);
    producers.handle_append(Instant::ZERO, &batch(0, 0, 1), 0);
    producers.handle_refused(Instant::ZERO, &batch(0, 1, 1), ErrorKind::NotEnoughReplicas);
    assert_eq!(
        check(&producers, batch(0, 2, 1)),
        Err(ErrorKind::NotEnoughReplicas)
    );
    producers.handle_append(Instant::ZERO, &batch(0, 1, 1), 1);
    assert_eq!(check(&producers, batch(0, 2, 1)), Ok(Admission::Append));
    assert_eq!(
        check(&producers, batch(0, 3, 1)),
        Err(ErrorKind::OutOfOrderSequenceNumber)
    );
    // A retry of what is in the log, refused for want of replicas and then answered.
    producers.handle_refused(Instant::ZERO, &batch(0, 1, 1), ErrorKind::NotEnoughReplicas);
    assert_eq!(
        check(&producers, batch(0, 2, 1)),
        Err(ErrorKind::NotEnoughReplicas)
    );
    producers.handle_duplicate(&batch(0, 1, 1));
    assert_eq!(check(&producers, batch(0, 2, 1)), Ok(Admission::Append));
}

#[test]
fn refused_producers_are_bounded() {
    let mut producers = Producers::new(Settings::default(), Instant::ZERO);
    let of = |id, sequence| Batch {
        producer_id: ProducerId(id),
        ..batch(0, sequence, 1)
    };
    for id in 0..5000 {
        producers.handle_refused(Instant::ZERO, &of(id, 0), ErrorKind::NotEnoughReplicas);
    }
    let refused =
        |producers: &Producers, now, id| producers.check(now, &of(id, 1), 9, None).is_err();
    assert!(refused(&producers, Instant::ZERO, 0) && !refused(&producers, Instant::ZERO, 4999));
    let later = Instant::from_millis(60_000);
    producers.handle_refused(later, &of(4999, 0), ErrorKind::NotEnoughReplicas);
    assert!(refused(&producers, later, 4999) && !refused(&producers, later, 0));
    // What was given up is forgotten, also where nothing was ever appended.
    producers.handle_timeout(producers.next_deadline().unwrap());
    assert_eq!(producers.next_deadline(), None);
}

#[test]
fn truncation_forgets_what_went() {
    let after = |history: &[Batch], end_offset: i64| {
        let mut producers = Producers::new(Settings::default(), Instant::ZERO);
        for (offset, batch) in history.iter().enumerate() {
            producers.handle_append(Instant::ZERO, batch, offset as i64);
        }
        let outcome = producers.handle_truncated(end_offset);
        let sequences: Vec<i32> = producers
            .batches(ProducerId(7))
            .iter()
            .map(|kept| kept.first_sequence)
            .collect();
        (outcome, sequences)
    };
    let seven: Vec<Batch> = (0..7).map(|n| batch(0, n, 1)).collect();
    assert_eq!(
        after(&seven, 7),
        (Truncation::Complete, vec![2, 3, 4, 5, 6])
    );
    assert_eq!(after(&seven, 4), (Truncation::Complete, vec![2, 3]));
    assert_eq!(after(&seven, 1), (Truncation::Incomplete, vec![]));
    assert_eq!(after(&seven[..3], 0), (Truncation::Complete, vec![]));
    assert_eq!(
        after(&[batch(0, 0, 1), batch(1, 0, 1)], 1),
        (Truncation::Incomplete, vec![])
    );
}

#[test]
fn silent_producers_expire_and_many_are_bounded() {
    let settings = Settings {
        producers_max: 16,
        ..Settings::default()
    };
    let mut producers = Producers::new(settings, Instant::ZERO);
    assert_eq!(producers.next_deadline(), None);
    for id in 0..40 {
        let now = Instant::from_millis(id as u64);
        producers.handle_append(
            now,
            &Batch {
                producer_id: ProducerId(id),
                ..batch(0, 0, 1)
            },
            id,
        );
        assert!(producers.len() <= 16);
    }
    assert!(!producers.batches(ProducerId(39)).is_empty());
    assert!(producers.batches(ProducerId(0)).is_empty());
    let day = Instant::ZERO + Duration::from_secs(24 * 3600);
    producers.handle_append(
        day,
        &Batch {
            producer_id: ProducerId(39),
            ..batch(0, 1, 1)
        },
        40,
    );
    producers.handle_timeout(day + Duration::from_secs(1));
    assert_eq!(producers.len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Produce {
        id: i64,
        epoch: i16,
        base_sequence: i32,
        records: i32,
    },
    Truncate {
        part: u8,
    },
    SnapshotRestore,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3_i64, 0..3_i16, 0..9_i32, 1..4_i32).prop_map(|(id, epoch, base_sequence, records)| {
            Step::Produce { id, epoch, base_sequence, records }
        }),
        1 => any::<u8>().prop_map(|part| Step::Truncate { part }),
        1 => Just(Step::SnapshotRestore),
    ]
}

/// The model: all batches of the log in a list, judged by looking through all of it.
fn judge(
    log: &[(Batch, i64)],
    kept: usize,
    batch: &Batch,
    end: i64,
) -> Result<Option<i64>, ErrorKind> {
    let mine: Vec<&(Batch, i64)> = log
        .iter()
        .filter(|(earlier, _)| earlier.producer_id == batch.producer_id)
        .collect();
    let Some((newest, _)) = mine.last() else {
        return if end == 0 && batch.base_sequence != 0 {
            Err(ErrorKind::OutOfOrderSequenceNumber)
        } else {
            Ok(None)
        };
    };
    let same: Vec<_> = mine
        .iter()
        .rev()
        .take_while(|(b, _)| b.producer_epoch == newest.producer_epoch)
        .collect();
    let repeats = |b: &Batch| {
        (b.producer_epoch, b.base_sequence, b.last_offset_delta)
            == (
                batch.producer_epoch,
                batch.base_sequence,
                batch.last_offset_delta,
            )
    };
    if let Some((_, offset)) = same.iter().take(kept).find(|(b, _)| repeats(b)) {
        return Ok(Some(*offset));
    }
    if batch.producer_epoch < newest.producer_epoch {
        return Err(ErrorKind::InvalidProducerEpoch);
    }
    let next = if batch.producer_epoch == newest.producer_epoch {
        newest.last_sequence() + 1
    } else {
        0
    };
    if batch.base_sequence == next {
        Ok(None)
    } else {
        Err(ErrorKind::OutOfOrderSequenceNumber)
    }
}

proptest! {
    #[test]
    fn same_answers_as_a_look_through_the_whole_log(steps in prop::collection::vec(step(), 1..120)) {
        let mut producers = Producers::new(Settings::default(), Instant::ZERO);
        let mut log: Vec<(Batch, i64)> = Vec::new();
        let mut end = 0;
        // How many batches of a producer the state can know: fewer after a snapshot or a truncation.
        let mut known: BTreeMap<i64, usize> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Produce { id, epoch, base_sequence, records } => {
                    let batch = Batch { producer_id: ProducerId(id), ..batch(epoch, base_sequence, records) };
                    let kept = known.get(&id).copied().unwrap_or(0);
                    let found = producers.check(Instant::ZERO, &batch, end, None).map(|admission| match admission {
                        Admission::Append => None,
                        Admission::Duplicate(kept) => Some(kept.base_offset),
                        Admission::Verify => panic!("no transactions here"),
                    });
                    prop_assert_eq!(found, judge(&log, kept, &batch, end));
                    if found == Ok(None) {
                        producers.handle_append(Instant::ZERO, &batch, end);
                        log.push((batch, end));
                        end += i64::from(records);
                        known.insert(id, producers.batches(ProducerId(id)).len());
                    }
                }
                Step::Truncate { part } => {
                    let cut = log.len() * usize::from(part) / 256;
                    let cut_offset = log.get(cut).map_or(end, |(_, offset)| *offset);
                    log.truncate(cut);
                    end = cut_offset;
                    if producers.handle_truncated(cut_offset) == Truncation::Incomplete {
                        // As a node does: from the log.
                        producers = Producers::new(Settings::default(), Instant::ZERO);
                        for (batch, offset) in &log {
                            producers.handle_append(Instant::ZERO, batch, *offset);
                        }
                    }
                }
                Step::SnapshotRestore => {
                    let snapshot: Vec<SnapshotEntry> = producers.snapshot().collect();
                    producers = Producers::restore(Settings::default(), Instant::ZERO, end, snapshot);
                }
            }
            known = (0..3).map(|id| (id, producers.batches(ProducerId(id)).len())).collect();
        }
    }
}
