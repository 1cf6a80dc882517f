//! Moves between log directories: a copy follows whatever its log does, and takes its place at one moment, whenever the
//! broker may stop.

mod rig;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rig::faulty::{Call, FaultyDisk};
use rig::{NOW, TOPIC, TOPIC_ID, all, batch, small_segments, stored};
use taffrail_log::{
    CheckpointKind, Disk, FolderState, Log, LogConfig, LogDirectory, LogError, OpenFiles,
    PartitionFolder, settle_swaps,
};
use taffrail_protocol::records::Batches;
use tempfile::TempDir;

fn open(disk: &FaultyDisk, path: &Path) -> LogDirectory<FaultyDisk> {
    let files = OpenFiles::new(100);
    LogDirectory::open(disk.clone(), path, "cluster", 1, [1; 16], files).expect("a usable folder")
}

/// Two log directories, and what a test puts into them.
struct Two {
    folder: TempDir,
    disk: FaultyDisk,
}

impl Two {
    fn new() -> Two {
        Two {
            folder: tempfile::tempdir().expect("a temporary folder"),
            disk: FaultyDisk::new(),
        }
    }

    /// Both directories, as a start finds them.
    fn directories(&self) -> [LogDirectory<FaultyDisk>; 2] {
        ["from", "to"].map(|name| open(&self.disk, &self.folder.path().join(name)))
    }

    /// A log in the first with some batches in several segments, and a whole, durable copy of it in the second.
    fn copied(&self) -> (Log<FaultyDisk>, Log<FaultyDisk>) {
        let [from, to] = self.directories();
        let config = Arc::new(small_segments());
        let mut log = from
            .create_log(TOPIC, 0, TOPIC_ID, Arc::clone(&config), NOW)
            .expect("a new log");
        for number in 0..12 {
            log.append_leader(&mut batch(2, NOW + number, 300), 1, NOW)
                .expect("room");
        }
        log.assign_epoch(4).expect("newer");
        let mut copy = begin_copy(&to, &config);
        copy_all(&mut log, &mut copy);
        copy.adopt(&log);
        let flushed = copy.begin_flush_of_all().expect("to be made durable").run();
        copy.finish_flush(flushed).expect("durable");
        (log, copy)
    }

    /// The replicas of both directories in this state, with what is in them.
    fn content(
        &self,
        directories: &[LogDirectory<FaultyDisk>; 2],
        state: FolderState,
    ) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        for (number, directory) in directories.iter().enumerate() {
            for folder in directory.folders().expect("readable") {
                if folder.state == state {
                    let opened = directory.open_log(&folder, Arc::new(small_segments()), NOW);
                    let (mut log, _) = opened.expect("intact");
                    assert_eq!(log.topic_id(), Some(TOPIC_ID));
                    found.push((number, read_all(&mut log)));
                }
            }
        }
        found
    }
}

fn begin_copy(to: &LogDirectory<FaultyDisk>, config: &Arc<LogConfig>) -> Log<FaultyDisk> {
    let folder = PartitionFolder::future(TOPIC, 0, TOPIC_ID).expect("a short name");
    let copy = to.create_future_log(&folder, TOPIC_ID, Arc::clone(config), NOW);
    copy.expect("a new copy")
}

/// What a mover does, step by step, until both are the same.
fn copy_all(log: &mut Log<FaultyDisk>, copy: &mut Log<FaultyDisk>) {
    loop {
        let ends = log.take_ends();
        let retired = copy.follow_ends(ends, NOW).expect("what the log did");
        retired.remove().expect("removed");
        let limits = taffrail_log::ReadLimits {
            max_bytes: 1000,
            ..all()
        };
        let Some(range) = log.read(copy.log_end_offset(), limits).expect("readable") else {
            return;
        };
        let mut records = Vec::new();
        range.read_into(&mut records).expect("there");
        let appended = copy.append_follower(&records, i32::MAX, NOW);
        assert!(appended.expect("what the log has").bytes > 0);
    }
}

fn read_all<D: Disk>(log: &mut Log<D>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut offset = log.log_start_offset();
    while let Some(range) = log.read(offset, all()).expect("readable") {
        let mut bytes = Vec::new();
        range.read_into(&mut bytes).expect("there");
        let last = Batches::new(&bytes).last().expect("whole").expect("intact");
        offset = last.0.next_offset();
        out.extend(bytes);
    }
    out
}

