//! Record batches: those that Kafka 4.4.0 wrote with each codec, our own, and damaged ones.
//!
//! `vectors/batch-<codec>.bin` were written by Kafka's Java classes: base offset 7, producer 4242, epoch 3, sequence 17,
//! leader epoch 5; of 40 records, i has the key `key-<i>` (none if i divides by 5), the value `value value value value <i>`
//! (none if i % 7 = 3), the timestamp 1,700,000,000,000 + 10 i, and if i divides by 3 two headers of one name.

use kafka_protocol::records::RecordBatchDecoder;
use taffrail_protocol::records::{
    BATCH_HEADER_LENGTH, BatchError, BatchHeader, Batches, Compression, DecompressError,
    RecordBatchBuilder, RecordError, RecordHeader, RecordIter, RecordsError, TimestampType,
    crc_matches, patch_base_offset_and_epoch, set_log_append_time, uncompressed_records,
    validate_records,
};

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];
const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;
const LIMIT: usize = 1 << 20;

fn kafka_batch(codec: Compression) -> Vec<u8> {
    match codec {
        Compression::None => include_bytes!("vectors/batch-none.bin").to_vec(),
        Compression::Gzip => include_bytes!("vectors/batch-gzip.bin").to_vec(),
        Compression::Snappy => include_bytes!("vectors/batch-snappy.bin").to_vec(),
        Compression::Lz4 => include_bytes!("vectors/batch-lz4.bin").to_vec(),
        Compression::Zstd => include_bytes!("vectors/batch-zstd.bin").to_vec(),
    }
}

/// The same batch by our builder.
fn own_batch(codec: Compression) -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(7, FIRST_TIMESTAMP)
        .producer(4242, 3, 17)
        .partition_leader_epoch(5)
        .compression(codec);
    for index in 0..40 {
        let (key, value, header) = (
            format!("key-{index}"),
            format!("value value value value {index}"),
            format!("v{index}"),
        );
        let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(header.as_bytes())), (b"h", None)];
        builder.push_at(
            index,
            FIRST_TIMESTAMP + 10 * i64::from(index),
            (index % 5 != 0).then_some(key.as_bytes()),
            (index % 7 != 3).then_some(value.as_bytes()),
            if index % 3 == 0 { headers } else { &[] },
        );
    }
    builder.build()
}

fn check_records(batch: &[u8], codec: Compression) {
    assert!(crc_matches(batch), "{codec:?}");
    let (header, records) = uncompressed_records(batch, LIMIT).expect("decompresses");
    assert_eq!(header.attributes.compression(), Some(codec));
    assert_eq!(
        (
            header.base_offset,
            header.last_offset(),
            header.next_offset()
        ),
        (7, 46, 47)
    );
    assert_eq!(
        (
            header.partition_leader_epoch,
            header.record_count,
            header.total_length()
        ),
        (5, 40, batch.len())
    );
    assert_eq!(
        (
            header.producer_id,
            header.producer_epoch,
            header.base_sequence
        ),
        (4242, 3, 17)
    );
    assert_eq!(header.last_sequence(), 56);
    assert_eq!(
        (header.base_timestamp, header.max_timestamp),
        (FIRST_TIMESTAMP, FIRST_TIMESTAMP + 390)
    );
    let mut count = 0;
    for record in RecordIter::new(&header, &records) {
        let record = record.expect("a record");
        let (key, value) = (
            format!("key-{count}"),
            format!("value value value value {count}"),
        );
        assert_eq!(
            (record.offset, record.timestamp),
            (7 + count, FIRST_TIMESTAMP + 10 * count)
        );
        assert_eq!(record.key, (count % 5 != 0).then_some(key.as_bytes()));
        assert_eq!(record.value, (count % 7 != 3).then_some(value.as_bytes()));
        let headers: Vec<RecordHeader<'_>> = record.headers().collect();
        match count % 3 {
            0 => {
                let value = format!("v{count}");
                assert_eq!(
                    headers[0],
                    RecordHeader {
                        key: b"h",
                        value: Some(value.as_bytes())
                    }
                );
                assert_eq!(
                    headers[1],
                    RecordHeader {
                        key: b"h",
                        value: None
                    }
                );
                assert_eq!(headers.len(), 2, "both headers of one name are kept");
            }
            _ => assert!(headers.is_empty()),
        }
        count += 1;
    }
    assert_eq!(count, 40);
    let shape = validate_records(batch, LIMIT).expect("valid");
    assert!(shape.offsets_are_consecutive);
    assert_eq!((shape.record_count, shape.first_without_key), (40, Some(0)));
    assert_eq!(
        (shape.min_timestamp, shape.max_timestamp),
        (FIRST_TIMESTAMP, FIRST_TIMESTAMP + 390)
    );
    assert_eq!(shape.max_timestamp_index, 39);
}

