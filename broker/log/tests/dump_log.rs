//! Kafka's own `kafka-dump-log` reads the files without complaint.
//!
//! It takes Kafka's jars from `TAFFRAIL_KAFKA_LIBS`, or from `.tools/kafka/libs`, where `e2e/tools/install.sh` puts them.
//! Without them it fails, unless `TAFFRAIL_SKIP_KAFKA=1` says that it shall not run.

mod rig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rig::cleaning::{Clean, read_records};
use rig::{NOW, Rig, batch, small_segments};
use taffrail_log::{LogConfig, RealDisk};
use taffrail_protocol::records::{Compression, RecordBatchBuilder};

const TOOL: &str = "org.apache.kafka.tools.DumpLogSegments";

/// The class path, or `None` if the tests with Kafka are switched off.
fn kafka_libs() -> Option<PathBuf> {
    if std::env::var_os("TAFFRAIL_SKIP_KAFKA").is_some_and(|skip| skip == "1") {
        return None;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/kafka/libs");
    let libs = std::env::var_os("TAFFRAIL_KAFKA_LIBS").map_or(repository, PathBuf::from);
    let has_tool = fs::read_dir(&libs).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with("kafka-tools")
            })
        })
    });
    assert!(
        has_tool,
        "Kafka's jars are not in {}: run e2e/tools/install.sh, or set TAFFRAIL_KAFKA_LIBS to a folder that has them, \
         or TAFFRAIL_SKIP_KAFKA=1 to go without",
        libs.display()
    );
    Some(libs)
}

