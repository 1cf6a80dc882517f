//! What a kill leaves behind, at every byte: the log that comes up again holds exactly the batches that were whole.

mod rig;

use std::fs;
use std::path::{Path, PathBuf};

use rig::{NOW, Rig, batch, read_all, small_segments, stored};
use taffrail_log::LogConfig;
use taffrail_protocol::records::Batches;

/// Five batches in two epochs, killed without a close. Returns the bytes of the one segment.
fn killed(rig: &Rig, config: &LogConfig) -> Vec<u8> {
    let mut log = rig.create(config);
    for number in 0..5 {
        let mut sent = batch(2, NOW + number, 30);
        log.append_leader(&mut sent, if number < 3 { 1 } else { 2 }, NOW)
            .expect("room");
    }
    drop(log);
    fs::read(segment(rig, 0)).expect("readable")
}

fn segment(rig: &Rig, base_offset: i64) -> PathBuf {
    rig.partition().join(format!("{base_offset:020}.log"))
}

/// The longest run of whole batches at the front.
fn whole_batches(content: &[u8]) -> (usize, i64) {
    let mut batches = Batches::new(content);
    let last = batches.by_ref().map_while(Result::ok).last();
    (
        batches.position(),
        last.map_or(0, |(header, _)| header.next_offset()),
    )
}

/// Brings up a log from `content` and expects exactly its first `valid` bytes in it.
fn check(rig: &Rig, config: &LogConfig, content: &[u8], valid: usize, end_offset: i64, what: &str) {
    fs::write(segment(rig, 0), content).expect("writable");
    let mut log = rig.open(config);
    assert_eq!(log.log_end_offset(), end_offset, "{what}");
    assert_eq!(
        read_all(&mut log).expect("readable"),
        content[..valid],
        "{what}"
    );
    let epochs: Vec<_> = log
        .epochs()
        .entries()
        .iter()
        .map(|entry| (entry.epoch, entry.start_offset))
        .collect();
    let expected: Vec<(i32, i64)> = [(1, 0), (2, 6)]
        .into_iter()
        .filter(|(_, start)| *start < end_offset)
        .collect();
    assert_eq!(epochs, expected, "{what}");
    // It takes records again, right behind.
    log.append_leader(&mut batch(1, NOW, 10), 3, NOW)
        .expect("room");
    assert_eq!(log.log_end_offset(), end_offset + 1, "{what}");
    let length = fs::metadata(segment(rig, 0)).expect("there").len();
    assert_eq!(length, log.size(), "{what}");
}

#[test]
fn a_file_cut_at_any_byte_keeps_its_whole_batches() {
    let (rig, config) = (Rig::new(), LogConfig::default());
    let content = killed(&rig, &config);
    for length in 0..=content.len() {
        let (valid, end_offset) = whole_batches(&content[..length]);
        check(
            &rig,
            &config,
            &content[..length],
            valid,
            end_offset,
            &format!("cut at {length}"),
        );
    }
}

#[test]
fn a_changed_byte_ends_the_log_at_its_batch() {
    let (rig, config) = (Rig::new(), LogConfig::default());
    let content = killed(&rig, &config);
    let batches: Vec<_> = Batches::new(&content)
        .map(|found| found.expect("intact"))
        .collect();
    // Nothing covers the lower bytes of the leader epoch (12 to 15): a higher epoch is as good as the right one.
    let is_epoch = |at: usize| {
        batches
            .iter()
            .any(|(_, range)| (range.start + 13..range.start + 16).contains(&at))
    };
    for changed in (0..content.len()).filter(|at| !is_epoch(*at)) {
        let mut damaged = content.clone();
        damaged[changed] ^= 0x80;
        let (header, range) = batches
            .iter()
            .find(|(_, range)| range.contains(&changed))
            .expect("all bytes are batches");
        check(
            &rig,
            &config,
            &damaged,
            range.start,
            header.base_offset,
            &format!("byte {changed} changed"),
        );
    }
}

#[test]
fn zeros_behind_the_end_are_cut() {
    let (rig, config) = (Rig::new(), LogConfig::default());
    let mut content = killed(&rig, &config);
    let valid = content.len();
    content.resize(valid + 10_000, 0);
    check(&rig, &config, &content, valid, 10, "zeros");
}

