//! What is on a disk after a crash: segments, indexes, epochs, checkpoints, identities. A replica is made, stopped by a kill, and
//! one of its files is replaced by the input; then it is opened as at a start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use taffrail_log::{
    AbortedTransaction, Disk, DiskFile, LogConfig, LogDirectory, LogError, OpenFiles, ReadLimits,
};
use taffrail_protocol::records::{Batches, RecordBatchBuilder};
use taffrail_sim::SimDisk;

use super::{Memory, Target};

const NOW: i64 = 1_700_000_000_000;
/// Where everything is.
const FOLDER: &str = "/data";

/// The files that an input may stand for, by its first byte.
const FILES: [&str; 11] = [
    "orders-0/00000000000000000000.log",
    "orders-0/00000000000000000000.index",
    "orders-0/00000000000000000000.timeindex",
    "orders-0/leader-epoch-checkpoint",
    "orders-0/partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
    "orders-0/00000000000000000000.txnindex",
    "replication-offset-checkpoint",
];

pub(super) const TARGETS: &[Target] = &[Target {
    name: "recovery",
    run: recovery,
    seeds,
    // The replica beside the input, in a disk that keeps two copies of everything, and the buffers that a log is read with.
    memory: Memory::and(8 << 20),
}];

fn recovery(data: &[u8]) {
    let Some((which, content)) = data.split_first() else {
        return;
    };
    let disk = SimDisk::new(1);
    make_replica(&disk);
    let file = FILES[usize::from(*which) % FILES.len()];
    replace(&disk, &Path::new(FOLDER).join(file), content);
    let Ok(directory) = open_directory(&disk) else {
        return;
    };
    let Ok(folders) = directory.folders() else {
        return;
    };
    for folder in folders {
        let config = Arc::new(config());
        let Ok((mut log, _)) = directory.open_log(&folder, config, NOW) else {
            continue;
        };
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        assert!(start <= end && log.recovery_point() <= end, "{start} {end}");
        assert!(read_all(&mut log).is_ok_and(|read| read <= end));
        assert!(log.aborted_transactions(start, end).is_ok());
        let mut batch = batch(3);
        let appended = log.append_leader(&mut batch, i32::MAX, NOW);
        assert!(appended.is_ok_and(|appended| appended.first_offset == end) || end > i64::MAX - 10);
    }
}

/// Reads everything, and gives the offset behind the last record.
fn read_all(log: &mut taffrail_log::Log<SimDisk>) -> Result<i64, LogError> {
    let mut offset = log.log_start_offset();
    let limits = ReadLimits {
        max_bytes: 1 << 20,
        min_one: true,
        end_offset: i64::MAX,
    };
    while let Some(range) = log.read(offset, limits)? {
        let mut bytes = Vec::new();
        if range.read_into(&mut bytes).is_err() {
            break;
        }
        let Some(Ok((header, _))) = Batches::new(&bytes).last() else {
            break;
        };
        offset = header.next_offset();
    }
    Ok(offset)
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 20,
        index_interval_bytes: 100,
        ..LogConfig::default()
    }
}

fn batch(records: i32) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(0, NOW);
    for number in 0..records {
        builder.push(Some(b"key"), Some(&[number as u8; 20]), &[]);
    }
    builder.build()
}

fn open_directory(disk: &SimDisk) -> Result<LogDirectory<SimDisk>, taffrail_log::DirectoryError> {
    let files = OpenFiles::new(100);
    LogDirectory::open(
        disk.clone(),
        Path::new(FOLDER),
        "cluster",
        1,
        [3; 16],
        files,
    )
}

/// A replica of five batches in two epochs, killed.
fn make_replica(disk: &SimDisk) {
    let directory = open_directory(disk).expect("an empty disk takes a directory");
    let created = directory.create_log("orders", 0, [9; 16], Arc::new(config()), NOW);
    let mut log = created.expect("an empty directory takes a replica");
    for epoch in [1, 1, 1, 2, 2] {
        let appended = log.append_leader(&mut batch(2), epoch, NOW);
        appended.expect("an intact log takes a batch");
    }
    let aborted = AbortedTransaction {
        producer_id: 1,
        first_offset: 2,
        last_offset: 7,
        last_stable_offset: 8,
    };
    let noted = log.note_aborted(aborted);
    noted.expect("an intact log takes an aborted transaction");
    drop(log);
    directory
        .write_checkpoints()
        .expect("an intact disk takes checkpoints");
    drop(directory);
    disk.kill();
}

fn replace(disk: &SimDisk, path: &Path, content: &[u8]) {
    if disk.open(path).is_ok() {
        disk.remove_file(path).expect("a file that is there goes");
    }
    let file = disk.create(path).expect("a file that is not there is made");
    file.write_all_at(content, 0).expect("there is room");
}

/// Each file as an intact replica has it.
fn seeds() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(1);
    make_replica(&disk);
    let numbered = (0u8..).zip(FILES.map(|file| PathBuf::from(FOLDER).join(file)));
    numbered
        .map(|(which, path)| {
            let mut seed = vec![which];
            seed.extend(disk.read(&path).unwrap_or_default());
            seed
        })
        .collect()
}
