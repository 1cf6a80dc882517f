//! Whether the files of a log directory, or of one replica, are what they should be. Reads everything, writes nothing, and
//! says of each thing that is wrong what it means and what to do.

use std::fs;
use std::io;
use std::iter::{Enumerate, Peekable};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use crate::checkpoint::CheckpointKind;
use crate::cleaner::leftovers::COMPACTED;
use crate::epochs::EpochEntry;
use crate::error::LogError;
use crate::folder::{FolderState, PartitionFolder};
use crate::identity::{Identity, META_PROPERTIES, PARTITION_METADATA};
use crate::inspect::{self, FileKind, StoredBatches};
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name};

mod producers;

use producers::Producers;

/// What a reader of a verification learns, in the order in which it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// So many bytes were read since the last time.
    Read(u64),
    /// Odd, but as it may be: a tail that a kill left half-written, a replica set aside.
    Note {
        /// The file or folder.
        path: PathBuf,
        /// What is odd.
        what: String,
    },
    /// Wrong.
    Problem {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What it means and what to do.
        advice: &'static str,
    },
}

const DAMAGED_BATCHES: &str = "the broker drops what is behind it and fetches it anew while another replica is in sync; \
    if this is the only replica, restore the file from a copy, or delete the records up to the next intact segment";
const DAMAGED_INDEX: &str =
    "with the broker stopped, remove the file: it is made anew at the start";
const DAMAGED_EPOCHS: &str =
    "with the broker stopped, remove the file: it is made anew from all batches at the start";
const DAMAGED_CHECKPOINT: &str =
    "the broker ignores it, and after an unclean stop reads every log from its start";
const DAMAGED_IDENTITY: &str = "the broker leaves this directory out: restore the file from a copy";
const DAMAGED_TOPIC_ID: &str =
    "the broker sets the replica aside as a stray and fetches it anew from the leader";
const MISSING_SEGMENT: &str = "records are missing between two segments: after an unclean stop the broker drops the later \
    ones and fetches them anew; if this is the only replica, restore the missing file from a copy";
const UNREADABLE: &str = "check the disk";

/// Bytes that stand in all segments below a folder, for the progress.
pub fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let entries = entries.filter_map(Result::ok);
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) if entry.path().extension().is_some_and(|end| end == "log") => {
                metadata.len()
            }
            Ok(_) | Err(_) => 0,
        })
        .sum()
}

/// Verifies a log directory, except for the metadata log in it.
pub fn verify_directory(path: &Path, events: &mut dyn FnMut(Event)) {
    let mut verifier = Verifier { events };
    verifier.side_file(&path.join(META_PROPERTIES), DAMAGED_IDENTITY, |content| {
        Identity::parse(content).map(|_| ()).map_err(str::to_owned)
    });
    for kind in [
        CheckpointKind::RecoveryPoint,
        CheckpointKind::LogStart,
        CheckpointKind::HighWatermark,
    ] {
        verifier.side_file(
            &path.join(kind.file_name()),
            DAMAGED_CHECKPOINT,
            |content| known(inspect::checkpoint(content)),
        );
    }
    for (name, folder) in verifier.folders(path) {
        match PartitionFolder::parse(&name) {
            Some(PartitionFolder {
                state: FolderState::Live,
                ..
            }) => verifier.replica(&folder),
            Some(PartitionFolder {
                state: FolderState::Future(_) | FolderState::Whole(_),
                ..
            }) => {
                verifier.note(&folder, "a replica that is being moved to this directory");
                verifier.replica(&folder);
            }
            Some(PartitionFolder {
                state: FolderState::Stray(_),
                ..
            }) => {
                verifier.note(
                    &folder,
                    "a replica that the metadata did not know, kept aside",
                );
                verifier.replica(&folder);
            }
            Some(PartitionFolder {
                state: FolderState::Deleted(_),
                ..
            }) => verifier.note(
                &folder,
                "a deleted replica, whose files go at the next start",
            ),
            None if name == "__cluster_metadata" => {}
            None => verifier.note(&folder, "no replica's folder: the broker ignores it"),
        }
    }
}

/// Verifies the folder of one replica.
pub fn verify_replica(folder: &Path, events: &mut dyn FnMut(Event)) {
    Verifier { events }.replica(folder);
}

struct Verifier<'a> {
    events: &'a mut dyn FnMut(Event),
}

/// What the batches of one segment told.
struct Segment {
    end_offset: i64,
    /// Not known behind damage.
    latest_epoch: Option<i32>,
    /// Whether all of it could be read, so that it is known where the next one must start.
    is_whole: bool,
}

/// An index beside the batches that it tells of: a position and the offset there, or an offset and its timestamp.
struct IndexCheck {
    path: PathBuf,
    entries: Peekable<Enumerate<IntoIter<(i64, i64)>>>,
    wrong: Option<String>,
}

