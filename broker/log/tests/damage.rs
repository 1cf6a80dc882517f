//! Bit rot: found by a check, dropped so that it can be fetched anew, and told by `verify`.

mod rig;

use std::fs;
use std::path::{Path, PathBuf};

use rig::{NOW, Rig, all, batch, read_all, small_segments, stored};
use taffrail_log::inspect::StoredBatches;
use taffrail_log::verify::{Event, verify_directory};
use taffrail_log::{CheckStep, Log, RealDisk};

/// Records of one batch each, several segments of them; epochs 1 and 2.
fn filled(rig: &Rig) -> Log<RealDisk> {
    let mut log = rig.create(&small_segments());
    for number in 0..40 {
        log.append_leader(
            &mut batch(1, NOW + number, 300),
            1 + (number / 20) as i32,
            NOW,
        )
        .expect("room");
    }
    assert!(log.segment_count() > 4);
    log
}

fn segments(rig: &Rig) -> Vec<PathBuf> {
    let entries = fs::read_dir(rig.partition()).expect("readable");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect();
    paths.sort();
    paths
}

fn base_offset(path: &Path) -> i64 {
    let name = path.file_stem().expect("a name").to_string_lossy();
    name.parse().expect("twenty digits")
}

fn flip(path: &Path, position: usize) {
    let mut bytes = fs::read(path).expect("readable");
    bytes[position] ^= 0x10;
    fs::write(path, bytes).expect("writable");
}

/// The segments that a check calls damaged, by base offset.
fn damaged(log: &mut Log<RealDisk>, active: bool) -> Vec<i64> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    while let Some(mut check) = log.begin_check(offset, active).expect("readable") {
        let step = loop {
            match check.step(500) {
                CheckStep::More(read) => assert!(read >= 500),
                step => break step,
            }
        };
        assert!(log.finish_check(&check));
        if let CheckStep::Damaged(reason) = step {
            assert!(reason.contains("at position"), "{reason}");
            found.push(check.base_offset());
        }
        if check.end_offset() == log.log_end_offset() {
            break;
        }
        offset = check.end_offset();
    }
    found
}

#[test]
fn check_finds_every_flipped_byte() {
    let rig = Rig::new();
    let mut log = filled(&rig);
    assert_eq!(damaged(&mut log, true), Vec::<i64>::new());
    let second = &segments(&rig)[1];
    let length = fs::metadata(second).expect("readable").len() as usize;
    for position in (0..length).step_by(7) {
        flip(second, position);
        assert_eq!(
            damaged(&mut log, false),
            [base_offset(second)],
            "byte {position}"
        );
        flip(second, position);
    }
    let active = segments(&rig).pop().expect("an active segment");
    flip(&active, 100);
    assert_eq!(damaged(&mut log, false), Vec::<i64>::new());
    assert_eq!(damaged(&mut log, true), [base_offset(&active)]);
}

#[test]
fn check_of_what_was_truncated_meanwhile_does_not_count() {
    let rig = Rig::new();
    let mut log = filled(&rig);
    let mut check = log
        .begin_check(0, false)
        .expect("readable")
        .expect("closed");
    log.truncate_to(30, NOW).expect("writable");
    assert!(matches!(check.step(u64::MAX), CheckStep::Whole(_)));
    assert!(!log.finish_check(&check));
}

#[test]
fn closed_segments_that_were_read_want_a_check_once() {
    let rig = Rig::new();
    let mut log = filled(&rig);
    assert_eq!(log.unchecked_read(), None);
    log.read(39, all()).expect("readable");
    assert_eq!(log.unchecked_read(), None, "the active one");
    log.read(0, all()).expect("readable");
    assert_eq!(log.unchecked_read(), Some(0));
    damaged(&mut log, false);
    log.read(0, all()).expect("readable");
    assert_eq!(log.unchecked_read(), None);
}

#[test]
fn damaged_segment_is_dropped_and_fetched_anew() {
    for number in [0, 1, 3] {
        let rig = Rig::new();
        let mut log = filled(&rig);
        let whole = read_all(&mut log).expect("readable");
        let paths = segments(&rig);
        let base = base_offset(&paths[number]);
        // A header that cannot be read, and once also one at the end of the segment before.
        flip(&paths[number], 16);
        let expected = if number == 3 {
            // The magic of its last batch.
            let length = fs::metadata(&paths[2]).expect("readable").len() as usize;
            flip(
                &paths[2],
                length - stored(0, 1, batch(1, NOW, 300)).len() + 16,
            );
            base_offset(&paths[2])
        } else {
            base
        };
        let end = log.drop_damaged_segment(base, NOW).expect("dropped");
        assert_eq!((end, log.log_end_offset()), (expected, expected));
        assert!(log.recovery_point() <= end);
        assert_eq!(log.poisoned(), None);
        let mut left = &whole[..];
        while !left.is_empty() {
            let (header, size) = taffrail_protocol::records::Batches::new(left)
                .next()
                .expect("a batch")
                .map(|(header, bytes)| (header, bytes.len()))
                .expect("intact");
            if header.base_offset >= end {
                log.append_follower(&left[..size], 2, NOW).expect("room");
            }
            left = &left[size..];
        }
        assert_eq!(read_all(&mut log).expect("readable"), whole);
        let epochs: Vec<_> = log.epochs().entries().to_vec();
        assert_eq!(epochs.len(), 2, "{epochs:?}");
        assert_eq!(epochs[1].start_offset, 20);
    }
}

