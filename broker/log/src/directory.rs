//! One log directory: its identity and lock, its checkpoints, the replicas in it, and whether it still works.
//! It knows nothing of what the cluster says should be in it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::checkpoint::{
    CheckpointKind, Offsets, format_offsets, parse_offsets, read_if_present, replace,
};
use crate::clean_shutdown::{self, CleanShutdown};
use crate::config::LogConfig;
use crate::disk::{Disk, Space};
use crate::error::LogError;
use crate::folder::{FolderState, PartitionFolder};
use crate::identity::{self, Identity, META_PROPERTIES};
use crate::log::{Log, Recovered};
use crate::open_files::OpenFiles;
use crate::room::{Reserve, Room, RoomChange, RoomFor};

mod leaving;
mod moving;

pub use moving::settle_swaps;

const LOCK: &str = ".lock";

/// Why a log directory cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process holds the lock.
    #[error("{path} is in use by another broker")]
    InUse {
        /// The directory.
        path: String,
    },
    /// It belongs to another cluster or broker.
    #[error("{path} belongs to {what} {found}, not to {expected}")]
    Foreign {
        /// The directory.
        path: String,
        /// `cluster` or `broker`.
        what: &'static str,
        /// Whose it is.
        found: String,
        /// Who asked.
        expected: String,
    },
    /// Its identity file cannot be understood.
    #[error("{path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The file system failed.
    #[error("{path}: {source}")]
    Io {
        /// The directory.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A log directory in use. Clones are the same directory.
pub struct LogDirectory<D: Disk> {
    state: Arc<State<D>>,
}

struct State<D: Disk> {
    disk: D,
    path: PathBuf,
    identity: Identity,
    clean_shutdown: CleanShutdown,
    files: Arc<OpenFiles<D::File>>,
    partition_count: AtomicUsize,
    /// Folders in which nothing was, removed since the names were last made durable.
    removed_void: AtomicUsize,
    room: Room,
    offline: OnceLock<String>,
    /// Told once, when it goes offline.
    on_offline: OnceLock<Box<dyn Fn() + Send + Sync>>,
    checkpoints: Mutex<Checkpoints>,
    _lock: D::Lock,
}

/// What the next checkpoint files will say.
#[derive(Default)]
struct Checkpoints {
    recovery_points: Offsets,
    log_starts: Offsets,
    high_watermarks: Offsets,
    /// The recovery points as the file has them: truncation below one must be written before anything else happens.
    durable_recovery_points: Offsets,
}

impl<D: Disk> Clone for LogDirectory<D> {
    fn clone(&self) -> Self {
        LogDirectory {
            state: Arc::clone(&self.state),
        }
    }
}

impl<D: Disk> LogDirectory<D> {
    /// Takes the directory's lock, checks its identity (or gives it one, with `new_directory_id`, if it has none), takes
    /// the clean-shutdown marker away and loads the checkpoints. Replicas that were on their way out are removed, and
    /// strays in which nothing is. What moves between directories have left is for [`settle_swaps`], once all are open.
    pub fn open(
        disk: D,
        path: &Path,
        cluster_id: &str,
        node_id: i32,
        new_directory_id: [u8; 16],
        files: Arc<OpenFiles<D::File>>,
    ) -> Result<LogDirectory<D>, DirectoryError> {
        let failed = |source| DirectoryError::Io {
            path: path.display().to_string(),
            source,
        };
        create_durably(&disk, path).map_err(failed)?;
        let lock = disk
            .lock(&path.join(LOCK))
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => DirectoryError::InUse {
                    path: path.display().to_string(),
                },
                _ => failed(error),
            })?;
        let expected = Identity {
            cluster_id: cluster_id.to_owned(),
            node_id,
            directory_id: new_directory_id,
        };
        let identity = read_or_write_identity(&disk, path, expected)?;
        let clean_shutdown = clean_shutdown::take(&disk, path).map_err(failed)?;
        let checkpoints = Checkpoints::load(&disk, path).map_err(failed)?;
        let directory = LogDirectory {
            state: Arc::new(State {
                disk,
                path: path.to_owned(),
                identity,
                clean_shutdown,
                files,
                partition_count: AtomicUsize::new(0),
                removed_void: AtomicUsize::new(0),
                room: Room::default(),
                offline: OnceLock::new(),
                on_offline: OnceLock::new(),
                checkpoints: Mutex::new(checkpoints),
                _lock: lock,
            }),
        };
        let folders = directory.folders().map_err(failed)?;
        let in_use = folders.iter().filter(|folder| folder.state.is_in_use());
        directory
            .state
            .partition_count
            .store(in_use.count(), Ordering::Relaxed);
        for folder in &folders {
            match folder.state {
                FolderState::Live | FolderState::Future(_) | FolderState::Whole(_) => {}
                FolderState::Deleted(_) => directory
                    .disk()
                    .remove_dir_all(&path.join(&folder.name))
                    .map_err(failed)?,
                FolderState::Stray(_) => {
                    if let Err(error) = directory.remove_void(folder) {
                        tracing::warn!(stray = folder.name, %error, "a stray could not be looked into and is left as it is");
                    }
                }
            }
        }
        Ok(directory)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.state.path
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.state.identity
    }

    /// How the last broker left it.
    pub fn clean_shutdown(&self) -> CleanShutdown {
        self.state.clean_shutdown
    }

    /// How many replicas in use it holds, those that are being moved to it included.
    pub fn partition_count(&self) -> usize {
        self.state.partition_count.load(Ordering::Relaxed)
    }

    /// Room on its volume.
    pub fn space(&self) -> io::Result<Space> {
        self.disk().space(self.path())
    }

    /// Asks the volume how much room there is, of which `reserve` is kept free. To be called every second or so.
    pub fn measure_room(&self, reserve: Reserve) -> io::Result<Option<RoomChange>> {
        Ok(self.state.room.measured(self.space()?, reserve))
    }

    /// Whether so many bytes may be appended to its logs.
    pub fn has_room(&self, bytes: u64, what: RoomFor) -> bool {
        self.state.room.has(bytes, what)
    }

    /// Whether producers are refused for want of room.
    pub fn is_full(&self) -> bool {
        self.state.room.is_full()
    }

    /// Bytes that were usable when the volume was last asked, and how many of them are kept in reserve.
    pub fn measured_room(&self) -> (u64, u64) {
        (self.state.room.usable(), self.state.room.reserve())
    }

    pub(crate) fn room(&self) -> &Room {
        &self.state.room
    }

    /// Why it was taken out of use, if it was. It stays so until the broker restarts.
    pub fn offline(&self) -> Option<&str> {
        self.state.offline.get().map(String::as_str)
    }

    /// Takes it out of use. Logs in it do so themselves at their first failed write; only the first reason is kept.
    pub fn mark_offline(&self, reason: &str) {
        if self.state.offline.set(reason.to_owned()).is_ok() {
            tracing::error!(directory = %self.path().display(), reason, "log directory is offline");
            if let Some(listener) = self.state.on_offline.get() {
                listener();
            }
        }
    }

    /// Has `listener` called when the directory goes offline, from wherever that is noticed and with a log's lock held: it
    /// may only wake somebody. The first listener stays.
    pub fn on_offline(&self, listener: impl Fn() + Send + Sync + 'static) {
        if self.state.on_offline.set(Box::new(listener)).is_ok()
            && self.offline().is_some()
            && let Some(listener) = self.state.on_offline.get()
        {
            listener();
        }
    }

    /// The replicas in it, whatever their state, sorted by name.
    pub fn folders(&self) -> io::Result<Vec<PartitionFolder>> {
        let entries = self.disk().list(self.path())?;
        Ok(entries
            .iter()
            .filter(|entry| entry.is_dir)
            .filter_map(|entry| PartitionFolder::parse(&entry.name))
            .collect())
    }

    /// Whose data a folder holds; `None` if its `partition.metadata` is missing or unreadable.
    pub fn topic_id(&self, folder: &PartitionFolder) -> io::Result<Option<[u8; 16]>> {
        identity::read_topic_id(self.disk(), &self.path().join(&folder.name))
    }

    /// Makes a new, empty replica. Fails with `AlreadyExists` inside [`LogError::Io`] if its folder is there.
    pub fn create_log(
        &self,
        topic: &str,
        partition: i32,
        topic_id: [u8; 16],
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<Log<D>, LogError> {
        self.check_online()?;
        let log = Log::create(
            self.clone(),
            PartitionFolder::live(topic, partition),
            topic_id,
            config,
            now_ms,
        )?;
        self.state.partition_count.fetch_add(1, Ordering::Relaxed);
        Ok(log)
    }

    /// Opens a replica that is there: recovered from its recovery point unless the stop before was clean.
    pub fn open_log(
        &self,
        folder: &PartitionFolder,
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<(Log<D>, Recovered), LogError> {
        self.check_online()?;
        Log::open(self.clone(), folder.clone(), config, now_ms)
    }

    /// A checkpointed offset, as loaded at start or published since.
    pub fn checkpointed(&self, kind: CheckpointKind, topic: &str, partition: i32) -> Option<i64> {
        self.checkpoints()
            .of(kind)
            .get(&(topic.to_owned(), partition))
            .copied()
    }

    /// Notes an offset for the next [`LogDirectory::write_checkpoints`]. Logs publish their recovery points and log start
    /// offsets themselves; the high watermark comes from the caller.
    pub fn publish(&self, kind: CheckpointKind, topic: &str, partition: i32, offset: i64) {
        self.checkpoints()
            .of(kind)
            .insert((topic.to_owned(), partition), offset);
    }

    /// Writes all three checkpoint files, durably.
    pub fn write_checkpoints(&self) -> Result<(), LogError> {
        self.write_checkpoint(CheckpointKind::RecoveryPoint)?;
        self.write_checkpoint(CheckpointKind::LogStart)?;
        self.write_checkpoint(CheckpointKind::HighWatermark)
    }

    /// Writes one checkpoint file, durably.
    pub fn write_checkpoint(&self, kind: CheckpointKind) -> Result<(), LogError> {
        self.check_online()?;
        // The lock is held while writing, so that two writers cannot leave the older state behind.
        let mut checkpoints = self.checkpoints();
        let content = format_offsets(checkpoints.of(kind));
        let written = replace(
            self.disk(),
            self.path(),
            kind.file_name(),
            content.as_bytes(),
        );
        if let Err(error) = written {
            let error = LogError::io("write", &self.path().join(kind.file_name()), error);
            if !matches!(error, LogError::DiskFull { .. }) {
                self.mark_offline(&error.to_string());
            }
            return Err(error);
        }
        if kind == CheckpointKind::RecoveryPoint {
            checkpoints.durable_recovery_points = checkpoints.recovery_points.clone();
        }
        Ok(())
    }

    /// Writes the checkpoints and then the clean-shutdown marker: the last act, after every log was closed. `broker_epoch`
    /// is the epoch of the registration that ends.
    pub fn mark_clean_shutdown(&self, broker_epoch: i64) -> Result<(), LogError> {
        self.write_checkpoints()?;
        clean_shutdown::write(self.disk(), self.path(), broker_epoch)
            .map_err(|error| LogError::io("write the clean-shutdown marker in", self.path(), error))
    }

    pub(crate) fn disk(&self) -> &D {
        &self.state.disk
    }

    pub(crate) fn files(&self) -> &Arc<OpenFiles<D::File>> {
        &self.state.files
    }

    /// The recovery point that a crash now would find.
    pub(crate) fn durable_recovery_point(&self, topic: &str, partition: i32) -> Option<i64> {
        self.checkpoints()
            .durable_recovery_points
            .get(&(topic.to_owned(), partition))
            .copied()
    }

    pub(crate) fn check_online(&self) -> Result<(), LogError> {
        match self.offline() {
            None => Ok(()),
            Some(reason) => Err(LogError::Poisoned {
                reason: reason.to_owned(),
            }),
        }
    }

    fn checkpoints(&self) -> MutexGuard<'_, Checkpoints> {
        // Maps of numbers are whole after any panic.
        self.state
            .checkpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Disk> fmt::Debug for LogDirectory<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogDirectory")
            .field("path", &self.state.path)
            .finish_non_exhaustive()
    }
}

