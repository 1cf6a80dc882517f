use super::*;
use taffrail_protocol::records::crc_matches;

const NOW: i64 = 1_700_000_000_000;
const DAY: i64 = 24 * 60 * 60 * 1000;
const PLAIN: Place = Place {
    is_dispensable: false,
    is_last: false,
};
const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

struct Case {
    map: OffsetMap,
    map_end: i64,
    producers: ActiveProducers,
    now_ms: i64,
}

impl Case {
    /// Everything below 1,000 is known; key `a` is newest at 100, `b` at 11.
    fn new() -> Case {
        let mut map = OffsetMap::new(1 << 20, 100);
        assert!(map.put(b"a", 100) && map.put(b"b", 11));
        Case {
            map,
            map_end: 1000,
            producers: ActiveProducers::new(),
            now_ms: NOW,
        }
    }

    fn keep(&self, batch: &[u8], place: Place) -> Kept {
        let retention = Retention {
            map: &self.map,
            map_end: self.map_end,
            producers: &self.producers,
            now_ms: self.now_ms,
            delete_retention_ms: DAY,
            decompressed_bytes_max: 1 << 20,
        };
        let header = BatchHeader::parse(batch).expect("a batch");
        retention.keep(&header, batch, place).expect("readable")
    }

    fn rewritten(&self, batch: &[u8], place: Place) -> Vec<u8> {
        match self.keep(batch, place) {
            Kept::Rewritten(bytes) => {
                assert!(crc_matches(&bytes));
                bytes
            }
            kept @ (Kept::Nothing | Kept::AsItIs) => panic!("{kept:?}"),
        }
    }
}

type Fields = (i64, i64, Vec<u8>, Option<Vec<u8>>, usize);

/// Offset, timestamp, key, value and number of headers of each record.
fn records(batch: &[u8]) -> Vec<Fields> {
    let (header, bytes) = uncompressed_records(batch, 1 << 20).expect("readable");
    RecordIter::new(&header, &bytes)
        .map(|record| {
            let record = record.expect("a record");
            (
                record.offset,
                record.timestamp,
                record.key.unwrap_or(b"none").to_vec(),
                record.value.map(<[u8]>::to_vec),
                record.headers().count(),
            )
        })
        .collect()
}

fn builder(base_offset: i64) -> RecordBatchBuilder {
    RecordBatchBuilder::new(base_offset, NOW)
        .partition_leader_epoch(3)
        .producer(77, 5, 40)
}

/// Key `a` at 10, `b` at 11, none at 12.
fn three(codec: Compression) -> Vec<u8> {
    let mut batch = builder(10).compression(codec);
    batch.push_at(0, NOW + 5, Some(b"a"), Some(b"old"), &[]);
    batch.push_at(
        1,
        NOW + 7,
        Some(b"b"),
        Some(b"new"),
        &[(b"h", None), (b"h", Some(b"2"))],
    );
    batch.push_at(2, NOW + 9, None, Some(b"no key"), &[]);
    batch.build()
}

#[test]
fn newest_record_of_its_key_stays_and_the_batch_around_it_is_as_it_was() {
    for codec in CODECS {
        let batch = three(codec);
        let kept = Case::new().rewritten(&batch, PLAIN);
        assert_eq!(
            records(&kept),
            [(11, NOW + 7, b"b".to_vec(), Some(b"new".to_vec()), 2)]
        );
        let before = BatchHeader::parse(&batch).expect("a batch");
        let after = BatchHeader::parse(&kept).expect("a batch");
        let expected = BatchHeader {
            batch_length: after.batch_length,
            crc: after.crc,
            base_timestamp: NOW + 7,
            max_timestamp: NOW + 7,
            record_count: 1,
            ..before
        };
        assert_eq!(after, expected, "{codec:?}");
        assert_eq!(after.last_sequence(), 42);
    }
}

