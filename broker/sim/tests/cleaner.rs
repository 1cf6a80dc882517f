//! A cleaning that dies at each of its disk operations, by a kill or with the power: what the log says is the same then, and
//! nothing half-done is left.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use taffrail_log::cleaner::{ActiveProducers, CleaningStep, CompactionConfig};
use taffrail_log::{
    AbortedTransaction, DirEntry, Disk, DiskFile, Log, LogConfig, LogDirectory, LogError,
    OpenFiles, PartitionFolder, ReadLimits, Space,
};
use taffrail_protocol::records::{
    Batches, EndTransactionMarker, RecordBatchBuilder, RecordIter, uncompressed_records,
};
use taffrail_sim::{SimDisk, SimFile, SimLock};

const NOW: i64 = 1_700_000_000_000;
const FOLDER: &str = "/data/0";

/// A simulated disk of a process that dies at a given change to it. Half of a last write gets there.
#[derive(Clone)]
struct MortalDisk {
    disk: SimDisk,
    left: Arc<AtomicU64>,
}

struct MortalFile {
    file: SimFile,
    left: Arc<AtomicU64>,
}

fn live(left: &AtomicU64) -> io::Result<()> {
    let lived = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    });
    lived
        .map(drop)
        .map_err(|_| io::Error::other("the process is gone"))
}

impl MortalDisk {
    fn file(&self, file: SimFile) -> MortalFile {
        MortalFile {
            file,
            left: Arc::clone(&self.left),
        }
    }
}

impl Disk for MortalDisk {
    type File = MortalFile;
    type Lock = SimLock;

    fn open(&self, path: &Path) -> io::Result<MortalFile> {
        self.disk.open(path).map(|file| self.file(file))
    }

    fn create(&self, path: &Path) -> io::Result<MortalFile> {
        live(&self.left)?;
        self.disk.create(path).map(|file| self.file(file))
    }

    fn lock(&self, path: &Path) -> io::Result<SimLock> {
        self.disk.lock(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        live(&self.left)?;
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        live(&self.left)?;
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        live(&self.left)?;
        self.disk.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        live(&self.left)?;
        self.disk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }
}

impl DiskFile for MortalFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        live(&self.left).or_else(|error| {
            self.file
                .write_all_at(&bytes[..bytes.len() / 2], position)?;
            Err(error)
        })?;
        self.file.write_all_at(bytes, position)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        live(&self.left)?;
        self.file.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        live(&self.left)?;
        self.file.sync()
    }
}

fn config(compact: bool) -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_bytes: 1200,
        index_interval_bytes: 200,
        compact,
        delete: !compact,
        retention_ms: None,
        ..LogConfig::default()
    })
}

fn directory(disk: &MortalDisk) -> Result<LogDirectory<MortalDisk>, io::Error> {
    LogDirectory::open(
        disk.clone(),
        Path::new(FOLDER),
        "cluster",
        1,
        [3; 16],
        OpenFiles::new(20),
    )
    .map_err(io::Error::other)
}

fn open(disk: &MortalDisk, compact: bool) -> Result<Log<MortalDisk>, io::Error> {
    let folder = PartitionFolder::live("orders", 0);
    let opened = directory(disk)?.open_log(&folder, config(compact), NOW);
    opened.map(|(log, _)| log).map_err(io::Error::other)
}

fn keyed(key: i64, value: i64) -> RecordBatchBuilder {
    let mut batch = RecordBatchBuilder::new(0, NOW);
    let value = format!("{value:080}");
    let key = format!("key{key}");
    batch.push(Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    batch
}

/// Records of a few keys over many segments, and transactions of which every second one is aborted.
fn fill(log: &mut Log<MortalDisk>) {
    for number in 0..60 {
        let producer = number % 2;
        let mut batch = keyed(number % 5, number)
            .producer(producer, 0, 0)
            .transactional(number >= 20);
        batch.push(Some(b"both"), Some(b"value"), &[]);
        let append = |log: &mut Log<MortalDisk>, mut bytes: Vec<u8>| {
            let appended = log.append_leader(&mut bytes, 1, NOW);
            appended.expect("room").first_offset
        };
        let first_offset = append(log, batch.build());
        if number >= 20 {
            let commit = producer == 0;
            let marker = EndTransactionMarker {
                commit,
                coordinator_epoch: 0,
            };
            let last_offset = append(log, marker.batch(producer, 0, NOW));
            if !commit {
                log.note_aborted(AbortedTransaction {
                    producer_id: producer,
                    first_offset,
                    last_offset,
                    last_stable_offset: last_offset + 1,
                })
                .expect("noted");
            }
        }
    }
    log.roll(NOW).expect("room");
    // What the next start would look through, it need not: a snapshot says so.
    log.write_producer_snapshot(log.log_end_offset(), b"state")
        .expect("durable");
    log.flush().expect("durable");
}

/// Cleans all of it once.
fn clean(log: &mut Log<MortalDisk>) -> Result<(), LogError> {
    let compaction = CompactionConfig::default();
    let range = log.dirty_range(None, i64::MAX, &compaction, NOW)?;
    let producers = ActiveProducers::new();
    let begun = log.begin_cleaning(range, &compaction, producers, 1 << 20, NOW)?;
    let mut cleaning = begun.expect("there is something to do");
    loop {
        match cleaning.step(2000)? {
            CleaningStep::More(_) => {}
            CleaningStep::Swap(_) => {
                let retired = log.swap_cleaned(&mut cleaning)?;
                retired.expect("nothing changed meanwhile").remove()?;
            }
            CleaningStep::Done(_) => return Ok(()),
        }
    }
}

type Records = BTreeMap<i64, (Vec<u8>, Vec<u8>)>;

/// What a reader of committed records gets: by offset, key and value.
fn committed(log: &mut Log<MortalDisk>) -> Records {
    let aborted = log.aborted_transactions(0, i64::MAX).expect("readable");
    let limits = ReadLimits {
        max_bytes: 5000,
        min_one: true,
        end_offset: i64::MAX,
    };
    let mut records = Records::new();
    let mut offset = 0;
    while let Some(range) = log.read(offset, limits).expect("readable") {
        let mut bytes = Vec::new();
        range.read_into(&mut bytes).expect("there");
        for batch in Batches::new(&bytes) {
            let (header, batch) = batch.expect("whole");
            assert!(header.base_offset >= offset, "in order");
            offset = header.next_offset();
            let is_aborted = header.attributes.is_transactional()
                && aborted.iter().any(|aborted| {
                    aborted.producer_id == header.producer_id
                        && (aborted.first_offset..aborted.last_offset).contains(&header.base_offset)
                });
            if is_aborted || header.attributes.is_control() {
                continue;
            }
            let (header, found) = uncompressed_records(&bytes[batch], 1 << 20).expect("whole");
            for record in RecordIter::new(&header, &found) {
                let record = record.expect("whole");
                let of = |bytes: Option<&[u8]>| bytes.unwrap_or_default().to_vec();
                records.insert(record.offset, (of(record.key), of(record.value)));
            }
        }
    }
    records
}

/// The newest offset of each key.
fn newest(records: &Records) -> BTreeMap<&[u8], i64> {
    let records = records.iter();
    records
        .map(|(offset, (key, _))| (key.as_slice(), *offset))
        .collect()
}

#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    power_loss: bool,
    /// Cleanings before the one that dies: the later ones make several segments into one.
    before: usize,
    checkpointed: bool,
    compact_after: bool,
}

