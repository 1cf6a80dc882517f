//! `verify`: reads a log directory, or the folder of one replica, through and lists what is wrong with it.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use taffrail_log::inspect::FileKind;
use taffrail_log::verify::{self, Event};
use taffrail_node::metadata_files;

/// How often the progress is told.
const PROGRESS: Duration = Duration::from_secs(1);

/// What was found so far, and when that was told.
struct Tally {
    total: u64,
    read: u64,
    problems: u64,
    told: Instant,
}

/// Verifies `path`, prints findings to `out` and progress to `progress`. Gives whether nothing is wrong.
pub(crate) fn verify(
    path: &Path,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> anyhow::Result<bool> {
    if !path.is_dir() {
        bail!(
            "{} is no folder: give a log directory, or the folder of one replica",
            path.display()
        );
    }
    let mut tally = Tally {
        total: verify::bytes_below(path),
        read: 0,
        problems: 0,
        told: Instant::now(),
    };
    // Writing fails only when nobody reads any more, and then nobody reads the failure either.
    let mut event = |event| take(event, &mut tally, out, progress);
    if is_replica(path) {
        verify::verify_replica(path, &mut event);
    } else if path.join("meta.properties").exists() {
        verify::verify_directory(path, &mut event);
        let metadata = path.join(metadata_files::FOLDER);
        if metadata.is_dir() {
            metadata_log(&metadata, &mut event);
        }
    } else if path
        .file_name()
        .is_some_and(|name| name == metadata_files::FOLDER)
    {
        metadata_log(path, &mut event);
    } else {
        bail!(
            "{} has neither a meta.properties nor a segment: give a log directory, or the folder of one replica",
            path.display()
        );
    }
    writeln!(
        out,
        "{}: read {} bytes of segments, {}",
        path.display(),
        tally.read,
        match tally.problems {
            0 => "nothing is wrong".to_owned(),
            1 => "1 thing is wrong".to_owned(),
            several => format!("{several} things are wrong"),
        }
    )?;
    Ok(tally.problems == 0)
}

fn is_replica(path: &Path) -> bool {
    let named = path
        .file_name()
        .is_some_and(|name| name != metadata_files::FOLDER);
    let holds_segment = std::fs::read_dir(path).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| matches!(FileKind::of(&entry.path()), Some(FileKind::Log(_))))
        })
    });
    named && holds_segment
}

fn metadata_log(folder: &Path, event: &mut dyn FnMut(Event)) {
    if let Err(reason) = metadata_files::check(folder) {
        event(Event::Problem {
            path: folder.to_owned(),
            what: reason,
            advice: "the broker does not start with it. While all other voters run, move the folder away and start the broker: \
                     its log is then restored from theirs. Never do that to two voters at a time",
        });
    }
}

fn take(event: Event, tally: &mut Tally, out: &mut dyn Write, progress: &mut dyn Write) {
    let written = match event {
        Event::Read(bytes) => {
            tally.read += bytes;
            if tally.told.elapsed() < PROGRESS {
                return;
            }
            tally.told = Instant::now();
            writeln!(
                progress,
                "read {} of {} MiB, {} wrong so far",
                tally.read >> 20,
                tally.total >> 20,
                tally.problems
            )
        }
        Event::Note { path, what } => writeln!(out, "note: {}: {what}", path.display()),
        Event::Problem { path, what, advice } => {
            tally.problems += 1;
            writeln!(
                out,
                "wrong: {}: {what}\n    what to do: {advice}",
                path.display()
            )
        }
    };
    drop(written);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use taffrail_log::{LogDirectory, OpenFiles, RealDisk};
    use taffrail_protocol::producer_snapshot::{self, ProducerSnapshotEntry};
    use taffrail_protocol::records::RecordBatchBuilder;

    use super::*;

    fn verified(path: &Path) -> (bool, String) {
        let mut out = Vec::new();
        let good = verify(path, &mut out, &mut Vec::new()).unwrap();
        (good, String::from_utf8(out).unwrap())
    }

    /// Puts snapshots beside the two records of a replica, each of which gives so much to tell.
    fn check_producers(replica: &Path) {
        let entry = |producer_id, last_offset| ProducerSnapshotEntry {
            producer_id,
            producer_epoch: 0,
            last_sequence: 0,
            last_offset,
            offset_delta: 0,
            timestamp: 7,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
        };
        let check =
            |entries: &[ProducerSnapshotEntry], damage: fn(&mut Vec<u8>), expected: &[&str]| {
                let path = replica.join("00000000000000000002.snapshot");
                let mut bytes = producer_snapshot::encode(entries).unwrap();
                damage(&mut bytes);
                std::fs::write(&path, bytes).unwrap();
                let (good, text) = verified(replica);
                let is_wrong = !expected.is_empty() && !expected.contains(&"note:");
                assert_eq!(good, !is_wrong, "{text}");
                for expected in expected {
                    assert!(text.contains(expected), "{expected} is missing in\n{text}");
                }
                std::fs::remove_file(path).unwrap();
            };
        check(&[], |_| {}, &[]);
        check(
            &[entry(5, 1)],
            |_| {},
            &["says that offset 1 is of producer 5 in epoch 0, but the log has it of producer -1"],
        );
        check(
            &[entry(5, 2), entry(5, 9)],
            |_| {},
            &[
                "is at offset 2, but it is as of offset 2",
                "names producer 5 twice",
            ],
        );
        check(
            &[entry(5, 0)],
            |bytes| bytes[20] ^= 1,
            &["checksum", "the broker leaves it out"],
        );
        check(&[], |bytes| bytes.truncate(3), &["note:", "is cut short"]);
    }

    #[test]
    fn a_directory_and_a_replica_are_verified_and_what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let files = OpenFiles::new(10);
        let directory =
            LogDirectory::open(RealDisk, folder.path(), "c", 1, [1; 16], files).unwrap();
        let mut log = directory
            .create_log("a", 0, [2; 16], Arc::default(), 7)
            .unwrap();
        for _ in 0..2 {
            let mut batch = RecordBatchBuilder::new(0, 7);
            batch.push(None, Some(b"value"), &[]);
            log.append_leader(&mut batch.build(), 0, 7).unwrap();
            log.roll(7).unwrap();
        }
        log.close().unwrap();
        directory.write_checkpoints().unwrap();
        let (good, text) = verified(folder.path());
        assert!(good && text.contains("nothing is wrong"), "{text}");

        let replica = folder.path().join("a-0");
        check_producers(&replica);
        let segment = replica.join("00000000000000000000.log");
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[65] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        std::fs::create_dir(folder.path().join("__cluster_metadata")).unwrap();
        let (good, text) = verified(folder.path());
        assert!(!good, "{text}");
        for expected in [
            "its checksum does not match",
            "what to do: the broker drops",
            "it holds no metadata log",
            "move the folder away",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        assert!(!verified(&replica).0);
        assert!(
            verify(
                &folder.path().join("none"),
                &mut Vec::new(),
                &mut Vec::new()
            )
            .is_err()
        );
    }
}
