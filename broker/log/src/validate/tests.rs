//! Batches that are taken, refused and changed.

use super::*;
use taffrail_protocol::records::RecordBatchBuilder;

const NOW: i64 = 1_700_000_000_000;

fn two_records() -> RecordBatchBuilder {
    let mut builder = RecordBatchBuilder::new(0, NOW);
    builder.push(Some(b"a"), Some(b"one"), &[]);
    builder.push(Some(b"b"), None, &[]);
    builder
}

fn check_under(config: &LogConfig, mut sent: Vec<u8>) -> Result<Checked, Refusal> {
    let rules = ProduceRules {
        config,
        now_ms: NOW,
        zstd_allowed: false,
    };
    check_produce(&mut sent, &rules)
}

/// Changes a header field and makes the checksum right again.
fn with_field(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let header = BatchHeader::parse(&batch).expect("still a header");
    set_max_timestamp(&mut batch, header.max_timestamp);
    batch
}

fn kind(result: Result<Checked, Refusal>) -> &'static str {
    match result {
        Ok(_) => "taken",
        Err(Refusal::InvalidRecord { .. }) => "INVALID_RECORD",
        Err(Refusal::InvalidTimestamp { .. }) => "INVALID_TIMESTAMP",
        Err(Refusal::Corrupt { .. }) => "CORRUPT_MESSAGE",
        Err(Refusal::TooLarge { .. }) => "MESSAGE_TOO_LARGE",
        Err(Refusal::LargerThanSegment { .. }) => "RECORD_LIST_TOO_LARGE",
        Err(Refusal::UnsupportedCompression) => "UNSUPPORTED_COMPRESSION_TYPE",
    }
}

#[test]
fn a_batch_is_taken_or_refused_as_kafka_does() {
    let config = LogConfig::default();
    let good = two_records().build();
    let check = |what: &str, sent: Vec<u8>, expected: &str| {
        assert_eq!(kind(check_under(&config, sent)), expected, "{what}");
    };
    check("good", good.clone(), "taken");
    check("nothing", Vec::new(), "INVALID_RECORD");
    check(
        "two batches",
        [good.clone(), good.clone()].concat(),
        "INVALID_RECORD",
    );
    check(
        "cut off",
        good[..good.len() - 1].to_vec(),
        "CORRUPT_MESSAGE",
    );
    check("half a header", good[..30].to_vec(), "CORRUPT_MESSAGE");
    check("magic 2", with_field(good.clone(), 16, &[2]), "taken");
    let mut old = good.clone();
    old[16] = 1;
    check("magic 1", old, "INVALID_RECORD");
    let mut changed = good.clone();
    *changed.last_mut().expect("not empty") ^= 1;
    check("changed byte", changed, "CORRUPT_MESSAGE");
    check(
        "base offset",
        with_field(good.clone(), 0, &5_i64.to_be_bytes()),
        "INVALID_RECORD",
    );
    check(
        "record count",
        with_field(good.clone(), 57, &3_i32.to_be_bytes()),
        "INVALID_RECORD",
    );
    check(
        "no records",
        RecordBatchBuilder::new(0, NOW).build(),
        "INVALID_RECORD",
    );
    check(
        "fewer records than claimed",
        with_field(
            with_field(good.clone(), 57, &3_i32.to_be_bytes()),
            23,
            &2_i32.to_be_bytes(),
        ),
        "INVALID_RECORD",
    );
    check(
        "control",
        two_records().control(true).build(),
        "INVALID_RECORD",
    );
    check(
        "producer without sequence",
        two_records().producer(5, 0, -1).build(),
        "INVALID_RECORD",
    );
    check(
        "idempotent producer",
        two_records().producer(5, 0, 0).build(),
        "taken",
    );
    check(
        "log append time",
        two_records().log_append_time(true).build(),
        "INVALID_TIMESTAMP",
    );
    check(
        "unknown codec",
        with_field(good.clone(), 21, &7_i16.to_be_bytes()),
        "INVALID_RECORD",
    );
    check(
        "zstd in an old request",
        two_records().compression(Compression::Zstd).build(),
        "UNSUPPORTED_COMPRESSION_TYPE",
    );
    check(
        "lz4",
        two_records().compression(Compression::Lz4).build(),
        "taken",
    );
    let mut holes = RecordBatchBuilder::new(0, NOW);
    holes.push_at(0, NOW, None, Some(b"x"), &[]);
    holes.push_at(2, NOW, None, Some(b"x"), &[]);
    check("a hole in the offsets", holes.build(), "INVALID_RECORD");
    let garbage = with_field(good.clone(), 62, &[0xff, 0xff, 0xff]);
    check("records that are none", garbage, "INVALID_RECORD");
}

#[test]
fn sizes_are_limited_by_topic_and_segment() {
    let batch = two_records().build();
    let size = batch.len() as u32;
    for (max_message_bytes, segment_bytes, expected) in [
        (size, size, "taken"),
        (size - 1, size, "MESSAGE_TOO_LARGE"),
        (size, size - 1, "RECORD_LIST_TOO_LARGE"),
    ] {
        let config = LogConfig {
            max_message_bytes,
            segment_bytes,
            ..LogConfig::default()
        };
        assert_eq!(
            kind(check_under(&config, batch.clone())),
            expected,
            "{max_message_bytes}, {segment_bytes}"
        );
    }
}

