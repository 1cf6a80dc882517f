//! What each fuzz target does with its bytes. Also compiled into the `fuzz_smoke` test, which needs no fuzzer.

use taffrail_protocol::messages::*;
use taffrail_protocol::records::{
    Batches, Compression, RecordIter, crc_matches, decompress, uncompressed_records,
    validate_records,
};
use taffrail_protocol::{
    EncodeError, Message, Reader, RequestHeader, Writer, consumer_protocol, coordinator_records,
    for_each_api, metadata_records, producer_snapshot,
};

/// Enough for any honest seed, and little enough for a quick run.
const DECOMPRESSED_MAX: usize = 1 << 20;

/// A target by its name, as in `corpus/<name>/`.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("request", request),
    ("response", response),
    ("request_header", request_header),
    ("record_batches", record_batches),
    ("decompress", decompress_all),
    ("consumer_protocol", consumer_protocol_bytes),
    ("coordinator_records", coordinator_record),
    ("metadata_records", metadata_record),
    ("producer_snapshot", snapshot),
];

/// The body of a request behind its api key and version.
pub fn request(data: &[u8]) {
    with_api(data, true);
}

/// The body of a response behind its api key and version.
pub fn response(data: &[u8]) {
    with_api(data, false);
}

fn with_api(data: &[u8], is_request: bool) {
    let Some((head, body)) = data.split_first_chunk::<4>() else {
        return;
    };
    let api_key = i16::from_be_bytes([head[0], head[1]]);
    let version = i16::from_be_bytes([head[2], head[3]]);
    macro_rules! each {
        ($api:ident, $request:ident, $response:ident) => {
            if api_key == taffrail_protocol::ApiKey::$api.code() {
                match is_request {
                    true => turn_round::<$request>(body, version),
                    false => turn_round::<$response>(body, version),
                }
            }
        };
    }
    for_each_api!(each);
}

/// What decodes must encode, and then decode to the same.
fn turn_round<M: Message + PartialEq + std::fmt::Debug>(bytes: &[u8], version: i16) {
    let Ok(message) = M::decode(&mut Reader::new(bytes), version) else {
        return;
    };
    let mut w = Writer::new();
    match message.encode(&mut w, version) {
        // Records are a range of the frame that was read.
        Err(EncodeError::RecordsOfAnotherFrame) => {}
        Err(error) => panic!("{message:?} does not encode: {error}"),
        Ok(()) => assert_eq!(
            M::decode(&mut Reader::new(&w.buf), version).as_ref(),
            Ok(&message)
        ),
    }
}

/// The header of a request.
pub fn request_header(data: &[u8]) {
    if let Ok((header, body)) = RequestHeader::parse(data) {
        assert!(
            body <= data.len()
                && header
                    .client_id
                    .is_none_or(|client_id| client_id.len() < data.len())
        );
    }
}

/// Batches, their records and headers.
pub fn record_batches(data: &[u8]) {
    for batch in Batches::new(data) {
        let Ok((header, range)) = batch else { return };
        let batch = &data[range];
        crc_matches(batch);
        let Ok((_, records)) = uncompressed_records(batch, DECOMPRESSED_MAX) else {
            continue;
        };
        let mut headers = 0;
        for record in RecordIter::new(&header, &records).flatten() {
            headers += record.headers().count();
        }
        assert!(headers <= records.len());
        if let Ok(shape) = validate_records(batch, DECOMPRESSED_MAX) {
            assert!(shape.uncompressed_length <= DECOMPRESSED_MAX.max(batch.len()));
        }
    }
}

/// The first byte chooses the codec.
pub fn decompress_all(data: &[u8]) {
    let Some((codec, data)) = data.split_first() else {
        return;
    };
    let Some(codec) = Compression::from_code(i16::from(*codec % 5)) else {
        return;
    };
    if let Ok(out) = decompress(codec, data, DECOMPRESSED_MAX) {
        assert!(out.len() <= DECOMPRESSED_MAX);
    }
}

/// Subscriptions and assignments.
pub fn consumer_protocol_bytes(data: &[u8]) {
    let _ = consumer_protocol::decode_subscription(data);
    let _ = consumer_protocol::decode_assignment(data);
}

/// Keys and values of `__consumer_offsets`.
pub fn coordinator_record(data: &[u8]) {
    if let Ok(key) = coordinator_records::CoordinatorKey::decode(data) {
        let bytes = key.encode().expect("a key encodes");
        assert_eq!(coordinator_records::CoordinatorKey::decode(&bytes), Ok(key));
    }
    let _ = coordinator_records::decode_offset_commit_value(data);
    let _ = coordinator_records::decode_group_metadata_value(data);
}

/// A list of metadata records.
pub fn metadata_record(data: &[u8]) {
    let _ = metadata_records::decode(data);
    if let Ok(records) = metadata_records::decode_all(data) {
        let bytes = metadata_records::encode_all(&records).expect("records encode");
        assert_eq!(metadata_records::decode_all(&bytes), Ok(records));
    }
}

/// A producer snapshot.
pub fn snapshot(data: &[u8]) {
    if let Ok(entries) = producer_snapshot::decode(data) {
        assert_eq!(producer_snapshot::encode(&entries).as_deref(), Ok(data));
    }
}
