//! How a replica moves to another log directory: it is copied into a future replica there, which then takes its place.
//!
//! Each step is durable before the next, so that there is exactly one whole replica whenever the broker may stop:
//!
//! | there | here | what a start makes of it |
//! |---|---|---|
//! | `t-0` | `t-0.<id>-future` | `t-0` there is the replica, and the copy is gone on with |
//! | `t-0` | `t-0.<id>-whole` | the same; nothing was appended to either since both held the same |
//! | `t-0.<id>-delete` | `t-0.<id>-whole` | the copy is the replica, and gets its name |
//! | `t-0.<id>-delete` | `t-0` | what is there is removed |

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::LogDirectory;
use crate::config::LogConfig;
use crate::disk::Disk;
use crate::error::LogError;
use crate::folder::{FolderState, PartitionFolder};
use crate::log::Log;

impl<D: Disk> LogDirectory<D> {
    /// Makes an empty copy-to-be of a replica in another directory. Fails with `AlreadyExists` inside [`LogError::Io`] if its
    /// folder, or one of the name that it shall get, is there.
    pub fn create_future_log(
        &self,
        future: &PartitionFolder,
        topic_id: [u8; 16],
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<Log<D>, LogError> {
        self.check_online()?;
        let live = future.in_state(FolderState::Live);
        self.check_free(&live)
            .map_err(|error| LogError::io("create", &self.path().join(&live.name), error))?;
        let log = Log::create(self.clone(), future.clone(), topic_id, config, now_ms)?;
        self.state.partition_count.fetch_add(1, Ordering::Relaxed);
        Ok(log)
    }

    /// Renames a replica in use, or a copy, durably, to the very name of another such state.
    pub(crate) fn rename_in_use(
        &self,
        folder: &PartitionFolder,
        state: FolderState,
    ) -> Result<PartitionFolder, LogError> {
        self.check_online()?;
        let from = self.path().join(&folder.name);
        let renamed = folder.in_state(state);
        self.check_free(&renamed)
            .and_then(|()| {
                let to = self.path().join(&renamed.name);
                self.disk().rename(&from, &to)
            })
            .and_then(|()| self.disk().sync_dir(self.path()))
            .map_err(|error| LogError::io("rename", &from, error))?;
        Ok(renamed)
    }

    pub(crate) fn check_free(&self, folder: &PartitionFolder) -> io::Result<()> {
        match self.disk().list(&self.path().join(&folder.name)) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What is done at a start about copies that were about to take a replica's place when the broker stopped, before any log is
/// opened. With `all_usable` every log directory is among these: then a whole copy without a replica beside it is the
/// replica. Otherwise the replica may be in the one that is missing, and have gone on.
pub fn settle_swaps<D: Disk>(directories: &[LogDirectory<D>], all_usable: bool) {
    for directory in directories {
        if directory.offline().is_some() {
            continue;
        }
        if let Err(error) = settle_swaps_in(directory, directories, all_usable) {
            directory.mark_offline(&error.to_string());
        }
    }
}

fn settle_swaps_in<D: Disk>(
    directory: &LogDirectory<D>,
    directories: &[LogDirectory<D>],
    all_usable: bool,
) -> Result<(), LogError> {
    let folders = directory
        .folders()
        .map_err(|error| LogError::io("list", directory.path(), error))?;
    for folder in folders {
        let FolderState::Whole(id) = folder.state else {
            continue;
        };
        match has_live(directories, &folder, id) {
            Some(true) => {
                directory.rename_in_use(&folder, FolderState::Future(id))?;
            }
            Some(false) if all_usable => {
                let live = directory.rename_in_use(&folder, FolderState::Live)?;
                tracing::info!(
                    replica = live.name,
                    directory = %directory.path().display(),
                    "the replica was moved here when the broker stopped"
                );
            }
            Some(false) | None => tracing::warn!(
                copy = folder.name,
                directory = %directory.path().display(),
                "a replica that was being moved here is left as it is, for the log directory that it came from cannot be used"
            ),
        }
    }
    Ok(())
}

/// Whether one of the directories holds the replica of which a folder is a copy; `None` if one of them cannot be asked.
fn has_live<D: Disk>(
    directories: &[LogDirectory<D>],
    copy: &PartitionFolder,
    topic_id: [u8; 16],
) -> Option<bool> {
    let live = copy.in_state(FolderState::Live);
    let mut found = false;
    for directory in directories {
        if directory.offline().is_some() {
            return None;
        }
        match directory.topic_id(&live) {
            Ok(id) => found |= id == Some(topic_id),
            Err(error) => {
                directory.mark_offline(&format!("{} cannot be read: {error}", live.name));
                return None;
            }
        }
    }
    Some(found)
}
