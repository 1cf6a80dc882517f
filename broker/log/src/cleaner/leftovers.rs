//! How a cleaned segment takes the place of others so that a crash at any moment leaves the old ones or the new one, and what
//! a start makes of each moment.
//!
//! | step | what is done | what a start makes of a crash behind it |
//! |---|---|---|
//! | 1 | `.cleaned` files are written and fsynced | they are removed |
//! | 2 | `compacted` is made: the log has gaps from now on | the same; it stays and does no harm |
//! | 3 | `.index`, `.timeindex`, `.txnindex`: `.cleaned` becomes `.swap` | both are removed |
//! | 4 | `.log`: `.cleaned` becomes `.swap`; the folder is fsynced | the steps from here on are done |
//! | 5 | the old `.log` of the first segment, then all of the others become `.deleted` | the same |
//! | 6 | `.index`, `.timeindex`, `.txnindex`: `.swap` takes the place of what is there | the same |
//! | 7 | `.log`: `.swap` loses its suffix; the folder is fsynced | nothing is left to do |
//!
//! How far the new segment goes is told by its last batch, which is kept for that: the old ones that begin below its end are
//! those whose place it takes.

use std::path::Path;

use crate::batch_walk::{BatchWalk, LOOKUP_CHUNK};
use crate::checkpoint::remove_if_present;
use crate::disk::{DirEntry, Disk, DiskFile};
use crate::error::LogError;
use crate::index::{Index, OffsetEntry};
use crate::segment::{
    INDEX_SUFFIX, LOG_SUFFIX, RELATIVE_OFFSET_MAX, TIME_INDEX_SUFFIX, file_name, parse_file_name,
};
use crate::transaction_index::TRANSACTION_INDEX_SUFFIX;

pub(crate) const CLEANED_SUFFIX: &str = ".cleaned";
pub(crate) const SWAP_SUFFIX: &str = ".swap";
/// An empty file: the log was compacted once, so gaps between its batches are no damage, whatever its policy is now.
pub(crate) const COMPACTED: &str = "compacted";

/// The files beside a segment's `.log`.
pub(crate) const SIDE_SUFFIXES: [&str; 3] =
    [INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX];
/// All files of a segment.
pub(crate) const SEGMENT_SUFFIXES: [&str; 4] = [
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
];

/// Whether a cleaning has left something in a folder.
pub(crate) fn are_there(entries: &[DirEntry]) -> bool {
    entries.iter().any(is_left)
}

fn is_left(entry: &DirEntry) -> bool {
    !entry.is_dir && (entry.name.ends_with(CLEANED_SUFFIX) || entry.name.ends_with(SWAP_SUFFIX))
}

/// Brings every swap to its end and removes what did not get to be one.
pub(crate) fn settle<D: Disk>(
    disk: &D,
    folder: &Path,
    entries: &[DirEntry],
) -> Result<(), LogError> {
    for entry in entries.iter().filter(|entry| is_left(entry)) {
        let name = entry.name.strip_suffix(SWAP_SUFFIX);
        let Some(base_offset) = name.and_then(|name| parse_file_name(name, LOG_SUFFIX)) else {
            continue;
        };
        let end_offset = end_offset_of(disk, folder, base_offset, entry.length);
        match end_offset.and_then(|end_offset| checked(folder, entries, end_offset)) {
            Ok(end_offset) => finish(disk, folder, entries, base_offset, end_offset)?,
            // Its first segment would be the first to go, so all of the old ones are there.
            Err(LogError::Corrupt { reason, .. }) if has_log(entries, base_offset) => {
                tracing::warn!(folder = %folder.display(), base_offset, reason, "a cleaned segment is damaged and is not taken");
                let path = folder.join(&entry.name);
                remove_if_present(disk, &path)
                    .map_err(|error| LogError::io("remove", &path, error))?;
            }
            Err(error) => return Err(error),
        }
    }
    for entry in entries.iter().filter(|entry| is_left(entry)) {
        let path = folder.join(&entry.name);
        remove_if_present(disk, &path).map_err(|error| LogError::io("remove", &path, error))?;
    }
    sync_names(disk, folder)
}

fn has_log(entries: &[DirEntry], base_offset: i64) -> bool {
    let name = file_name(base_offset, LOG_SUFFIX);
    entries.iter().any(|entry| entry.name == name)
}

