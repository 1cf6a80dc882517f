//! A cleaning on a disk that fails: until its files take the place of others, that is nothing to the log.

mod rig;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rig::cleaning::{Clean, compacted, fill, read_records};
use rig::faulty::{Call, FaultyDisk};
use rig::{NOW, TOPIC, TOPIC_ID};
use taffrail_log::cleaner::{Cleaning, CleaningStep};
use taffrail_log::{Log, LogDirectory, LogError, OpenFiles, PartitionFolder};
use tempfile::TempDir;

type FaultyLog = Log<FaultyDisk>;

fn directory(disk: &FaultyDisk, path: &Path) -> LogDirectory<FaultyDisk> {
    let files = OpenFiles::new(10);
    LogDirectory::open(disk.clone(), path, "cluster", 1, [1; 16], files).expect("a usable folder")
}

fn filled() -> (TempDir, FaultyDisk, FaultyLog) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = FaultyDisk::new();
    let created =
        directory(&disk, folder.path()).create_log(TOPIC, 0, TOPIC_ID, Arc::new(compacted()), NOW);
    let mut log = created.expect("a new log");
    fill(&mut log, 70);
    (folder, disk, log)
}

fn begin(log: &mut FaultyLog) -> Cleaning<FaultyDisk> {
    let clean = Clean::all(NOW);
    let range = log.dirty_range(None, i64::MAX, &clean.config, NOW);
    let range = range.expect("readable");
    log.begin_cleaning(range, &clean.config, clean.producers, 1 << 20, NOW)
        .expect("readable")
        .expect("something to do")
}

/// Steps and swaps to the end, or to the first failure.
fn run(log: &mut FaultyLog, cleaning: &mut Cleaning<FaultyDisk>) -> Result<(), LogError> {
    loop {
        match cleaning.step(1000)? {
            CleaningStep::More(_) => {}
            CleaningStep::Swap(_) => {
                let retired = log.swap_cleaned(cleaning)?;
                retired.expect("nothing changed meanwhile").remove()?;
            }
            CleaningStep::Done(_) => return Ok(()),
        }
    }
}

fn leftovers(folder: &Path) -> usize {
    let names = fs::read_dir(folder.join(format!("{TOPIC}-0"))).expect("there");
    let names = names.map(|entry| {
        entry
            .expect("there")
            .file_name()
            .into_string()
            .expect("text")
    });
    names
        .filter(|name| name.ends_with(".cleaned") || name.ends_with(".swap"))
        .count()
}

#[test]
fn a_cleaning_that_finds_no_room_or_cannot_be_made_durable_changes_nothing() {
    for (call, kind) in [
        (Call::Write, ErrorKind::StorageFull),
        (Call::Write, ErrorKind::Other),
        (Call::Sync, ErrorKind::Other),
    ] {
        for good in 0..8 {
            let (folder, disk, mut log) = filled();
            let before = read_records(&mut log);
            let mut cleaning = begin(&mut log);
            disk.set_after(good, (call, kind));
            let error = run(&mut log, &mut cleaning).expect_err("the disk fails");
            let is_full = matches!(error, LogError::DiskFull { .. });
            assert_eq!(is_full, kind == ErrorKind::StorageFull, "{error}");
            disk.set(None);
            assert_eq!(log.poisoned(), None, "{call:?} {good}");
            cleaning.abandon();
            assert_eq!(leftovers(folder.path()), 0, "{call:?} {good}");
            let after = read_records(&mut log);
            assert_eq!(after[after.len() - 7..], before[63..]);
            Clean::all(NOW).run(&mut log).expect("room again");
            assert_eq!(read_records(&mut log), before[63..]);
        }
    }
}

#[test]
fn a_swap_that_fails_half_way_ends_the_log_and_the_next_start_ends_the_swap() {
    let mut poisoned = 0;
    for call in [Call::Rename, Call::SyncDir] {
        for good in 0..14 {
            let (folder, disk, mut log) = filled();
            let before = read_records(&mut log);
            let mut cleaning = begin(&mut log);
            disk.set_after(good, (call, ErrorKind::Other));
            run(&mut log, &mut cleaning).expect_err("the disk fails");
            disk.set(None);
            // Side files of the first segment alone may have got another name without harm.
            let is_harmless = call == Call::Rename && log.poisoned().is_none();
            if is_harmless {
                Clean::all(NOW)
                    .run(&mut log)
                    .expect("it can be tried again");
            } else {
                assert!(log.poisoned().is_some(), "{call:?} {good}");
                poisoned += 1;
            }
            drop((log, cleaning));
            let folder_of = PartitionFolder::live(TOPIC, 0);
            let opened =
                directory(&disk, folder.path()).open_log(&folder_of, Arc::new(compacted()), NOW);
            let (mut log, _) = opened.expect("intact");
            assert_eq!(leftovers(folder.path()), 0, "{call:?} {good}");
            let after = read_records(&mut log);
            assert_eq!(after[after.len() - 7..], before[63..], "{call:?} {good}");
            assert_eq!(log.log_end_offset(), 70);
            log.flush().expect("durable");
            Clean::all(NOW).run(&mut log).expect("cleaned");
            assert_eq!(read_records(&mut log), before[63..]);
        }
    }
    assert!((16..28).contains(&poisoned), "{poisoned}");
}

/// What waits to be swapped in, and whether the old log of its first segment is still there.
#[test]
fn a_damaged_swap_is_not_taken_while_the_old_segments_are_there() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("cut off", |bytes| bytes.truncate(bytes.len() - 10)),
        ("empty", Vec::clear),
        ("ends where no segment begins", |bytes| {
            let second = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
            bytes.truncate(12 + second);
        }),
        // The base offset of its only batch; no checksum covers it.
        ("claims another offset", |bytes| {
            let second = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
            bytes.truncate(12 + second);
            bytes[7] ^= 8;
        }),
    ];
    for (what, damage) in damages {
        for old_is_there in [true, false] {
            let (folder, disk, mut log) = filled();
            let before = read_records(&mut log);
            drop(log);
            let segment = folder.path().join(format!("{TOPIC}-0/{:020}.log", 0));
            let mut bytes = fs::read(&segment).expect("there");
            damage(&mut bytes);
            fs::write(segment.with_extension("log.swap"), bytes).expect("writable");
            if !old_is_there {
                fs::remove_file(&segment).expect("there");
            }
            let config = Arc::new(compacted());
            let directory = directory(&disk, folder.path());
            let opened = directory.open_log(&PartitionFolder::live(TOPIC, 0), config, NOW);
            match opened {
                Ok((mut log, _)) => {
                    assert!(old_is_there, "{what}");
                    assert_eq!(read_records(&mut log), before, "{what}");
                    assert_eq!(leftovers(folder.path()), 0, "{what}");
                }
                Err(error) => {
                    assert!(!old_is_there, "{what}: {error}");
                    assert!(matches!(error, LogError::Corrupt { .. }), "{what}: {error}");
                    assert_eq!(leftovers(folder.path()), 1, "{what}");
                }
            }
        }
    }
}
