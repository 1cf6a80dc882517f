//! A log directory's identity, lock, markers and folders.

mod rig;

use std::fs;
use std::sync::Arc;

use rig::{NOW, Rig, TOPIC, TOPIC_ID, batch, read_all};
use taffrail_log::{
    CheckpointKind, CleanShutdown, DirectoryError, FolderState, LogConfig, LogDirectory, LogError,
    OpenFiles, PartitionFolder, RealDisk, with_fewest_partitions,
};

#[test]
fn a_directory_belongs_to_one_broker_of_one_cluster() {
    let rig = Rig::new();
    let id = rig.directory().identity().directory_id;
    let open = |cluster: &str, node: i32| {
        LogDirectory::open(
            RealDisk,
            &rig.path(),
            cluster,
            node,
            [8; 16],
            Arc::clone(&rig.files),
        )
        .map(|directory| {
            assert_eq!(
                directory.identity().directory_id,
                id,
                "the id stays that of the first start"
            );
        })
    };
    open("cluster", 1).expect("its own");
    let message = |result: Result<(), DirectoryError>| result.expect_err("foreign").to_string();
    let path = rig.path().display().to_string();
    assert_eq!(
        message(open("other", 1)),
        format!("{path} belongs to cluster cluster, not to other")
    );
    assert_eq!(
        message(open("cluster", 2)),
        format!("{path} belongs to broker 1, not to 2")
    );
    fs::write(rig.path().join("meta.properties"), "version=1\n").expect("writable");
    assert!(message(open("cluster", 1)).contains("cluster.id is missing"));
}

#[test]
fn a_directory_in_use_is_refused() {
    let rig = Rig::new();
    let held = rig.directory();
    let second = LogDirectory::open(
        RealDisk,
        &rig.path(),
        "cluster",
        1,
        [8; 16],
        Arc::clone(&rig.files),
    );
    assert!(matches!(second, Err(DirectoryError::InUse { .. })));
    drop(held);
    rig.directory();
}

#[test]
fn the_clean_shutdown_marker_counts_once() {
    let rig = Rig::new();
    let directory = rig.directory();
    assert_eq!(directory.clean_shutdown(), CleanShutdown::No);
    directory.mark_clean_shutdown(42).expect("durable");
    drop(directory);
    assert_eq!(
        rig.directory().clean_shutdown(),
        CleanShutdown::Yes {
            broker_epoch: Some(42)
        }
    );
    assert_eq!(rig.directory().clean_shutdown(), CleanShutdown::No);
}

#[test]
fn checkpoints_survive_a_restart_and_damage_counts_as_absence() {
    let rig = Rig::new();
    let directory = rig.directory();
    directory.publish(CheckpointKind::HighWatermark, TOPIC, 3, 77);
    assert_eq!(
        directory.checkpointed(CheckpointKind::HighWatermark, TOPIC, 3),
        Some(77)
    );
    directory
        .write_checkpoint(CheckpointKind::HighWatermark)
        .expect("durable");
    drop(directory);
    let file = rig.path().join("replication-offset-checkpoint");
    assert_eq!(
        fs::read_to_string(&file).expect("there"),
        "0\n1\norders 3 77\n"
    );
    assert_eq!(
        rig.directory()
            .checkpointed(CheckpointKind::HighWatermark, TOPIC, 3),
        Some(77)
    );
    fs::write(&file, "0\n2\norders 3 77\n").expect("writable");
    assert_eq!(
        rig.directory()
            .checkpointed(CheckpointKind::HighWatermark, TOPIC, 3),
        None
    );
}

#[test]
fn new_replicas_go_where_the_fewest_are() {
    let rig = Rig::new();
    let directories: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| rig.directory_at(&rig.folder.path().join(name)))
        .collect();
    let mut placed = Vec::new();
    for partition in 0..7 {
        let chosen = with_fewest_partitions(&directories).expect("all are in use");
        directories[chosen]
            .create_log(TOPIC, partition, TOPIC_ID, Arc::default(), NOW)
            .expect("a new log");
        placed.push(chosen);
    }
    assert_eq!(placed, [0, 1, 2, 0, 1, 2, 0]);
    // A replica that leaves makes room.
    directories[1]
        .mark_deleted(&PartitionFolder::live(TOPIC, 4))
        .expect("there");
    assert_eq!(with_fewest_partitions(&directories), Some(1));
}

