//! The fuzz targets without a fuzzer: every seed of the corpus, then mutations of them for a bounded time.
//!
//! `TAFFRAIL_FUZZ_SECONDS` is the time for all targets together, 4 by default; `TAFFRAIL_FUZZ_SEED` starts another run.

mod support;
#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, dead_code)]
mod targets;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, panic};
use support::definition::Kind;
use support::{Source, definitions, message_bytes};
use taffrail_protocol::records::{Compression, compress};
use taffrail_protocol::{metadata_records, producer_snapshot};
use targets::TARGETS;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target)
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = corpus(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no seed", folder.display());
    files
        .iter()
        .map(|file| fs::read(file).expect("a readable seed"))
        .collect()
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

#[test]
fn fuzz_smoke() {
    let time = Duration::from_secs(number("TAFFRAIL_FUZZ_SECONDS", 4)) / TARGETS.len() as u32;
    let mut source = Source::new(number("TAFFRAIL_FUZZ_SEED", 1));
    for (name, target) in TARGETS {
        let run = |data: &[u8]| {
            if let Err(cause) = panic::catch_unwind(|| target(data)) {
                eprintln!("target {name} failed on {data:?}");
                panic::resume_unwind(cause);
            }
        };
        let seeds = seeds(name);
        seeds.iter().for_each(|seed| run(seed));
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            for _ in 0..100 {
                run(&mutate(&seeds, &mut source));
            }
        }
    }
}

/// A seed with a few bytes changed, removed, inserted or taken from another seed.
fn mutate(seeds: &[Vec<u8>], source: &mut Source) -> Vec<u8> {
    let mut data = seeds[source.below(seeds.len() as u64) as usize].clone();
    for _ in 0..=source.below(4) {
        let at = source.below(data.len() as u64 + 1) as usize;
        let interesting = [0, 1, 0x7f, 0x80, 0xff, source.next() as u8][source.below(6) as usize];
        match source.below(5) {
            0 => data.truncate(at),
            1 => data.insert(at, interesting),
            2 if at < data.len() => drop(data.remove(at)),
            3 => {
                let other = &seeds[source.below(seeds.len() as u64) as usize];
                let from = source.below(other.len() as u64 + 1) as usize;
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            _ => data
                .iter_mut()
                .skip(at)
                .take(1 + source.below(4) as usize)
                .for_each(|byte| *byte = interesting),
        }
    }
    data
}

/// Writes the corpus anew, after a definition changed:
/// `cargo test -p taffrail-protocol --test fuzz_smoke -- --ignored write_seeds`.
#[test]
#[ignore = "writes into the source tree; run by name with --ignored after a definition changed"]
fn write_seeds() {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(corpus(target)).expect("corpus/");
        fs::write(corpus(target).join(name), bytes).expect("a writable corpus");
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
                write("request", name, &[&head[..], &bytes].concat());
                write(
                    "request_header",
                    name,
                    &[&head[..], &[0, 0, 0, 7, 0, 2, b'i', b'd', 0]].concat(),
                );
            }
            Kind::Response => write("response", name, &[&head[..], &bytes].concat()),
            Kind::Data if name.starts_with("Consumer") => {
                write("consumer_protocol", name, &versioned)
            }
            Kind::Data if name.ends_with("Key") => {
                let record_type = if name.starts_with("Offset") { 1i16 } else { 2 };
                write(
                    "coordinator_records",
                    name,
                    &[&record_type.to_be_bytes()[..], &bytes].concat(),
                );
            }
            Kind::Data if name.ends_with("Value") => write("coordinator_records", name, &versioned),
            Kind::Data => {
                let record = [
                    &[1, definition.key.unwrap_or_default() as u8, 0][..],
                    &bytes,
                ]
                .concat();
                let record = metadata_records::decode(&record).expect("a record");
                let list = metadata_records::encode_all(&[record]).expect("a list");
                write("metadata_records", name, &list);
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
        write("record_batches", codec.name(), &batch);
        let text = b"taffrail log, taffrail log, taffrail log".repeat(5);
        write(
            "decompress",
            codec.name(),
            &[&[codec.code() as u8][..], &compress(codec, &text)].concat(),
        );
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
        write("producer_snapshot", &count.to_string(), &bytes);
    }
}
