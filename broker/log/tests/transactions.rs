//! The aborted transactions of a log: found by a range of offsets, kept over starts, cut with the log.

mod rig;

use std::fs;

use rig::{NOW, Rig, batch, small_segments};
use taffrail_log::{AbortedTransaction, Log, LogConfig, RealDisk};

fn aborted(first_offset: i64, last_offset: i64, last_stable_offset: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: 7,
        first_offset,
        last_offset,
        last_stable_offset,
    }
}

/// So many batches of one record, of which a few fill a segment.
fn fill(log: &mut Log<RealDisk>, count: usize) {
    for _ in 0..count {
        let mut records = batch(1, NOW, 400);
        log.append_leader(&mut records, 1, NOW).expect("appended");
    }
}

fn offsets(found: Vec<AbortedTransaction>) -> Vec<(i64, i64)> {
    found
        .iter()
        .map(|aborted| (aborted.first_offset, aborted.last_offset))
        .collect()
}

fn all(log: &Log<RealDisk>) -> Vec<(i64, i64)> {
    offsets(log.aborted_transactions(0, i64::MAX).expect("readable"))
}

#[test]
fn transactions_are_found_by_the_offsets_that_they_have_records_in() {
    let rig = Rig::new();
    let mut log = rig.create(&small_segments());
    fill(&mut log, 30);
    assert!(log.segment_count() > 5);
    // Two that overlap, over several segments, the later one ended first; then one of a single record, and a late one.
    for entry in [
        aborted(5, 10, 2),
        aborted(2, 12, 13),
        aborted(14, 15, 16),
        aborted(20, 29, 30),
    ] {
        log.note_aborted(entry).expect("noted");
    }
    let check = |from, end, expected: &[(i64, i64)]| {
        let found = log.aborted_transactions(from, end).expect("readable");
        assert_eq!(offsets(found), expected, "from {from} to {end}");
    };
    check(0, 30, &[(2, 12), (5, 10), (14, 15), (20, 29)]);
    check(0, 2, &[]);
    check(0, 3, &[(2, 12)]);
    check(0, 6, &[(2, 12), (5, 10)]);
    check(11, 14, &[(2, 12)]);
    check(12, 15, &[(2, 12), (14, 15)]);
    check(13, 14, &[]);
    check(15, 16, &[(14, 15)]);
    check(16, 20, &[]);
    check(25, 26, &[(20, 29)]);
    check(29, 30, &[(20, 29)]);
    check(30, 40, &[]);
}

#[test]
fn transactions_are_found_by_their_markers_some_at_a_time() {
    let rig = Rig::new();
    let mut log = rig.create(&small_segments());
    fill(&mut log, 30);
    for entry in [aborted(5, 10, 2), aborted(2, 12, 13), aborted(20, 29, 30)] {
        log.note_aborted(entry).expect("noted");
    }
    let check = |from, end, expected: &[(i64, i64)]| {
        let (mut found, mut next) = (Vec::new(), from);
        loop {
            let some = log.aborted_with_markers(next, end).expect("readable");
            let Some(last) = some.last() else { break };
            next = last.last_offset + 1;
            found.extend(some);
        }
        assert_eq!(offsets(found), expected, "from {from} to {end}");
    };
    check(0, 30, &[(5, 10), (2, 12), (20, 29)]);
    check(10, 12, &[(5, 10)]);
    check(11, 30, &[(2, 12), (20, 29)]);
    check(13, 29, &[]);
}

#[test]
fn what_was_read_tells_which_transactions_are_in_it() {
    let rig = Rig::new();
    let mut log = rig.create(&small_segments());
    fill(&mut log, 30);
    let check = |log: &mut Log<RealDisk>, from, batches: usize, expected: &[(i64, i64)]| {
        let limits = taffrail_log::ReadLimits {
            max_bytes: batches * batch(1, NOW, 400).len(),
            min_one: true,
            end_offset: 28,
        };
        let range = log.read(from, limits).expect("readable").expect("data");
        let found = log.aborted_in(from, &range, 28).expect("readable");
        assert_eq!(offsets(found), expected, "{batches} from {from}");
    };
    check(&mut log, 0, 1, &[]);
    for entry in [aborted(1, 3, 4), aborted(5, 9, 10), aborted(12, 27, 28)] {
        log.note_aborted(entry).expect("noted");
    }
    check(&mut log, 0, 1, &[]);
    check(&mut log, 0, 2, &[(1, 3)]);
    check(&mut log, 4, 1, &[]);
    check(&mut log, 8, 1, &[(5, 9)]);
    check(&mut log, 20, 2, &[(12, 27)]);
}

#[test]
fn an_entry_is_noted_once_and_only_for_a_marker_that_is_there() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig::default());
    fill(&mut log, 5);
    for entry in [aborted(0, 2, 3), aborted(0, 2, 3), aborted(4, 5, 6)] {
        log.note_aborted(entry).expect("fine");
    }
    assert_eq!(all(&log), [(0, 2)]);
    log.note_aborted(aborted(3, 4, 5)).expect("noted");
    log.note_aborted(aborted(0, 2, 3)).expect("fine");
    assert_eq!(all(&log), [(0, 2), (3, 4)]);
    let file = rig.partition().join("00000000000000000000.txnindex");
    assert_eq!(fs::metadata(file).expect("there").len(), 2 * 34);
}

