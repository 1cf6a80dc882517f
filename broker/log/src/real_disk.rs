//! The real side of the seam: Linux files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::disk::{DirEntry, Disk, DiskFile, Space};

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// An open file of this machine; `as_fd` is what `sendfile` takes.
#[derive(Debug)]
pub struct RealFile(File);

impl AsFd for RealFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl RealDisk {
    /// Opens a file that may be on a volume that cannot be written.
    pub(crate) fn open_to_read(&self, path: &Path) -> io::Result<RealFile> {
        File::open(path).map(RealFile)
    }
}

impl Disk for RealDisk {
    type File = RealFile;
    type Lock = File;

    fn open(&self, path: &Path) -> io::Result<RealFile> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map(RealFile)
    }

    fn create(&self, path: &Path) -> io::Result<RealFile> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map(RealFile)
    }

    fn lock(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed between the two calls.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(DirEntry {
                name,
                is_dir: metadata.is_dir(),
                length: metadata.len(),
            });
        }
        entries.sort();
        Ok(entries)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let mut path = path.as_os_str().as_bytes().to_vec();
        path.push(0);
        let mut answer = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero byte and `answer` is a statvfs for the kernel to fill.
        let result = unsafe { libc::statvfs(path.as_ptr().cast(), answer.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: filled, since the call succeeded.
        let answer = unsafe { answer.assume_init() };
        let block = answer.f_frsize;
        Ok(Space {
            total: answer.f_blocks.saturating_mul(block),
            usable: answer.f_bavail.saturating_mul(block),
        })
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut content = Vec::with_capacity(usize::try_from(length).map_err(io::Error::other)?);
        file.read_to_end(&mut content)?;
        // A file system that was shut down may end a file early instead of failing.
        if (content.len() as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(content)
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buffer, position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: also makes the length durable, which is all of a file's metadata that matters here.
        self.0.sync_data()
    }
}
