//! Producer snapshots beside the log that they tell of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use taffrail_protocol::producer_snapshot::{self, ProducerSnapshotEntry};
use taffrail_protocol::records::BatchHeader;

use super::{UNREADABLE, Verifier};

const DAMAGED: &str = "the broker leaves it out, and reads the producers back from an older one and the log; with the broker \
    stopped it may be removed";
const WRONG: &str = "a producer that tries again may be taken for another one: with the broker stopped, remove the file, so \
    that the producers are read back from the log";

/// Bytes of a snapshot that names no producer: version, checksum and the number of entries.
const EMPTY_BYTES: usize = 10;

/// What the snapshots of a replica say of producers, by the offset of the last record.
#[derive(Default)]
pub(super) struct Producers(BTreeMap<i64, Vec<(PathBuf, ProducerSnapshotEntry)>>);

impl Producers {
    /// Takes the snapshot as of `offset`.
    pub(super) fn read(&mut self, verifier: &mut Verifier<'_>, path: &Path, offset: i64) {
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) => return verifier.problem(path, error.to_string(), UNREADABLE),
        };
        let entries = match producer_snapshot::decode(&content) {
            Ok(entries) => entries,
            Err(error) if content.len() <= EMPTY_BYTES => {
                // Written without an fsync, for it only saves a start from looking for producers.
                let what = format!("is cut short, as a loss of power may leave it: {error}");
                return verifier.note(path, what);
            }
            Err(error) => return verifier.problem(path, error.to_string(), DAMAGED),
        };
        let mut seen = BTreeSet::new();
        for entry in entries {
            let id = entry.producer_id;
            if !seen.insert(id) {
                verifier.problem(path, format!("names producer {id} twice"), WRONG);
            }
            if entry.last_offset >= offset {
                let what = format!(
                    "says that the last record of producer {id} is at offset {}, but it is as of offset {offset}",
                    entry.last_offset
                );
                verifier.problem(path, what, WRONG);
            }
            let same_offset = self.0.entry(entry.last_offset).or_default();
            same_offset.push((path.to_owned(), entry));
        }
    }

    /// A batch of the log: what snapshots say of the producer whose last record is its last one must fit it.
    pub(super) fn compare(&self, verifier: &mut Verifier<'_>, header: &BatchHeader) {
        let Some(told) = self.0.get(&header.last_offset()) else {
            return;
        };
        for (path, entry) in told {
            let (told, found) = (
                (entry.producer_id, entry.producer_epoch),
                (header.producer_id, header.producer_epoch),
            );
            if told != found {
                let what = format!(
                    "says that offset {} is of producer {} in epoch {}, but the log has it of producer {} in epoch {}",
                    entry.last_offset, told.0, told.1, found.0, found.1
                );
                verifier.problem(path, what, WRONG);
            }
        }
    }
}