impl IndexCheck {
    /// The next batch. Entries between two batches, or with another value, are wrong.
    fn take(&mut self, key: i64, value: i64) {
        while let Some((number, (entry_key, entry_value))) = self
            .entries
            .next_if(|(_, (entry_key, _))| *entry_key <= key)
        {
            if (entry_key, entry_value) != (key, value) && self.wrong.is_none() {
                self.wrong = Some(format!(
                    "entry {number} ({entry_key}, {entry_value}) fits no batch of the log"
                ));
            }
        }
    }
}

impl Verifier<'_> {
    fn note(&mut self, path: &Path, what: impl Into<String>) {
        (self.events)(Event::Note {
            path: path.to_owned(),
            what: what.into(),
        });
    }

    fn problem(&mut self, path: &Path, what: impl Into<String>, advice: &'static str) {
        (self.events)(Event::Problem {
            path: path.to_owned(),
            what: what.into(),
            advice,
        });
    }

    /// A small file that need not be there.
    fn side_file(
        &mut self,
        path: &Path,
        advice: &'static str,
        check: impl FnOnce(&[u8]) -> Result<(), String>,
    ) {
        match fs::read(path) {
            Ok(content) => {
                if let Err(what) = check(&content) {
                    self.problem(path, what, advice);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.note(path, "is not there");
            }
            Err(error) => self.problem(path, error.to_string(), UNREADABLE),
        }
    }

    fn folders(&mut self, path: &Path) -> Vec<(String, PathBuf)> {
        self.names(path)
            .into_iter()
            .map(|name| (name.clone(), path.join(name)))
            .filter(|(_, path)| path.is_dir())
            .collect()
    }

    fn names(&mut self, path: &Path) -> Vec<String> {
        let names = fs::read_dir(path).and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<Vec<_>>>()
        });
        match names {
            Ok(mut names) => {
                names.sort();
                names
            }
            Err(error) => {
                self.problem(path, error.to_string(), UNREADABLE);
                Vec::new()
            }
        }
    }

    fn replica(&mut self, folder: &Path) {
        self.side_file(
            &folder.join(PARTITION_METADATA),
            DAMAGED_TOPIC_ID,
            |content| known(inspect::topic_id(content)),
        );
        let names = self.names(folder);
        let kinds = names.iter().map(|name| FileKind::of(&folder.join(name)));
        let bases: Vec<i64> = kinds
            .filter_map(|kind| match kind {
                Some(FileKind::Log(base_offset)) => Some(base_offset),
                _ => None,
            })
            .collect();
        if bases.is_empty() {
            self.note(folder, "holds no segment");
        }
        let epochs = self.epochs(folder);
        let producers = self.producers(folder, &names);
        let mut previous: Option<Segment> = None;
        for (position, base_offset) in bases.iter().enumerate() {
            let is_last = position + 1 == bases.len();
            if let Some(previous) = &previous
                && previous.is_whole
                && previous.end_offset != *base_offset
            {
                let path = folder.join(file_name(*base_offset, LOG_SUFFIX));
                let what = format!(
                    "starts at offset {base_offset}, but the segment before ends at {}",
                    previous.end_offset
                );
                self.problem(&path, what, MISSING_SEGMENT);
            }
            let latest_epoch = match &previous {
                None => Some(-1),
                Some(previous) => previous.latest_epoch.filter(|_| previous.is_whole),
            };
            let told = (epochs.as_slice(), &producers);
            let segment = self.segment(folder, *base_offset, is_last, latest_epoch, told);
            previous = Some(segment);
        }
        for name in &names {
            let path = folder.join(name);
            match FileKind::of(&path) {
                Some(FileKind::Index(base) | FileKind::TimeIndex(base))
                    if !bases.contains(&base) =>
                {
                    self.note(&path, "is an index without a segment");
                }
                Some(_) => {}
                None if name == COMPACTED => {}
                None if name.ends_with(".swap") => {
                    self.note(
                        &path,
                        "is of a cleaned segment: the next start ends its swap",
                    );
                }
                None if [".deleted", ".spare", ".tmp", ".cleaned"]
                    .iter()
                    .any(|end| name.ends_with(end)) =>
                {
                    self.note(&path, "is removed at the next start");
                }
                None => self.note(&path, "is no file of a replica: the broker ignores it"),
            }
        }
    }

    fn producers(&mut self, folder: &Path, names: &[String]) -> Producers {
        let mut producers = Producers::default();
        for path in names.iter().map(|name| folder.join(name)) {
            if let Some(FileKind::ProducerSnapshot(offset)) = FileKind::of(&path) {
                producers.read(self, &path, offset);
            }
        }
        producers
    }

    fn epochs(&mut self, folder: &Path) -> Vec<EpochEntry> {
        let path = folder.join("leader-epoch-checkpoint");
        let mut epochs = Vec::new();
        self.side_file(&path, DAMAGED_EPOCHS, |content| {
            let parsed = inspect::epochs(content);
            epochs = parsed.clone().unwrap_or_default();
            known(parsed)
        });
        epochs
    }

    /// Reads every batch of a segment; epochs and producers are what the files beside it tell.
    fn segment(
        &mut self,
        folder: &Path,
        base_offset: i64,
        is_last: bool,
        latest_epoch: Option<i32>,
        (epochs, producers): (&[EpochEntry], &Producers),
    ) -> Segment {
        let path = folder.join(file_name(base_offset, LOG_SUFFIX));
        let mut segment = Segment {
            end_offset: base_offset,
            latest_epoch,
            is_whole: true,
        };
        let index_path = folder.join(file_name(base_offset, INDEX_SUFFIX));
        let mut positions = self.index_check(index_path, |content| {
            let entries = inspect::offset_index(content);
            entries
                .map(|(relative, position)| {
                    (i64::from(position), base_offset + i64::from(relative))
                })
                .collect()
        });
        let time_path = folder.join(file_name(base_offset, TIME_INDEX_SUFFIX));
        let mut timestamps = self.index_check(time_path, |content| {
            let entries = inspect::time_index(content);
            entries
                .map(|(timestamp, relative)| (base_offset + i64::from(relative), timestamp))
                .collect()
        });
        let mut batches = match StoredBatches::open(&path) {
            Ok(batches) => batches,
            Err(error) => {
                self.problem(&path, error.to_string(), UNREADABLE);
                segment.is_whole = false;
                return segment;
            }
        };
        loop {
            let batch = match batches.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => {
                    self.bad_end(&path, is_last, &error);
                    segment.is_whole = false;
                    break;
                }
            };
            let header = batch.header;
            let wrong = if !batch.is_valid {
                Some("its checksum does not match")
            } else if header.base_offset < segment.end_offset {
                Some("its base offset goes back")
            } else if segment
                .latest_epoch
                .is_some_and(|latest| header.partition_leader_epoch < latest)
            {
                Some("its leader epoch goes back")
            } else {
                None
            };
            if let Some(wrong) = wrong {
                let what = format!(
                    "the batch at position {} (offsets {} to {}): {wrong}",
                    batch.position,
                    header.base_offset,
                    header.last_offset()
                );
                let error = LogError::corrupt(&path, what);
                self.bad_end(&path, is_last, &error);
                segment.is_whole = false;
                break;
            }
            let epoch = header.partition_leader_epoch;
            if segment.latest_epoch.is_some_and(|latest| epoch > latest) {
                self.check_epoch(folder, epochs, epoch, header.base_offset);
            }
            segment.latest_epoch = Some(epoch);
            segment.end_offset = header.last_offset() + 1;
            // Segments stay far below the reach of an i64.
            positions.take(batch.position as i64, header.last_offset());
            timestamps.take(header.last_offset(), header.max_timestamp);
            producers.compare(self, &header);
            (self.events)(Event::Read(header.total_length() as u64));
        }
        self.index_verdict(positions);
        self.index_verdict(timestamps);
        segment
    }

    /// Behind the last record of the newest segment anything may stand: a batch that a kill cut off, or what was in a file
    /// that was used before. Recovery cuts it off.
    fn bad_end(&mut self, path: &Path, is_last: bool, error: &LogError) {
        if is_last {
            let what = format!("its content ends here: {error}. Recovery cuts off what follows");
            self.note(path, what);
        } else {
            self.problem(path, error.to_string(), DAMAGED_BATCHES);
        }
    }

    /// An epoch that the checkpoint has, begins where the batches say. The newest ones need not be in it yet.
    fn check_epoch(&mut self, folder: &Path, epochs: &[EpochEntry], epoch: i32, base_offset: i64) {
        let Some(entry) = epochs.iter().find(|entry| entry.epoch == epoch) else {
            return;
        };
        // The first batches of an epoch may be gone with the log start.
        let first = epochs.first().map(|first| first.epoch);
        if entry.start_offset != base_offset && first != Some(epoch) {
            let path = folder.join("leader-epoch-checkpoint");
            let what = format!(
                "says that epoch {epoch} begins at {}, but its first batch is at {base_offset}",
                entry.start_offset
            );
            self.problem(&path, what, DAMAGED_EPOCHS);
        }
    }

    /// An index that is compared with the batches while these are read.
    fn index_check(
        &mut self,
        path: PathBuf,
        entries: impl FnOnce(&[u8]) -> Vec<(i64, i64)>,
    ) -> IndexCheck {
        let content = self.index(&path).unwrap_or_default();
        IndexCheck {
            path,
            entries: entries(&content).into_iter().enumerate().peekable(),
            wrong: None,
        }
    }

    fn index_verdict(&mut self, check: IndexCheck) {
        if let Some(what) = check.wrong {
            self.problem(&check.path, what, DAMAGED_INDEX);
        }
    }

    /// A missing index is an empty one.
    fn index(&mut self, path: &Path) -> Option<Vec<u8>> {
        match fs::read(path) {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.problem(path, error.to_string(), UNREADABLE);
                None
            }
        }
    }
}

fn known<T>(parsed: Option<T>) -> Result<(), String> {
    parsed
        .map(|_| ())
        .ok_or_else(|| "cannot be understood".to_owned())
}
