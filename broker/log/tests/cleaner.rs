//! Compaction of a log: what is cleaned and what is not, what stays, what a swap does to it, and what a start finds.

mod rig;

use std::fs;

use rig::cleaning::{Clean, compacted, fill, keyed, read_batches, read_records};
use rig::{NOW, Rig, all, bytes, small_segments, stored};
use taffrail_log::cleaner::CleaningStep;
use taffrail_log::verify::Event;
use taffrail_log::{AbortedTransaction, Log, LogConfig, LogError, RealDisk};
use taffrail_protocol::records::{Batches, EndTransactionMarker, RecordBatchBuilder};

fn offsets(log: &mut Log<RealDisk>) -> Vec<i64> {
    read_records(log)
        .iter()
        .map(|record| record.offset)
        .collect()
}

/// Names in the replica's folder, but for those of whole segments and the checkpoints beside them.
fn others(rig: &Rig) -> Vec<String> {
    let names = fs::read_dir(rig.partition()).expect("there");
    let names = names.map(|entry| {
        entry
            .expect("there")
            .file_name()
            .into_string()
            .expect("text")
    });
    let usual = [".log", ".index", ".timeindex", "-checkpoint", ".metadata"];
    names
        .filter(|name| !usual.iter().any(|suffix| name.ends_with(suffix)))
        .collect()
}

#[test]
fn newest_record_of_each_key_is_left_at_its_offset_and_readers_go_over_the_holes() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    fill(&mut log, 70);
    let (segments, end) = (log.segment_count(), log.log_end_offset());
    let before = read_records(&mut log);
    let held = log.read(0, all()).expect("readable").expect("records");
    let old = bytes(&held);

    assert_eq!(Clean::all(NOW).run(&mut log).expect("cleaned"), Some(70));
    assert_eq!(
        read_records(&mut log),
        before[63..],
        "the same, byte for byte"
    );
    assert_eq!(log.log_end_offset(), end);
    assert_eq!(bytes(&held), old, "readers keep what they hold");
    assert_eq!(others(&rig), ["compacted"]);
    for offset in 0..end {
        let range = log.read(offset, all()).expect("readable").expect("records");
        let found = bytes(&range);
        let (header, _) = Batches::new(&found).next().expect("one").expect("whole");
        let reached = header.last_offset();
        assert!(reached >= offset && (63.max(offset) == reached || reached < 63));
    }
    assert_eq!(log.read(end, all()).expect("at the end").map(drop), None);

    // The next cleaning has nothing to do. One from the beginning closes up what is left, and then nothing changes any more.
    let mut again = Clean::all(NOW);
    again.checkpointed = Some(70);
    assert_eq!(again.run(&mut log).expect("nothing"), None);
    assert_eq!(log.segment_count(), segments);
    again.checkpointed = None;
    for _ in 0..3 {
        assert_eq!(again.run(&mut log).expect("cleaned"), Some(70));
    }
    assert!(log.segment_count() <= 3, "{} segments", log.segment_count());
    let batches = read_batches(&mut log);
    assert_eq!(read_records(&mut log), before[63..]);
    again.run(&mut log).expect("cleaned");
    assert_eq!(read_batches(&mut log), batches);
    log.append_leader(&mut keyed(&[("key1", None)], NOW), 1, NOW)
        .expect("room");
    assert_eq!(log.log_end_offset(), end + 1);
}

