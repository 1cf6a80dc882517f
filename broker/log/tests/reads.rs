//! What reads, lookups by time and a follower's appends do, case by case.

mod rig;

use rig::{NOW, Rig, all, batch, bytes, find_offset, small_segments, stored};
use taffrail_log::{
    Log, LogConfig, LogError, OffsetLookup, OffsetSpec, ReadLimits, RealDisk, Searched,
    TimestampOffset,
};
use taffrail_protocol::records::{
    Batches, Compression, RecordBatchBuilder, set_log_append_time, set_max_timestamp,
};

/// Offsets of the first and behind the last record of what a read returns.
fn read(log: &mut Log<RealDisk>, offset: i64, limits: ReadLimits) -> Option<(i64, i64)> {
    let range = log.read(offset, limits).expect("in range")?;
    let content = bytes(&range);
    let headers: Vec<_> = Batches::new(&content)
        .map(|found| found.expect("whole batches").0)
        .collect();
    Some((
        headers[0].base_offset,
        headers[headers.len() - 1].next_offset(),
    ))
}

/// Ten batches of ten records, each a little over 1,000 bytes, in one segment.
fn ten_batches(rig: &Rig) -> (Log<RealDisk>, usize) {
    let mut log = rig.create(&LogConfig {
        index_interval_bytes: 2500,
        ..LogConfig::default()
    });
    for number in 0..10 {
        log.append_leader(&mut batch(10, NOW + number * 100, 90), 1, NOW)
            .expect("room");
    }
    (log, batch(10, NOW, 90).len())
}