/// Which of several directories a new replica goes to: the first of those in use that hold the fewest replicas, whatever
/// their sizes (Kafka's rule). `None` if all are offline.
pub fn with_fewest_partitions<D: Disk>(directories: &[LogDirectory<D>]) -> Option<usize> {
    let counts = directories
        .iter()
        .map(|directory| (directory.partition_count(), directory.offline().is_some()));
    fewest(counts)
}

fn fewest(directories: impl Iterator<Item = (usize, bool)>) -> Option<usize> {
    let online = directories.enumerate().filter(|(_, (_, offline))| !offline);
    online
        .min_by_key(|(index, (count, _))| (*count, *index))
        .map(|(index, _)| index)
}

impl Checkpoints {
    fn load<D: Disk>(disk: &D, path: &Path) -> io::Result<Checkpoints> {
        let load = |kind: CheckpointKind| -> io::Result<Offsets> {
            let Some(content) = read_if_present(disk, &path.join(kind.file_name()))? else {
                return Ok(BTreeMap::new());
            };
            Ok(parse_offsets(&content).unwrap_or_else(|| {
                tracing::warn!(file = kind.file_name(), directory = %path.display(), "unreadable checkpoint is ignored");
                BTreeMap::new()
            }))
        };
        let recovery_points = load(CheckpointKind::RecoveryPoint)?;
        Ok(Checkpoints {
            durable_recovery_points: recovery_points.clone(),
            recovery_points,
            log_starts: load(CheckpointKind::LogStart)?,
            high_watermarks: load(CheckpointKind::HighWatermark)?,
        })
    }