#[test]
fn a_whole_copy_takes_the_place_of_its_log() {
    let two = Two::new();
    let (mut log, mut copy) = two.copied();
    let (content, from) = (read_all(&mut log), log.directory().clone());
    assert_eq!(copy.directory().partition_count(), 1, "a copy counts");
    let left = copy.take_place_of(&mut log).expect("both disks work");
    let left = left.expect("a folder to remove");
    assert_eq!(copy.folder(), &PartitionFolder::live(TOPIC, 0));
    assert_eq!(
        (from.partition_count(), copy.directory().partition_count()),
        (0, 1)
    );
    assert_eq!(
        from.checkpointed(CheckpointKind::RecoveryPoint, TOPIC, 0),
        None
    );
    drop(log);
    from.remove(&left).expect("removed");
    assert_eq!(from.folders().expect("readable"), []);

    // It goes on where the other one was, in new files too.
    assert_eq!(copy.epochs().latest().map(|entry| entry.epoch), Some(4));
    assert!(read_all(&mut copy) == content);
    for _ in 0..6 {
        copy.append_leader(&mut batch(2, NOW + 50, 300), 4, NOW)
            .expect("room");
    }
    copy.flush().expect("durable");
    let end = copy.log_end_offset();
    assert_eq!(end, 36);
    let to = copy.directory().clone();
    copy.close().expect("durable");
    let folders = to.folders().expect("readable");
    assert_eq!(folders, [PartitionFolder::live(TOPIC, 0)]);
    let opened = to.open_log(&folders[0], Arc::new(small_segments()), NOW);
    assert_eq!(opened.expect("intact").0.log_end_offset(), end);
}

#[test]
fn exactly_one_whole_replica_is_left_wherever_the_broker_stops() {
    let check = |call: Call, good: u32| {
        let two = Two::new();
        let (mut log, mut copy) = two.copied();
        let content = read_all(&mut log);
        two.disk.set_after(good, (call, ErrorKind::Other));
        let taken = copy.take_place_of(&mut log);
        drop((log, copy));
        two.disk.set(None);

        let directories = two.directories();
        settle_swaps(&directories, true);
        let live = two.content(&directories, FolderState::Live);
        assert_eq!(live.len(), 1, "{call:?} {good}");
        assert!(live[0].1 == content, "{call:?} {good}");
        // Whoever was told that it has succeeded finds it so.
        assert!(taken.is_err() || live[0].0 == 1, "{call:?} {good}");
        let copies = two.content(&directories, FolderState::Future(TOPIC_ID));
        assert_eq!(copies.len(), 1 - live[0].0, "{call:?} {good}");
        assert_eq!(two.content(&directories, FolderState::Whole(TOPIC_ID)), []);
    };
    for good in 0..=3 {
        check(Call::Rename, good);
        check(Call::SyncDir, good);
    }
}

#[test]
fn a_copy_is_no_replica_while_the_directory_of_its_log_may_have_it() {
    let two = Two::new();
    let (mut log, mut copy) = two.copied();
    two.disk.set_after(1, (Call::Rename, ErrorKind::Other));
    assert!(copy.take_place_of(&mut log).is_err());
    drop((log, copy));
    two.disk.set(None);
    let to = [open(&two.disk, &two.folder.path().join("to"))];
    settle_swaps(&to, false);
    let folders = to[0].folders().expect("readable");
    assert_eq!(folders[0].state, FolderState::Whole(TOPIC_ID));
    // Without that directory for good it is all there is.
    settle_swaps(&to, true);
    let folders = to[0].folders().expect("readable");
    assert_eq!(folders, [PartitionFolder::live(TOPIC, 0)]);
}

#[test]
fn what_a_log_was_moved_from_is_kept_if_the_other_disk_fails_over_it() {
    let two = Two::new();
    let (mut log, mut copy) = two.copied();
    let from = log.directory().clone();
    two.disk.set_after(2, (Call::SyncDir, ErrorKind::Other));
    assert_eq!(copy.take_place_of(&mut log).expect("it is there"), None);
    assert!(copy.poisoned().is_some() && from.offline().is_none());
    let kept = from.folders().expect("readable");
    assert_eq!(kept[0].state, FolderState::Stray(TOPIC_ID));
}

#[test]
fn a_copy_does_not_take_a_name_that_is_taken() {
    let two = Two::new();
    let (mut log, mut copy) = two.copied();
    let to = copy.directory().clone();
    to.create_log(TOPIC, 0, [5; 16], Arc::default(), NOW)
        .expect("another topic's");
    let refused = copy.take_place_of(&mut log).expect_err("taken");
    assert!(matches!(refused, LogError::Io { .. }), "{refused}");
    assert!(to.offline().is_none() && log.poisoned().is_none());
    let folder = PartitionFolder::future(TOPIC, 0, [6; 16]).expect("a short name");
    let copy = to.create_future_log(&folder, [6; 16], Arc::default(), NOW);
    assert!(copy.is_err(), "nor is one begun");
}