#[test]
fn a_compacted_log_is_whole_after_any_stop_whatever_its_policy_is_then() {
    for compact in [true, false] {
        for (clean_stop, epochs) in [(true, true), (false, true), (false, false), (true, false)] {
            let rig = Rig::new();
            let mut log = rig.create(&compacted());
            fill(&mut log, 70);
            Clean::all(NOW).run(&mut log).expect("cleaned");
            log.append_leader(&mut keyed(&[("new", Some("value"))], NOW), 1, NOW)
                .expect("room");
            let content = read_batches(&mut log);
            let directory = log.directory().clone();
            if clean_stop {
                log.close().expect("durable");
                directory.mark_clean_shutdown(1).expect("durable");
            } else {
                // No checkpoint was ever written, so everything is scanned.
                drop(log);
            }
            drop(directory);
            taffrail_log::verify::verify_replica(&rig.partition(), &mut |event| match event {
                Event::Read(_) => {}
                Event::Note { .. } | Event::Problem { .. } => panic!("{event:?}"),
            });
            if !epochs {
                let path = rig.partition().join("leader-epoch-checkpoint");
                fs::remove_file(path).expect("it was there");
            }
            let config = LogConfig {
                compact,
                delete: !compact,
                ..compacted()
            };
            let mut log = rig.open(&config);
            assert_eq!(
                read_batches(&mut log),
                content,
                "compact {compact}, clean stop {clean_stop}, epochs {epochs}"
            );
            assert_eq!(log.log_end_offset(), 71);
        }
    }
}

#[test]
fn a_small_map_takes_several_cleanings_to_the_same_end() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    fill(&mut log, 70);
    let expected = read_records(&mut log)[63..].to_vec();
    let mut clean = Clean::all(NOW);
    // 4 slots, of which 3 may be taken.
    clean.map_bytes_max = 4 * 24;
    let mut rounds = 0;
    while let Some(end) = clean.run(&mut log).expect("cleaned") {
        assert!(Some(end) > clean.checkpointed, "it goes on");
        clean.checkpointed = Some(end);
        rounds += 1;
    }
    assert!(rounds > 20, "{rounds}");
    assert_eq!(clean.checkpointed, Some(70));
    assert_eq!(read_records(&mut log), expected);
}

#[test]
fn tombstones_stay_for_their_time_and_take_what_is_older_with_them_at_once() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    fill(&mut log, 21);
    log.append_leader(&mut keyed(&[("key3", None), ("key4", None)], NOW), 1, NOW)
        .expect("room");
    fill(&mut log, 3);
    let day = 24 * 60 * 60 * 1000;
    let mut clean = Clean::all(NOW);
    let mut check = |now_ms, expected: &[i64]| {
        clean.now_ms = now_ms;
        clean.run(&mut log).expect("cleaned");
        assert_eq!(offsets(&mut log), expected);
    };
    check(NOW, &[19, 20, 21, 22, 23, 24, 25]);
    check(NOW + day - 1, &[19, 20, 21, 22, 23, 24, 25]);
    check(NOW + day, &[19, 20, 23, 24, 25]);
    check(NOW + 3 * day, &[19, 20, 23, 24, 25]);
}

fn transactional(keys: &[&str], producer_id: i64, sequence: i32) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(0, NOW)
        .producer(producer_id, 0, sequence)
        .transactional(true);
    for key in keys {
        builder.push(Some(key.as_bytes()), Some(&[b'v'; 300]), &[]);
    }
    builder.build()
}

