//! A disk in memory that forgets: what was not fsynced is lost in part when the machine crashes, page by page and name by
//! name, as the seed decides. Failures can be put in its way. The same seed and the same calls give the same bytes.
//!
//! What the model grants, and no more:
//! - A file's fsync makes its content and length durable, but not its name; a folder's fsync makes its names durable.
//! - Names of one folder reach the disk in the order of the calls; folders know nothing of each other.
//! - Of a file, any page (4 KiB) that was written since the last fsync may be old, new, or zeros if it is new.
//! - What a failed fsync did not write is never written, also not by a later one that succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use taffrail_log::{DirEntry, Disk, DiskFile, Space};

use crate::random::Random;
use crate::trace;
use inode::{File, Folder, NameChange};
use trouble::AMPLE;

mod inode;
mod trouble;

const ROOT: u64 = 0;

/// A disk; clones are the same one.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// An open file. After a crash or kill of its machine every call on it fails.
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
    generation: u64,
    path: PathBuf,
}

/// A held lock file.
pub struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    generation: u64,
}

/// A kind of call that may be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Opening or creating a file.
    Open,
    /// Reading from a file.
    Read,
    /// Writing to a file; some of the bytes get there.
    Write,
    /// Fsync of a file; what it should have written never gets to the disk.
    Sync,
    /// Renaming, removing, cutting, or fsync of a folder.
    Change,
}

/// A failure to come.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which calls.
    pub call: Call,
    /// Only those on paths that contain this.
    pub path_contains: String,
    /// How they fail.
    pub kind: io::ErrorKind,
    /// How many calls succeed before the first failure.
    pub after: u64,
    /// How many calls fail then.
    pub times: u64,
}

struct State {
    random: Random,
    next_inode: u64,
    /// Counts crashes and kills; files and locks of an earlier generation are dead.
    generation: u64,
    inodes: BTreeMap<u64, Inode>,
    locks: BTreeSet<PathBuf>,
    faults: Vec<Fault>,
    capacity: u64,
    /// Bytes that changed by themselves and are still so: files and positions.
    rot: BTreeSet<(u64, usize)>,
    /// Injected failures that came so far.
    failures: u64,
    /// Name changes since files without a name were last looked for.
    changes: u32,
}

/// Name changes after which files that nobody can reach any more give their memory back.
const CHANGES_MAX: u32 = 1000;

enum Inode {
    File(File),
    Folder(Folder),
}

impl SimDisk {
    /// An empty disk of a terabyte.
    pub fn new(seed: u64) -> SimDisk {
        let mut inodes = BTreeMap::new();
        inodes.insert(ROOT, Inode::Folder(Folder::default()));
        let state = State {
            random: Random::new(seed),
            next_inode: ROOT + 1,
            generation: 0,
            inodes,
            locks: BTreeSet::new(),
            faults: Vec::new(),
            capacity: AMPLE,
            rot: BTreeSet::new(),
            failures: 0,
            changes: 0,
        };
        SimDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The machine loses power: what was not fsynced is lost in part. Open files and locks are gone.
    pub fn crash(&self) {
        let mut state = self.state();
        state.end_process();
        let State { inodes, random, .. } = &mut *state;
        for inode in inodes.values_mut() {
            match inode {
                Inode::File(file) => file.crash(random),
                Inode::Folder(folder) => folder.crash(random),
            }
        }
        state.drop_unreachable();
    }

    /// The process is killed: everything written stays. Open files and locks are gone.
    pub fn kill(&self) {
        self.state().end_process();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a test that holds it makes the disk no worse.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, state: &mut State, inode: u64, path: &Path) -> io::Result<SimFile> {
        state.file(inode)?.handles += 1;
        Ok(SimFile {
            disk: self.clone(),
            inode,
            generation: state.generation,
            path: path.to_owned(),
        })
    }
}

impl Disk for SimDisk {
    type File = SimFile;
    type Lock = SimLock;

    fn open(&self, path: &Path) -> io::Result<SimFile> {
        let mut state = self.state();
        state.fail_if_due(Call::Open, path)?;
        let inode = state.resolve(path)?;
        self.opened(&mut state, inode, path)
    }

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let mut state = self.state();
        state.fail_if_due(Call::Open, path)?;
        let inode = state.insert(path, Inode::File(File::default()))?;
        self.opened(&mut state, inode, path)
    }

