//! What comes over the network: requests, responses between brokers, record batches and what is inside of them.

use taffrail_node::fuzzing;
use taffrail_protocol::messages::*;
use taffrail_protocol::records::{
    Batches, Compression, RecordIter, crc_matches, decompress, uncompressed_records,
    validate_records,
};
use taffrail_protocol::{
    EncodeError, Message, Reader, RequestHeader, Writer, consumer_protocol, for_each_api,
};

use super::{Memory, Target, decoder};

/// What stands before the body in the corpus.
const API_AND_VERSION: usize = 4;

/// What the codecs work with, whatever the input: the window and tables of the largest, two of them at a time.
const CODECS: Memory = Memory::and(512 * 1024);

pub(super) const TARGETS: &[Target] = &[
    Target {
        memory: Memory::THERE_AND_BACK,
        ..target("request", request)
    },
    Target {
        memory: Memory::THERE_AND_BACK,
        ..target("response", response)
    },
    target("request_header", request_header),
    target("consumer_protocol", consumer_protocol_bytes),
    Target {
        // The frame itself, the response, and the list that is made of it.
        memory: Memory {
            times: 24,
            always: 128 * 1024,
        },
        seeds: fetch_answers,
        ..target("fetch_answer", fuzzing::fetch_answer)
    },
    Target {
        // The request, and the messages that are made of it.
        memory: Memory {
            times: 32,
            always: 128 * 1024,
        },
        seeds: raft_messages,
        ..target("raft_messages", fuzzing::raft_messages)
    },
    Target {
        memory: CODECS,
        ..target("record_batches", record_batches)
    },
    Target {
        memory: CODECS,
        ..target("decompress", decompress_all)
    },
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target {
        name,
        run,
        seeds: Vec::new,
        memory: Memory::DECODER,
    }
}

/// A response behind its header: correlation id and no tagged fields.
fn fetch_answers() -> Vec<Vec<u8>> {
    let response = include_bytes!("../../corpus/response/FetchResponse");
    vec![[&[0, 0, 0, 7, 0][..], &response[API_AND_VERSION..]].concat()]
}

fn raft_messages() -> Vec<Vec<u8>> {
    let request = include_bytes!("../../corpus/request/RaftMessagesRequest");
    vec![request[API_AND_VERSION..].to_vec()]
}

/// The caller of a codec says what it accepts; here as much as leaves room for two copies.
fn uncompressed_max(data: &[u8]) -> usize {
    5 * data.len()
}

/// The body of a request behind its api key and version.
fn request(data: &[u8]) {
    with_api(data, true);
}

/// The body of a response behind its api key and version.
fn response(data: &[u8]) {
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
    let decoded = decoder(bytes.len(), || M::decode(&mut Reader::new(bytes), version));
    let Ok(message) = decoded else {
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
fn request_header(data: &[u8]) {
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
fn record_batches(data: &[u8]) {
    let limit = uncompressed_max(data);
    for batch in Batches::new(data) {
        let Ok((header, range)) = batch else { return };
        let batch = &data[range];
        crc_matches(batch);
        let Ok((_, records)) = uncompressed_records(batch, limit) else {
            continue;
        };
        let mut headers = 0;
        for record in RecordIter::new(&header, &records).flatten() {
            headers += record.headers().count();
        }
        assert!(headers <= records.len());
        if let Ok(shape) = validate_records(batch, limit) {
            assert!(shape.uncompressed_length <= limit.max(batch.len()));
        }
    }
}

/// The first byte chooses the codec.
fn decompress_all(data: &[u8]) {
    let Some((codec, data)) = data.split_first() else {
        return;
    };
    let Some(codec) = Compression::from_code(i16::from(*codec % 5)) else {
        return;
    };
    let limit = uncompressed_max(data);
    if let Ok(out) = decompress(codec, data, limit) {
        assert!(out.len() <= limit);
    }
}

/// Subscriptions and assignments.
fn consumer_protocol_bytes(data: &[u8]) {
    let _ = consumer_protocol::decode_subscription(data);
    let _ = consumer_protocol::decode_assignment(data);
}