#[test]
fn a_folder_is_never_made_twice() {
    let rig = Rig::new();
    let directory = rig.directory();
    directory
        .create_log(TOPIC, 0, TOPIC_ID, Arc::default(), NOW)
        .expect("a new log");
    let again = directory.create_log(TOPIC, 0, [1; 16], Arc::default(), NOW);
    let Err(LogError::Io { source, .. }) = again else {
        panic!("it exists")
    };
    assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(
        directory
            .topic_id(&PartitionFolder::live(TOPIC, 0))
            .expect("readable"),
        Some(TOPIC_ID)
    );
    assert_eq!(directory.partition_count(), 1);
}

/// A closed replica with `records` records, and its directory.
fn with_records(rig: &Rig, records: i32) -> (LogDirectory<RealDisk>, PartitionFolder) {
    let mut log = rig.create(&LogConfig::default());
    log.append_leader(&mut batch(records, NOW, 10), 1, NOW)
        .expect("room");
    let (directory, live) = (log.directory().clone(), log.folder().clone());
    log.close().expect("durable");
    (directory, live)
}

#[test]
fn replicas_that_lost_their_id_are_kept_side_by_side() {
    let rig = Rig::new();
    for number in 0..3u128 {
        let (directory, live) = with_records(&rig, 3);
        fs::write(rig.path().join(&live.name).join("partition.metadata"), "").expect("writable");
        let stray = directory.mark_stray(&live).expect("renamed");
        assert_eq!(stray.state, FolderState::Stray(number.to_be_bytes()));
    }
    assert_eq!(rig.directory().folders().expect("readable").len(), 3);
}

#[test]
fn a_replica_that_is_set_aside_again_is_kept_beside_the_first() {
    let rig = Rig::new();
    let mut kept = Vec::new();
    for (records, id) in [(3, TOPIC_ID), (4, [0; 16]), (5, 1u128.to_be_bytes())] {
        let (directory, live) = with_records(&rig, records);
        let stray = directory.mark_stray(&live).expect("a free name");
        assert_eq!(stray.state, FolderState::Stray(id));
        kept.push((stray, records));
    }
    let directory = rig.directory();
    for (stray, records) in kept {
        assert_eq!(
            directory.topic_id(&stray).expect("readable"),
            Some(TOPIC_ID)
        );
        let (log, _) = directory
            .open_log(&stray, Arc::default(), NOW)
            .expect("intact");
        assert_eq!(log.log_end_offset(), i64::from(records));
    }
}

#[test]
fn a_deleted_replica_does_not_stand_in_the_way_of_the_next() {
    let rig = Rig::new();
    let (directory, live) = with_records(&rig, 3);
    directory.mark_deleted(&live).expect("renamed");
    let log = directory.create_log(TOPIC, 0, TOPIC_ID, Arc::default(), NOW);
    log.expect("made again").close().expect("durable");
    let second = directory.mark_deleted(&live).expect("a free name");
    directory.remove(&second).expect("removed");
    assert_eq!(directory.folders().expect("readable").len(), 1);
}

/// What a loss of power leaves of a replica that nothing was flushed of.
fn empty_files(folder: &std::path::Path) {
    for entry in fs::read_dir(folder).expect("there") {
        fs::write(entry.expect("readable").path(), "").expect("writable");
    }
}

#[test]
fn only_a_folder_in_which_nothing_is_is_removed() {
    let check = |change: &dyn Fn(&std::path::Path), expected: bool| {
        let rig = Rig::new();
        let directory = rig.directory();
        let log = directory.create_log(TOPIC, 0, TOPIC_ID, Arc::default(), NOW);
        drop(log.expect("a new log"));
        empty_files(&rig.partition());
        change(&rig.partition());
        let live = PartitionFolder::live(TOPIC, 0);
        assert_eq!(directory.remove_void(&live).expect("readable"), expected);
        assert_eq!(rig.partition().exists(), !expected);
        assert_eq!(directory.partition_count(), usize::from(!expected));
        for left in [usize::from(expected), 0] {
            assert_eq!(directory.sync_removed().expect("durable"), left);
        }
    };
    let write = |folder: &std::path::Path, name: &str, content: &str| {
        fs::write(folder.join(name), content).expect("writable");
    };
    check(&|_| {}, true);
    check(
        &|folder| fs::remove_file(folder.join("partition.metadata")).expect("there"),
        true,
    );
    check(
        &|folder| write(folder, "00000000000000000000.log", "\0"),
        false,
    );
    check(
        &|folder| write(folder, "00000000000000000007.log.deleted", "x"),
        false,
    );
    check(&|folder| write(folder, "partition.metadata", "?"), false);
    check(
        &|folder| {
            let id = "version: 0\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ\n";
            write(folder, "partition.metadata", id);
        },
        false,
    );
    check(
        &|folder| fs::create_dir(folder.join("of-somebody-else")).expect("writable"),
        false,
    );
}

