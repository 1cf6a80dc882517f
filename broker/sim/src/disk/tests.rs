//! What the disk keeps and loses, and what a log on it keeps.

use super::*;
use taffrail_log::{
    CheckpointKind, Log, LogConfig, LogDirectory, OpenFiles, PartitionFolder, ReadLimits,
};
use taffrail_protocol::records::{Batches, RecordBatchBuilder, patch_base_offset_and_epoch};

const NOW: i64 = 1_700_000_000_000;

fn write(disk: &SimDisk, path: &str, bytes: &[u8]) -> SimFile {
    let file = disk.create(Path::new(path)).expect("a new file");
    file.write_all_at(bytes, 0).expect("room");
    file
}

#[test]
fn a_flipped_bit_is_rot_until_its_byte_is_written_again_or_cut_off() {
    let disk = SimDisk::new(1);
    let path = Path::new("/file");
    let file = write(&disk, "/file", b"whole");
    for mend in [0, 1] {
        disk.flip_bit(path, 2, 0).expect("there");
        assert!(disk.is_rotten(path));
        assert_eq!(disk.peek(path).expect("there"), b"whnle");
        file.write_all_at(b"wh", 0).expect("room");
        assert!(disk.is_rotten(path), "another byte was written");
        match mend {
            0 => file.write_all_at(b"o", 2).expect("room"),
            _ => file.set_length(2).expect("no fault"),
        }
        assert!(!disk.is_rotten(path));
    }
}

#[test]
fn a_full_volume_has_room_again_when_a_file_is_removed_and_closed() {
    let disk = SimDisk::new(1);
    let old = write(&disk, "/old", b"12345");
    disk.set_capacity(disk.used() + 1);
    let new = write(&disk, "/new", b"6");
    let full = new.write_all_at(b"7", 1).expect_err("no room");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    disk.remove_file(Path::new("/old")).expect("there");
    assert_eq!(disk.used(), 6, "it is still open");
    drop(old);
    assert_eq!(disk.used(), 1);
    new.write_all_at(b"7", 1).expect("room");
    disk.restore_capacity();
    new.write_all_at(&[8; 1000], 1).expect("room");
}

#[test]
fn what_was_synced_survives_and_the_rest_may_not() {
    let mut lost_name = 0;
    let mut lost_content = 0;
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/a")).expect("a new folder");
        disk.sync_dir(Path::new("/")).expect("there");
        write(&disk, "/a/synced", b"whole")
            .sync()
            .expect("no fault");
        disk.sync_dir(Path::new("/a")).expect("there");
        write(&disk, "/a/unsynced", b"half");
        let nameless = write(&disk, "/a/nameless", b"whole");
        nameless.sync().expect("no fault");
        disk.crash();
        assert_eq!(
            disk.read(Path::new("/a/synced")).expect("durable"),
            b"whole"
        );
        match disk.read(Path::new("/a/unsynced")) {
            Ok(content) if content == b"half" => {}
            Ok(_) => lost_content += 1,
            Err(_) => lost_name += 1,
        }
        // A name that is there leads to what was synced.
        if let Ok(content) = disk.read(Path::new("/a/nameless")) {
            assert_eq!(content, b"whole");
        }
        assert!(nameless.length().is_err(), "its process is gone");
    }
    assert!(
        lost_name > 20 && lost_content > 20,
        "{lost_name} names and {lost_content} contents of 200 lost"
    );
}

/// Found by the simulation of a cluster (seed 0): the broker came back as one that had never been there.
#[test]
fn a_log_directory_that_was_missing_is_durable_once_it_is_open() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let path = Path::new("/data/0");
        let open = |directory_id| {
            let files = OpenFiles::new(10);
            LogDirectory::open(disk.clone(), path, "cluster", 1, directory_id, files)
        };
        drop(open([1; 16]).expect("an empty disk"));
        disk.crash();
        let identity = open([2; 16]).expect("what is left").identity().clone();
        assert_eq!(identity.directory_id, [1; 16], "seed {seed}");
    }
}

#[test]
fn a_kill_loses_nothing_and_frees_locks() {
    let disk = SimDisk::new(1);
    write(&disk, "/file", b"here");
    let held = disk.lock(Path::new("/lock")).expect("free");
    assert_eq!(
        disk.lock(Path::new("/lock"))
            .err()
            .map(|error| error.kind()),
        Some(io::ErrorKind::WouldBlock)
    );
    disk.kill();
    let second = disk.lock(Path::new("/lock")).expect("free again");
    // The guard of the dead process does not open the new one's lock.
    drop(held);
    assert!(disk.lock(Path::new("/lock")).is_err());
    drop(second);
    assert_eq!(disk.read(Path::new("/file")).expect("kept"), b"here");
}

