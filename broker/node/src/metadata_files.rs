//! The files of the metadata log, read as they lie: for people who look at them. Nothing is written.

use std::path::{Path, PathBuf};

use crate::cluster::{describe_metadata_file, metadata_file_index};

pub use crate::cluster::METADATA_FOLDER as FOLDER;

/// Whether a file belongs to a metadata log: it lies in a folder of that name.
pub fn is_metadata_file(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    folder.is_some_and(|name| name == FOLDER)
}

/// What a metadata log or snapshot holds, a line for each entry and each record; or why it cannot be read.
pub fn describe(path: &Path) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    describe_metadata_file(path, &bytes)
}

/// Whether a broker could start with the newest log of a folder, and the snapshot it goes on from.
pub fn check(folder: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect();
    let logs = paths
        .iter()
        .filter_map(|path| Some((metadata_file_index(path, "log")?, path)));
    let Some((index, log)) = logs.max() else {
        return Err("it holds no metadata log".to_owned());
    };
    let named = |path: &Path, reason: String| format!("{}: {reason}", path.display());
    describe(log).map_err(|reason| named(log, reason))?;
    if index == 0 {
        return Ok(());
    }
    let snapshot = log.with_extension("snapshot");
    describe(&snapshot)
        .map(|_| ())
        .map_err(|reason| named(&snapshot, reason))
}