#[test]
fn an_empty_folder_whose_records_were_durable_once_is_not_removed() {
    let rig = Rig::new();
    let (directory, live) = with_records(&rig, 3);
    directory.write_checkpoints().expect("durable");
    drop(directory);
    empty_files(&rig.partition());
    assert!(!rig.directory().remove_void(&live).expect("readable"));
    assert!(rig.partition().exists());
}

#[test]
fn strays_in_which_nothing_is_go_at_the_next_start() {
    let rig = Rig::new();
    let (directory, live) = with_records(&rig, 3);
    let kept = directory.mark_stray(&live).expect("renamed");
    for partition in 1..4 {
        let log = directory.create_log(TOPIC, partition, TOPIC_ID, Arc::default(), NOW);
        drop(log.expect("a new log"));
        let live = PartitionFolder::live(TOPIC, partition);
        empty_files(&rig.path().join(&live.name));
        directory.mark_stray(&live).expect("renamed");
    }
    drop(directory);
    let directory = rig.directory();
    assert_eq!(directory.folders().expect("readable"), [kept]);
    assert_eq!(directory.sync_removed().expect("durable"), 3);
}

#[test]
fn strays_are_kept_and_deleted_ones_go() {
    let (rig, config) = (Rig::new(), LogConfig::default());
    let mut log = rig.create(&config);
    log.append_leader(&mut batch(3, NOW, 10), 1, NOW)
        .expect("room");
    let content = read_all(&mut log).expect("readable");
    let (directory, live) = (log.directory().clone(), log.folder().clone());
    log.close().expect("durable");

    let stray = directory.mark_stray(&live).expect("renamed");
    assert_eq!(stray.state, FolderState::Stray(TOPIC_ID));
    assert_eq!(
        (
            directory.partition_count(),
            directory.folders().expect("readable")
        ),
        (0, vec![stray.clone()])
    );
    assert!(
        directory.remove(&stray).is_err(),
        "a stray is never removed"
    );
    drop(directory);
    let directory = rig.directory();
    assert_eq!(
        directory.folders().expect("readable"),
        std::slice::from_ref(&stray)
    );
    let (mut log, _) = directory
        .open_log(&stray, Arc::new(config), NOW)
        .expect("intact");
    assert!(read_all(&mut log).expect("readable") == content);
    drop(log);

    let deleted = directory.mark_deleted(&stray).expect("renamed");
    assert_eq!(deleted.state, FolderState::Deleted(TOPIC_ID));
    drop(directory);
    // A process that died before it removed the folder left it to the next.
    assert_eq!(rig.directory().folders().expect("readable"), []);
}

#[test]
fn an_unreadable_topic_id_is_no_topic_id() {
    let rig = Rig::new();
    let directory = rig.directory();
    let folder = PartitionFolder::live(TOPIC, 0);
    directory
        .create_log(TOPIC, 0, TOPIC_ID, Arc::default(), NOW)
        .expect("a new log");
    let file = rig.partition().join("partition.metadata");
    assert_eq!(
        fs::read_to_string(&file).expect("there"),
        "version: 0\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ\n"
    );
    for content in [
        "",
        "version: 1\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ\n",
        "version: 0\n",
        "version: 0\ntopic_id: x\n",
    ] {
        fs::write(&file, content).expect("writable");
        assert_eq!(
            directory.topic_id(&folder).expect("readable"),
            None,
            "{content:?}"
        );
    }
    fs::remove_file(&file).expect("there");
    assert_eq!(directory.topic_id(&folder).expect("readable"), None);
}

#[test]
fn open_files_stay_within_their_limit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = OpenFiles::new(5);
    let directory = LogDirectory::open(
        RealDisk,
        folder.path(),
        "cluster",
        1,
        [1; 16],
        Arc::clone(&files),
    )
    .expect("fresh");
    let mut logs: Vec<_> = (0..20)
        .map(|partition| {
            directory
                .create_log(TOPIC, partition, TOPIC_ID, Arc::default(), NOW)
                .expect("a new log")
        })
        .collect();
    let mut held = Vec::new();
    for round in 0..3 {
        for log in &mut logs {
            log.append_leader(&mut batch(1, NOW + round, 10), 1, NOW)
                .expect("room");
            held.extend(log.read(0, rig::all()).expect("readable"));
            assert!(files.open_count() <= 5);
        }
    }
    // Ranges outlive the closing of their file.
    assert!(
        held.iter()
            .all(|range| rig::bytes(range).len() == range.length)
    );
}