/// Transactions over several segments: what is aborted goes at once, its marker and its entry when nothing of it is left, and
/// the marker only after its time.
#[test]
fn aborted_records_go_and_their_entries_follow() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    let append = |mut batch: Vec<u8>, log: &mut Log<RealDisk>| {
        log.append_leader(&mut batch, 1, NOW)
            .expect("room")
            .first_offset
    };
    let end = |commit| EndTransactionMarker {
        commit,
        coordinator_epoch: 0,
    };
    append(keyed(&[("a", Some("kept"))], NOW), &mut log);
    let first = append(transactional(&["a", "b"], 7, 0), &mut log);
    append(transactional(&["b", "c"], 8, 0), &mut log);
    log.roll(NOW).expect("room");
    append(transactional(&["a", "b"], 7, 2), &mut log);
    log.roll(NOW).expect("room");
    let marker = append(end(false).batch(7, 0, NOW), &mut log);
    log.note_aborted(AbortedTransaction {
        producer_id: 7,
        first_offset: first,
        last_offset: marker,
        last_stable_offset: first + 2,
    })
    .expect("noted");
    append(end(true).batch(8, 0, NOW), &mut log);
    append(transactional(&["a"], 7, 4), &mut log);
    append(end(true).batch(7, 0, NOW), &mut log);
    append(keyed(&[("z", Some("last"))], NOW), &mut log);
    log.roll(NOW).expect("room");
    log.flush().expect("durable");
    let entries = |log: &Log<RealDisk>| {
        let found = log.aborted_transactions(0, i64::MAX).expect("readable");
        found.len()
    };
    let markers = |log: &mut Log<RealDisk>| {
        let batches = read_batches(log);
        let markers = batches
            .iter()
            .filter(|(header, records)| header.attributes.is_control() && !records.is_empty());
        markers.count()
    };
    let day = 24 * 60 * 60 * 1000;
    let mut clean = Clean::all(NOW);
    clean.run(&mut log).expect("cleaned");
    assert_eq!(offsets(&mut log), [3, 4, 9, 11]);
    assert_eq!(
        (entries(&log), markers(&mut log)),
        (1, 3),
        "the entry goes with its marker"
    );

    // Now nothing of the aborted transaction is met, and its marker's time begins.
    clean.run(&mut log).expect("cleaned");
    assert_eq!((entries(&log), markers(&mut log)), (0, 3));
    clean.now_ms = NOW + day - 1;
    clean.run(&mut log).expect("cleaned");
    assert_eq!(markers(&mut log), 3);
    clean.now_ms = NOW + day;
    clean.run(&mut log).expect("cleaned");
    assert_eq!(markers(&mut log), 2, "those of committed records stay");
    assert_eq!(offsets(&mut log), [3, 4, 9, 11]);
    drop(log);
    let mut log = rig.open(&compacted());
    assert_eq!(offsets(&mut log), [3, 4, 9, 11]);
    assert_eq!(entries(&log), 0);
}

#[test]
fn entries_that_nothing_needs_do_not_come_back() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    let marker = EndTransactionMarker {
        commit: false,
        coordinator_epoch: 0,
    };
    for mut batch in [transactional(&["a"], 7, 0), marker.batch(7, 0, NOW)] {
        log.append_leader(&mut batch, 1, NOW).expect("room");
    }
    log.note_aborted(AbortedTransaction {
        producer_id: 7,
        first_offset: 0,
        last_offset: 1,
        last_stable_offset: 2,
    })
    .expect("noted");
    fill(&mut log, 1);
    // The segment is its own successor, with its transaction index.
    for expected in [1, 0] {
        Clean::all(NOW).run(&mut log).expect("cleaned");
        for _ in 0..2 {
            let found = log.aborted_transactions(0, i64::MAX).expect("readable");
            assert_eq!(found.len(), expected);
            drop(log);
            log = rig.open(&compacted());
            log.flush().expect("durable");
        }
    }
}

#[test]
fn a_log_that_changed_meanwhile_is_left_alone() {
    type Change = fn(&mut Log<RealDisk>);
    let changes: [(&str, Change); 4] = [
        ("truncated", |log| {
            log.truncate_to(60, NOW).expect("cut");
        }),
        ("started over", |log| {
            log.truncate_fully_and_start_at(5, NOW).expect("empty");
        }),
        ("deleted from", |log| {
            let retired = log.delete_records(30, 70, NOW).expect("below the end");
            retired.remove().expect("removed");
        }),
        ("not compacted any more", |log| {
            log.set_config(small_segments().into())
        }),
    ];
    for (what, change) in changes {
        let rig = Rig::new();
        let mut log = rig.create(&compacted());
        fill(&mut log, 70);
        let clean = Clean::all(NOW);
        let range = log
            .dirty_range(None, i64::MAX, &clean.config, NOW)
            .expect("readable");
        let begun = log.begin_cleaning(range, &clean.config, Default::default(), 1 << 20, NOW);
        let mut cleaning = begun.expect("readable").expect("something to do");
        while let CleaningStep::More(_) = cleaning.step(1000).expect("intact") {}
        change(&mut log);
        let content = read_batches(&mut log);
        let swapped = log.swap_cleaned(&mut cleaning).expect("no failure");
        assert!(swapped.is_none(), "{what}");
        cleaning.abandon();
        assert_eq!(read_batches(&mut log), content, "{what}");
        assert_eq!(others(&rig), [""; 0], "{what}");
        assert_eq!(log.poisoned(), None);
    }
}

