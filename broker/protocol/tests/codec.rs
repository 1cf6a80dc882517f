//! Every message in every version: against the `kafka-protocol` crate, against bytes of Kafka itself, cut and damaged.

mod kafka_protocol_oracle;
mod support;

use kafka_protocol_oracle::{oracle, same_values};
use support::{Source, codecs, definitions, message_bytes};

const VALUES_PER_VERSION: u64 = 20;

/// Calls `each(definition, codec, version, bytes)` for values of every message and version.
fn for_each_value(
    count: u64,
    mut each: impl FnMut(&support::definition::Definition, &support::Codec, i16, &[u8]),
) {
    let codecs = codecs();
    for definition in definitions() {
        let codec = codecs.iter().find(|codec| codec.name == definition.name);
        let codec =
            codec.unwrap_or_else(|| panic!("{} is not in the list of codecs", definition.name));
        for version in definition.versions.first..=definition.versions.last {
            for seed in 0..count {
                let bytes = message_bytes(&definition, version, &mut Source::new(seed));
                each(&definition, codec, version, &bytes);
            }
        }
    }
}

#[test]
fn every_message_comes_back_byte_for_byte() {
    for_each_value(VALUES_PER_VERSION, |_, codec, version, bytes| {
        let (text, encoded, read) = (codec.turn_round)(bytes, version)
            .unwrap_or_else(|| panic!("{} {version} does not decode {bytes:?}", codec.name));
        assert_eq!(read, bytes.len(), "{} {version}", codec.name);
        assert_eq!(encoded, bytes, "{} {version} {text}", codec.name);
    });
}

/// Our bytes through their codec and back, and the names and values that both see.
#[test]
fn kafka_protocol_reads_and_writes_the_same() {
    let mut compared = 0;
    let mut lagging = Vec::new();
    for_each_value(VALUES_PER_VERSION, |definition, codec, version, bytes| {
        if definition.key.is_some_and(|key| key >= 20_000) || definition.name.ends_with("Record") {
            return;
        }
        let Some(oracle) = oracle(codec.name) else {
            // Keys and values of internal topics are none of its messages; their bytes are compared where they are made.
            assert!(
                definition.kind == support::definition::Kind::Data,
                "{} has no oracle",
                codec.name
            );
            return;
        };
        if version > oracle.last_version {
            let name = format!("{} {version}", codec.name);
            if lagging.last() != Some(&name) {
                lagging.push(name);
            }
            return;
        }
        let (theirs, encoded) = (oracle.turn_round)(bytes, version);
        assert_eq!(encoded, bytes, "{} {version}", codec.name);
        let (ours, _, _) = (codec.turn_round)(&encoded, version).expect("decodes");
        let fields = definition
            .structs
            .iter()
            .flat_map(|message_struct| &message_struct.fields);
        let is_later =
            |field: &&support::definition::Field| field.versions.first > oracle.last_version;
        let later: Vec<&str> = fields
            .filter(is_later)
            .map(|field| field.name.as_str())
            .collect();
        same_values(codec.name, version, &ours, &theirs, &later);
        compared += 1;
    });
    for name in lagging {
        assert!(
            BYTES_OF_KAFKA
                .iter()
                .any(|(known, version, _)| name == format!("{known} {version}")),
            "{name}: the oracle does not know this version, and no bytes of Kafka are compared"
        );
    }
    assert!(compared > 200 * VALUES_PER_VERSION, "{compared}");
}

