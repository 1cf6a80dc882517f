//! When all brokers have ended: the replicas of a partition hold the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::bed::Bed;

/// Bytes of a batch before its records.
const HEADER: usize = 61;

/// Bytes and checksum of one replica's segments, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contents {
    bytes: u64,
    /// The offset behind the last batch.
    end: i64,
    checksum: u64,
}

/// How many replicas of this topic were compared, how they differ, and which are missing of so many for each partition.
pub(crate) fn compare(
    bed: &Bed,
    topic: &str,
    partition_count: i32,
    replica_count: usize,
) -> Result<(usize, Vec<String>)> {
    let (mut count, mut differences) = (0, Vec::new());
    let mut partitions: BTreeMap<String, Vec<(usize, Contents)>> = BTreeMap::new();
    for broker in 0..bed.brokers() {
        for folder in folders(&bed.log_dir(broker))? {
            let name = folder.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            let index = name
                .strip_prefix(topic)
                .and_then(|rest| rest.strip_prefix('-'));
            // Strays are renamed, so that they no longer end in a number.
            if index.is_some_and(|index| index.parse::<u32>().is_ok()) {
                count += 1;
                let contents = contents(&folder)?;
                partitions.entry(name).or_default().push((broker, contents));
            }
        }
    }
    for partition in 0..partition_count {
        let name = format!("{topic}-{partition}");
        let replicas = partitions.remove(&name).unwrap_or_default();
        if replicas.len() != replica_count {
            let brokers: Vec<usize> = replicas.iter().map(|(broker, _)| *broker).collect();
            differences.push(format!("{name} has replicas on {brokers:?} only"));
        }
        if replicas.iter().any(|(_, c)| *c != replicas[0].1) {
            differences.push(format!("replicas of {name} differ: {replicas:?}"));
        }
    }
    Ok((count, differences))
}

fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    paths.collect()
}

/// What the segments hold from offset 0 on, batch by batch: what lies behind the last batch is no part of the log.
fn contents(folder: &Path) -> Result<Contents> {
    let mut segments = folders(folder)?;
    segments.retain(|path| path.extension().is_some_and(|e| e == "log"));
    // Names are offsets of one length.
    segments.sort();
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    let (mut bytes, mut next) = (0, 0);
    for segment in segments {
        let file = fs::read(segment)?;
        let length = length_of_batches(&file, &mut next);
        digest.update(&file[..length]);
        bytes += length as u64;
    }
    Ok(Contents {
        bytes,
        end: next,
        checksum: digest.finalize(),
    })
}

/// How many bytes of a segment are batches that follow each other from offset `next` on, which moves behind the last one.
fn length_of_batches(file: &[u8], next: &mut i64) -> usize {
    let mut position = 0;
    while let Some(header) = file[position..].first_chunk::<HEADER>() {
        let base = i64::from_be_bytes(part(header, 0));
        let length = u32::from_be_bytes(part(header, 8)) as usize + 12;
        let last_offset_delta = u32::from_be_bytes(part(header, 23));
        if base != *next || length < HEADER || position + length > file.len() {
            break;
        }
        *next = base + i64::from(last_offset_delta) + 1;
        position += length;
    }
    position
}

/// The bytes of a batch's header at a place.
fn part<const N: usize>(header: &[u8; HEADER], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}
