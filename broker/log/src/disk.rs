//! The seam to a disk: what the log asks of a file system, small enough that a simulator can play one that
//! loses its page cache. Every write is positioned and every wish for durability is a call of its own.

use std::io;
use std::path::Path;

/// A file system, or the part of one that a broker uses. Cheap to clone.
pub trait Disk: Clone + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;
    /// Holds an exclusive lock until dropped.
    type Lock: Send + Sync + 'static;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// Creates a file that may not exist yet, for reading and writing; `AlreadyExists` if it does.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Takes the lock of the (possibly created) file, or fails at once with `WouldBlock` if somebody holds it.
    fn lock(&self, path: &Path) -> io::Result<Self::Lock>;
    /// Creates a folder and its missing parents; an existing one is fine.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Moves a file or folder, replacing a file that is there. Durable only after [`Disk::sync_dir`] of the parents.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with everything in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, sorted, so that recovery is the same everywhere.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Room on the volume that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// The whole content of a small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
        let mut content = vec![0; length];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }
}

/// An open file of a [`Disk`]. All methods take a shared reference: readers send from a file while it grows.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of `bytes`.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Bytes in the file.
    fn length(&self) -> io::Result<u64>;
    /// Cuts or extends (with zeros) the file.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;

    /// Fills `buffer`, or fails with `UnexpectedEof`.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut position: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            let read = self.read_at(buffer, position)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = &mut buffer[read..];
            position += read as u64;
        }
        Ok(())
    }
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name, without the folder. Names that are not UTF-8 are not listed: nothing of ours has one.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// Bytes, for a file.
    pub length: u64,
}

/// Room on a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All there is.
    pub total: u64,
    /// What an ordinary process may still use.
    pub usable: u64,
}