#[test]
fn what_the_map_does_not_know_stays() {
    let mut case = Case::new();
    case.map_end = 12;
    let kept = case.rewritten(&three(Compression::None), PLAIN);
    let offsets: Vec<i64> = records(&kept).iter().map(|record| record.0).collect();
    assert_eq!(offsets, [11, 12], "also without a key");
    let mut unknown = builder(10);
    unknown.push(Some(b"x"), Some(b"value"), &[]);
    assert_eq!(case.keep(&unknown.build(), PLAIN), Kept::AsItIs);
}

#[test]
fn a_batch_of_which_nothing_stays_goes_unless_its_offsets_or_its_sequence_are_needed() {
    let mut old = builder(10).compression(Compression::Lz4);
    old.push_at(0, NOW + 5, Some(b"a"), Some(b"old"), &[]);
    old.push_at(1, NOW + 6, Some(b"a"), Some(b"old"), &[]);
    let batch = old.build();
    let mut case = Case::new();
    assert_eq!(case.keep(&batch, PLAIN), Kept::Nothing);

    let is_last = Place {
        is_last: true,
        ..PLAIN
    };
    let check = |case: &Case, place| {
        let kept = case.rewritten(&batch, place);
        let before = BatchHeader::parse(&batch).expect("a batch");
        let after = BatchHeader::parse(&kept).expect("a batch");
        let expected = BatchHeader {
            batch_length: 49,
            crc: after.crc,
            attributes: taffrail_protocol::records::Attributes(0),
            base_timestamp: -1,
            record_count: 0,
            ..before
        };
        assert_eq!(after, expected);
        // The next cleaning leaves it alone, or removes it.
        assert_eq!(case.keep(&kept, place), Kept::AsItIs);
        assert_eq!(Case::new().keep(&kept, PLAIN), Kept::Nothing);
    };
    check(&case, is_last);
    for (last_offset, stays) in [(Some(11), true), (Some(10), false), (None, false)] {
        let last = LastRecord {
            last_offset,
            producer_epoch: 5,
        };
        case.producers.insert(77, last);
        if stays {
            check(&case, PLAIN);
        } else {
            assert_eq!(case.keep(&batch, PLAIN), Kept::Nothing, "{last_offset:?}");
        }
    }
}

#[test]
fn tombstones_get_their_time_once_and_go_after_it() {
    for codec in CODECS {
        let mut batch = builder(10).compression(codec);
        batch.push_at(1, NOW + 7, Some(b"b"), None, &[]);
        batch.push_at(2, NOW + 8, Some(b"c"), Some(b"value"), &[]);
        let batch = batch.build();
        let mut case = Case::new();
        let kept = case.rewritten(&batch, PLAIN);
        assert_eq!(records(&kept), records(&batch), "no timestamp is another");
        let header = BatchHeader::parse(&kept).expect("a batch");
        assert!(header.attributes.has_delete_horizon());
        assert_eq!(header.base_timestamp, NOW + DAY);
        assert_eq!(header.max_timestamp, NOW + 8);
        assert_eq!(header.attributes.compression(), Some(codec));

        // Later cleanings do not put it off, also when they take something else out.
        case.now_ms = NOW + DAY - 1;
        assert_eq!(case.keep(&kept, PLAIN), Kept::AsItIs);
        assert!(case.map.put(b"c", 50));
        let fewer = case.rewritten(&kept, PLAIN);
        assert_eq!(records(&fewer), records(&batch)[..1]);
        let header = BatchHeader::parse(&fewer).expect("a batch");
        assert!(header.attributes.has_delete_horizon());
        assert_eq!(header.base_timestamp, NOW + DAY);

        case.now_ms = NOW + DAY;
        assert_eq!(case.keep(&fewer, PLAIN), Kept::Nothing);
        // One that is not known to be the newest stays.
        case.map_end = 11;
        assert_eq!(case.keep(&fewer, PLAIN), Kept::AsItIs);
    }
}