#[test]
fn a_copy_that_was_left_gives_up_what_its_log_has_not() {
    // Epochs and numbers of batches of the log and of what was copied, and how many of those stay.
    let check = |log: &[(i32, i32)], copied: &[(i32, i32)], stays: i64| {
        let two = Two::new();
        let [from, to] = two.directories();
        let config = Arc::new(LogConfig::default());
        let mut current = from
            .create_log(TOPIC, 0, TOPIC_ID, Arc::clone(&config), NOW)
            .expect("a new log");
        let mut copy = begin_copy(&to, &config);
        for (to_fill, batches) in [(&mut current, log), (&mut copy, copied)] {
            for &(epoch, count) in batches {
                for _ in 0..count {
                    let offset = to_fill.log_end_offset();
                    let bytes = stored(offset, epoch, batch(1, NOW, 10));
                    to_fill.append_follower(&bytes, epoch, NOW).expect("room");
                }
            }
        }
        copy.cut_to_common(&current, NOW).expect("cut");
        assert_eq!(copy.log_end_offset(), stays, "{log:?} {copied:?}");
        copy_all(&mut current, &mut copy);
        assert!(read_all(&mut copy) == read_all(&mut current));
    };
    check(&[(1, 5)], &[(1, 3)], 3);
    check(&[(1, 5)], &[], 0);
    check(&[(1, 3)], &[(1, 5)], 3);
    check(&[(1, 3), (2, 4)], &[(1, 5)], 3);
    check(&[(1, 3), (3, 4)], &[(1, 2), (2, 3)], 2);
    check(&[(1, 2)], &[(1, 2), (2, 3)], 2);
    check(&[(4, 2)], &[(1, 2), (2, 3)], 0);
    check(&[], &[(1, 2)], 0);
}

/// What a log goes through while it is copied.
#[derive(Clone, Debug)]
enum Step {
    Append(i32),
    NewEpoch,
    Roll,
    Truncate(f64),
    StartOver(i64),
    DeleteRecords(f64),
    Copy,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5).prop_map(Step::Append),
        1 => Just(Step::NewEpoch),
        1 => Just(Step::Roll),
        2 => (0.0..1.0).prop_map(Step::Truncate),
        1 => (0_i64..60).prop_map(Step::StartOver),
        1 => (0.0..1.0).prop_map(Step::DeleteRecords),
        4 => Just(Step::Copy),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_becomes_what_its_log_is_whatever_that_goes_through(steps in steps()) {
        let two = Two::new();
        let [from, to] = two.directories();
        let config = Arc::new(small_segments());
        let mut log = from.create_log(TOPIC, 0, TOPIC_ID, Arc::clone(&config), NOW).expect("a new log");
        let mut copy = begin_copy(&to, &config);
        let mut epoch = 1;
        let at = |log: &Log<FaultyDisk>, part: f64| {
            let length = (log.log_end_offset() - log.log_start_offset()) as f64;
            log.log_start_offset() + (length * part) as i64
        };
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                // A record of each step differs from those of others.
                Step::Append(count) => {
                    log.append_leader(&mut batch(count, NOW + number as i64, 150), epoch, NOW).expect("room");
                }
                Step::NewEpoch => {
                    epoch += 1;
                    log.assign_epoch(epoch).expect("newer");
                }
                Step::Roll => log.roll(NOW).expect("rolled"),
                Step::Truncate(part) => {
                    let offset = at(&log, part);
                    log.truncate_to(offset, NOW).expect("cut");
                    epoch += 1;
                }
                Step::StartOver(offset) => log.truncate_fully_and_start_at(offset, NOW).expect("begun anew"),
                Step::DeleteRecords(part) => {
                    let (offset, end) = (at(&log, part), log.log_end_offset());
                    log.delete_records(offset, end, NOW).expect("deleted").remove().expect("removed");
                }
                Step::Copy => copy_all(&mut log, &mut copy),
            }
        }
        copy_all(&mut log, &mut copy);
        copy.adopt(&log);
        prop_assert_eq!(copy.log_end_offset(), log.log_end_offset());
        prop_assert_eq!(copy.log_start_offset(), log.log_start_offset());
        prop_assert_eq!(copy.epochs(), log.epochs());
        prop_assert!(read_all(&mut copy) == read_all(&mut log));
        let counts: BTreeMap<_, _> = [&from, &to].map(|one| (one.path().to_owned(), one.partition_count())).into();
        prop_assert!(counts.values().all(|count| *count == 1));
    }
}

#[test]
fn an_empty_log_takes_the_batch_that_its_start_lies_in() {
    let two = Two::new();
    let [from, to] = two.directories();
    let mut log = from
        .create_log(TOPIC, 0, TOPIC_ID, Arc::default(), NOW)
        .expect("a new log");
    log.truncate_fully_and_start_at(13, NOW)
        .expect("begun anew");
    let holds = stored(10, 2, batch(5, NOW, 20));
    let appended = log.append_follower(&holds, 2, NOW).expect("it holds 13");
    assert_eq!(appended.bytes, holds.len());
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (13, 15));
    assert!(read_all(&mut log) == holds);
    // One that is behind is refused, and so is any once there are records.
    for base_offset in [10, 13] {
        let again = stored(base_offset, 2, batch(5, NOW, 20));
        let refused = log.append_follower(&again, 2, NOW);
        assert!(matches!(refused, Err(LogError::NotContiguous { .. })));
    }
    let directory = log.directory().clone();
    log.close().expect("durable");
    directory.write_checkpoints().expect("durable");
    drop((from, directory, to));
    let [from, _to] = two.directories();
    let live = PartitionFolder::live(TOPIC, 0);
    let (log, _) = from.open_log(&live, Arc::default(), NOW).expect("intact");
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (13, 15));
}