#[test]
fn batches_of_kafka_are_read() {
    for codec in CODECS {
        check_records(&kafka_batch(codec), codec);
    }
}

#[test]
fn own_batches_are_read_and_the_uncompressed_one_is_the_same_as_kafkas() {
    for codec in CODECS {
        check_records(&own_batch(codec), codec);
    }
    assert_eq!(own_batch(Compression::None), kafka_batch(Compression::None));
}

#[test]
fn kafka_protocol_reads_own_batches() {
    let mut bytes = bytes::Bytes::from(own_batch(Compression::None));
    let set = RecordBatchDecoder::decode(&mut bytes).expect("a batch with a good CRC");
    assert_eq!(set.records.len(), 40);
    for (index, record) in set.records.iter().enumerate() {
        assert_eq!(record.offset, 7 + index as i64);
        assert_eq!(record.timestamp, FIRST_TIMESTAMP + 10 * index as i64);
        assert_eq!(record.sequence, 17 + index as i32);
    }
}

#[test]
fn a_leader_patches_offset_and_epoch_without_touching_the_crc() {
    let mut batch = kafka_batch(Compression::Zstd);
    let before = BatchHeader::parse(&batch).unwrap();
    patch_base_offset_and_epoch(&mut batch, 1_000_000, 9);
    let after = BatchHeader::parse(&batch).unwrap();
    assert_eq!(
        after,
        BatchHeader {
            base_offset: 1_000_000,
            partition_leader_epoch: 9,
            ..before
        }
    );
    assert!(crc_matches(&batch));
}

#[test]
fn log_append_time_stamps_every_record() {
    let mut batch = kafka_batch(Compression::None);
    set_log_append_time(&mut batch, 5);
    assert!(crc_matches(&batch));
    let (header, records) = uncompressed_records(&batch, LIMIT).unwrap();
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(
        (header.base_timestamp, header.max_timestamp),
        (FIRST_TIMESTAMP, 5)
    );
    assert!(RecordIter::new(&header, &records).all(|record| record.unwrap().timestamp == 5));
}

#[test]
fn flags_and_emptied_batches() {
    let mut builder = RecordBatchBuilder::new(0, 1)
        .producer(1, 0, -1)
        .transactional(true)
        .control(true);
    builder.push(Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]);
    let header = BatchHeader::parse(&builder.build()).unwrap();
    assert!(header.attributes.is_transactional() && header.attributes.is_control());
    assert_eq!(header.last_sequence(), -1);
    let emptied = RecordBatchBuilder::new(100, 1).last_offset_delta(9).build();
    let header = BatchHeader::parse(&emptied).unwrap();
    assert_eq!(
        (emptied.len(), header.record_count, header.last_offset()),
        (BATCH_HEADER_LENGTH, 0, 109)
    );
    assert_eq!(validate_records(&emptied, LIMIT).unwrap().record_count, 0);
}

#[test]
fn sequences_wrap() {
    let mut builder = RecordBatchBuilder::new(0, 1).producer(1, 0, i32::MAX);
    builder.push(None, None, &[]);
    builder.push(None, None, &[]);
    assert_eq!(
        BatchHeader::parse(&builder.build())
            .unwrap()
            .last_sequence(),
        0
    );
}

#[test]
fn batches_stand_one_behind_the_other_until_a_torn_one() {
    let (first, second) = (
        kafka_batch(Compression::None),
        kafka_batch(Compression::Lz4),
    );
    let both = [first.clone(), second.clone()].concat();
    let ranges: Vec<_> = Batches::new(&both).map(|batch| batch.unwrap().1).collect();
    assert_eq!(ranges, [0..first.len(), first.len()..both.len()]);
    for cut in first.len() + 1..both.len() {
        let mut batches = Batches::new(&both[..cut]);
        assert!(batches.next().unwrap().is_ok());
        assert!(
            matches!(batches.next(), Some(Err(BatchError::Truncated { position, .. })) if position == first.len())
        );
        assert_eq!((batches.next(), batches.position()), (None, first.len()));
    }
}