#[test]
fn a_compacted_topic_names_the_records_without_a_key() {
    let config = LogConfig {
        compact: true,
        ..LogConfig::default()
    };
    for codec in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
    ] {
        assert_eq!(
            kind(check_under(
                &config,
                two_records().compression(codec).build()
            )),
            "taken",
            "{codec:?}"
        );
        let mut builder = two_records().compression(codec);
        builder.push(None, Some(b"x"), &[]);
        builder.push(Some(b""), Some(b"x"), &[]);
        builder.push(None, Some(b"x"), &[]);
        let Err(Refusal::InvalidRecord { records, .. }) = check_under(&config, builder.build())
        else {
            panic!("{codec:?}: records without keys are refused");
        };
        assert_eq!(
            records
                .iter()
                .map(|record| record.index)
                .collect::<Vec<_>>(),
            [2, 4],
            "{codec:?}"
        );
    }
}

#[test]
fn timestamps_must_be_near_the_brokers_clock() {
    let config = LogConfig {
        timestamp_before_max_ms: 1000,
        timestamp_after_max_ms: 100,
        ..LogConfig::default()
    };
    let check = |codec: Compression, timestamps: &[i64], expected: &[i32]| {
        let mut builder = RecordBatchBuilder::new(0, timestamps[0]).compression(codec);
        for (index, timestamp) in timestamps.iter().enumerate() {
            builder.push_at(index as i32, *timestamp, None, Some(b"x"), &[]);
        }
        let named = match check_under(&config, builder.build()) {
            Ok(_) => Vec::new(),
            Err(Refusal::InvalidTimestamp { records, .. }) => {
                records.iter().map(|record| record.index).collect()
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(named, expected, "{codec:?} {timestamps:?}");
    };
    for codec in [Compression::None, Compression::Lz4] {
        check(codec, &[NOW, NOW + 100, NOW - 1000], &[]);
        check(codec, &[NOW, NOW + 101, NOW - 1001], &[1, 2]);
        check(codec, &[-1, -1], &[]);
    }
    // Compressed, and only the future limited: the header's word is enough, and no record is named.
    let config = LogConfig {
        timestamp_after_max_ms: 100,
        ..LogConfig::default()
    };
    let batch = |timestamp| {
        let mut builder = RecordBatchBuilder::new(0, timestamp).compression(Compression::Lz4);
        builder.push(None, Some(b"x"), &[]);
        builder.build()
    };
    assert_eq!(kind(check_under(&config, batch(NOW + 100))), "taken");
    assert_eq!(
        kind(check_under(&config, batch(NOW + 101))),
        "INVALID_TIMESTAMP"
    );
}

#[test]
fn the_broker_stamps_where_the_topic_says_so() {
    let config = LogConfig {
        timestamp_type: TimestampType::LogAppendTime,
        ..LogConfig::default()
    };
    for codec in [Compression::None, Compression::Lz4] {
        let mut builder = RecordBatchBuilder::new(0, 5).compression(codec);
        builder.push(None, Some(b"x"), &[]);
        let mut sent = builder.build();
        let rules = ProduceRules {
            config: &config,
            now_ms: NOW,
            zstd_allowed: false,
        };
        let checked = check_produce(&mut sent, &rules).expect("taken");
        assert_eq!(checked.log_append_time_ms, NOW);
        assert_eq!(
            checked.header.attributes.timestamp_type(),
            TimestampType::LogAppendTime
        );
        assert_eq!(checked.header.max_timestamp, NOW);
        assert_eq!(BatchHeader::parse(&sent), Ok(checked.header));
        assert!(crc_matches(&sent));
    }
}

#[test]
fn a_wrong_largest_timestamp_is_corrected() {
    let config = LogConfig::default();
    let mut sent = with_field(two_records().build(), 35, &(NOW - 77).to_be_bytes());
    let rules = ProduceRules {
        config: &config,
        now_ms: NOW,
        zstd_allowed: false,
    };
    let checked = check_produce(&mut sent, &rules).expect("taken");
    assert_eq!(
        (checked.header.max_timestamp, checked.log_append_time_ms),
        (NOW, -1)
    );
    assert!(crc_matches(&sent));
}

#[test]
fn a_forced_codec_recompresses_and_keeps_everything_else() {
    let all = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    for (from, to) in all.into_iter().flat_map(|from| all.map(|to| (from, to))) {
        let config = LogConfig {
            compression: Some(to),
            ..LogConfig::default()
        };
        let mut sent = two_records()
            .compression(from)
            .producer(7, 1, 3)
            .transactional(true)
            .build();
        let original = sent.clone();
        let rules = ProduceRules {
            config: &config,
            now_ms: NOW,
            zstd_allowed: true,
        };
        let mut checked = check_produce(&mut sent, &rules).expect("taken");
        assert_eq!(
            checked.replacement.is_some(),
            from != to,
            "{from:?} to {to:?}"
        );
        let header = checked.header;
        let stored = checked.bytes(&mut sent).to_vec();
        assert_eq!(BatchHeader::parse(&stored), Ok(header));
        assert!(crc_matches(&stored) && header.total_length() == stored.len());
        assert_eq!(header.attributes.compression(), Some(to));
        assert!(
            header.attributes.is_transactional()
                && header.producer_id == 7
                && header.base_sequence == 3
        );
        let (_, before) = uncompressed_records(&original, 1 << 20).expect("intact");
        let (_, after) = uncompressed_records(&stored, 1 << 20).expect("intact");
        assert_eq!(before, after, "{from:?} to {to:?}");
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let good = two_records().build();
    let config = LogConfig {
        compact: true,
        compression: Some(Compression::Gzip),
        ..LogConfig::default()
    };
    for length in 0..good.len() {
        assert_ne!(kind(check_under(&config, good[..length].to_vec())), "taken");
    }
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = good.clone();
            changed[at] = value;
            // With the checksum made right, so that the checks behind it see the byte.
            if let Ok(header) = BatchHeader::parse(&changed) {
                set_max_timestamp(&mut changed, header.max_timestamp);
            }
            let _ = check_under(&config, changed);
        }
    }
}
