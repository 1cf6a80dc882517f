//! What of a log may be cleaned, and when; and where its first dirty offset is kept.

mod rig;

use std::fs;

use rig::cleaning::{compacted, fill, keyed};
use rig::{NOW, Rig, TOPIC};
use taffrail_log::cleaner::{CleanerCheckpoint, CompactionConfig};
use taffrail_log::{Log, RealDisk};

#[test]
fn what_must_not_be_touched_is_not() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    fill(&mut log, 70);
    fill(&mut log, 7);
    let starts: Vec<i64> = log
        .batches(0)
        .map(|batch| batch.expect("readable"))
        .filter(|batch| batch.range.position == 0)
        .map(|batch| batch.header.base_offset)
        .collect();
    let config = CompactionConfig::default();
    let mut end = |checkpointed, stable_end, config: &CompactionConfig, now_ms| {
        let range = log.dirty_range(checkpointed, stable_end, config, now_ms);
        let range = range.expect("readable");
        (
            range.first_dirty_offset,
            range.end_offset,
            range.checkpoint_is_void,
        )
    };
    assert_eq!(end(None, i64::MAX, &config, NOW), (0, 77, false));
    assert_eq!(end(Some(20), i64::MAX, &config, NOW), (20, 77, false));
    assert_eq!(end(Some(78), i64::MAX, &config, NOW), (0, 77, true));
    // Up to the last stable offset, by whole segments.
    for (at, stable_end) in starts.iter().enumerate() {
        assert_eq!(end(None, *stable_end, &config, NOW).1, *stable_end);
        let before = starts[at.saturating_sub(1)];
        assert_eq!(end(None, stable_end - 1, &config, NOW).1, before);
    }
    // Timestamps grow by one an offset; the second part begins with them anew.
    let lag = CompactionConfig {
        min_compaction_lag_ms: 1000,
        ..CompactionConfig::default()
    };
    let third = starts[3];
    assert_eq!(
        end(None, i64::MAX, &lag, NOW + third - 1 + 1000),
        (0, third, false)
    );
    assert_eq!(
        end(None, i64::MAX, &lag, NOW + third - 2 + 1000).1,
        starts[2]
    );
    // A record below the first dirty offset is not asked for its age.
    assert_eq!(end(Some(70), i64::MAX, &lag, NOW + 6 + 1000).1, 77);
    assert_eq!(end(None, i64::MAX, &lag, NOW).1, 0);
}

#[test]
fn what_is_not_durable_is_not_cleaned() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    fill(&mut log, 20);
    let durable = log.log_end_offset();
    for _ in 0..30 {
        let value = "x".repeat(200);
        log.append_leader(&mut keyed(&[("key", Some(&value))], NOW), 1, NOW)
            .expect("room");
    }
    let end = |log: &mut Log<RealDisk>| {
        let range = log.dirty_range(None, i64::MAX, &CompactionConfig::default(), NOW);
        range.expect("readable").end_offset
    };
    assert_eq!(end(&mut log), durable);
    log.flush().expect("durable");
    assert!(end(&mut log) > durable);
}

#[test]
fn a_log_is_overdue_by_its_oldest_dirty_segment() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    fill(&mut log, 70);
    let config = CompactionConfig {
        max_compaction_lag_ms: 1000,
        ..CompactionConfig::default()
    };
    let mut overdue = |checkpointed, now_ms| {
        let range = log.dirty_range(checkpointed, i64::MAX, &config, now_ms);
        let range = range.expect("readable");
        (range.overdue_ms, range.is_due(&config))
    };
    assert_eq!(overdue(None, NOW + 1000), (0, true), "by its ratio");
    assert_eq!(overdue(None, NOW + 1010), (10, true));
    // The last segment alone is dirty.
    assert_eq!(overdue(Some(69), NOW + 1000), (0, false));
    let (overdue_ms, is_due) = overdue(Some(69), NOW + 2000);
    assert!(is_due && (931..=1000).contains(&overdue_ms), "{overdue_ms}");
    assert_eq!(overdue(Some(70), NOW + 9000), (0, false));
}

#[test]
fn first_dirty_offsets_are_kept_lowered_and_forgotten() {
    let rig = Rig::new();
    let directory = rig.directory();
    let load = || CleanerCheckpoint::load(directory.clone()).expect("readable");
    let mut checkpoint = load();
    assert_eq!(checkpoint.first_dirty_offset(TOPIC, 0), None);
    checkpoint.lower(TOPIC, 0, 5).expect("nothing to lower");
    checkpoint.set(TOPIC, 0, 70).expect("durable");
    checkpoint.set("other", 3, 9).expect("durable");
    let path = rig.path().join("cleaner-offset-checkpoint");
    let text = fs::read_to_string(&path).expect("there");
    assert_eq!(text, format!("0\n2\n{TOPIC} 0 70\nother 3 9\n"));
    checkpoint.lower(TOPIC, 0, 80).expect("not above it");
    assert_eq!(load().first_dirty_offset(TOPIC, 0), Some(70));
    checkpoint.lower(TOPIC, 0, 60).expect("durable");
    assert_eq!(load().first_dirty_offset(TOPIC, 0), Some(60));
    checkpoint.forget(TOPIC, 0).expect("durable");
    assert_eq!(load().first_dirty_offset(TOPIC, 0), None);
    assert_eq!(load().first_dirty_offset("other", 3), Some(9));
    fs::write(&path, "damaged").expect("writable");
    assert_eq!(load().first_dirty_offset("other", 3), None);
}
