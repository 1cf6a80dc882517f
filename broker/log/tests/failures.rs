//! What the log does when the disk fails: the first failure ends all writing in its directory, and nowhere else.

mod rig;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rig::faulty::{Call, FaultyDisk};
use rig::{NOW, TOPIC, TOPIC_ID, all, batch};
use taffrail_log::{
    CheckpointKind, Log, LogConfig, LogDirectory, LogError, OpenFiles, Reserve, RoomFor,
    with_fewest_partitions,
};
use tempfile::TempDir;

struct Failing {
    _folder: TempDir,
    disk: FaultyDisk,
    directory: LogDirectory<FaultyDisk>,
    log: Log<FaultyDisk>,
}

fn open(disk: &FaultyDisk, path: &Path) -> LogDirectory<FaultyDisk> {
    LogDirectory::open(
        disk.clone(),
        path,
        "cluster",
        1,
        [1; 16],
        OpenFiles::new(10),
    )
    .expect("a fresh folder")
}

fn failing() -> Failing {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = FaultyDisk::new();
    let directory = open(&disk, folder.path());
    let config = Arc::new(LogConfig::default());
    let mut log = directory
        .create_log(TOPIC, 0, TOPIC_ID, config, NOW)
        .expect("a new log");
    log.append_leader(&mut batch(2, NOW, 100), 1, NOW)
        .expect("room");
    Failing {
        _folder: folder,
        disk,
        directory,
        log,
    }
}

#[test]
fn a_failed_write_poisons_the_log_and_takes_its_directory_offline() {
    let mut failing = failing();
    failing.disk.set(Some((Call::Write, ErrorKind::Other)));
    let error = failing
        .log
        .append_leader(&mut batch(2, NOW, 100), 1, NOW)
        .expect_err("the disk fails");
    assert!(
        matches!(
            error,
            LogError::Io {
                action: "write",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        failing.log.log_end_offset(),
        2,
        "what was not written whole is not there"
    );
    assert!(failing.directory.offline().is_some());

    // The disk works again, and it makes no difference.
    failing.disk.set(None);
    let refused = |result: Result<(), LogError>| {
        assert!(
            matches!(result, Err(LogError::Poisoned { .. })),
            "{result:?}"
        )
    };
    refused(
        failing
            .log
            .append_leader(&mut batch(1, NOW, 10), 1, NOW)
            .map(drop),
    );
    refused(failing.log.truncate_to(1, NOW).map(drop));
    refused(failing.log.flush().map(drop));
    refused(failing.log.assign_epoch(5));
    refused(failing.directory.write_checkpoints());
    refused(
        failing
            .directory
            .create_log("other", 0, [2; 16], Arc::default(), NOW)
            .map(drop),
    );
    // What it holds may still be read.
    let range = failing
        .log
        .read(0, all())
        .expect("readable")
        .expect("two records");
    assert_eq!(range.length, batch(2, NOW, 100).len());
    // It is no clean stop.
    refused(failing.log.close());
}

#[test]
fn a_failed_fsync_poisons_the_log_and_leaves_the_recovery_point() {
    for call in [Call::Sync, Call::SyncDir] {
        let mut failing = failing();
        failing.disk.set(Some((call, ErrorKind::Other)));
        assert!(
            matches!(failing.log.flush(), Err(LogError::Io { .. })),
            "{call:?}"
        );
        failing.disk.set(None);
        assert_eq!(failing.log.recovery_point(), 0, "{call:?}");
        assert!(failing.log.poisoned().is_some(), "{call:?}");
        assert!(
            matches!(failing.log.flush(), Err(LogError::Poisoned { .. })),
            "{call:?}"
        );
    }
}

#[test]
fn a_full_disk_refuses_the_batch_and_goes_on_when_there_is_room() {
    let mut failing = failing();
    failing
        .disk
        .set(Some((Call::Write, ErrorKind::StorageFull)));
    let error = failing
        .log
        .append_leader(&mut batch(2, NOW, 100), 1, NOW)
        .expect_err("the disk is full");
    assert!(matches!(error, LogError::DiskFull { .. }), "{error}");
    assert_eq!(failing.log.poisoned(), None);
    failing.disk.set(None);
    failing
        .log
        .append_leader(&mut batch(2, NOW, 100), 1, NOW)
        .expect("room again");
    let range = failing
        .log
        .read(0, all())
        .expect("readable")
        .expect("four records");
    assert_eq!(
        range.length,
        2 * batch(2, NOW, 100).len(),
        "the half-written batch left nothing"
    );
}

#[test]
fn a_full_disk_at_a_roll_or_a_new_epoch_is_no_damage_either() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = FaultyDisk::new();
    let directory = open(&disk, folder.path());
    let config = Arc::new(rig::small_segments());
    let mut log = directory
        .create_log(TOPIC, 0, TOPIC_ID, config, NOW)
        .expect("a new log");
    let mut appended = 0;
    for number in 0..60 {
        // Every second try finds no room, wherever in its work the log is.
        disk.set(Some((Call::Write, ErrorKind::StorageFull)));
        let refused = log.append_leader(&mut batch(2, NOW, 100), number / 7, NOW);
        assert!(
            matches!(refused, Err(LogError::DiskFull { .. })),
            "{refused:?}"
        );
        assert!(matches!(
            directory.write_checkpoints(),
            Err(LogError::DiskFull { .. })
        ));
        disk.set(None);
        log.append_leader(&mut batch(2, NOW, 100), number / 7, NOW)
            .expect("room again");
        appended += 2;
        assert_eq!(log.log_end_offset(), appended);
    }
    assert!(log.segment_count() > 5);
    assert_eq!(log.epochs().entries().len(), 9);
    log.close().expect("durable");
}

#[test]
fn too_many_open_files_are_no_damage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = FaultyDisk::new();
    let files = OpenFiles::new(1);
    let directory = LogDirectory::open(disk.clone(), folder.path(), "cluster", 1, [1; 16], files)
        .expect("a fresh folder");
    let mut logs: Vec<_> = (0..2)
        .map(|partition| {
            directory
                .create_log(TOPIC, partition, TOPIC_ID, Arc::default(), NOW)
                .expect("a new log")
        })
        .collect();
    disk.set(Some((Call::Open, ErrorKind::Other)));
    // The first log's file was closed for the second's, and cannot be opened now.
    let error = logs[0]
        .append_leader(&mut batch(1, NOW, 10), 1, NOW)
        .expect_err("it cannot be opened");
    assert!(
        matches!(error, LogError::Io { action: "open", .. }),
        "{error}"
    );
    disk.set(None);
    logs[0]
        .append_leader(&mut batch(1, NOW, 10), 1, NOW)
        .expect("it is open again");
    assert_eq!(directory.offline(), None);
}