#[test]
fn a_read_returns_whole_batches_within_its_limits() {
    let rig = Rig::new();
    let (mut log, size) = ten_batches(&rig);
    // From memory first, then from index and file.
    for round in ["recent", "released"] {
        let mut check = |offset: i64,
                         max_bytes: usize,
                         min_one: bool,
                         end_offset: i64,
                         expected: Option<(i64, i64)>| {
            let found = read(
                &mut log,
                offset,
                ReadLimits {
                    max_bytes,
                    min_one,
                    end_offset,
                },
            );
            assert_eq!(
                found, expected,
                "{round}: {offset}, {max_bytes} bytes, min_one {min_one}, below {end_offset}"
            );
        };
        let max = i64::MAX;
        check(0, 1 << 20, true, max, Some((0, 100)));
        check(0, size, true, max, Some((0, 10)));
        check(0, size, false, max, Some((0, 10)));
        check(0, size - 1, false, max, None);
        check(0, size - 1, true, max, Some((0, 10)));
        check(0, 0, true, max, Some((0, 10)));
        check(0, 2 * size + 1, true, max, Some((0, 20)));
        // An offset within a batch starts at its batch.
        check(15, 2 * size, true, max, Some((10, 30)));
        check(99, 1 << 20, true, max, Some((90, 100)));
        // The upper bound is exclusive, and takes no part of a batch.
        check(0, 1 << 20, true, 100, Some((0, 100)));
        check(0, 1 << 20, true, 99, Some((0, 90)));
        check(0, 1 << 20, true, 90, Some((0, 90)));
        check(0, 1 << 20, true, 15, Some((0, 10)));
        check(0, 1 << 20, true, 9, None);
        check(50, 1 << 20, true, 50, None);
        check(50, 1 << 20, true, 20, None);
        check(100, 1 << 20, true, max, None);
        log.release_memory().expect("writable");
    }
    for offset in [-1, 101] {
        let error = log.read(offset, all()).expect_err("out of range");
        assert!(
            matches!(
                error,
                LogError::OffsetOutOfRange {
                    log_start_offset: 0,
                    log_end_offset: 100,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn a_long_range_ends_at_an_index_entry_close_to_its_limit() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig::default());
    for number in 0..3000 {
        log.append_leader(&mut batch(1, NOW + number, 100), 1, NOW)
            .expect("room");
    }
    for released in [false, true] {
        for (offset, max_bytes) in [(0, 100_000), (700, 65_536), (1500, 20_000)] {
            let range = log.read(
                offset,
                ReadLimits {
                    max_bytes,
                    min_one: true,
                    end_offset: i64::MAX,
                },
            );
            let range = range.expect("in range").expect("something");
            assert!(
                range.length <= max_bytes && range.length > max_bytes - 4096 - 300,
                "{max_bytes}: {}",
                range.length
            );
            let content = bytes(&range);
            assert_eq!(
                Batches::new(&content)
                    .filter_map(Result::ok)
                    .last()
                    .expect("whole")
                    .1
                    .end,
                content.len()
            );
        }
        if !released {
            log.release_memory().expect("writable");
        }
    }
}

#[test]
fn the_record_of_a_time_is_found_exactly() {
    let rig = Rig::new();
    let config = small_segments();
    let mut log = rig.create(&config);
    // Batch n has records at n*100, n*100+40, n*100+10: the largest is in the middle. Every codec takes its turn.
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    for number in 0..60_i64 {
        let mut builder =
            RecordBatchBuilder::new(0, number * 100).compression(codecs[number as usize % 5]);
        for (index, at) in [0, 40, 10].into_iter().enumerate() {
            let value = [index as u8; 50];
            builder.push_at(
                index as i32,
                number * 100 + at,
                Some(b"key"),
                Some(&value),
                &[],
            );
        }
        log.append_leader(&mut builder.build(), 1, NOW)
            .expect("room");
    }
    assert!(log.segment_count() > 3);
    let mut check = |timestamp: i64, end_offset: i64, expected: Option<(i64, i64)>| {
        let spec = OffsetSpec::from_wire(timestamp).expect("a known number");
        let found = find_offset(&mut log, spec, end_offset).expect("intact");
        let found = found.map(|found| (found.timestamp, found.offset));
        assert_eq!(found, expected, "{timestamp} below {end_offset}");
    };
    let max = i64::MAX;
    check(0, max, Some((0, 0)));
    check(1, max, Some((40, 1)));
    check(40, max, Some((40, 1)));
    check(41, max, Some((100, 3)));
    check(3105, max, Some((3140, 94)));
    check(5940, max, Some((5940, 178)));
    check(5941, max, None);
    // At or above the bound there is nothing to see.
    check(3105, 95, Some((3140, 94)));
    check(3105, 94, None);
    // The ends and the largest.
    check(-1, max, Some((-1, 180)));
    check(-1, 50, Some((-1, 50)));
    check(-2, max, Some((-1, 0)));
    check(-4, max, Some((-1, 0)));
    check(-3, max, Some((5940, 178)));
    check(-3, 178, None);
    check(-5, max, None);
    check(-6, max, None);
    assert_eq!(OffsetSpec::from_wire(-7), None);
    // Not below the log start, also if the batch began before it.
    log.delete_records(94, 180, NOW)
        .expect("in range")
        .remove()
        .expect("removable");
    let found = |log: &mut Log<RealDisk>, timestamp: i64| {
        let found = find_offset(log, OffsetSpec::Timestamp(timestamp), max)
            .expect("intact")
            .expect("there");
        (found.timestamp, found.offset, found.leader_epoch)
    };
    assert_eq!(found(&mut log, 0), (3140, 94, Some(1)));
    log.delete_records(95, 180, NOW)
        .expect("in range")
        .remove()
        .expect("removable");
    assert_eq!(found(&mut log, 0), (3110, 95, Some(1)));
    assert_eq!(found(&mut log, 3111), (3200, 96, Some(1)));
}

/// A compressed batch of three records of this time, whose header promises one of `promised`.
fn promising(timestamp: i64, promised: i64, value_bytes: usize) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(0, timestamp).compression(Compression::Zstd);
    let value = vec![b'a'; value_bytes];
    for number in 0..3 {
        builder.push_at(number, timestamp, Some(b"key"), Some(&value), &[]);
    }
    let mut batch = builder.build();
    set_max_timestamp(&mut batch, promised);
    batch
}

#[test]
fn batches_that_hold_less_than_they_promise_are_looked_into_a_few_times_only() {
    // How many such batches there are before one that holds what it says, and what is found.
    let check = |disappointing: i64, expected: (i64, i64)| {
        let rig = Rig::new();
        let mut log = rig.create(&small_segments());
        for _ in 0..disappointing {
            log.append_leader(&mut promising(100, 5000, 300), 1, NOW)
                .expect("room");
        }
        log.append_leader(&mut promising(4000, 4000, 300), 1, NOW)
            .expect("room");
        let found = find_offset(&mut log, OffsetSpec::Timestamp(3000), i64::MAX)
            .expect("intact")
            .expect("there");
        assert_eq!((found.timestamp, found.offset), expected, "{disappointing}");
    };
    check(0, (4000, 0));
    check(3, (4000, 9));
    check(8, (4000, 24));
    // Then the next promise is taken for the truth: from there on nothing is missed.
    check(9, (5000, 24));
    check(60, (5000, 24));
}

#[test]
fn promises_are_counted_over_segments_and_the_end_is_no_record() {
    let rig = Rig::new();
    let mut log = rig.create(&small_segments());
    for _ in 0..7 {
        // One in each segment.
        log.append_leader(&mut promising(100, 5000, 300), 1, NOW)
            .expect("room");
        log.roll(NOW).expect("room");
    }
    assert!(log.segment_count() >= 7);
    let found = find_offset(&mut log, OffsetSpec::Timestamp(3000), i64::MAX);
    assert_eq!(found.expect("intact"), None);
    // The largest is looked for in the batch that promises it alone.
    let found = find_offset(&mut log, OffsetSpec::MaxTimestamp, i64::MAX);
    assert_eq!(found.expect("intact"), None);
}

#[test]
fn a_batch_too_large_to_look_into_is_taken_as_its_header_says() {
    let rig = Rig::new();
    // 32 times this is less than the least that every topic may have: 16 MiB.
    let mut log = rig.create(&LogConfig {
        max_message_bytes: 1000,
        ..LogConfig::default()
    });
    log.append_leader(&mut batch(2, 10, 20), 1, NOW)
        .expect("room");
    log.append_leader(&mut promising(100, 5000, 6 << 20), 1, NOW)
        .expect("room");
    let found = find_offset(&mut log, OffsetSpec::Timestamp(3000), i64::MAX)
        .expect("intact")
        .expect("there");
    assert_eq!((found.timestamp, found.offset), (5000, 2));
}

#[test]
fn a_search_needs_the_log_no_more_once_it_has_begun() {
    let rig = Rig::new();
    let (mut log, _) = ten_batches(&rig);
    let lookup = log.find_offset(OffsetSpec::Timestamp(NOW + 500), 100);
    let Ok(OffsetLookup::Search(mut search)) = lookup else {
        panic!("records have to be looked at");
    };
    log.append_leader(&mut batch(10, NOW, 90), 1, NOW)
        .expect("room");
    drop(log);
    let searched = search.run().expect("the file is held");
    let expected = TimestampOffset {
        timestamp: NOW + 500,
        offset: 50,
        leader_epoch: Some(1),
    };
    assert_eq!(searched, Searched::Known(Some(expected)));
}

#[test]
fn records_stamped_by_the_broker_all_have_its_time() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig::default());
    for number in 0..3 {
        let mut sent = batch(5, number, 20);
        set_log_append_time(&mut sent, 1000 * (number + 1));
        log.append_leader(&mut sent, 1, NOW).expect("room");
    }
    for (timestamp, expected) in [(0, (1000, 0)), (1001, (2000, 5)), (3000, (3000, 10))] {
        let found = find_offset(&mut log, OffsetSpec::Timestamp(timestamp), i64::MAX)
            .expect("intact")
            .expect("there");
        assert_eq!((found.timestamp, found.offset), expected, "{timestamp}");
    }
    let largest = find_offset(&mut log, OffsetSpec::MaxTimestamp, i64::MAX)
        .expect("intact")
        .expect("there");
    assert_eq!((largest.timestamp, largest.offset), (3000, 10));
}

