//! How segments come and go: rolled when full or old, retired when too old or too many, overwritten or removed.

mod rig;

use std::sync::Arc;

use rig::{NOW, Rig, all, batch, batch_of, bytes, read_all, small_segments, stored};
use taffrail_log::{Log, LogConfig, LogError, RealDisk};
use taffrail_protocol::records::TimestampType;

#[test]
fn ranges_outlive_retention_and_deletion() {
    let rig = Rig::new();
    let mut log = rig.create(&small_segments());
    for number in 0..40 {
        log.append_leader(&mut batch(1, NOW + number, 200), 1, NOW)
            .expect("room");
    }
    let range = log.read(0, all()).expect("in range").expect("something");
    let before = bytes(&range);
    log.delete_records(40, 40, NOW)
        .expect("in range")
        .remove()
        .expect("removable");
    assert_eq!((log.log_start_offset(), log.segment_count()), (40, 1));
    let deleted = log.directory().mark_deleted(log.folder()).expect("renamed");
    log.directory().remove(&deleted).expect("removable");
    assert!(bytes(&range) == before);
}

/// KAFKA-4451: an index entry has 31 bits for an offset, and what compaction leaves may be further apart.
#[test]
fn a_segment_rolls_before_an_offset_is_too_far_for_its_index() {
    const FURTHEST: i64 = i32::MAX as i64;
    let check = |next: i64, expected: Option<i64>| {
        let rig = Rig::new();
        let config = LogConfig {
            compact: true,
            ..LogConfig::default()
        };
        let mut log = rig.create(&config);
        let one = |offset: i64| stored(offset, 1, batch(1, NOW, 10));
        log.append_follower(&one(0), 1, NOW).expect("in order");
        let appended = log.append_follower(&one(next), 1, NOW).expect("in order");
        assert_eq!(appended.rolled, expected, "{next}");
        // Killed: what is read back is the same.
        drop(log);
        let mut log = rig.open(&config);
        assert_eq!(log.log_end_offset(), next + 1);
        assert_eq!(log.segment_count(), 1 + usize::from(expected.is_some()));
        let found = log.read(1, all()).expect("in range").expect("the record");
        assert!(bytes(&found) == one(next), "{next}");
    };
    check(FURTHEST, None);
    // Named by the end of the log, as always, or by the record if that is too far as well.
    check(FURTHEST + 1, Some(1));
    check(FURTHEST + 2, Some(FURTHEST + 2));
}

#[test]
fn a_segment_rolls_when_it_is_full_or_old() {
    let base = LogConfig {
        segment_ms: 1000,
        segment_jitter_ms: 100,
        ..LogConfig::default()
    };
    let size = batch(1, NOW, 100).len() as u32;
    let check = |what: &str, config: LogConfig, batches: &[(i64, i64)], expected: &[i64]| {
        let rig = Rig::new();
        let mut log = rig.create(&config);
        let mut rolled = Vec::new();
        for (timestamp, now_ms) in batches {
            let mut sent = batch_of(1, 100, |_| *timestamp);
            let appended = log.append_leader(&mut sent, 1, *now_ms).expect("room");
            rolled.extend(appended.rolled);
        }
        assert_eq!(rolled, expected, "{what}");
        assert_eq!(log.segment_count(), expected.len() + 1, "{what}");
    };
    let steady = [(NOW, NOW); 5];
    check("room for all", base.clone(), &steady, &[]);
    check(
        "exactly full",
        LogConfig {
            segment_bytes: 2 * size,
            ..base.clone()
        },
        &steady,
        &[2, 4],
    );
    check(
        "a byte too small",
        LogConfig {
            segment_bytes: 2 * size - 1,
            ..base.clone()
        },
        &steady,
        &[1, 2, 3, 4],
    );
    // Age is the records' own, less the jitter; the clock plays no part.
    check(
        "old by its records",
        base.clone(),
        &[
            (NOW, NOW),
            (NOW + 900, NOW),
            (NOW + 901, NOW),
            (NOW + 902, NOW),
        ],
        &[2],
    );
    check(
        "the clock runs on",
        base.clone(),
        &[(NOW, NOW), (NOW, NOW + 5000)],
        &[],
    );
    check(
        "without times the clock counts",
        base.clone(),
        &[(-1, NOW), (-1, NOW + 900), (-1, NOW + 901)],
        &[2],
    );
    // Two entries of the time index fit: those of the third and the fifth batch. The sixth opens a new segment.
    let full_index = LogConfig {
        segment_index_bytes: 24,
        index_interval_bytes: size,
        ..base
    };
    let rising: Vec<(i64, i64)> = (0..8).map(|number| (NOW + number, NOW)).collect();
    check("full index", full_index, &rising, &[5]);
}