#[test]
fn time_of_the_leader_stays_on_every_record() {
    let mut batch = builder(10);
    batch.push(Some(b"a"), Some(b"old"), &[]);
    batch.push(Some(b"b"), None, &[]);
    let mut batch = batch.build();
    taffrail_protocol::records::set_log_append_time(&mut batch, NOW + 99);
    let kept = Case::new().rewritten(&batch, PLAIN);
    let header = BatchHeader::parse(&kept).expect("a batch");
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(header.max_timestamp, NOW + 99);
    assert_eq!(records(&kept), [(11, NOW + 99, b"b".to_vec(), None, 0)]);
}

#[test]
fn aborted_records_go_whatever_the_map_says() {
    let aborted = Place {
        is_dispensable: true,
        is_last: false,
    };
    let mut case = Case::new();
    case.map_end = 0;
    let batch = three(Compression::None);
    assert_eq!(case.keep(&batch, PLAIN), Kept::AsItIs);
    assert_eq!(case.keep(&batch, aborted), Kept::Nothing);
    let last = Place {
        is_last: true,
        ..aborted
    };
    assert_eq!(records(&case.rewritten(&batch, last)), []);
}

#[test]
fn markers_stay_while_they_are_needed_and_for_their_time() {
    let marker = EndTransactionMarker {
        commit: true,
        coordinator_epoch: 1,
    };
    let batch = marker.batch(77, 5, NOW);
    let unneeded = Place {
        is_dispensable: true,
        is_last: false,
    };
    let mut case = Case::new();
    // The key of a record may be that of a marker (KAFKA-14055).
    assert!(case.map.put(&[0, 0, 0, 1], 500));
    assert_eq!(case.keep(&batch, PLAIN), Kept::AsItIs);
    let kept = case.rewritten(&batch, unneeded);
    let header = BatchHeader::parse(&kept).expect("a batch");
    assert!(header.attributes.is_control() && header.attributes.is_transactional());
    assert_eq!(header.base_timestamp, NOW + DAY);
    assert_eq!(
        EndTransactionMarker::read(&kept).expect("a marker"),
        Some(marker)
    );
    assert_eq!(marker_of(&header, &kept).expect("a marker"), Marker::Commit);
    assert_eq!(records(&kept), records(&batch));
    case.now_ms = NOW + DAY - 1;
    assert_eq!(case.keep(&kept, unneeded), Kept::AsItIs);
    case.now_ms = NOW + DAY;
    assert_eq!(case.keep(&kept, PLAIN), Kept::AsItIs);
    assert_eq!(case.keep(&kept, unneeded), Kept::Nothing);

    // Of a producer that is known by its markers alone, that of its epoch stays, empty.
    for (producer_epoch, stays) in [(5, true), (4, false)] {
        let last = LastRecord {
            last_offset: None,
            producer_epoch,
        };
        case.producers.insert(77, last);
        if !stays {
            assert_eq!(case.keep(&kept, unneeded), Kept::Nothing);
            continue;
        }
        let emptied = case.rewritten(&kept, unneeded);
        let header = BatchHeader::parse(&emptied).expect("a batch");
        assert_eq!((header.record_count, header.producer_epoch), (0, 5));
        assert!(header.attributes.is_control());
        assert_eq!(
            marker_of(&header, &emptied).expect("a batch"),
            Marker::Emptied
        );
        assert_eq!(case.keep(&emptied, unneeded), Kept::AsItIs);
    }
}

#[test]
fn damage_is_told() {
    let case = Case::new();
    let retention = Retention {
        map: &case.map,
        map_end: case.map_end,
        producers: &case.producers,
        now_ms: NOW,
        delete_retention_ms: DAY,
        decompressed_bytes_max: 10,
    };
    let batch = three(Compression::Gzip);
    let header = BatchHeader::parse(&batch).expect("a batch");
    assert!(retention.keep(&header, &batch, PLAIN).is_err(), "too large");
    let batch = three(Compression::None);
    let lying = BatchHeader {
        record_count: 4,
        ..BatchHeader::parse(&batch).expect("a batch")
    };
    assert!(retention.keep(&lying, &batch, PLAIN).is_err(), "too few");
}