fn dump(libs: &Path, files: &[PathBuf], options: &[&str]) -> String {
    let files: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let output = Command::new("java")
        .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(libs.join("*"))
        .args([TOOL, "--files", &files.join(",")])
        .args(options)
        .output()
        .expect("java is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .expect("readable")
        .map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    files.sort();
    files
}

/// Everything that the tool could complain about.
fn check(libs: &Path, folder: &Path, records: usize) {
    let logs = files(folder, ".log");
    let indexes = [files(folder, ".index"), files(folder, ".timeindex")].concat();
    assert!(
        logs.len() > 3 && indexes.len() > 6,
        "several segments with indexes: {logs:?} {indexes:?}"
    );

    let text = dump(libs, &logs, &["--deep-iteration", "--print-data-log"]);
    let found = text
        .lines()
        .filter(|line| line.starts_with("| offset:"))
        .count();
    assert_eq!(found, records, "{text}");
    assert!(
        text.contains("compresscodec: zstd") && text.contains("isvalid: true"),
        "{text}"
    );
    assert!(!text.contains("isvalid: false"), "{text}");

    let text = dump(
        libs,
        &indexes,
        &["--deep-iteration", "--index-sanity-check"],
    );
    assert_eq!(
        text.matches("passed sanity check").count(),
        indexes.len(),
        "{text}"
    );
    let text = dump(libs, &indexes, &["--deep-iteration", "--verify-index-only"]);
    for complaint in [
        "ismatch",
        "out of order",
        "not found",
        "Exception",
        "non-consecutive",
    ] {
        assert!(!text.contains(complaint), "{text}");
    }
}

fn append(log: &mut taffrail_log::Log<RealDisk>, from: i32, to: i32) -> usize {
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    let mut records = 0;
    for number in from..to {
        // Times go back now and then, so that the time index has fewer entries than the offset index.
        let timestamp = NOW + i64::from(number) * 10 - if number % 4 == 0 { 35 } else { 0 };
        let mut builder = RecordBatchBuilder::new(0, timestamp)
            .compression(codecs[number as usize % codecs.len()])
            .producer(7, 1, number * 3);
        for record in 0..3_u8 {
            let value = [b'a' + record; 60];
            builder.push(
                Some(b"key"),
                Some(&value),
                &[(&b"header"[..], Some(&b"value"[..]))],
            );
            records += 1;
        }
        log.append_leader(&mut builder.build(), number / 20, NOW)
            .expect("room");
    }
    records
}

#[test]
fn kafka_dump_log_reads_what_was_closed_cleanly() {
    let Some(libs) = kafka_libs() else { return };
    let (rig, config) = (Rig::new(), small_segments());
    let mut log = rig.create(&config);
    let records = append(&mut log, 0, 100);
    log.close().expect("durable");
    check(&libs, &rig.partition(), records);
}

#[test]
fn kafka_dump_log_reads_what_was_truncated_killed_and_recovered() {
    let Some(libs) = kafka_libs() else { return };
    let (rig, config) = (Rig::new(), small_segments());
    let mut log = rig.create(&config);
    append(&mut log, 0, 100);
    log.truncate_to(150, NOW).expect("within the log");
    append(&mut log, 50, 90);
    log.append_leader(&mut batch(1, NOW, 10), 9, NOW)
        .expect("room");
    drop(log);
    // A torn write behind the last whole batch.
    let active = files(&rig.partition(), ".log")
        .pop()
        .expect("an active segment");
    let mut content = fs::read(&active).expect("readable");
    content.truncate(content.len() - 5);
    fs::write(&active, content).expect("writable");
    rig.open(&config).close().expect("durable");
    check(&libs, &rig.partition(), 270);
}

#[test]
fn kafka_dump_log_reads_what_was_cleaned() {
    let Some(libs) = kafka_libs() else { return };
    let config = LogConfig {
        compact: true,
        ..small_segments()
    };
    let rig = Rig::new();
    let mut log = rig.create(&config);
    for number in 0..300_usize {
        let codec = Compression::from_code((number % 5) as i16).expect("five there are");
        let timestamp = NOW + number as i64 * 10;
        let mut builder = RecordBatchBuilder::new(0, timestamp)
            .compression(codec)
            .producer(7, 1, number as i32 * 3);
        for record in 0..3 {
            let key = format!("key{}-{record}", number * (record + 1) % 100);
            let value = (number % 9 > 0).then(|| [b'a' + record as u8; 60]);
            let value = value.as_ref().map(<[u8; 60]>::as_slice);
            builder.push(Some(key.as_bytes()), value, &[(b"header", Some(b"value"))]);
        }
        log.append_leader(&mut builder.build(), number as i32 / 90, NOW)
            .expect("room");
    }
    log.roll(NOW).expect("room");
    log.flush().expect("durable");
    for _ in 0..2 {
        let cleaned = Clean::all(NOW).run(&mut log).expect("whole");
        assert_eq!(cleaned, Some(900));
    }
    append(&mut log, 300, 310);
    let records = read_records(&mut log).len();
    assert!((200..400).contains(&records), "{records}");
    log.close().expect("durable");
    check(&libs, &rig.partition(), records);
    let logs = files(&rig.partition(), ".log");
    let text = dump(&libs, &logs, &[]);
    let horizon = NOW + 24 * 60 * 60 * 1000;
    assert!(
        text.contains(&format!("deleteHorizonMs: OptionalLong[{horizon}]")),
        "{text}"
    );
}

#[test]
fn kafka_dump_log_reads_a_log_of_default_settings() {
    let Some(libs) = kafka_libs() else { return };
    let (rig, config) = (Rig::new(), LogConfig::default());
    let mut log = rig.create(&config);
    for number in 0..2000 {
        log.append_leader(&mut batch(5, NOW + number, 100), 0, NOW)
            .expect("room");
    }
    log.close().expect("durable");
    let all = [".log", ".index", ".timeindex"]
        .map(|suffix| files(&rig.partition(), suffix))
        .concat();
    assert_eq!(all.len(), 3);
    assert!(
        fs::metadata(&all[1]).expect("there").len() > 100 * 8,
        "an entry for every 4 KiB"
    );
    let text = dump(&libs, &all, &["--deep-iteration"]);
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("| offset:"))
            .count(),
        10_000
    );
    for complaint in [
        "ismatch",
        "out of order",
        "not found",
        "Exception",
        "non-consecutive",
        "isvalid: false",
    ] {
        assert!(
            !text.contains(complaint),
            "{complaint}: {}",
            text.lines().rev().take(50).collect::<String>()
        );
    }
}