#[test]
fn faults_come_when_they_are_due() {
    let disk = SimDisk::new(1);
    let file = write(&disk, "/file", b"old");
    file.sync().expect("no fault yet");
    disk.sync_dir(Path::new("/")).expect("no fault yet");
    let kind = io::ErrorKind::Other;
    disk.inject(Fault {
        call: Call::Sync,
        path_contains: "file".to_owned(),
        kind,
        after: 0,
        times: 1,
    });
    file.write_all_at(b"new", 0).expect("no write fault");
    assert!(file.sync().is_err());
    // The one after succeeds, and writes nothing of what the failed one should have.
    assert!(file.sync().is_ok());
    disk.crash();
    assert_eq!(disk.read(Path::new("/file")).expect("durable"), b"old");
    disk.set_capacity(4);
    let file = disk.open(Path::new("/file")).expect("there");
    assert_eq!(
        file.write_all_at(b"12345", 0)
            .err()
            .map(|error| error.kind()),
        Some(io::ErrorKind::StorageFull)
    );
}

/// Found by the simulation of a cluster: the topic id was lost with the power, and with it the whole replica.
#[test]
fn a_log_that_was_closed_unused_is_durable_once_it_is_flushed() {
    let config = Arc::new(LogConfig::default());
    let folder = PartitionFolder::live("orders", 0);
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let directory = || {
            let files = OpenFiles::new(100);
            let path = Path::new("/data/0");
            LogDirectory::open(disk.clone(), path, "cluster", 1, [3; 16], files).expect("usable")
        };
        let first = directory();
        let log = first.create_log("orders", 0, [9; 16], Arc::clone(&config), NOW);
        log.and_then(Log::close).expect("no fault");
        first.mark_clean_shutdown(1).expect("no fault");
        drop(first);
        let second = directory();
        let opened = second.open_log(&folder, Arc::clone(&config), NOW);
        let (mut log, _) = opened.expect("an intact log");
        let mut builder = RecordBatchBuilder::new(0, NOW);
        builder.push(None, Some(b"value"), &[]);
        log.append_leader(&mut builder.build(), 0, NOW)
            .expect("room");
        log.flush().expect("no fault");
        disk.crash();
        drop((log, second));
        let (log, _) = directory()
            .open_log(&folder, Arc::clone(&config), NOW)
            .expect("an intact log");
        assert_eq!((log.topic_id(), log.log_end_offset()), (Some([9; 16]), 1));
    }
}

/// A log on a disk that loses power again and again: every record below the last flush is there, what is there is
/// what was appended, and the log goes on.
#[test]
fn a_log_never_loses_what_it_flushed() {
    for seed in 0..300 {
        PowerLoss::new(seed).run();
    }
}

struct PowerLoss {
    disk: SimDisk,
    random: Random,
    config: Arc<LogConfig>,
    /// Batches by base offset, as they were appended in the life of the log that is there.
    appended: BTreeMap<i64, Vec<u8>>,
    flushed: i64,
    epoch: i32,
}

impl PowerLoss {
    fn new(seed: u64) -> PowerLoss {
        let config = LogConfig {
            segment_bytes: 20_000,
            index_interval_bytes: 1000,
            retention_bytes: Some(60_000),
            recycle_segments: true,
            ..LogConfig::default()
        };
        PowerLoss {
            disk: SimDisk::new(seed),
            random: Random::new(seed ^ 0xabcd),
            config: Arc::new(config),
            appended: BTreeMap::new(),
            flushed: 0,
            epoch: 0,
        }
    }

    fn directory(&self) -> LogDirectory<SimDisk> {
        LogDirectory::open(
            self.disk.clone(),
            Path::new("/data"),
            "cluster",
            1,
            [1; 16],
            OpenFiles::new(3),
        )
        .expect("a usable directory")
    }

    fn create(&self, directory: &LogDirectory<SimDisk>) -> Log<SimDisk> {
        directory
            .create_log("t", 0, [2; 16], Arc::clone(&self.config), NOW)
            .expect("a new log")
    }

    fn run(&mut self) {
        self.disk
            .create_dir_all(Path::new("/data"))
            .expect("a new folder");
        self.disk.sync_dir(Path::new("/")).expect("no fault");
        let directory = self.directory();
        let mut log = self.create(&directory);
        drop(directory);
        let mut wall_ms = NOW;
        for _ in 0..6 {
            for _ in 0..self.random.index_below(60) {
                wall_ms += 1000 * 60;
                self.step(&mut log, wall_ms);
            }
            match self.random.index_below(5) {
                0 => {
                    drop(log);
                    self.disk.kill();
                }
                1 => {
                    let (directory, end) = (log.directory().clone(), log.log_end_offset());
                    log.close().expect("no fault");
                    directory.mark_clean_shutdown(1).expect("no fault");
                    self.flushed = end;
                    drop(directory);
                    self.disk.crash();
                }
                _ => {
                    drop(log);
                    self.disk.crash();
                }
            }
            log = self.reopen(wall_ms);
        }
    }