#[test]
fn stale_batches_behind_the_end_of_a_recycled_file_are_cut() {
    let rig = Rig::new();
    let config = LogConfig::default();
    let mut log = rig.create(&config);
    log.truncate_fully_and_start_at(100, NOW)
        .expect("an empty log");
    let mut content = Vec::new();
    for number in 0..3 {
        log.append_leader(&mut batch(1, NOW, 30), 5, NOW)
            .expect("room");
        content.extend(stored(100 + number, 5, batch(1, NOW, 30)));
    }
    drop(log);
    assert_eq!(fs::read(segment(&rig, 100)).expect("readable"), content);
    // The same bytes at the same places, but older: intact, and of a lower offset.
    let valid = content.len();
    for number in 3..6 {
        content.extend(stored(number, 4, batch(1, NOW, 30)));
    }
    fs::write(segment(&rig, 100), &content).expect("writable");
    let mut log = rig.open(&config);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (100, 103));
    assert_eq!(read_all(&mut log).expect("readable"), content[..valid]);
}

#[test]
fn indexes_are_rebuilt_as_they_were() {
    let (rig, config) = (Rig::new(), small_segments());
    let mut log = rig.create(&config);
    for number in 0..100 {
        // Every third batch is older than the one before, so the time index has fewer entries.
        let timestamp = NOW + number * 10 - if number % 3 == 0 { 25 } else { 0 };
        log.append_leader(&mut batch(3, timestamp, 40), 1, NOW)
            .expect("room");
    }
    let directory = log.directory().clone();
    log.close().expect("durable");
    directory.mark_clean_shutdown(7).expect("durable");
    drop(directory);
    let before = index_files(&rig.partition());
    assert!(before.len() > 10, "several segments: {}", before.len());

    // A clean start leaves them alone; its drop counts as a kill, so that the next start scans everything.
    drop(rig.open(&config));
    assert_eq!(index_files(&rig.partition()), before);
    fs::remove_file(rig.path().join("recovery-point-offset-checkpoint")).expect("there");
    for (path, _) in &before {
        fs::write(path, b"garbage that is no index at all").expect("writable");
    }
    let mut log = rig.open(&config);
    log.roll(NOW).expect("room");
    assert_eq!(index_files(&rig.partition()), before);
}

fn index_files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(folder)
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "index" || extension == "timeindex")
        })
        .map(|path| (path.clone(), fs::read(&path).expect("readable")))
        .collect();
    files.sort();
    files
}

#[test]
fn a_hole_between_segments_ends_the_log() {
    let (rig, config) = (Rig::new(), small_segments());
    let mut log = rig.create(&config);
    for number in 0..40 {
        log.append_leader(&mut batch(1, NOW + number, 100), 1, NOW)
            .expect("room");
    }
    assert!(log.segment_count() > 2);
    drop(log);
    // The first segment lost its last batch, at a boundary: what a power loss may do to a file that was not flushed.
    let content = fs::read(segment(&rig, 0)).expect("readable");
    let last = Batches::new(&content)
        .last()
        .expect("not empty")
        .expect("intact");
    fs::write(segment(&rig, 0), &content[..last.1.start]).expect("writable");
    let log = rig.open(&config);
    assert_eq!(log.log_end_offset(), last.0.base_offset);
    assert_eq!(log.segment_count(), 1);
}

#[test]
fn segments_below_the_recovery_point_are_not_read() {
    let (rig, config) = (Rig::new(), small_segments());
    let mut log = rig.create(&config);
    for number in 0..40 {
        log.append_leader(&mut batch(1, NOW + number, 100), 1, NOW)
            .expect("room");
    }
    let (segments, active) = (log.segment_count(), log.active_base_offset());
    let flush = log
        .begin_flush(active)
        .expect("writable")
        .expect("something to flush");
    assert_eq!(log.finish_flush(flush.run()).expect("durable"), active);
    log.directory().write_checkpoints().expect("durable");
    drop(log);
    let directory = rig.directory();
    let folder = directory.folders().expect("readable").remove(0);
    let (log, recovered) = directory
        .open_log(&folder, config.into(), NOW)
        .expect("intact");
    assert_eq!(log.segment_count(), segments);
    assert_eq!(
        (
            recovered.segments_scanned,
            recovered.bytes_cut,
            recovered.clean
        ),
        (1, 0, false)
    );
}

