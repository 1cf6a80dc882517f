//! The other codec: the `kafka-protocol` crate, its messages behind functions, and a comparison of what both print.
#![allow(unreachable_pub)]

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable, Message};

/// A message of the other crate.
pub struct Oracle {
    pub last_version: i16,
    /// Decodes all bytes and encodes again; gives the debug text and the bytes.
    pub turn_round: fn(&[u8], i16) -> (String, Vec<u8>),
}

macro_rules! oracles {
    ($($message:ident)*) => {
        /// The message of that name, if the other crate has it.
        pub fn oracle(name: &str) -> Option<Oracle> {
            match name {
                $(stringify!($message) => Some(Oracle {
                    last_version: kafka_protocol::messages::$message::VERSIONS.max,
                    turn_round: |bytes, version| {
                        let mut from = Bytes::copy_from_slice(bytes);
                        let message = kafka_protocol::messages::$message::decode(&mut from, version)
                            .unwrap_or_else(|error| panic!("{} {version}: {error}", stringify!($message)));
                        assert!(from.is_empty(), "{} {version}: bytes left", stringify!($message));
                        let mut to = BytesMut::new();
                        message.encode(&mut to, version)
                            .unwrap_or_else(|error| panic!("{} {version}: {error}", stringify!($message)));
                        (format!("{message:?}"), to.to_vec())
                    },
                }),)*
                _ => None,
            }
        }
    };
}

oracles! {
    AddRaftVoterRequest AddRaftVoterResponse AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse
    AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse ApiVersionsRequest ApiVersionsResponse
    ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse
    ConsumerProtocolAssignment ConsumerProtocolSubscription CreatePartitionsRequest CreatePartitionsResponse
    CreateTopicsRequest CreateTopicsResponse DeleteGroupsRequest DeleteGroupsResponse DeleteRecordsRequest
    DeleteRecordsResponse DeleteTopicsRequest DeleteTopicsResponse DescribeClusterRequest DescribeClusterResponse
    DescribeConfigsRequest DescribeConfigsResponse DescribeGroupsRequest DescribeGroupsResponse
    DescribeLogDirsRequest DescribeLogDirsResponse DescribeQuorumRequest DescribeQuorumResponse
    DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse ElectLeadersRequest ElectLeadersResponse
    FetchRequest FetchResponse FindCoordinatorRequest FindCoordinatorResponse HeartbeatRequest HeartbeatResponse
    IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse InitProducerIdRequest InitProducerIdResponse
    JoinGroupRequest JoinGroupResponse LeaveGroupRequest LeaveGroupResponse ListGroupsRequest ListGroupsResponse
    ListOffsetsRequest ListOffsetsResponse
    ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse MetadataRequest MetadataResponse
    OffsetCommitRequest OffsetCommitResponse OffsetDeleteRequest OffsetDeleteResponse OffsetFetchRequest
    OffsetFetchResponse OffsetForLeaderEpochRequest
    OffsetForLeaderEpochResponse ProduceRequest ProduceResponse RemoveRaftVoterRequest RemoveRaftVoterResponse
    SyncGroupRequest SyncGroupResponse
    AddOffsetsToTxnRequest AddOffsetsToTxnResponse AddPartitionsToTxnRequest AddPartitionsToTxnResponse
    DescribeProducersRequest DescribeProducersResponse DescribeTransactionsRequest DescribeTransactionsResponse
    EndTxnRequest EndTxnResponse ListTransactionsRequest ListTransactionsResponse TxnOffsetCommitRequest
    TxnOffsetCommitResponse WriteTxnMarkersRequest WriteTxnMarkersResponse
}

