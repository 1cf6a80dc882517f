//! `dump-log`: prints files of the log as Kafka's `kafka-dump-log` does, so that what reads the one reads the other.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use taffrail_log::inspect::{self, FileKind, StoredBatch, StoredBatches};
use taffrail_protocol::producer_snapshot;
use taffrail_protocol::records::{
    BatchHeader, Record, RecordIter, TimestampType, uncompressed_records,
};

/// A batch may unpack to this much: what the largest request holds, with room for good compression.
const UNCOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// Prints one file. Gives whether all of it is as it should be.
pub(crate) fn dump(path: &Path, with_records: bool, out: &mut dyn Write) -> anyhow::Result<bool> {
    writeln!(out, "Dumping {}", path.display())?;
    if taffrail_node::metadata_files::is_metadata_file(path) {
        return metadata(path, out);
    }
    let content = || std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    match FileKind::of(path) {
        Some(FileKind::Log(base_offset)) => segment(path, base_offset, with_records, out),
        Some(FileKind::Index(base_offset)) => {
            for (relative, position) in inspect::offset_index(&content()?) {
                let offset = base_offset + i64::from(relative);
                writeln!(out, "offset: {offset} position: {position}")?;
            }
            Ok(true)
        }
        Some(FileKind::TimeIndex(base_offset)) => {
            for (timestamp, relative) in inspect::time_index(&content()?) {
                let offset = base_offset + i64::from(relative);
                writeln!(out, "timestamp: {timestamp} offset: {offset}")?;
            }
            Ok(true)
        }
        Some(FileKind::ProducerSnapshot(_)) => producers(&content()?, out),
        Some(FileKind::Epochs) => {
            let epochs = inspect::epochs(&content()?).context("it cannot be understood")?;
            for entry in epochs {
                let (epoch, start) = (entry.epoch, entry.start_offset);
                writeln!(out, "leaderEpoch: {epoch} startOffset: {start}")?;
            }
            Ok(true)
        }
        Some(FileKind::Checkpoint) => {
            let offsets = inspect::checkpoint(&content()?).context("it cannot be understood")?;
            for ((topic, partition), offset) in offsets {
                writeln!(
                    out,
                    "topic: {topic} partition: {partition} offset: {offset}"
                )?;
            }
            Ok(true)
        }
        Some(FileKind::PartitionMetadata) => {
            let id = inspect::topic_id(&content()?).context("it cannot be understood")?;
            writeln!(out, "topicId: {}", taffrail_protocol::Uuid(id))?;
            Ok(true)
        }
        None => bail!(
            "{} is no file that can be dumped: give .log, .index, .timeindex or .snapshot files, or checkpoints",
            path.display()
        ),
    }
}

/// The batches of a segment, and whatever stands behind them.
fn segment(
    path: &Path,
    base_offset: i64,
    with_records: bool,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    writeln!(out, "Log starting offset: {base_offset}")?;
    let mut batches = StoredBatches::open(path)?;
    let mut good = true;
    loop {
        match batches.next_batch() {
            Ok(Some(stored)) => {
                good &= stored.is_valid;
                batch(&stored, out)?;
                if with_records {
                    good &= records(&stored, out)?;
                }
            }
            Ok(None) => return Ok(good),
            Err(error) => {
                let (position, length) = (batches.position(), batches.length());
                writeln!(
                    out,
                    "Found {} bytes at the end of {} that are no batch ({error}). A broker that was killed, or that runs, \
                     may have such a tail",
                    length - position,
                    path.display()
                )?;
                return Ok(false);
            }
        }
    }
}

fn batch(stored: &StoredBatch<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    let header = &stored.header;
    let attributes = header.attributes;
    let horizon = if attributes.has_delete_horizon() {
        format!("OptionalLong[{}]", header.base_timestamp)
    } else {
        "OptionalLong.empty".to_owned()
    };
    writeln!(
        out,
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {horizon} position: {} {}: {} \
         size: {} magic: {} compresscodec: {} crc: {} isvalid: {}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.base_sequence,
        header.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.partition_leader_epoch,
        attributes.is_transactional(),
        attributes.is_control(),
        stored.position,
        timestamp_name(header),
        header.max_timestamp,
        header.total_length(),
        header.magic,
        attributes
            .compression()
            .map_or("unknown", |codec| codec.name()),
        header.crc,
        stored.is_valid,
    )
}

fn timestamp_name(header: &BatchHeader) -> &'static str {
    match header.attributes.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// The records of a batch. Gives whether they could be read.
fn records(stored: &StoredBatch<'_>, out: &mut dyn Write) -> std::io::Result<bool> {
    let (header, bytes) = match uncompressed_records(stored.bytes, UNCOMPRESSED_BYTES_MAX) {
        Ok(found) => found,
        Err(error) => {
            writeln!(out, "| its records cannot be read: {error}")?;
            return Ok(false);
        }
    };
    let mut sequence = header.base_sequence;
    for record in RecordIter::new(&header, &bytes) {
        match record {
            Ok(record) => one_record(&header, &record, sequence, out)?,
            Err(error) => {
                writeln!(out, "| a record cannot be read: {error}")?;
                return Ok(false);
            }
        }
        if sequence >= 0 {
            sequence = sequence.checked_add(1).unwrap_or(0);
        }
    }
    Ok(true)
}

