//! The seeds of the fuzz targets (`broker/fuzz/corpus`): an honest message of each kind, from the definitions.

use std::fs;
use std::path::{Path, PathBuf};

use taffrail_protocol::records::{Compression, EndTransactionMarker, compress};
use taffrail_protocol::{metadata_records, producer_snapshot};

use super::definition::Kind;
use super::{Source, definitions, message_bytes};

/// A seed.
pub struct Seed {
    /// Where it is committed.
    pub file: PathBuf,
    pub bytes: Vec<u8>,
}

/// All seeds that are made; the same at each call.
pub fn seeds() -> Vec<Seed> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut seeds = Vec::new();
    let mut push = |target: &str, name: &str, bytes: &[u8]| {
        seeds.push(Seed {
            file: corpus.join(target).join(name),
            bytes: bytes.to_vec(),
        });
    };
    for definition in definitions() {
        let last = definition.versions.last;
        let bytes = message_bytes(&definition, last, &mut Source::new(2));
        let name = definition.name.as_str();
        let head = [
            definition.key.unwrap_or_default().to_be_bytes(),
            last.to_be_bytes(),
        ]
        .concat();
        let versioned = [&last.to_be_bytes()[..], &bytes].concat();
        match definition.kind {
            Kind::Request => {
                push("request", name, &[&head[..], &bytes].concat());
                push(
                    "request_header",
                    name,
                    &[&head[..], &[0, 0, 0, 7, 0, 2, b'i', b'd', 0]].concat(),
                );
            }
            Kind::Response => push("response", name, &[&head[..], &bytes].concat()),
            Kind::Data if name.starts_with("Consumer") => {
                push("consumer_protocol", name, &versioned)
            }
            Kind::Data if name == "TransactionLogKey" => push(
                "transaction_records",
                name,
                &[&0i16.to_be_bytes()[..], &bytes].concat(),
            ),
            Kind::Data if name == "TransactionLogValue" => {
                push("transaction_records", name, &versioned)
            }
            Kind::Data if name.ends_with("Key") => {
                let record_type = if name.starts_with("Offset") { 1i16 } else { 2 };
                push(
                    "coordinator_records",
                    name,
                    &[&record_type.to_be_bytes()[..], &bytes].concat(),
                );
            }
            Kind::Data if name.ends_with("Value") => push("coordinator_records", name, &versioned),
            Kind::Data => {
                let record = [
                    &[1, definition.key.unwrap_or_default() as u8, 0][..],
                    &bytes,
                ]
                .concat();
                let record = metadata_records::decode(&record).expect("a record");
                let list = metadata_records::encode_all(&[record]).expect("a list");
                push("metadata_records", name, &list);
            }
        }
    }
    for codec in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
        let batch =
            fs::read(vectors.join(format!("batch-{}.bin", codec.name()))).expect("a vector");
        push("record_batches", codec.name(), &batch);
        let text = b"taffrail log, taffrail log, taffrail log".repeat(5);
        push(
            "decompress",
            codec.name(),
            &[&[codec.code() as u8][..], &compress(codec, &text)].concat(),
        );
    }
    for commit in [true, false] {
        let marker = EndTransactionMarker {
            commit,
            coordinator_epoch: 7,
        };
        let name = if commit { "commit" } else { "abort" };
        push("transaction_marker", name, &marker.batch(1, 2, 3));
    }
    let entry = producer_snapshot::ProducerSnapshotEntry {
        producer_id: 1,
        producer_epoch: 2,
        last_sequence: 3,
        last_offset: 4,
        offset_delta: 5,
        timestamp: 6,
        coordinator_epoch: -1,
        current_txn_first_offset: -1,
    };
    for count in 0..3 {
        let bytes = producer_snapshot::encode(&vec![entry; count]).expect("a snapshot");
        push("producer_snapshot", &count.to_string(), &bytes);
    }
    seeds
}
