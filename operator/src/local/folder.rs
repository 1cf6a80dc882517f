//! The data folder of a local cluster: whose it is, who uses it, and where everything in it is.
//!
//! ```text
//! cluster.json              whose data it is, and what the operator remembers
//! lock                      held while a run uses the folder; holds the process id
//! status.json               what `local status` shows
//! broker-0/broker.properties
//! broker-0/broker.log       what the broker prints, up to 16 MiB; what was before that is in broker.log.1
//! broker-0/<volume>/        one log directory for each volume of the Cluster
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::LocalError;

/// A folder that this process has locked.
#[derive(Debug)]
pub(super) struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if it is missing and locks it. A folder with other things in it is refused.
    pub(super) fn open(path: &Path) -> Result<Self, LocalError> {
        fs::create_dir_all(path).map_err(LocalError::data(path))?;
        // Brokers get absolute paths: they may run in another folder.
        let path = path.canonicalize().map_err(LocalError::data(path))?;
        let empty = fs::read_dir(&path)
            .map_err(LocalError::data(&path))?
            .next()
            .is_none();
        if !empty && !path.join("lock").exists() {
            return Err(LocalError::NotOurs(path));
        }
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A broker's folder.
    pub(super) fn broker(&self, broker: i32) -> PathBuf {
        self.path.join(format!("broker-{broker}"))
    }

    /// A broker's properties file.
    pub(super) fn properties(&self, broker: i32) -> PathBuf {
        self.broker(broker).join("broker.properties")
    }

    /// What a broker prints.
    pub(super) fn log(&self, broker: i32) -> PathBuf {
        self.broker(broker).join("broker.log")
    }

    /// A broker's log directory for a volume.
    pub(super) fn volume(&self, broker: i32, volume: &str) -> PathBuf {
        self.broker(broker).join(volume)
    }
}

/// What the operator remembers, within a data folder.
pub(super) fn memory_file(folder: &Path) -> PathBuf {
    folder.join("cluster.json")
}

/// What `local status` shows, within a data folder.
pub(super) fn status_file(folder: &Path) -> PathBuf {
    folder.join("status.json")
}

/// Whether a process holds the folder's lock.
pub(super) fn is_in_use(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join("lock")) else {
        return false;
    };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Replaces a file in one step, so that readers and a crash see the old or the new text, never a part.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), LocalError> {
    let beside = path.with_extension("new");
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&beside, path)
    };
    write().map_err(LocalError::data(path))
}

fn lock(folder: &Path) -> Result<File, LocalError> {
    let path = folder.join("lock");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(LocalError::data(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only for the message.
            let _ = file.read_to_string(&mut pid);
            return Err(LocalError::InUse {
                folder: folder.to_owned(),
                pid: pid.trim().to_owned(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(LocalError::Data { path, error }),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(LocalError::data(&path))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_made_and_locked_once() {
        let parent = tempfile::tempdir().expect("folder");
        let path = parent.path().join("a/b");
        assert!(!is_in_use(&path));
        let first = DataFolder::open(&path).expect("free");
        assert!(is_in_use(&path));
        let message = DataFolder::open(&path).expect_err("locked").to_string();
        let pid = std::process::id().to_string();
        assert!(
            message.contains("is in use") && message.contains(&pid),
            "{message}"
        );
        drop(first);
        DataFolder::open(&path).expect("free again");
    }

    #[test]
    fn what_is_no_folder_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("notes.txt");
        fs::write(&file, "").expect("file");
        for path in [file.clone(), file.join("data")] {
            let message = DataFolder::open(&path).expect_err("a file").to_string();
            assert!(
                message.starts_with(&path.display().to_string())
                    && message.ends_with("a folder is needed there, so choose another --data-dir"),
                "{message}"
            );
        }
    }

    #[test]
    fn folder_of_another_user_is_refused_with_what_to_do() {
        // Root may do everything, so the error is made by hand.
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let message = LocalError::data("data/lock")(denied).to_string();
        assert_eq!(
            message,
            "data/lock: permission denied; run as the user whose folder it is, or choose another --data-dir"
        );
    }

    #[test]
    fn folder_of_something_else_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        fs::write(folder.path().join("thesis.txt"), "").expect("file");
        let message = DataFolder::open(folder.path())
            .expect_err("not ours")
            .to_string();
        assert!(message.contains("holds no cluster's data"), "{message}");
    }
}