fn one_record(
    header: &BatchHeader,
    record: &Record<'_>,
    sequence: i32,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    let keys: Vec<String> = record
        .headers()
        .map(|header| String::from_utf8_lossy(header.key).into_owned())
        .collect();
    write!(
        out,
        "| offset: {} {}: {} keySize: {} valueSize: {} sequence: {sequence} headerKeys: [{}]",
        record.offset,
        timestamp_name(header),
        record.timestamp,
        size(record.key),
        size(record.value),
        keys.join(","),
    )?;
    if let Some(key) = record.key {
        write!(out, " key: {}", String::from_utf8_lossy(key))?;
    }
    if let Some(value) = record.value {
        write!(out, " payload: {}", String::from_utf8_lossy(value))?;
    }
    writeln!(out)
}

fn producers(content: &[u8], out: &mut dyn Write) -> anyhow::Result<bool> {
    for entry in producer_snapshot::decode(content).context("it cannot be understood")? {
        writeln!(
            out,
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {} \
             lastSequence: {} lastOffset: {} offsetDelta: {}",
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
            entry.timestamp,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
        )?;
    }
    Ok(true)
}

/// Files of the metadata log.
fn metadata(path: &Path, out: &mut dyn Write) -> anyhow::Result<bool> {
    match taffrail_node::metadata_files::describe(path) {
        Ok(lines) => {
            for line in lines {
                writeln!(out, "{line}")?;
            }
            Ok(true)
        }
        Err(reason) => bail!("{}: {reason}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use taffrail_log::{LogConfig, LogDirectory, OpenFiles, RealDisk};
    use taffrail_protocol::records::{Compression, RecordBatchBuilder};

    use super::*;

    fn dumped(path: &Path, with_records: bool) -> (bool, String) {
        let mut out = Vec::new();
        let good = dump(path, with_records, &mut out).unwrap();
        (good, String::from_utf8(out).unwrap())
    }

    #[test]
    fn files_of_a_replica_are_printed_as_kafka_prints_them() {
        let folder = tempfile::tempdir().unwrap();
        let files = OpenFiles::new(10);
        let directory =
            LogDirectory::open(RealDisk, folder.path(), "c", 1, [1; 16], files).unwrap();
        let config = Arc::new(LogConfig {
            index_interval_bytes: 0,
            ..LogConfig::default()
        });
        let mut log = directory.create_log("a", 0, [2; 16], config, 7).unwrap();
        for sequence in [0, 2] {
            let mut batch = RecordBatchBuilder::new(0, 7)
                .compression(Compression::Zstd)
                .producer(5, 1, sequence);
            batch.push(Some(b"key"), Some(b"value"), &[(&b"header"[..], None)]);
            batch.push(None, None, &[]);
            log.append_leader(&mut batch.build(), 3, 7).unwrap();
        }
        let snapshot = producer_snapshot::encode(&[]).unwrap();
        log.write_producer_snapshot(4, &snapshot).unwrap();
        log.close().unwrap();
        directory.write_checkpoints().unwrap();

        let replica = folder.path().join("a-0");
        let segment = replica.join("00000000000000000000.log");
        let (good, text) = dumped(&segment, true);
        assert!(good);
        for expected in [
            "Log starting offset: 0",
            "baseOffset: 2 lastOffset: 3 count: 2 baseSequence: 2 lastSequence: 3 producerId: 5 producerEpoch: 1 \
             partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: ",
            "magic: 2 compresscodec: zstd crc: ",
            "isvalid: true",
            "| offset: 2 CreateTime: 7 keySize: 3 valueSize: 5 sequence: 2 headerKeys: [header] key: key payload: value",
            "| offset: 3 CreateTime: 7 keySize: -1 valueSize: -1 sequence: 3 headerKeys: []",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        let starts = |name: &str, expected: &str| {
            let (good, text) = dumped(&replica.join(name), false);
            assert!(good && text.contains(expected), "{name}: {text}");
        };
        starts("00000000000000000000.index", "offset: 3 position: ");
        starts("00000000000000000000.timeindex", "timestamp: 7 offset: 1");
        starts("leader-epoch-checkpoint", "leaderEpoch: 3 startOffset: 0");
        starts("partition.metadata", "topicId: AgICAgICAgICAgICAgICAg");
        starts("00000000000000000004.snapshot", "Dumping");
        starts(
            "../recovery-point-offset-checkpoint",
            "topic: a partition: 0 offset: 4",
        );

        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[70] ^= 1;
        bytes.extend_from_slice(b"a torn batch");
        std::fs::write(&segment, bytes).unwrap();
        let (good, text) = dumped(&segment, false);
        assert!(!good);
        assert!(
            text.contains("isvalid: false") && text.contains("Found 12 bytes"),
            "{text}"
        );
    }

    #[test]
    fn strange_files_are_refused() {
        let error = dump(Path::new("notes.txt"), false, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no file that can be dumped"));
    }
}