#[test]
fn other_formats_and_lengths_are_refused() {
    let batch = kafka_batch(Compression::None);
    for magic in [0u8, 1, 3, 255] {
        let mut old = batch.clone();
        old[16] = magic;
        let expected = BatchError::UnsupportedMagic {
            position: 0,
            magic: magic as i8,
        };
        assert_eq!(BatchHeader::parse(&old), Err(expected));
        assert_eq!(
            BatchHeader::parse(&old[..20]),
            Err(expected),
            "a message set is shorter than a header"
        );
    }
    for length in [i32::MIN, -1, 0, 48] {
        let mut short = batch.clone();
        short[8..12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(
            BatchHeader::parse(&short),
            Err(BatchError::BadLength {
                position: 0,
                length
            })
        );
    }
    assert!(!crc_matches(&batch[..60]));
}

/// Changes a batch of two records `{key: k, value: v}` and tells what the walk says.
fn check_refused(change: impl FnOnce(&mut Vec<u8>), expected: RecordsError) {
    let mut builder = RecordBatchBuilder::new(0, 0);
    builder.push(Some(b"k"), Some(b"v"), &[]);
    builder.push(Some(b"k"), Some(b"v"), &[]);
    let mut batch = builder.build();
    assert_eq!(batch.len(), BATCH_HEADER_LENGTH + 2 * 9);
    change(&mut batch);
    assert_eq!(validate_records(&batch, LIMIT), Err(expected));
}

#[test]
fn misshapen_records_are_refused() {
    // A record: length 16 (8 as zigzag), attributes, timestamp delta, offset delta, key length, key, value length, value, headers.
    const LENGTH: usize = BATCH_HEADER_LENGTH;
    let record = |index, source| RecordsError::Record { index, source };
    check_refused(
        |batch| batch[LENGTH] = 14,
        record(0, RecordError::Truncated),
    );
    check_refused(
        |batch| batch[LENGTH] = 1,
        record(0, RecordError::BadLength(-1)),
    );
    check_refused(
        |batch| batch[LENGTH + 9] = 18,
        record(1, RecordError::Truncated),
    );
    check_refused(
        |batch| batch[LENGTH + 4] = 3,
        record(0, RecordError::BadLength(-2)),
    );
    check_refused(
        |batch| batch[LENGTH + 6] = 0,
        record(0, RecordError::Truncated),
    );
    check_refused(
        |batch| batch[LENGTH + 8] = 1,
        record(0, RecordError::BadLength(-1)),
    );
    check_refused(
        |batch| batch[LENGTH + 8] = 2,
        record(0, RecordError::Truncated),
    );
    check_refused(
        |batch| batch[57..61].copy_from_slice(&3i32.to_be_bytes()),
        RecordsError::TooFewRecords {
            found: 2,
            claimed: 3,
        },
    );
    check_refused(
        |batch| batch[57..61].copy_from_slice(&1i32.to_be_bytes()),
        RecordsError::TrailingBytes(9),
    );
    check_refused(
        |batch| batch[57..61].copy_from_slice(&i32::MIN.to_be_bytes()),
        RecordsError::TrailingBytes(18),
    );
    check_refused(|batch| batch[22] = 7, RecordsError::UnknownCompression(7));
}

#[test]
fn offsets_that_skip_are_told() {
    let mut builder = RecordBatchBuilder::new(0, 0);
    builder.push_at(0, 0, Some(b"k"), None, &[]);
    builder.push_at(5, 0, Some(b"k"), None, &[]);
    let shape = validate_records(&builder.build(), LIMIT).unwrap();
    assert!(!shape.offsets_are_consecutive);
    assert_eq!(shape.first_without_key, None);
}

#[test]
fn decompression_stops_at_the_limit() {
    for codec in &CODECS[1..] {
        let mut builder = RecordBatchBuilder::new(0, 0).compression(*codec);
        builder.push(None, Some(&vec![0; 1_000_000]), &[]);
        let batch = builder.build();
        assert!(batch.len() < 60_000, "{codec:?}");
        assert!(validate_records(&batch, 1_000_100).is_ok());
        let refused = RecordsError::Decompress(DecompressError::TooLarge { limit: 999_999 });
        assert_eq!(validate_records(&batch, 999_999), Err(refused), "{codec:?}");
    }
}

#[test]
fn damaged_batches_do_not_panic() {
    for codec in CODECS {
        let batch = kafka_batch(codec);
        for at in 0..batch.len() {
            for value in [0, 0xff, batch[at] ^ 0x10] {
                let mut damaged = batch.clone();
                damaged[at] = value;
                let _ = validate_records(&damaged, LIMIT);
                if at >= 21 && value != batch[at] {
                    assert!(!crc_matches(&damaged));
                }
            }
            assert!(validate_records(&batch[..at], LIMIT).is_err());
        }
    }
}
