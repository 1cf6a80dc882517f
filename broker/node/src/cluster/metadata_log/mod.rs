//! What Raft must not forget, on disk (`../FORMAT.md`): hard state, entries, snapshots.
//! Every write is fsynced before it returns; the first one that fails poisons the log. It never treats a damaged
//! log as an empty one: a voter that forgot its vote or an entry could lose what the quorum committed.

mod describe;
mod frame;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use taffrail_core::ids::BrokerId;
use taffrail_core::raft::{Entry, HardState, Persist, Persisted, Snapshot};
use taffrail_log::{Disk, DiskFile};
use thiserror::Error;

pub(crate) use describe::{describe_metadata_file, metadata_file_index};
use frame::{FormatError, Header, Scan};

pub(super) use frame::{seeds, try_bytes};

/// The folder of the metadata log in a log directory. It has no partition number behind it, as the folders of replicas
/// have, so that it is never taken for one.
pub(crate) const FOLDER: &str = "__cluster_metadata";

/// What to do about a metadata log that cannot be read.
pub(crate) const DAMAGED_ADVICE: &str = "While all other voters run, move the folder __cluster_metadata away and start this \
    broker again: its log is then restored from theirs. A single voter has nobody to restore it from: bring a copy of the \
    folder back. `taffrail-broker dump-log` prints what can be read of its files";

/// Why the metadata log could not be opened or written.
#[derive(Debug, Error)]
pub(crate) enum MetadataLogError {
    #[error("metadata log {path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("metadata log {path} cannot be used: {source}. {advice}", advice = DAMAGED_ADVICE)]
    Damaged { path: String, source: FormatError },
    #[error(
        "metadata log {path} belongs to broker {found}, this is broker {expected}: correct node.id or log.dirs"
    )]
    OtherBroker {
        path: String,
        found: i32,
        expected: i32,
    },
    #[error("the metadata log had a write error before and takes no more")]
    Poisoned,
    #[error("there is no room for the metadata log {path}")]
    Full { path: String },
}

/// The open metadata log.
pub(crate) struct MetadataLog<D: Disk> {
    disk: D,
    folder: PathBuf,
    broker_id: i32,
    file: D::File,
    path: PathBuf,
    /// Where the next frame goes, in bytes.
    position: u64,
    sequence: u64,
    hard_state: HardState,
    founders: Vec<BrokerId>,
    poisoned: bool,
}