/// Runs one cleaning that dies after so many changes. False if it did not.
fn dies(case: Case, lived: u64) -> bool {
    let disk = MortalDisk {
        disk: SimDisk::new(case.seed),
        left: Arc::new(AtomicU64::new(u64::MAX)),
    };
    let first = directory(&disk).expect("an empty disk");
    let created = first.create_log("orders", 0, [9; 16], config(true), NOW);
    let mut log = created.expect("a new log");
    fill(&mut log);
    let before = committed(&mut log);
    let end = log.log_end_offset();
    for _ in 0..case.before {
        clean(&mut log).expect("cleaned");
    }
    if case.checkpointed {
        first.write_checkpoints().expect("durable");
    }
    disk.left.store(lived, Ordering::Relaxed);
    let died = clean(&mut log).is_err();
    drop((log, first));
    if case.power_loss {
        disk.disk.crash();
    } else {
        disk.disk.kill();
    }
    disk.left.store(u64::MAX, Ordering::Relaxed);

    let check = |log: &mut Log<MortalDisk>| {
        let after = committed(log);
        assert_eq!(log.log_end_offset(), end, "{case:?}, {lived}");
        assert!(
            after
                .iter()
                .all(|(offset, record)| before.get(offset) == Some(record)),
            "{case:?}, {lived}: a record that was not there"
        );
        assert_eq!(newest(&after), newest(&before), "{case:?}, {lived}");
        after.len()
    };
    // The start may die as well, wherever it is; the next one goes on from there.
    for lived in [1, 3, 6, u64::MAX] {
        disk.left.store(lived, Ordering::Relaxed);
        match open(&disk, case.compact_after) {
            Ok(mut log) => {
                disk.left.store(u64::MAX, Ordering::Relaxed);
                check(&mut log);
                drop(log);
            }
            Err(error) => assert!(lived < u64::MAX, "{case:?}, {lived}: {error}"),
        }
        if case.power_loss {
            disk.disk.crash();
        } else {
            disk.disk.kill();
        }
    }
    disk.left.store(u64::MAX, Ordering::Relaxed);
    let mut log = open(&disk, case.compact_after).expect("an intact log");
    check(&mut log);
    let path = Path::new(FOLDER).join("orders-0");
    let left = disk.list(&path).expect("there").into_iter();
    let left: Vec<String> = left
        .map(|entry| entry.name)
        .filter(|name| {
            [".cleaned", ".swap", ".deleted"]
                .iter()
                .any(|suffix| name.ends_with(suffix))
        })
        .collect();
    assert!(left.is_empty(), "{case:?}, {lived}: {left:?}");
    log.set_config(config(true));
    log.flush().expect("durable");
    clean(&mut log).expect("cleaned");
    assert_eq!(check(&mut log), newest(&before).len());
    died
}

#[test]
fn a_cleaning_that_dies_anywhere_loses_nothing_and_leaves_nothing_half_done() {
    let mut deaths = 0;
    for seed in 0..4 {
        let case = Case {
            seed,
            power_loss: seed % 4 != 0,
            before: (seed % 2) as usize,
            checkpointed: seed % 5 < 2,
            compact_after: seed % 4 != 1,
        };
        let mut lived = 0;
        while dies(case, lived) {
            lived += 1;
        }
        assert!(lived > 50, "{case:?}: only {lived} changes");
        deaths += lived;
    }
    assert!(deaths > 300, "{deaths}");
}