#[test]
fn damage_ends_a_cleaning_and_changes_nothing() {
    let rig = Rig::new();
    let mut log = rig.create(&compacted());
    fill(&mut log, 70);
    let path = rig.partition().join("00000000000000000000.log");
    let mut content = fs::read(&path).expect("there");
    let at = content.len() - 5;
    content[at] ^= 1;
    fs::write(&path, content).expect("writable");
    let before = fs::read_dir(rig.partition()).expect("there").count();
    let error = Clean::all(NOW).run(&mut log).expect_err("damaged");
    assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
    assert_eq!(log.poisoned(), None);
    assert_eq!(log.read(60, all()).expect("readable").map(|_| ()), Some(()));
    drop(log);
    assert_eq!(
        fs::read_dir(rig.partition()).expect("there").count(),
        before
    );
}

/// Retention goes by what is left, and by whole segments, as ever.
#[test]
fn a_log_that_is_compacted_and_deleted_loses_its_old_segments() {
    let rig = Rig::new();
    let config = LogConfig {
        delete: true,
        retention_ms: Some(1000),
        segment_bytes: 3000,
        ..compacted()
    };
    let mut log = rig.create(&config);
    fill(&mut log, 70);
    for number in 70..80 {
        let value = format!("{number:0500}");
        let key = format!("other{number}");
        log.append_leader(&mut keyed(&[(&key, Some(&value))], NOW + 5000), 1, NOW)
            .expect("room");
    }
    log.flush().expect("durable");
    let mut clean = Clean::all(NOW);
    clean.checkpointed = clean.run(&mut log).expect("cleaned");
    let end = log.log_end_offset();
    let retired = log.retire_segments(NOW + 5500, end).expect("no failure");
    assert!(retired.segments > 0);
    retired.remove().expect("removed");
    let start = log.log_start_offset();
    assert!(start >= 70 && offsets(&mut log)[0] == start, "{start}");
    // The checkpoint may be below the log start now, and is dirty from there on again.
    clean.checkpointed = Some(69);
    let range = log
        .dirty_range(clean.checkpointed, i64::MAX, &clean.config, NOW)
        .expect("readable");
    assert_eq!(
        (range.first_dirty_offset, range.checkpoint_is_void),
        (start, true)
    );
    clean.run(&mut log).expect("cleaned");
    assert_eq!(log.log_end_offset(), end);
}

/// Offsets that an index just takes, and the first one that it does not.
#[test]
fn offsets_at_the_border_of_an_index_are_kept_and_found() {
    let border = i64::from(i32::MAX);
    for (last, segments) in [(border, 2), (border + 1, 3)] {
        let rig = Rig::new();
        let mut log = rig.create(&compacted());
        let append = |offset, keys: &[(&str, Option<&str>)], log: &mut Log<RealDisk>| {
            let batch = stored(offset, 1, keyed(keys, NOW));
            log.append_follower(&batch, 1, NOW).expect("in order");
        };
        append(0, &[("a", Some("1")), ("b", Some("1"))], &mut log);
        append(5, &[("a", Some("2"))], &mut log);
        log.roll(NOW).expect("room");
        append(
            last - 2,
            &[("c", Some("1")), ("b", Some("2")), ("d", Some("1"))],
            &mut log,
        );
        log.roll(NOW).expect("room");
        append(last + 1, &[("e", Some("1"))], &mut log);
        log.flush().expect("durable");
        let expected = [5, last - 2, last - 1, last, last + 1];
        Clean::all(NOW).run(&mut log).expect("cleaned");
        assert_eq!(log.segment_count(), segments, "last {last}");
        assert_eq!(offsets(&mut log), expected);
        drop(log);
        let mut log = rig.open(&compacted());
        assert_eq!(offsets(&mut log), expected, "last {last}");
        assert_eq!(log.segment_count(), segments);
    }
}