    fn step(&mut self, log: &mut Log<SimDisk>, wall_ms: i64) {
        match self.random.index_below(20) {
            0 => self.flushed = log.flush().expect("no fault"),
            1 => {
                let active = log.active_base_offset();
                if let Some(flush) = log.begin_flush(active).expect("no fault") {
                    self.flushed = log
                        .finish_flush(flush.run())
                        .expect("no fault")
                        .max(self.flushed);
                }
            }
            2 => log.directory().write_checkpoints().expect("no fault"),
            3 => {
                self.epoch += 1;
                log.assign_epoch(self.epoch).expect("a higher epoch");
            }
            4 => {
                let end = log.log_end_offset();
                log.retire_segments(wall_ms, end)
                    .expect("no fault")
                    .remove()
                    .expect("no fault");
            }
            5 => {
                let back = self.random.index_below(20) as i64;
                let target = (log.log_end_offset() - back).max(log.log_start_offset());
                let end = log.truncate_to(target, wall_ms).expect("within the log");
                self.appended.split_off(&end);
                self.flushed = self.flushed.min(end);
                // What is truncated is what the leader of a newer epoch does not have.
                self.epoch += 1;
            }
            6 => log.release_memory().expect("no fault"),
            _ => self.append(log, wall_ms),
        }
    }

    fn append(&mut self, log: &mut Log<SimDisk>, wall_ms: i64) {
        let mut builder = RecordBatchBuilder::new(0, wall_ms);
        let value = vec![self.random.index_below(256) as u8; self.random.index_below(3000)];
        for _ in 0..=self.random.index_below(3) {
            builder.push(Some(b"key"), Some(&value), &[]);
        }
        let mut batch = builder.build();
        let appended = log
            .append_leader(&mut batch, self.epoch, wall_ms)
            .expect("room");
        patch_base_offset_and_epoch(&mut batch, appended.first_offset, self.epoch);
        self.appended.insert(appended.first_offset, batch);
    }

    fn reopen(&mut self, wall_ms: i64) -> Log<SimDisk> {
        let directory = self.directory();
        let folder = PartitionFolder::live("t", 0);
        let there = directory.folders().expect("readable").contains(&folder);
        // As a broker would: what is empty goes, and what nothing says whose it is is put aside.
        let removed = there && directory.remove_void(&folder).expect("no fault");
        if there && !removed && directory.topic_id(&folder).expect("readable").is_none() {
            directory.mark_stray(&folder).expect("no fault");
        }
        if !directory.folders().expect("readable").contains(&folder) {
            assert_eq!(
                self.flushed, 0,
                "a log that was flushed keeps its folder and its id"
            );
            self.appended.clear();
            return self.create(&directory);
        }
        let (mut log, _) = directory
            .open_log(&folder, Arc::clone(&self.config), wall_ms)
            .expect("recoverable");
        assert_eq!(log.topic_id(), Some([2; 16]));
        let end = log.log_end_offset();
        assert!(
            end >= self.flushed,
            "ends at {end}, flushed up to {}",
            self.flushed
        );
        assert!(log.recovery_point() <= end);
        let checkpointed = directory.checkpointed(CheckpointKind::RecoveryPoint, "t", 0);
        assert_eq!(checkpointed, Some(log.recovery_point()));
        let mut offset = log.log_start_offset();
        let limits = ReadLimits {
            max_bytes: 1 << 20,
            min_one: true,
            end_offset: i64::MAX,
        };
        while let Some(range) = log.read(offset, limits).expect("intact") {
            let mut bytes = Vec::new();
            range.read_into(&mut bytes).expect("intact");
            for batch in Batches::new(&bytes) {
                let (header, range) = batch.expect("intact");
                let expected = self.appended.get(&header.base_offset);
                assert!(
                    expected.is_some_and(|expected| expected[..] == bytes[range]),
                    "offset {}",
                    header.base_offset
                );
                offset = header.next_offset();
            }
        }
        assert_eq!(offset, end, "no hole before the end");
        self.appended.split_off(&end);
        // What is there now was read from the disk, but only a flush says that it is durable.
        self.flushed = self.flushed.min(end);
        // Whoever leads after a restart does so in a new epoch.
        self.epoch += 1;
        log
    }
}