#[test]
fn no_segment_starts_there() {
    let rig = Rig::new();
    let mut log = filled(&rig);
    log.drop_damaged_segment(1, NOW)
        .expect_err("no such segment");
    assert_eq!(log.log_end_offset(), 40);
}

/// What `verify` says of the one log directory: problems and notes.
fn verified(rig: &Rig) -> (Vec<String>, Vec<String>, u64) {
    let (mut problems, mut notes, mut read) = (Vec::new(), Vec::new(), 0);
    verify_directory(&rig.path(), &mut |event| match event {
        Event::Read(bytes) => read += bytes,
        Event::Note { path, what } => notes.push(format!("{}: {what}", path.display())),
        Event::Problem { path, what, advice } => {
            assert!(!advice.is_empty());
            problems.push(format!("{}: {what}", path.display()));
        }
    });
    (problems, notes, read)
}

#[test]
fn verify_has_nothing_to_say_of_a_clean_log() {
    let rig = Rig::new();
    let log = filled(&rig);
    let size = log.size();
    let directory = log.directory().clone();
    log.close().expect("durable");
    directory.mark_clean_shutdown(1).expect("durable");
    assert_eq!(verified(&rig), (vec![], vec![], size));
}

#[test]
fn verify_names_what_is_wrong() {
    fn check(damage: impl Fn(&Rig, &[PathBuf]), expected: &str) {
        let rig = Rig::new();
        filled(&rig).close().expect("durable");
        let paths = segments(&rig);
        damage(&rig, &paths);
        let (problems, ..) = verified(&rig);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(expected), "{problems:?}");
    }
    let index = |path: &Path| path.with_extension("index");
    check(
        |_, paths| flip(&paths[4], 20),
        "its checksum does not match",
    );
    check(|_, paths| flip(&index(&paths[1]), 7), "fits no batch");
    check(
        |_, paths| flip(&paths[1].with_extension("timeindex"), 7),
        "fits no batch",
    );
    check(
        |_, paths| fs::remove_file(&paths[2]).expect("there"),
        "but the segment before ends at",
    );
    check(
        |rig, _| {
            let path = rig.partition().join("leader-epoch-checkpoint");
            fs::write(path, "0\n2\n1 0\n2 21\n").expect("writable");
        },
        "says that epoch 2 begins at 21, but its first batch is at 20",
    );
    check(
        |rig, _| {
            fs::write(rig.partition().join("partition.metadata"), "?").expect("writable");
        },
        "cannot be understood",
    );
    check(
        |rig, _| {
            fs::write(rig.path().join("recovery-point-offset-checkpoint"), "x").expect("writable");
        },
        "cannot be understood",
    );
    check(
        |rig, _| fs::write(rig.path().join("meta.properties"), "x").expect("writable"),
        "version is not 1",
    );
}

#[test]
fn tail_that_a_kill_cut_off_is_a_note() {
    let rig = Rig::new();
    filled(&rig).close().expect("durable");
    let active = segments(&rig).pop().expect("an active segment");
    let mut bytes = fs::read(&active).expect("readable");
    bytes.truncate(bytes.len() - 3);
    fs::write(&active, bytes).expect("writable");
    let (problems, notes, _) = verified(&rig);
    assert_eq!(problems, Vec::<String>::new());
    assert!(
        notes.iter().any(|note| note.contains("Recovery cuts off")),
        "{notes:?}"
    );
}

#[test]
fn stored_batches_are_read_as_they_lie() {
    let rig = Rig::new();
    let log = filled(&rig);
    let path = segments(&rig).remove(0);
    drop(log);
    flip(&path, 100);
    let mut batches = StoredBatches::open(&path).expect("readable");
    let first = batches.next_batch().expect("a batch").expect("a batch");
    assert!(!first.is_valid);
    assert_eq!(
        first.bytes.len(),
        stored(0, 1, batch(1, NOW, 300)).len(),
        "a damaged batch is given as it is"
    );
    let second = batches.next_batch().expect("a batch").expect("a batch");
    assert!(second.is_valid && second.header.base_offset == 1);
}