/// A checksum does not cover a batch's offset, and by a wrong one more would be removed than was replaced: the next segment begins
/// where the new one ends, unless it is further away than a segment can span.
fn checked(folder: &Path, entries: &[DirEntry], end_offset: i64) -> Result<i64, LogError> {
    let next = entries
        .iter()
        .filter_map(|entry| parse_file_name(&entry.name, LOG_SUFFIX))
        .filter(|offset| *offset >= end_offset)
        .min();
    match next {
        Some(next) if next == end_offset || next - end_offset > RELATIVE_OFFSET_MAX => {
            Ok(end_offset)
        }
        Some(_) | None => Err(LogError::corrupt(
            folder,
            format!("no segment begins at offset {end_offset}, where a cleaned one ends"),
        )),
    }
}

/// Step 5, with nothing kept, and the steps behind it.
fn finish<D: Disk>(
    disk: &D,
    folder: &Path,
    entries: &[DirEntry],
    base_offset: i64,
    end_offset: i64,
) -> Result<(), LogError> {
    let remove = |name: &str| {
        let path = folder.join(name);
        remove_if_present(disk, &path).map_err(|error| LogError::io("remove", &path, error))
    };
    remove(&file_name(base_offset, LOG_SUFFIX))?;
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        let replaced = SEGMENT_SUFFIXES
            .iter()
            .find_map(|suffix| parse_file_name(&entry.name, suffix))
            .is_some_and(|offset| base_offset < offset && offset < end_offset);
        if replaced {
            remove(&entry.name)?;
        }
    }
    take_place(disk, folder, base_offset)?;
    tracing::info!(folder = %folder.display(), base_offset, end_offset, "finished the swap of a cleaned segment");
    Ok(())
}

/// Steps 6 and 7, without the fsync.
pub(crate) fn take_place<D: Disk>(
    disk: &D,
    folder: &Path,
    base_offset: i64,
) -> Result<(), LogError> {
    for suffix in SIDE_SUFFIXES {
        let to = folder.join(file_name(base_offset, suffix));
        let from = folder.join(file_name(base_offset, suffix) + SWAP_SUFFIX);
        rename_if_present(disk, &from, &to)?;
    }
    let to = folder.join(file_name(base_offset, LOG_SUFFIX));
    let from = folder.join(file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX);
    disk.rename(&from, &to)
        .map_err(|error| LogError::io("rename", &from, error))
}

/// A file that need not be there gets another name. Tells whether it was.
pub(crate) fn rename_if_present<D: Disk>(
    disk: &D,
    from: &Path,
    to: &Path,
) -> Result<bool, LogError> {
    match disk.rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(LogError::io("rename", from, error)),
        Ok(()) => Ok(true),
    }
}

pub(crate) fn sync_names<D: Disk>(disk: &D, folder: &Path) -> Result<(), LogError> {
    disk.sync_dir(folder)
        .map_err(|error| LogError::io("fsync", folder, error))
}

/// The offset behind the last batch of a segment that waits to be swapped in.
fn end_offset_of<D: Disk>(
    disk: &D,
    folder: &Path,
    base_offset: i64,
    size: u64,
) -> Result<i64, LogError> {
    let path = folder.join(file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX);
    let file = disk
        .open(&path)
        .map_err(|error| LogError::io("open", &path, error))?;
    let start = last_indexed(disk, folder, base_offset);
    match walk(&file, &path, base_offset, start, size) {
        // An index is advisory.
        Err(LogError::Corrupt { .. }) if start > 0 => walk(&file, &path, base_offset, 0, size),
        result => result,
    }
}

fn last_indexed<D: Disk>(disk: &D, folder: &Path, base_offset: i64) -> u64 {
    let name = file_name(base_offset, INDEX_SUFFIX);
    // It has its own name already if a start before this one died over the swap.
    for path in [folder.join(name.clone() + SWAP_SUFFIX), folder.join(name)] {
        let Ok(length) = disk.open(&path).and_then(|file| file.length()) else {
            continue;
        };
        let last = Index::<OffsetEntry>::in_file(length).last(disk, &path);
        return last
            .ok()
            .flatten()
            .map_or(0, |entry| u64::from(entry.position));
    }
    0
}

fn walk<F: DiskFile>(
    file: &F,
    path: &Path,
    base_offset: i64,
    start: u64,
    size: u64,
) -> Result<i64, LogError> {
    let corrupt = |reason: &str| Err(LogError::corrupt(path, reason));
    if start >= size && size > 0 {
        return corrupt("its index goes on behind it");
    }
    let to_path = || path.to_owned();
    let mut walk = BatchWalk::new(file, &to_path, start, size, LOOKUP_CHUNK);
    let mut reached = base_offset;
    while let Some(batch) = walk.next()? {
        if batch.header.base_offset < reached {
            return corrupt("its batches are out of order");
        }
        reached = batch.header.next_offset();
    }
    if reached == base_offset {
        return corrupt("nothing is in it");
    }
    Ok(reached)
}