#[test]
fn retention_removes_whole_segments_below_the_high_watermark() {
    // Segments of four one-record batches; record n is n seconds old at NOW + 20 s.
    let check = |what: &str,
                 change: &dyn Fn(&mut LogConfig),
                 high_watermark: i64,
                 now_ms: i64,
                 expected: (i64, usize)| {
        let rig = Rig::new();
        let size = batch(1, NOW, 100).len() as u32;
        let mut config = LogConfig {
            segment_bytes: 4 * size,
            retention_ms: None,
            ..LogConfig::default()
        };
        change(&mut config);
        let mut log = rig.create(&config);
        for number in 0..20 {
            log.append_leader(&mut batch(1, NOW + number * 1000, 100), 1, NOW)
                .expect("room");
        }
        let retired = log
            .retire_segments(now_ms, high_watermark)
            .expect("writable");
        assert_eq!(
            retired.bytes,
            retired.segments as u64 * 4 * u64::from(size),
            "{what}"
        );
        retired.remove().expect("removable");
        assert_eq!(
            (log.log_start_offset(), log.segment_count()),
            expected,
            "{what}"
        );
        assert_eq!(log.log_end_offset(), 20, "{what}");
        let files = std::fs::read_dir(rig.partition())
            .expect("readable")
            .count();
        assert!(files <= 3 * expected.1 + 2, "{what}: {files} files");
    };
    let size = batch(1, NOW, 100).len() as u64;
    let ms = |limit: i64| move |config: &mut LogConfig| config.retention_ms = Some(limit);
    let bytes = |limit: u64| move |config: &mut LogConfig| config.retention_bytes = Some(limit);
    check("no limit", &|_| {}, 20, NOW + 1_000_000, (0, 5));
    // The newest record of the first segment is at 3 s, of the second at 7 s.
    check("first is old", &ms(10_000), 20, NOW + 13_001, (4, 4));
    check(
        "first is just not old",
        &ms(10_000),
        20,
        NOW + 13_000,
        (0, 5),
    );
    check("two are old", &ms(10_000), 20, NOW + 17_001, (8, 3));
    check("all are old", &ms(10_000), 20, NOW + 1_000_000, (20, 1));
    check(
        "not past the high watermark",
        &ms(10_000),
        11,
        NOW + 1_000_000,
        (8, 3),
    );
    check(
        "compacted only",
        &|config| (config.retention_ms, config.delete) = (Some(1), false),
        20,
        NOW + 1_000_000,
        (0, 5),
    );
    check("too large", &bytes(9 * size), 20, NOW, (8, 3));
    check("as large as allowed", &bytes(20 * size), 20, NOW, (0, 5));
    check(
        "one segment over, exactly",
        &bytes(16 * size),
        20,
        NOW,
        (4, 4),
    );
    check(
        "less than a segment over",
        &bytes(17 * size),
        20,
        NOW,
        (0, 5),
    );
}

#[test]
fn a_retired_segment_is_overwritten_unless_somebody_may_still_read_it() {
    let size = batch(1, NOW, 100).len() as u32;
    let config = LogConfig {
        segment_bytes: 10 * size,
        retention_ms: None,
        retention_bytes: Some(10 * u64::from(size)),
        ..LogConfig::default()
    };
    let later = NOW + 60 * 60 * 1000;
    for (what, read_at, recycled) in [
        ("never read", None, true),
        ("read long ago", Some(NOW), true),
        ("read just now", Some(later), false),
    ] {
        let rig = Rig::new();
        let mut log = rig.create(&config);
        let mut expected = Vec::new();
        let mut append = |log: &mut Log<RealDisk>, count: i64| {
            for _ in 0..count {
                let at = log.log_end_offset();
                log.append_leader(&mut batch(1, NOW + at, 100), 1, NOW)
                    .expect("room");
                expected.extend(stored(at, 1, batch(1, NOW + at, 100)));
            }
        };
        append(&mut log, 10);
        if let Some(at) = read_at {
            log.read(0, all()).expect("in range");
            log.retire_segments(at, 0)
                .expect("writable")
                .remove()
                .expect("nothing");
        }
        append(&mut log, 15);
        log.retire_segments(later, 25)
            .expect("writable")
            .remove()
            .expect("removable");
        assert_eq!(log.log_start_offset(), 10, "{what}");
        let spare = rig.partition().join("00000000000000000000.spare");
        assert_eq!(spare.exists(), recycled, "{what}");
        append(&mut log, 8);
        assert!(!spare.exists(), "{what}: taken for the next segment");
        let active = rig.partition().join("00000000000000000030.log");
        let length = std::fs::metadata(&active).expect("there").len();
        assert_eq!(
            length,
            u64::from(size) * if recycled { 10 } else { 3 },
            "{what}"
        );
        let visible = &expected[10 * size as usize..];
        assert!(read_all(&mut log).expect("readable") == visible, "{what}");

        // A kill here leaves a file that is longer than its content; recovery finds the end.
        drop(log);
        let mut log = rig.open(&config);
        assert_eq!(log.log_end_offset(), 33, "{what}");
        assert!(read_all(&mut log).expect("readable") == visible, "{what}");
        assert_eq!(
            std::fs::metadata(&active).expect("there").len(),
            3 * u64::from(size),
            "{what}"
        );
    }
}

#[test]
fn settings_change_under_an_open_log() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig::default());
    log.append_leader(&mut batch(1, NOW, 100), 1, NOW)
        .expect("room");
    let smaller = LogConfig {
        segment_bytes: 200,
        timestamp_type: TimestampType::CreateTime,
        ..LogConfig::default()
    };
    log.set_config(Arc::new(smaller));
    let appended = log
        .append_leader(&mut batch(1, NOW, 100), 1, NOW)
        .expect("room");
    assert_eq!(appended.rolled, Some(1));
    let error = log
        .append_leader(&mut batch(1, NOW, 300), 1, NOW)
        .expect_err("too large");
    assert!(
        matches!(
            error,
            LogError::BatchTooLarge {
                segment_bytes: 200,
                ..
            }
        ),
        "{error}"
    );
}