/// Versions that the oracle lacks, written by Kafka 4.4.0's own Java classes.
const BYTES_OF_KAFKA: &[(&str, i16, &str)] = &[
    (
        "AddRaftVoterRequest",
        1,
        "0363310000000500000002000102030405060708090a0b0c0d0e0f02024302682384000000",
    ),
    ("AddRaftVoterResponse", 1, "00000007007e026d00"),
    ("ApiVersionsRequest", 5, "0461707004312e300363310000000200"),
    (
        "ApiVersionsResponse",
        5,
        "002302001200000005000000000703000802026600000002000108000000000000000902080202660002000100",
    ),
    ("DeleteGroupsRequest", 3, "02026700"),
    ("DeleteGroupsResponse", 3, "000000000202670044047768790000"),
    (
        "ListOffsetsRequest",
        11,
        "ffffffff01020274020000000300000004fffffffffffffffa0000000003e800",
    ),
    (
        "ListOffsetsResponse",
        11,
        "00000005020274020000000300000000000000000009000000000000000a00000004000000",
    ),
    (
        "OffsetCommitRequest",
        10,
        "026700000007026d00020102030405060708090a0b0c0d0e0f1002000000010000000000000002000000030278000000",
    ),
    (
        "OffsetCommitResponse",
        10,
        "00000000020102030405060708090a0b0c0d0e0f1002000000010019000000",
    ),
    (
        "OffsetFetchRequest",
        10,
        "020267026d00000005020102030405060708090a0b0c0d0e0f1003000000010000000200000100",
    ),
    (
        "OffsetFetchResponse",
        10,
        "00000000020267020102030405060708090a0b0c0d0e0f100200000001000000000000002a00000003000000000000000000",
    ),
    (
        "TxnOffsetCommitRequest",
        6,
        "027402670000000000000007000300000005026d00020102030405060708090a0b0c0d0e0f100200000001000000000000002a000000020278000000",
    ),
    (
        "TxnOffsetCommitResponse",
        6,
        "00000000020102030405060708090a0b0c0d0e0f1002000000010019000000",
    ),
    (
        "WriteTxnMarkersRequest",
        2,
        "0200000000000000070003010202740300000001000000020000000009020000",
    ),
    (
        "WriteTxnMarkersResponse",
        2,
        "0200000000000000070202740200000001002f00000000",
    ),
    ("DescribeLogDirsRequest", 5, "0202740300000001000000020000"),
    (
        "DescribeLogDirsResponse",
        5,
        "000000000000020000032f6402027402000000010000000000000002000000000000000301000000000000000000640000000000000032000000",
    ),
    (
        "FetchResponse",
        18,
        "00000000000000000009020102030405060708090a0b0c0d0e0f1002000000010006ffffffffffffffffffffffffffffffffffffffffffffffff01ffffffff010101090000000200000008000001000d02000000020268000023840000",
    ),
];

#[test]
fn versions_that_the_oracle_lacks_have_the_bytes_of_kafka() {
    for &(name, version, hex) in BYTES_OF_KAFKA {
        let bytes = from_hex(hex);
        let codec = *codecs()
            .iter()
            .find(|codec| codec.name == name)
            .expect("known");
        let (text, encoded, read) =
            (codec.turn_round)(&bytes, version).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(read, bytes.len(), "{name} {text}");
        assert_eq!(encoded, bytes, "{name} {text}");
    }
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
        .collect()
}

/// Nothing behind the end of a message is optional, so a cut one is an error at every length.
#[test]
fn every_cut_is_refused() {
    for_each_value(4, |_, codec, version, bytes| {
        for length in 0..bytes.len() {
            assert!(
                !(codec.decodes)(&bytes[..length], version),
                "{} {version} cut to {length}",
                codec.name
            );
        }
    });
}

#[test]
fn damaged_and_random_bytes_do_not_panic() {
    let mut source = Source::new(7);
    for_each_value(6, |_, codec, version, bytes| {
        for _ in 0..12 {
            let mut damaged = bytes.to_vec();
            for _ in 0..=source.below(3) {
                if let Some(last) = (damaged.len() as u64).checked_sub(1) {
                    let at = source.below(last + 1) as usize;
                    damaged[at] =
                        [0, 1, 0x7f, 0x80, 0xff, source.next() as u8][source.below(6) as usize];
                }
            }
            if let Some((text, encoded, read)) = (codec.turn_round)(&damaged, version) {
                let again = (codec.turn_round)(&encoded, version).map(|(_, bytes, _)| bytes);
                assert_eq!(
                    again.as_ref(),
                    Some(&encoded),
                    "{} {version} {read} {text}",
                    codec.name
                );
            }
        }
        let length = source.below(64) as usize;
        (codec.decodes)(&source.bytes(length), version);
    });
}

#[test]
fn versions_outside_of_the_range_are_refused() {
    let codecs = codecs();
    for definition in definitions() {
        let codec = codecs
            .iter()
            .find(|codec| codec.name == definition.name)
            .expect("known");
        for version in [i16::MIN, -1, definition.versions.last + 1, i16::MAX] {
            assert!(
                !(codec.decodes)(&[0; 512], version),
                "{} {version}",
                codec.name
            );
        }
    }
}
