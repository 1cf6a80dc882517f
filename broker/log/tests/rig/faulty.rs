//! The real disk, with failures where a test wants them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use taffrail_log::{DirEntry, Disk, DiskFile, RealDisk, RealFile, Space};

/// Which call fails, from when on, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Write,
    Sync,
    SyncDir,
    Open,
    Rename,
}

#[derive(Clone)]
pub(crate) struct FaultyDisk {
    fault: Arc<Mutex<Option<(Call, io::ErrorKind)>>>,
    /// Calls of the failing kind that succeed before the first failure.
    good: Arc<Mutex<u32>>,
}

pub(crate) struct FaultyFile {
    file: RealFile,
    disk: FaultyDisk,
}

impl FaultyDisk {
    pub(crate) fn new() -> FaultyDisk {
        FaultyDisk {
            fault: Arc::default(),
            good: Arc::default(),
        }
    }

    /// From now on every such call fails; with `None` none does.
    pub(crate) fn set(&self, fault: Option<(Call, io::ErrorKind)>) {
        *self.fault.lock().expect("no panic while locked") = fault;
    }

    /// The same after `good` calls of the kind.
    pub(crate) fn set_after(&self, good: u32, fault: (Call, io::ErrorKind)) {
        *self.good.lock().expect("no panic while locked") = good;
        self.set(Some(fault));
    }

    fn check(&self, call: Call) -> io::Result<()> {
        match *self.fault.lock().expect("no panic while locked") {
            Some((failing, kind)) if failing == call => {
                let mut good = self.good.lock().expect("no panic while locked");
                if *good == 0 {
                    return Err(kind.into());
                }
                *good -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wrap(&self, file: RealFile) -> FaultyFile {
        FaultyFile {
            file,
            disk: self.clone(),
        }
    }
}

impl Disk for FaultyDisk {
    type File = FaultyFile;
    type Lock = <RealDisk as Disk>::Lock;

    fn open(&self, path: &Path) -> io::Result<FaultyFile> {
        self.check(Call::Open)?;
        RealDisk.open(path).map(|file| self.wrap(file))
    }

    fn create(&self, path: &Path) -> io::Result<FaultyFile> {
        RealDisk.create(path).map(|file| self.wrap(file))
    }

    fn lock(&self, path: &Path) -> io::Result<Self::Lock> {
        RealDisk.lock(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Rename)?;
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check(Call::SyncDir)?;
        RealDisk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        RealDisk.list(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if let Err(error) = self.disk.check(Call::Write) {
            // Half of it got there.
            self.file
                .write_all_at(&bytes[..bytes.len() / 2], position)?;
            return Err(error);
        }
        self.file.write_all_at(bytes, position)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check(Call::Sync)?;
        self.file.sync()
    }
}