impl<D: Disk> MetadataLog<D> {
    /// Whether `folder` holds a metadata log. A folder that cannot be listed is an error, never taken for an empty one.
    pub(crate) fn exists(disk: &D, folder: &Path) -> Result<bool, MetadataLogError> {
        let is_part = |name: &str| {
            parse_name(name, "log")
                .or(parse_name(name, "snapshot"))
                .is_some()
        };
        match disk.list(folder) {
            Ok(files) => Ok(files.iter().any(|file| is_part(&file.name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(MetadataLogError::Io {
                path: folder.display().to_string(),
                source,
            }),
        }
    }

    /// Opens the log in `folder`, or creates an empty one where there is none; cuts a torn tail. `founders` are for a log that is
    /// empty: once anything is in it, it has its own.
    pub(crate) fn open(
        disk: &D,
        folder: &Path,
        broker_id: i32,
        founders: &[BrokerId],
    ) -> Result<(Self, Persisted), MetadataLogError> {
        let io_error = |source| MetadataLogError::Io {
            path: folder.display().to_string(),
            source,
        };
        if !Self::exists(disk, folder)? {
            return Self::create(disk, folder, broker_id, founders)
                .map(|log| (log, Persisted::default()));
        }
        let files = disk.list(folder).map_err(io_error)?;
        let newest = files
            .iter()
            .filter_map(|file| parse_name(&file.name, "log"))
            .max();
        let Some(snapshot_index) = newest else {
            return Err(damaged(folder, FormatError::Short));
        };
        let path = log_path(folder, snapshot_index);
        let snapshot = Self::read_snapshot(disk, folder, snapshot_index)?;
        let bytes = disk.read(&path).map_err(|source| MetadataLogError::Io {
            path: path.display().to_string(),
            source,
        })?;
        let scan = frame::scan(&bytes).map_err(|error| damaged(&path, error))?;
        check_identity(&path, &scan, broker_id, snapshot_index)?;
        if snapshot_index == 0 && scan.next_sequence == 0 && scan.header.founders != founders {
            return Self::create(disk, folder, broker_id, founders)
                .map(|log| (log, Persisted::default()));
        }
        let file = disk.open(&path).map_err(io_error)?;
        settle_tail(&file, &path, &scan, bytes.len()).map_err(io_error)?;
        for file in files
            .iter()
            .filter(|file| !file.is_dir && is_leftover(&file.name, snapshot_index))
        {
            disk.remove_file(&folder.join(&file.name))
                .map_err(io_error)?;
        }
        let log = Self {
            disk: disk.clone(),
            folder: folder.to_owned(),
            broker_id,
            file,
            path,
            position: scan.end as u64,
            sequence: scan.next_sequence,
            hard_state: scan.hard_state.unwrap_or_default(),
            founders: scan.header.founders,
            poisoned: false,
        };
        let entries = scan
            .entries
            .into_iter()
            .filter(|entry| entry.index > snapshot_index)
            .collect();
        Ok((
            log,
            Persisted {
                hard_state: scan.hard_state.unwrap_or_default(),
                snapshot,
                entries,
            },
        ))
    }

    fn create(
        disk: &D,
        folder: &Path,
        broker_id: i32,
        founders: &[BrokerId],
    ) -> Result<Self, MetadataLogError> {
        let io_error = |source| MetadataLogError::Io {
            path: folder.display().to_string(),
            source,
        };
        disk.create_dir_all(folder).map_err(io_error)?;
        if let Some(parent) = folder.parent() {
            disk.sync_dir(parent).map_err(io_error)?;
        }
        let header = Header {
            broker_id,
            snapshot_index: 0,
            snapshot_term: 0,
            founders: founders.to_vec(),
        };
        let path = log_path(folder, 0);
        let bytes = frame::encode_header(&header);
        let file = write_whole(disk, folder, &path, &bytes).map_err(io_error)?;
        Ok(Self {
            disk: disk.clone(),
            folder: folder.to_owned(),
            broker_id,
            file,
            path,
            position: bytes.len() as u64,
            sequence: 0,
            hard_state: HardState::default(),
            founders: header.founders,
            poisoned: false,
        })
    }

    fn read_snapshot(
        disk: &D,
        folder: &Path,
        index: u64,
    ) -> Result<Option<Snapshot>, MetadataLogError> {
        if index == 0 {
            return Ok(None);
        }
        let path = snapshot_path(folder, index);
        let bytes = disk.read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => damaged(&path, FormatError::Missing),
            _ => MetadataLogError::Io {
                path: path.display().to_string(),
                source,
            },
        })?;
        let snapshot = frame::decode_snapshot(&bytes).map_err(|error| damaged(&path, error))?;
        if snapshot.index == index {
            Ok(Some(snapshot))
        } else {
            Err(damaged(&path, FormatError::Magic))
        }
    }

    /// Writes what Raft asks for and fsyncs it. A commit index alone is only remembered: the next write carries it.
    pub(crate) fn persist(&mut self, persist: &Persist) -> Result<(), MetadataLogError> {
        if let Some(hard_state) = persist.hard_state {
            self.hard_state = hard_state;
        }
        if let Some(snapshot) = &persist.snapshot {
            self.begin_at_snapshot(snapshot, &persist.entries)
        } else if persist.must_sync || !persist.entries.is_empty() {
            self.append(&persist.entries)
        } else {
            Ok(())
        }
    }

    /// One frame with the hard state.
    fn append(&mut self, entries: &[Entry]) -> Result<(), MetadataLogError> {
        let mut bytes = Vec::new();
        frame::encode_frame(&mut bytes, self.sequence, self.hard_state, entries);
        self.guarded(|log| match log.file.write_all_at(&bytes, log.position) {
            // Nothing of it counts before the fsync: what was written is cut off, and it can be tried again.
            Err(error) if is_full(&error) => {
                log.file.set_length(log.position)?;
                Ok(Err(log.full()))
            }
            written => written.and_then(|()| log.file.sync()).map(Ok),
        })??;
        self.position += bytes.len() as u64;
        self.mark()?;
        self.sequence += 1;
        Ok(())
    }

    /// Writes behind the last frame, which is durable, that it is. Nobody waits for the mark: it only tells damage from a torn
    /// write, and where there is no room for it the next start takes the frame without.
    fn mark(&mut self) -> Result<(), MetadataLogError> {
        let mark = frame::encode_mark(self.sequence);
        self.guarded(|log| match log.file.write_all_at(&mark, log.position) {
            Err(error) if is_full(&error) => Ok(()),
            written => written,
        })?;
        self.position += frame::MARK_SIZE as u64;
        Ok(())
    }

    /// Writes a snapshot and begins a new file with the hard state and the entries that are still needed, those
    /// behind the snapshot. The old files are removed once the new ones are durable.
    fn begin_at_snapshot(
        &mut self,
        snapshot: &Snapshot,
        entries: &[Entry],
    ) -> Result<(), MetadataLogError> {
        let header = Header {
            broker_id: self.broker_id,
            snapshot_index: snapshot.index,
            snapshot_term: snapshot.term,
            founders: Vec::new(),
        };
        let mut bytes = frame::encode_header(&header);
        frame::encode_frame(&mut bytes, 0, self.hard_state, entries);
        // The file appears as a whole, once it is durable.
        bytes.extend_from_slice(&frame::encode_mark(0));
        let path = log_path(&self.folder, snapshot.index);
        let same_file = path == self.path;
        let file = self.guarded(|log| {
            let bytes_of_snapshot = frame::encode_snapshot(snapshot);
            let written = write_whole(
                &log.disk,
                &log.folder,
                &snapshot_path(&log.folder, snapshot.index),
                &bytes_of_snapshot,
            )
            .and_then(|_| write_whole(&log.disk, &log.folder, &path, &bytes));
            match written {
                // The old files are as they were; a snapshot without its log is removed by the next one or the next start.
                Err(error) if is_full(&error) => Ok(Err(log.full())),
                written => written.map(Ok),
            }
        })??;
        let old = std::mem::replace(&mut self.path, path);
        self.file = file;
        self.position = bytes.len() as u64;
        self.sequence = 1;
        if !same_file {
            self.remove_old(&old);
        }
        Ok(())
    }

    /// Replaces everything up to a snapshot of our own by it; the entries behind it stay.
    pub(crate) fn compact(&mut self, snapshot: &Snapshot) -> Result<(), MetadataLogError> {
        let bytes = self
            .disk
            .read(&self.path)
            .map_err(|source| MetadataLogError::Io {
                path: self.path.display().to_string(),
                source,
            })?;
        let scan = frame::scan(&bytes).map_err(|error| damaged(&self.path, error))?;
        let behind: Vec<Entry> = scan
            .entries
            .into_iter()
            .filter(|entry| entry.index > snapshot.index)
            .collect();
        self.begin_at_snapshot(snapshot, &behind)
    }

    /// Old files only waste room; the next start removes what could not be removed now.
    fn remove_old(&self, log: &Path) {
        let snapshot = log.with_extension("snapshot");
        for path in [log, &snapshot] {
            match self.disk.remove_file(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "an old metadata file stays")
                }
            }
        }
    }

    /// Who votes in a quorum that has no snapshot yet.
    pub(crate) fn founders(&self) -> &[BrokerId] {
        &self.founders
    }

    /// Bytes that were written since the last snapshot.
    pub(crate) fn bytes_since_snapshot(&self) -> u64 {
        self.position
    }

    fn full(&self) -> MetadataLogError {
        MetadataLogError::Full {
            path: self.path.display().to_string(),
        }
    }

    /// After a failed write nobody knows what is on the disk: nothing is written again until the next start reads it.
    fn guarded<R>(
        &mut self,
        write: impl FnOnce(&mut Self) -> io::Result<R>,
    ) -> Result<R, MetadataLogError> {
        if self.poisoned {
            return Err(MetadataLogError::Poisoned);
        }
        write(self).map_err(|source| {
            self.poisoned = true;
            MetadataLogError::Io {
                path: self.path.display().to_string(),
                source,
            }
        })
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Makes the end of the file what was read: cuts what a crash left unfinished, and makes the last frame durable and marks it,
/// for a process that was killed between its write and its fsync acknowledged nothing of it.
fn settle_tail(file: &impl DiskFile, path: &Path, scan: &Scan, length: usize) -> io::Result<()> {
    if scan.end < length {
        tracing::warn!(path = %path.display(), bytes = length - scan.end, "cut the torn tail of the metadata log");
        file.set_length(scan.end as u64)?;
        file.sync()?;
    } else if !scan.marked {
        file.sync()?;
    }
    match scan.next_sequence.checked_sub(1) {
        Some(last) if !scan.marked => {
            let mark = frame::encode_mark(last);
            match file.write_all_at(&mark, (scan.end - frame::MARK_SIZE) as u64) {
                Err(error) if is_full(&error) => Ok(()),
                written => written,
            }
        }
        Some(_) | None => Ok(()),
    }
}

fn check_identity(
    path: &Path,
    scan: &Scan,
    broker_id: i32,
    snapshot_index: u64,
) -> Result<(), MetadataLogError> {
    if scan.header.broker_id != broker_id {
        return Err(MetadataLogError::OtherBroker {
            path: path.display().to_string(),
            found: scan.header.broker_id,
            expected: broker_id,
        });
    }
    if scan.header.snapshot_index != snapshot_index {
        return Err(damaged(path, FormatError::Magic));
    }
    Ok(())
}

fn damaged(path: &Path, error: FormatError) -> MetadataLogError {
    MetadataLogError::Damaged {
        path: path.display().to_string(),
        source: error,
    }
}

/// Writes a file so that after a crash it is there whole or not at all.
fn write_whole<D: Disk>(disk: &D, folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<D::File> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    match disk.remove_file(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = disk.create(&temporary)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    drop(file);
    disk.rename(&temporary, path)?;
    disk.sync_dir(folder)?;
    disk.open(path)
}

fn log_path(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("{index:020}.log"))
}

fn snapshot_path(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("{index:020}.snapshot"))
}

/// The index in a file name of this kind.
fn parse_name(name: &str, extension: &str) -> Option<u64> {
    let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
    (stem.len() == 20).then(|| stem.parse().ok()).flatten()
}

/// Whether a file is of no use beside the log that begins at `snapshot_index`.
fn is_leftover(name: &str, snapshot_index: u64) -> bool {
    let other =
        |extension| parse_name(name, extension).is_some_and(|index| index != snapshot_index);
    name.ends_with(".tmp") || other("log") || other("snapshot")
}
