//! How replicas leave a log directory: renamed and kept, renamed and removed, or removed at once because nothing is in them.

use std::io;
use std::sync::atomic::Ordering;

use super::LogDirectory;
use crate::disk::Disk;
use crate::error::LogError;
use crate::folder::{FolderState, PartitionFolder};

impl<D: Disk> LogDirectory<D> {
    /// Renames a replica that the metadata does not know and keeps it. Close its log before.
    pub fn mark_stray(&self, folder: &PartitionFolder) -> Result<PartitionFolder, LogError> {
        self.rename_folder(folder, FolderState::Stray)
    }

    /// Renames a replica that a committed deletion named; [`LogDirectory::remove`] then frees its room, which may take
    /// long. Its log may still be read by those who hold ranges of it, and is not used otherwise.
    pub fn mark_deleted(&self, folder: &PartitionFolder) -> Result<PartitionFolder, LogError> {
        self.rename_folder(folder, FolderState::Deleted)
    }

    /// Removes the files of a replica that was marked deleted.
    pub fn remove(&self, deleted: &PartitionFolder) -> Result<(), LogError> {
        let path = self.path().join(&deleted.name);
        if !matches!(deleted.state, FolderState::Deleted(_)) {
            return Err(LogError::corrupt(
                &path,
                "only a replica that is marked deleted may be removed",
            ));
        }
        self.disk()
            .remove_dir_all(&path)
            .map_err(|error| LogError::io("remove", &path, error))
    }

    /// Removes the folder of a replica in which nothing is: no readable topic id and not a byte in any file. Each loss of
    /// power may leave one, of a replica that nothing was flushed of. `false` if there is anything in it, or if it
    /// is in use and had durable records, whose loss is to be told: then it stays. Not for one whose log is open.
    ///
    /// What is removed may be there again after a loss of power, until [`LogDirectory::sync_removed`].
    pub fn remove_void(&self, folder: &PartitionFolder) -> Result<bool, LogError> {
        self.check_online()?;
        let path = self.path().join(&folder.name);
        if !self
            .is_void(folder)
            .map_err(|error| LogError::io("read", &path, error))?
        {
            return Ok(false);
        }
        self.disk()
            .remove_dir_all(&path)
            .map_err(|error| LogError::io("remove", &path, error))?;
        self.state.removed_void.fetch_add(1, Ordering::Relaxed);
        if folder.state.is_in_use() {
            self.forget(folder);
        }
        Ok(true)
    }

    /// Makes durable that folders were removed by [`LogDirectory::remove_void`], or as empty strays when the directory was
    /// opened. Gives how many there were since the last call.
    pub fn sync_removed(&self) -> Result<usize, LogError> {
        self.check_online()?;
        let removed = self.state.removed_void.swap(0, Ordering::Relaxed);
        if removed > 0 {
            self.disk()
                .sync_dir(self.path())
                .map_err(|error| LogError::io("fsync", self.path(), error))?;
        }
        Ok(removed)
    }

    fn is_void(&self, folder: &PartitionFolder) -> io::Result<bool> {
        if self.topic_id(folder)?.is_some() {
            return Ok(false);
        }
        let durable = self.durable_recovery_point(&folder.topic, folder.partition);
        if folder.state == FolderState::Live && durable.is_some_and(|offset| offset > 0) {
            return Ok(false);
        }
        let entries = self.disk().list(&self.path().join(&folder.name))?;
        Ok(entries
            .iter()
            .all(|entry| !entry.is_dir && entry.length == 0))
    }

    fn rename_folder(
        &self,
        folder: &PartitionFolder,
        state: impl Fn([u8; 16]) -> FolderState,
    ) -> Result<PartitionFolder, LogError> {
        self.check_online()?;
        let from = self.path().join(&folder.name);
        let failed = |error| LogError::io("rename", &from, error);
        let topic_id = match folder.state {
            FolderState::Live => self.topic_id(folder).map_err(failed)?,
            FolderState::Future(id)
            | FolderState::Whole(id)
            | FolderState::Stray(id)
            | FolderState::Deleted(id) => Some(id),
        };
        let renamed = self.free_name(folder, topic_id, &state).map_err(failed)?;
        self.disk()
            .rename(&from, &self.path().join(&renamed.name))
            .map_err(failed)?;
        self.disk().sync_dir(self.path()).map_err(failed)?;
        if folder.state.is_in_use() {
            self.forget(folder);
        }
        Ok(renamed)
    }

    /// A name that no folder has: with its topic id, or with a small number, which is the id of none, if it has no readable
    /// one or was set aside before and came back.
    fn free_name(
        &self,
        folder: &PartitionFolder,
        topic_id: Option<[u8; 16]>,
        state: &impl Fn([u8; 16]) -> FolderState,
    ) -> io::Result<PartitionFolder> {
        let numbers = (0..=u128::MAX).map(u128::to_be_bytes);
        for id in topic_id.into_iter().chain(numbers) {
            let renamed = folder.in_state(state(id));
            match self.disk().list(&self.path().join(&renamed.name)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(renamed),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// One that was in use is here no more.
    fn forget(&self, folder: &PartitionFolder) {
        self.state.partition_count.fetch_sub(1, Ordering::Relaxed);
        self.checkpoints()
            .forget(&(folder.topic.clone(), folder.partition));
    }
}
