//! The files of a partition: Kafka's own tool reads them, and batches are stored in the codec in which they were sent.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::java;
use taffrail_e2e::text::Text;

/// Bytes of a record batch before its records.
const BATCH_HEADER: usize = 61;
const LINES: usize = 60_000;

/// Codec names as clients and as `kafka-dump-log` write them, and the codec bits of a batch.
const CODECS: &[(&str, &str, u8)] = &[
    ("none", "none", 0),
    ("gzip", "gzip", 1),
    ("snappy", "snappy", 2),
    ("lz4", "lz4", 3),
    ("zstd", "zstd", 4),
];

#[test]
fn kafka_dump_log_reads_what_a_killed_broker_left_and_recovered() -> Result<()> {
    let mut cluster = Cluster::start(ClusterSpec::new(1)?)?;
    let text = Text::of(LINES)?;
    for (codec, ..) in CODECS {
        // The smallest segments that Kafka allows, so that there are several of them.
        cluster.admin()?.create_topic(
            codec,
            1,
            1,
            &[
                ("segment.bytes", "1048576"),
                ("index.interval.bytes", "4096"),
            ],
        )?;
        text.produce(
            &cluster.bootstrap(),
            codec,
            0,
            text.count(),
            &[("compression.type", codec), ("batch.size", "65536")],
        )?;
    }
    // Once as it was killed and recovered, which rebuilds indexes, and then closed cleanly, which cuts files to their size.
    cluster.kill(0)?;
    cluster.start_broker(0)?;
    cluster.wait_ready()?;
    for (codec, ..) in CODECS {
        cluster
            .admin()?
            .wait_in_sync(codec, 1, 1, std::time::Duration::from_secs(30))?;
    }
    cluster.stop(0)?;
    for (codec, shown, bits) in CODECS {
        let folder = cluster.partition_folder(0, codec, 0);
        check_segments(&folder, shown, *bits).with_context(|| format!("topic {codec}"))?;
        for name in ["leader-epoch-checkpoint", "partition.metadata"] {
            ensure!(folder.join(name).is_file(), "{codec}: there is no {name}");
        }
    }
    cluster.finish();
    Ok(())
}

fn check_segments(folder: &Path, codec: &str, bits: u8) -> Result<()> {
    let logs = files(folder, "log")?;
    // Even what compresses best is a few segments long when it is not compressed.
    ensure!(bits != 0 || logs.len() > 2, "{} segments", logs.len());
    let mut stored = Vec::new();
    for log in &logs {
        stored.extend(codec_bits(&fs::read(log)?)?);
    }
    ensure!(
        !stored.is_empty() && stored.iter().all(|b| *b == bits),
        "codec bits of the batches: {stored:?}"
    );

    for log in &logs {
        for ending in ["index", "timeindex"] {
            ensure!(
                log.with_extension(ending).is_file(),
                "{} has no .{ending} beside it",
                log.display()
            );
        }
    }
    let all: Vec<PathBuf> = ["log", "index", "timeindex"]
        .iter()
        .map(|e| files(folder, e))
        .collect::<Result<Vec<_>>>()?
        .concat();
    let paths: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
    let dump = java::dump_log(&paths, &["--deep-iteration"])?;
    for complaint in [
        "Mismatches in",
        "isvalid: false",
        "isValid: false",
        "corrupt",
        "timestamp mismatch",
        "out of order",
        "Exception",
    ] {
        ensure!(
            !dump.contains(complaint),
            "kafka-dump-log complains: {complaint}\n{}",
            dump.lines().take(40).collect::<Vec<_>>().join("\n")
        );
    }
    let records = dump
        .lines()
        .filter(|line| line.trim_start().starts_with("| offset:"))
        .count();
    ensure!(
        records == LINES,
        "kafka-dump-log finds {records} records instead of {LINES}"
    );
    ensure!(
        dump.contains(&format!("compresscodec: {codec}")),
        "kafka-dump-log shows no codec {codec}"
    );
    // With --index-sanity-check the tool names every index that is sound, or has no entry yet.
    let indexes: Vec<PathBuf> = files(folder, "index")?;
    let paths: Vec<&Path> = indexes.iter().map(PathBuf::as_path).collect();
    let sane = java::dump_log(&paths, &["--index-sanity-check"])?;
    let sound = sane.matches("passed sanity check").count() + sane.matches("is empty").count();
    ensure!(sound == indexes.len(), "index sanity: {sane}");
    Ok(())
}

/// The files of a folder with that ending, in order.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The codec bits of every batch in a log file.
fn codec_bits(log: &[u8]) -> Result<Vec<u8>> {
    let mut bits = Vec::new();
    let mut at = 0;
    while at < log.len() {
        let header = log
            .get(at..at + BATCH_HEADER)
            .with_context(|| format!("a torn batch at {at} of {}", log.len()))?;
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        ensure!(header[16] == 2, "magic {} at {at}", header[16]);
        bits.push(header[22] & 7);
        at += 12 + length;
    }
    ensure!(
        at == log.len(),
        "the last batch goes {} bytes beyond the file",
        at - log.len()
    );
    Ok(bits)
}