    fn lock(&self, path: &Path) -> io::Result<SimLock> {
        let mut state = self.state();
        if state.resolve(path).is_err() {
            state.insert(path, Inode::File(File::default()))?;
        }
        if state.locks.contains(path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locks.insert(path.to_owned());
        Ok(SimLock {
            disk: self.clone(),
            path: path.to_owned(),
            generation: state.generation,
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let mut so_far = PathBuf::new();
        for component in path.components() {
            so_far.push(component);
            if state.resolve(&so_far).is_err() {
                state.insert(&so_far, Inode::Folder(Folder::default()))?;
            }
        }
        let inode = state.resolve(path)?;
        state.folder(inode).map(|_| ())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.fail_if_due(Call::Change, from)?;
        let inode = state.resolve(from)?;
        let (from_folder, from_name) = state.parent(from)?;
        let (to_folder, to_name) = state.parent(to)?;
        if from_folder == to_folder {
            state.change(from_folder, NameChange::Rename(from_name, to_name))?;
        } else {
            state.change(to_folder, NameChange::Insert(to_name, inode))?;
            state.change(from_folder, NameChange::Remove(from_name))?;
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.fail_if_due(Call::Change, path)?;
        let inode = state.resolve(path)?;
        state.file(inode)?;
        let (folder, name) = state.parent(path)?;
        state.change(folder, NameChange::Remove(name))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.fail_if_due(Call::Change, path)?;
        let inode = state.resolve(path)?;
        state.folder(inode)?;
        let (folder, name) = state.parent(path)?;
        state.change(folder, NameChange::Remove(name))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.fail_if_due(Call::Change, path)?;
        let inode = state.resolve(path)?;
        let folder = state.folder(inode)?;
        folder.durable = folder.names.clone();
        folder.journal.clear();
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.state();
        let inode = state.resolve(path)?;
        let names = state.folder(inode)?.names.clone();
        let entries = names.into_iter().map(|(name, inode)| {
            let (is_dir, length) = match state.inodes.get(&inode) {
                Some(Inode::File(file)) => (false, file.content.len() as u64),
                Some(Inode::Folder(_)) | None => (true, 0),
            };
            DirEntry {
                name,
                is_dir,
                length,
            }
        });
        Ok(entries.collect())
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let state = self.state();
        Ok(Space {
            total: state.capacity,
            usable: state.room(),
        })
    }
}

impl SimFile {
    /// The disk's state, unless this file's process is gone.
    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.generation == self.generation {
            Ok(state)
        } else {
            Err(io::Error::other(
                "the process that opened this file is gone",
            ))
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.alive()?;
        trace::note((Call::Read, self.inode, position, buffer.len()));
        state.fail_if_due(Call::Read, &self.path)?;
        let content = &state.file(self.inode)?.content;
        let start = usize::try_from(position)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let read = buffer.len().min(content.len() - start);
        buffer[..read].copy_from_slice(&content[start..start + read]);
        Ok(read)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.alive()?;
        trace::note((Call::Write, self.inode, position, bytes));
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let failed = state.fail_if_due(Call::Write, &self.path);
        let length = state.file(self.inode)?.content.len();
        let growth = (start + bytes.len()).saturating_sub(length) as u64;
        let room = state.room();
        let result = match failed {
            Ok(()) if growth > room => Err(io::ErrorKind::StorageFull.into()),
            result => result,
        };
        // Of a write that fails, some bytes may be there.
        let written = match &result {
            Ok(()) => bytes.len(),
            Err(_) => {
                let there_is = (length as u64).saturating_add(room);
                let fits = usize::try_from(there_is).unwrap_or(usize::MAX);
                let fits = fits.saturating_sub(start).min(bytes.len());
                state.random.index_below(fits + 1)
            }
        };
        state.file(self.inode)?.write(&bytes[..written], start);
        state.mend(self.inode, start..start + written);
        result
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.alive()?.file(self.inode)?.content.len() as u64)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.alive()?;
        state.fail_if_due(Call::Change, &self.path)?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        state.file(self.inode)?.set_length(length);
        state.mend(self.inode, length..usize::MAX);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.alive()?;
        trace::note((Call::Sync, self.inode));
        let failed = state.fail_if_due(Call::Sync, &self.path);
        let file = state.file(self.inode)?;
        match failed {
            Ok(()) => file.sync(),
            Err(_) => file.dirty.clear(),
        }
        failed
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if let Ok(mut state) = self.alive()
            && let Ok(file) = state.file(self.inode)
        {
            file.handles = file.handles.saturating_sub(1);
        }
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.generation == self.generation {
            state.locks.remove(&self.path);
        }
    }
}

impl State {
    fn end_process(&mut self) {
        self.generation += 1;
        self.locks.clear();
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.handles = 0;
            }
        }
    }

    fn resolve(&self, path: &Path) -> io::Result<u64> {
        let names = path.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy()),
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::ParentDir => None,
        });
        let mut inode = ROOT;
        for name in names {
            let Some(Inode::Folder(folder)) = self.inodes.get(&inode) else {
                return Err(io::ErrorKind::NotFound.into());
            };
            inode = *folder
                .names
                .get(name.as_ref())
                .ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    /// The folder that a path's last name is in, and that name.
    fn parent(&self, path: &Path) -> io::Result<(u64, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.resolve(path.parent().unwrap_or(Path::new("")))?;
        Ok((folder, name.to_string_lossy().into_owned()))
    }

    fn insert(&mut self, path: &Path, inode: Inode) -> io::Result<u64> {
        if self.resolve(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (folder, name) = self.parent(path)?;
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        self.change(folder, NameChange::Insert(name, number))?;
        Ok(number)
    }

    fn file(&mut self, inode: u64) -> io::Result<&mut File> {
        match self.inodes.get_mut(&inode) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Folder(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn folder(&mut self, inode: u64) -> io::Result<&mut Folder> {
        match self.inodes.get_mut(&inode) {
            Some(Inode::Folder(folder)) => Ok(folder),
            Some(Inode::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn change(&mut self, folder: u64, change: NameChange) -> io::Result<()> {
        trace::note((Call::Change, folder, &change));
        self.folder(folder)?.change(change);
        self.changes += 1;
        if self.changes > CHANGES_MAX {
            self.drop_unreachable();
        }
        Ok(())
    }

    /// Files and folders that no name leads to any more, now or after a crash, and that nobody has open.
    fn drop_unreachable(&mut self) {
        self.changes = 0;
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(inode) = open.pop() {
            if let Some(Inode::Folder(folder)) = self.inodes.get(&inode) {
                let inserted = folder.journal.iter().filter_map(|change| match change {
                    NameChange::Insert(_, inode) => Some(inode),
                    NameChange::Remove(_) | NameChange::Rename(_, _) => None,
                });
                let children = folder
                    .names
                    .values()
                    .chain(folder.durable.values())
                    .chain(inserted);
                open.extend(children.filter(|child| reached.insert(**child)));
            }
        }
        self.inodes.retain(|inode, entry| {
            reached.contains(inode) || matches!(entry, Inode::File(file) if file.handles > 0)
        });
    }
}

#[cfg(test)]
mod tests;