#[test]
fn a_base_offset_that_no_segment_reaches_is_not_believed_after_a_clean_stop() {
    // A flipped high bit, and the offset behind which there is none; neither is in the checksum.
    for wrong in [(1 << 62) + 4, i64::MAX] {
        let (rig, config) = (Rig::new(), LogConfig::default());
        let mut log = rig.create(&config);
        for number in 0..3 {
            log.append_leader(&mut batch(2, NOW + number, 30), 1, NOW)
                .expect("room");
        }
        let last = log.size() as usize / 3 * 2;
        let directory = log.directory().clone();
        log.close().expect("durable");
        directory.mark_clean_shutdown(1).expect("durable");
        drop(directory);
        let mut content = fs::read(segment(&rig, 0)).expect("readable");
        content[last..last + 8].copy_from_slice(&i64::to_be_bytes(wrong));
        fs::write(segment(&rig, 0), &content).expect("writable");
        let mut log = rig.open(&config);
        assert_eq!(
            (log.log_start_offset(), log.log_end_offset()),
            (0, 4),
            "{wrong}"
        );
        assert_eq!(
            read_all(&mut log).expect("readable"),
            content[..last],
            "{wrong}"
        );
    }
}

#[test]
fn a_lost_epoch_checkpoint_is_rebuilt_from_all_batches() {
    for content in [None, Some("0\n1\n"), Some("")] {
        let (rig, config) = (Rig::new(), small_segments());
        let mut log = rig.create(&config);
        for number in 0..40 {
            log.append_leader(&mut batch(1, NOW + number, 100), (number / 10) as i32, NOW)
                .expect("room");
        }
        let expected = log.epochs().clone();
        let directory = log.directory().clone();
        log.close().expect("durable");
        directory.mark_clean_shutdown(1).expect("durable");
        drop(directory);
        let path = rig.partition().join("leader-epoch-checkpoint");
        match content {
            None => fs::remove_file(path).expect("there"),
            Some(content) => fs::write(path, content).expect("writable"),
        }
        assert_eq!(*rig.open(&config).epochs(), expected, "{content:?}");
    }
}

#[test]
fn leftovers_of_a_process_that_died_are_removed() {
    let (rig, config) = (Rig::new(), LogConfig::default());
    killed(&rig, &config);
    let names = [
        "00000000000000000000.log.deleted",
        "00000000000000000000.spare",
        "leader-epoch-checkpoint.tmp",
    ];
    for name in names {
        fs::write(rig.partition().join(name), b"left").expect("writable");
    }
    let log = rig.open(&config);
    assert_eq!(log.log_end_offset(), 10);
    for name in names {
        assert!(!rig.partition().join(name).exists(), "{name}");
    }
}

#[test]
fn producer_snapshots_above_the_end_go() {
    let (rig, config) = (Rig::new(), LogConfig::default());
    let mut log = rig.create(&config);
    for _ in 0..3 {
        log.append_leader(&mut batch(2, NOW, 30), 1, NOW)
            .expect("room");
    }
    log.write_producer_snapshot(4, b"four").expect("durable");
    log.write_producer_snapshot(6, b"six").expect("durable");
    assert_eq!(log.producer_snapshots().expect("readable"), [4, 6]);
    drop(log);
    let content = fs::read(segment(&rig, 0)).expect("readable");
    fs::write(segment(&rig, 0), &content[..content.len() - 1]).expect("writable");
    let mut log = rig.open(&config);
    assert_eq!(log.producer_snapshots().expect("readable"), [4]);
    assert_eq!(
        log.read_producer_snapshot(4).expect("readable").as_deref(),
        Some(&b"four"[..])
    );
    let replayed: Vec<i64> = log
        .batches(4)
        .map(|found| found.expect("intact").header.base_offset)
        .collect();
    assert_eq!(replayed, Vec::<i64>::new());
    log.append_leader(&mut batch(2, NOW, 30), 1, NOW)
        .expect("room");
    let replayed: Vec<i64> = log
        .batches(3)
        .map(|found| found.expect("intact").header.base_offset)
        .collect();
    assert_eq!(replayed, [2, 4]);
}

/// Two hundred batches in two epochs, the first half of them durable and checkpointed, the indexes written as far as `written`
/// batches; killed. Timestamps go back now and then.
fn killed_after_flush(rig: &Rig, config: &LogConfig, written: i64) {
    let mut log = rig.create(config);
    for number in 0..200_i64 {
        if number == 100 {
            log.flush().expect("durable");
            log.directory().write_checkpoints().expect("durable");
        }
        if number == written {
            log.release_memory().expect("writable");
        }
        let timestamp = NOW + number * 10 - if number % 3 == 0 { 45 } else { 0 };
        log.append_leader(&mut batch(2, timestamp, 30), 1 + (number / 80) as i32, NOW)
            .expect("room");
    }
}