#[test]
fn an_empty_log_has_two_ends_and_nothing_else() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig::default());
    assert!(log.read(0, all()).expect("in range").is_none());
    let mut find = |spec| {
        find_offset(&mut log, spec, i64::MAX)
            .expect("intact")
            .map(|found| found.offset)
    };
    assert_eq!(find(OffsetSpec::Latest), Some(0));
    assert_eq!(find(OffsetSpec::Earliest), Some(0));
    assert_eq!(find(OffsetSpec::MaxTimestamp), None);
    assert_eq!(find(OffsetSpec::Timestamp(0)), None);
}

#[test]
fn a_follower_takes_what_continues_its_log() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig {
        compact: true,
        ..LogConfig::default()
    });
    let two = || batch(2, NOW, 10);
    let fetched = [
        stored(0, 1, two()),
        stored(2, 2, two()),
        stored(7, 2, two()),
    ]
    .concat();
    let appended = log.append_follower(&fetched, 2, NOW).expect("in order");
    assert_eq!(
        (appended.first_offset, appended.last_offset, appended.bytes),
        (0, 8, fetched.len())
    );
    assert_eq!(
        log.epochs()
            .entries()
            .iter()
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect::<Vec<_>>(),
        [(1, 0), (2, 2)]
    );

    let refused = |log: &mut Log<RealDisk>, bytes: Vec<u8>| {
        log.append_follower(&bytes, 5, NOW).expect_err("refused")
    };
    assert!(matches!(
        refused(&mut log, stored(8, 2, two())),
        LogError::NotContiguous {
            base_offset: 8,
            log_end_offset: 9
        }
    ));
    assert!(matches!(
        refused(&mut log, stored(9, 1, two())),
        LogError::StaleLeaderEpoch {
            epoch: 1,
            latest: 2
        }
    ));
    let mut damaged = stored(9, 2, two());
    *damaged.last_mut().expect("not empty") ^= 1;
    assert!(matches!(
        refused(&mut log, damaged),
        LogError::InvalidRecords { .. }
    ));
    assert_eq!(log.log_end_offset(), 9);

    // A batch of a later epoch than the one fetched under, and a batch that is cut off, are left for the next fetch.
    let later = [stored(9, 3, two()), stored(11, 4, two())].concat();
    assert_eq!(
        log.append_follower(&later, 3, NOW)
            .expect("in order")
            .last_offset,
        10
    );
    let cut = [stored(11, 3, two()), stored(13, 3, two())].concat();
    assert_eq!(
        log.append_follower(&cut[..cut.len() - 1], 3, NOW)
            .expect("in order")
            .last_offset,
        12
    );
    let nothing = log.append_follower(&[], 3, NOW).expect("nothing");
    assert_eq!(
        (nothing.first_offset, nothing.last_offset, nothing.bytes),
        (13, 12, 0)
    );
}

#[test]
fn a_leader_never_goes_back_to_an_older_epoch() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig::default());
    log.append_leader(&mut batch(1, NOW, 10), 5, NOW)
        .expect("room");
    let error = log
        .append_leader(&mut batch(1, NOW, 10), 4, NOW)
        .expect_err("stale");
    assert!(
        matches!(
            error,
            LogError::StaleLeaderEpoch {
                epoch: 4,
                latest: 5
            }
        ),
        "{error}"
    );
    assert_eq!(log.log_end_offset(), 1);
}