    fn of(&mut self, kind: CheckpointKind) -> &mut Offsets {
        match kind {
            CheckpointKind::RecoveryPoint => &mut self.recovery_points,
            CheckpointKind::LogStart => &mut self.log_starts,
            CheckpointKind::HighWatermark => &mut self.high_watermarks,
        }
    }

    fn forget(&mut self, key: &(String, i32)) {
        for kind in [
            CheckpointKind::RecoveryPoint,
            CheckpointKind::LogStart,
            CheckpointKind::HighWatermark,
        ] {
            self.of(kind).remove(key);
        }
    }
}

/// Creates the directory. Each folder that was missing is made durable in its parent: a broker that lost its directory
/// with the power would take it for a new one, and vote as if it never had.
fn create_durably<D: Disk>(disk: &D, path: &Path) -> io::Result<()> {
    let is_missing = |folder: &&Path| {
        let listed = disk.list(folder);
        listed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    disk.create_dir_all(path)?;
    for parent in missing.iter().filter_map(|folder| folder.parent()) {
        let is_here = parent.as_os_str().is_empty();
        disk.sync_dir(if is_here { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// The identity of a directory that no `LogDirectory` is opened for: one that holds the metadata log alone. It is made if it is
/// missing, and given an identity, with `new_directory_id`, if it has none.
pub fn identify_directory<D: Disk>(
    disk: &D,
    path: &Path,
    cluster_id: &str,
    node_id: i32,
    new_directory_id: [u8; 16],
) -> Result<Identity, DirectoryError> {
    create_durably(disk, path).map_err(|source| DirectoryError::Io {
        path: path.display().to_string(),
        source,
    })?;
    let expected = Identity {
        cluster_id: cluster_id.to_owned(),
        node_id,
        directory_id: new_directory_id,
    };
    read_or_write_identity(disk, path, expected)
}

fn read_or_write_identity<D: Disk>(
    disk: &D,
    path: &Path,
    expected: Identity,
) -> Result<Identity, DirectoryError> {
    let file = path.join(META_PROPERTIES);
    let failed = |source| DirectoryError::Io {
        path: file.display().to_string(),
        source,
    };
    let Some(content) = read_if_present(disk, &file).map_err(failed)? else {
        replace(disk, path, META_PROPERTIES, expected.format().as_bytes()).map_err(failed)?;
        return Ok(expected);
    };
    let found = Identity::parse(&content).map_err(|reason| DirectoryError::Unreadable {
        path: file.display().to_string(),
        reason,
    })?;
    let foreign = |what, found: &dyn ToString, expected: &dyn ToString| DirectoryError::Foreign {
        path: path.display().to_string(),
        what,
        found: found.to_string(),
        expected: expected.to_string(),
    };
    if found.cluster_id != expected.cluster_id {
        return Err(foreign("cluster", &found.cluster_id, &expected.cluster_id));
    }
    if found.node_id != expected.node_id {
        return Err(foreign("broker", &found.node_id, &expected.node_id));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_replica_goes_where_the_fewest_are() {
        let check = |directories: &[(usize, bool)], expected: Option<usize>| {
            assert_eq!(
                fewest(directories.iter().copied()),
                expected,
                "{directories:?}"
            );
        };
        check(&[], None);
        check(&[(3, false)], Some(0));
        check(&[(3, false), (2, false), (2, false)], Some(1));
        check(&[(3, false), (0, true)], Some(0));
        check(&[(0, true)], None);
    }
}