/// Opens the log and closes it; gives how many bytes were scanned, and what stands in it and its side files then.
fn recovered(rig: &Rig, config: &LogConfig) -> (u64, Vec<Vec<u8>>) {
    let directory = rig.directory();
    let folders = directory.folders().expect("readable");
    let (mut log, recovered) = directory
        .open_log(&folders[0], std::sync::Arc::new(config.clone()), NOW)
        .expect("an intact log");
    assert_eq!(log.log_end_offset(), 400);
    let content = read_all(&mut log).expect("readable");
    log.close().expect("durable");
    let path = segment(rig, 0);
    let side = |name: PathBuf| fs::read(name).expect("there");
    let files = vec![
        content,
        side(path.with_extension("index")),
        side(path.with_extension("timeindex")),
        side(rig.partition().join("leader-epoch-checkpoint")),
    ];
    (recovered.bytes_scanned, files)
}

#[test]
fn scan_begins_at_the_last_batch_that_is_known_to_be_durable() {
    type Damage = fn(&Path);
    let cut: Damage = |path| {
        let index = path.with_extension("index");
        let bytes = fs::read(&index).expect("readable");
        fs::write(index, &bytes[..bytes.len() / 2]).expect("writable");
    };
    let zeros: Damage = |path| {
        let index = path.with_extension("timeindex");
        let mut bytes = fs::read(&index).expect("readable");
        let half = bytes.len() / 2;
        bytes[half..].fill(0);
        fs::write(index, bytes).expect("writable");
    };
    let wrong: Damage = |path| {
        let index = path.with_extension("index");
        let bytes = fs::read(&index).expect("readable");
        let one_off: Vec<u8> = bytes
            .chunks(8)
            .flat_map(|entry| {
                let mut entry = entry.to_vec();
                entry[7] ^= 1;
                entry
            })
            .collect();
        fs::write(index, one_off).expect("writable");
    };
    let nothing: Damage = |_| {};
    let gone: Damage = |path| fs::remove_file(path.with_extension("index")).expect("there");
    let config = LogConfig {
        index_interval_bytes: 300,
        ..LogConfig::default()
    };
    // How much of the content is read at most, in percent.
    for (name, written, damage, percent) in [
        ("whole indexes", 199, nothing, 55),
        ("indexes up to 60 batches", 60, nothing, 75),
        ("a cut offset index", 199, cut, 80),
        ("zeros in the time index", 199, zeros, 80),
        ("a wrong offset index", 199, wrong, 100),
        ("no offset index", 199, gone, 100),
    ] {
        let rig = Rig::new();
        killed_after_flush(&rig, &config, written);
        damage(&segment(&rig, 0));
        let (scanned, found) = recovered(&rig, &config);
        let size = found[0].len() as u64;
        assert!(
            scanned * 100 <= size * percent,
            "{name}: {scanned} of {size}"
        );
        assert!(
            percent == 100 || scanned < size,
            "{name}: {scanned} of {size}"
        );

        let all = Rig::new();
        killed_after_flush(&all, &config, written);
        fs::remove_file(all.path().join("recovery-point-offset-checkpoint")).expect("there");
        let (scanned, expected) = recovered(&all, &config);
        assert_eq!(scanned, size);
        assert!(
            found == expected,
            "{name}: not what a scan of everything makes"
        );
    }
}

/// The time index says nothing of batches whose timestamps are no larger, so it must not be what a scan's start depends on.
#[test]
fn scan_begins_at_the_recovery_point_whatever_the_timestamps() {
    let config = LogConfig {
        index_interval_bytes: 300,
        ..LogConfig::default()
    };
    type Timestamp = fn(i64) -> i64;
    let cases: [(&str, Timestamp); 3] = [
        ("all the same", |_| NOW),
        ("going back", |number| NOW - number),
        ("one of the future", |number| {
            NOW + if number == 3 { 1_000_000 } else { number }
        }),
    ];
    for (name, timestamp) in cases {
        let rig = Rig::new();
        let mut log = rig.create(&config);
        for number in 0..200 {
            log.append_leader(&mut batch(2, timestamp(number), 30), 1, NOW)
                .expect("room");
            if number == 150 {
                let flush = log.begin_flush_with_indexes().expect("writable");
                let flushed = flush.expect("unflushed records").run();
                assert_eq!(log.finish_flush(flushed).expect("durable"), 302);
                assert_eq!(log.unflushed_bytes(), 0);
                log.directory().write_checkpoints().expect("durable");
            }
        }
        drop(log);
        let (scanned, found) = recovered(&rig, &config);
        let size = found[0].len() as u64;
        assert!(scanned * 100 <= size * 30, "{name}: {scanned} of {size}");

        fs::remove_file(rig.path().join("recovery-point-offset-checkpoint")).expect("there");
        fs::remove_file(rig.path().join(".kafka_cleanshutdown")).ok();
        let (_, expected) = recovered(&rig, &config);
        assert!(found == expected, "{name}");
    }
}