/// Compares two debug texts: the same field names in the same order, the same numbers and strings, in whatever wrappers.
/// `later_fields` are in versions too new for the other crate, `UNSTABLE_FIELDS` for us; all of them are scalars.
pub fn same_values(name: &str, version: i16, ours: &str, theirs: &str, later_fields: &[&str]) {
    let (mut left, mut right) = (tokens(ours), tokens(theirs));
    for tokens in [&mut left, &mut right] {
        remove_fields(tokens, later_fields);
        remove_fields(tokens, UNSTABLE_FIELDS);
    }
    assert_eq!(
        left, right,
        "{name} {version}\nours   {ours}\ntheirs {theirs}"
    );
}

/// Of InitProducerId 6, which Kafka 4.4 does not serve by default.
const UNSTABLE_FIELDS: &[&str] = &[
    "enable_2_pc",
    "keep_prepared_txn",
    "ongoing_txn_producer_id",
    "ongoing_txn_producer_epoch",
];

fn remove_fields(tokens: &mut Vec<String>, names: &[&str]) {
    while let Some(at) = tokens
        .iter()
        .position(|token| names.contains(&token.as_str()))
    {
        tokens.drain(at..at + 2);
    }
}

/// Field names, scalars, and what is null; bytes and ids are brought to one form, records are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("b\"") {
            let (bytes, behind) = byte_string(behind);
            tokens.extend(bytes.iter().map(u8::to_string));
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix('"') {
            let (string, behind) = behind
                .split_once('"')
                .expect("a closed string without quotes in it");
            tokens.push(format!("{string:?}"));
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix("Uuid(") {
            let (id, behind) = behind.split_once(')').expect("a closed id");
            let id: taffrail_protocol::Uuid = id.parse().expect("an id");
            tokens.push(u128::from_be_bytes(id.0).to_string());
            rest = behind;
        } else if first.is_ascii_alphanumeric() || first == '-' || first == '_' {
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
                .unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            rest = behind;
            if behind.starts_with(':') {
                if word == "unknown_tagged_fields" {
                    rest = behind.strip_prefix(": {}").expect("no unknown tags");
                } else if word == "records" {
                    rest = skip_records(behind);
                } else {
                    tokens.push(word.to_string());
                }
            } else if is_hyphened_id(word) {
                let digits: String = word.chars().filter(|c| *c != '-').collect();
                tokens.push(u128::from_str_radix(&digits, 16).expect("hex").to_string());
            } else if word == "None"
                || word == "true"
                || word == "false"
                || word.parse::<f64>().is_ok()
            {
                tokens.push(word.to_string());
            }
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

fn is_hyphened_id(word: &str) -> bool {
    word.len() == 36 && word.matches('-').count() == 4
}

/// `records` comes last in its struct, but for the tags of which both print the same; its bytes are compared elsewhere.
fn skip_records(text: &str) -> &str {
    let text = text.trim_start_matches(": ").trim_start_matches("Some(");
    if let Some(behind) = text.strip_prefix("b\"") {
        return byte_string(behind).1;
    }
    let end = text.find([',', '}']).expect("the struct goes on");
    &text[end..]
}

/// The bytes of what stands behind `b"`, as the `bytes` crate prints them, and what follows.
fn byte_string(text: &str) -> (Vec<u8>, &str) {
    let mut bytes = Vec::new();
    let mut letters = text.char_indices();
    while let Some((position, letter)) = letters.next() {
        match letter {
            '"' => return (bytes, &text[position + 1..]),
            '\\' => match letters.next().map(|(_, escaped)| escaped) {
                Some('x') => {
                    let hex: String = letters.by_ref().take(2).map(|(_, digit)| digit).collect();
                    bytes.push(u8::from_str_radix(&hex, 16).expect("hex"));
                }
                Some('n') => bytes.push(b'\n'),
                Some('r') => bytes.push(b'\r'),
                Some('t') => bytes.push(b'\t'),
                Some('0') => bytes.push(0),
                Some(escaped) => bytes.push(escaped as u8),
                None => break,
            },
            letter => bytes.push(letter as u8),
        }
    }
    panic!("an open byte string");
}