#[test]
fn many_entries_are_found_without_reading_all() {
    let rig = Rig::new();
    let mut log = rig.create(&LogConfig::default());
    fill(&mut log, 3_000);
    for offset in 0..1_500 {
        let marker = 2 * offset + 1;
        log.note_aborted(aborted(marker - 1, marker, marker + 1))
            .expect("noted");
    }
    let found = log.aborted_transactions(2_000, 2_004).expect("readable");
    assert_eq!(offsets(found), [(2_000, 2_001), (2_002, 2_003)]);
    assert_eq!(all(&log).len(), 1_500);
}

#[test]
fn truncation_takes_the_transactions_whose_markers_go() {
    let rig = Rig::new();
    let mut log = rig.create(&small_segments());
    fill(&mut log, 30);
    for entry in [aborted(0, 3, 4), aborted(4, 10, 11), aborted(11, 25, 26)] {
        log.note_aborted(entry).expect("noted");
    }
    log.truncate_to(25, NOW).expect("cut");
    assert_eq!(all(&log), [(0, 3), (4, 10)]);
    fill(&mut log, 1);
    log.note_aborted(aborted(20, 25, 26)).expect("noted");
    assert_eq!(all(&log), [(0, 3), (4, 10), (20, 25)]);
    log.truncate_to(10, NOW).expect("cut");
    assert_eq!(all(&log), [(0, 3)]);
    log.truncate_fully_and_start_at(50, NOW).expect("dropped");
    assert_eq!(
        offsets(log.aborted_transactions(50, i64::MAX).expect("readable")),
        []
    );
    let left = fs::read_dir(rig.partition()).expect("readable");
    let left = left
        .map(|entry| entry.expect("readable").file_name())
        .filter(|name| name.to_string_lossy().ends_with(".txnindex"));
    assert_eq!(left.count(), 0);
}

#[test]
fn entries_survive_a_clean_stop_and_a_kill() {
    for clean in [true, false] {
        let rig = Rig::new();
        let mut log = rig.create(&small_segments());
        fill(&mut log, 20);
        log.note_aborted(aborted(0, 3, 4)).expect("noted");
        log.note_aborted(aborted(5, 19, 20)).expect("noted");
        if clean {
            let directory = log.directory().clone();
            log.close().expect("closed");
            directory.mark_clean_shutdown(1).expect("marked");
        } else {
            drop(log);
        }
        let mut log = rig.open(&small_segments());
        assert_eq!(all(&log), [(0, 3), (5, 19)], "clean: {clean}");
        fill(&mut log, 3);
        log.note_aborted(aborted(20, 22, 23)).expect("noted");
        assert_eq!(all(&log), [(0, 3), (5, 19), (20, 22)]);
    }
}

#[test]
fn what_a_kill_left_of_an_entry_is_cut_off() {
    let check = |damage: fn(&mut Vec<u8>), expected: &[(i64, i64)]| {
        let rig = Rig::new();
        let mut log = rig.create(&LogConfig::default());
        fill(&mut log, 10);
        for entry in [aborted(0, 2, 3), aborted(3, 5, 6), aborted(6, 8, 9)] {
            log.note_aborted(entry).expect("noted");
        }
        drop(log);
        let file = rig.partition().join("00000000000000000000.txnindex");
        let mut bytes = fs::read(&file).expect("there");
        damage(&mut bytes);
        fs::write(&file, bytes).expect("written");
        let mut log = rig.open(&LogConfig::default());
        assert_eq!(all(&log), expected);
        // What is missing is noted anew by whoever goes through the batches.
        for entry in [aborted(0, 2, 3), aborted(3, 5, 6), aborted(6, 8, 9)] {
            log.note_aborted(entry).expect("noted");
        }
        assert_eq!(all(&log), [(0, 2), (3, 5), (6, 8)]);
    };
    check(|_| {}, &[(0, 2), (3, 5), (6, 8)]);
    check(|bytes| bytes.truncate(2 * 34 + 10), &[(0, 2), (3, 5)]);
    check(|bytes| bytes[34..68].fill(0), &[(0, 2)]);
    check(|bytes| bytes.clear(), &[]);
    // A marker that is not in the log any more.
    check(
        |bytes| bytes[2 * 34 + 18..2 * 34 + 26].copy_from_slice(&10_i64.to_be_bytes()),
        &[(0, 2), (3, 5)],
    );
    check(|bytes| bytes[1] = 9, &[]);
}

#[test]
fn segments_that_go_take_their_transactions_along() {
    let rig = Rig::new();
    let mut log = rig.create(&small_segments());
    fill(&mut log, 30);
    log.note_aborted(aborted(0, 1, 2)).expect("noted");
    log.note_aborted(aborted(2, 28, 29)).expect("noted");
    let retired = log.delete_records(20, 30, NOW).expect("deleted");
    retired.remove().expect("removed");
    assert_eq!(
        offsets(log.aborted_transactions(20, 30).expect("readable")),
        [(2, 28)]
    );
    let file = rig.partition().join("00000000000000000000.txnindex");
    assert!(!file.exists());
}