#[test]
fn a_failed_directory_leaves_the_others_in_use() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (good, bad) = (FaultyDisk::new(), FaultyDisk::new());
    let directories = [
        open(&bad, &folder.path().join("bad")),
        open(&good, &folder.path().join("good")),
    ];
    assert_eq!(with_fewest_partitions(&directories), Some(0));
    let mut on_bad = directories[0]
        .create_log(TOPIC, 0, TOPIC_ID, Arc::default(), NOW)
        .expect("a new log");
    let mut on_good = directories[1]
        .create_log(TOPIC, 1, TOPIC_ID, Arc::default(), NOW)
        .expect("a new log");
    on_good
        .append_leader(&mut batch(1, NOW, 10), 1, NOW)
        .expect("room");
    bad.set(Some((Call::Write, ErrorKind::Other)));
    on_bad
        .append_leader(&mut batch(1, NOW, 10), 1, NOW)
        .expect_err("the disk fails");
    assert_eq!(with_fewest_partitions(&directories), Some(1));
    on_good
        .append_leader(&mut batch(1, NOW, 10), 1, NOW)
        .expect("room");
    on_good.flush().expect("durable");
    directories[1].write_checkpoints().expect("durable");
    assert_eq!(
        directories[1].checkpointed(CheckpointKind::RecoveryPoint, TOPIC, 1),
        Some(2)
    );
    on_good.close().expect("durable");
}

/// Found by reading: the follower's core was told of a failure, and its log had taken a part, so that it asked for that part
/// for ever and was refused.
#[test]
fn follower_keeps_what_fitted_before_the_disk_was_full() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = FaultyDisk::new();
    let directory = open(&disk, folder.path());
    let config = Arc::new(rig::small_segments());
    let mut log = directory
        .create_log(TOPIC, 0, TOPIC_ID, config, NOW)
        .expect("a new log");
    let one = |offset: i64, epoch| rig::stored(offset, epoch, batch(1, NOW, 900));
    let fetched = [one(0, 3), one(1, 3), one(2, 4), one(3, 4)].concat();
    // Two batches fill a segment, and the second segment's write fails.
    disk.set_after(1, (Call::Write, ErrorKind::StorageFull));
    let appended = log
        .append_follower(&fetched, 4, NOW)
        .expect("a part of it fits");
    assert_eq!((appended.first_offset, appended.last_offset), (0, 1));
    assert_eq!(appended.bytes, 2 * one(0, 3).len());
    assert_eq!(log.log_end_offset(), 2);
    let latest = log.epochs().latest().map(|entry| entry.epoch);
    assert_eq!(latest, Some(3), "no epoch of a batch that is not here");
    let refused = log.append_follower(&fetched[appended.bytes..], 4, NOW);
    assert!(
        matches!(refused, Err(LogError::DiskFull { .. })),
        "{refused:?}"
    );
    assert_eq!(log.epochs().latest().map(|entry| entry.epoch), Some(3));

    disk.set(None);
    let appended = log
        .append_follower(&fetched[appended.bytes..], 4, NOW)
        .expect("room again");
    assert_eq!((appended.first_offset, appended.last_offset), (2, 3));
    assert_eq!(log.poisoned(), None);
}

#[test]
fn failing_directory_tells_its_listener_once() {
    let failing = failing();
    let told = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&told);
    failing.directory.on_offline(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let told = || told.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(told(), 0);
    failing.directory.mark_offline("a test");
    failing.directory.mark_offline("another");
    assert_eq!(told(), 1);
}

#[test]
fn room_that_was_appended_is_counted_until_the_volume_is_asked_again() {
    let mut failing = failing();
    let space = failing.directory.space().expect("a volume");
    // All but a megabyte is reserve.
    let reserve = Reserve::Bytes(space.usable - (1 << 20));
    failing.directory.measure_room(reserve).expect("a volume");
    let has = |bytes| failing.directory.has_room(bytes, RoomFor::Produce);
    assert!(has(300 << 10));
    let mut half = batch(1, NOW, 900 << 10);
    failing
        .log
        .append_leader(&mut half, 1, NOW)
        .expect("there is room");
    assert!(!has(300 << 10));
    failing
        .disk
        .set(Some((Call::Write, ErrorKind::StorageFull)));
    failing
        .log
        .append_leader(&mut batch(1, NOW, 10), 1, NOW)
        .expect_err("the disk is full");
    assert!(
        !failing.directory.has_room(1, RoomFor::Internal),
        "nothing is tried before the volume was asked"
    );
    failing.disk.set(None);
    failing
        .directory
        .measure_room(Reserve::Bytes(0))
        .expect("a volume");
    assert!(failing.directory.has_room(1 << 20, RoomFor::Produce));
}
