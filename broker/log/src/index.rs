//! The two sparse indexes of a segment. The newest entries are in memory and written behind; older ones are looked up
//! in the file, which is opened for the moment. What an index lacks costs a longer walk, so it never fails a read.

use std::cmp::Ordering;
use std::io;
use std::path::Path;

use crate::disk::{Disk, DiskFile};

/// An entry of an index file.
pub(crate) trait IndexEntry: Copy {
    /// Bytes in the file.
    const BYTES: usize;

    fn encode(self, out: &mut Vec<u8>);
    /// From exactly [`IndexEntry::BYTES`] bytes.
    fn decode(bytes: &[u8]) -> Self;
    /// Whether it may stand behind `before` in one index.
    fn follows(self, before: Self) -> bool;
}

/// Entry of `<base>.index`: where the batch with this last offset starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    /// Last offset of the batch, minus the segment's base offset.
    pub(crate) relative_offset: u32,
    pub(crate) position: u32,
}

/// Entry of `<base>.timeindex`: the largest timestamp up to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: i64,
    /// Last offset of the batch that holds the timestamp, minus the segment's base offset.
    pub(crate) relative_offset: u32,
}

impl IndexEntry for OffsetEntry {
    const BYTES: usize = 8;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        OffsetEntry {
            relative_offset: be_u32(&bytes[..4]),
            position: be_u32(&bytes[4..8]),
        }
    }

    fn follows(self, before: Self) -> bool {
        self.relative_offset > before.relative_offset && self.position > before.position
    }
}

impl IndexEntry for TimeEntry {
    const BYTES: usize = 12;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        let timestamp = i64::from(be_u32(&bytes[..4])) << 32 | i64::from(be_u32(&bytes[4..8]));
        TimeEntry {
            timestamp,
            relative_offset: be_u32(&bytes[8..12]),
        }
    }

    fn follows(self, before: Self) -> bool {
        self.timestamp > before.timestamp && self.relative_offset > before.relative_offset
    }
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// Entries in memory before they are written: 4,096 of 8 bytes stand for at least 16 MiB of log, and are all that a
/// busy partition's index takes (32 KiB); an idle one gives them up.
const UNWRITTEN_MAX: usize = 4096;

/// Entries that a lookup in the file reads at once at its end: 2,048 of 8 bytes are 16 KiB, or 8 MiB of log, so that a
/// reader that goes through a segment reads the index once per 8 MiB.
const WINDOW: u32 = 2048;

/// A run of entries of an index file, kept by the caller between lookups.
#[derive(Debug)]
pub(crate) struct Window<E> {
    entries: Vec<E>,
    /// Whether the file goes on behind them.
    more: bool,
}

/// One index of one segment.
#[derive(Debug)]
pub(crate) struct Index<E> {
    /// Entries in the file.
    written: u32,
    /// Entries that follow those, not yet in the file.
    unwritten: Vec<E>,
}

impl<E: IndexEntry> Index<E> {
    /// The index of a segment without one.
    pub(crate) fn empty() -> Index<E> {
        Index {
            written: 0,
            unwritten: Vec::new(),
        }
    }

    /// The index whose file has this many bytes. Bytes behind the last whole entry are no entry.
    pub(crate) fn in_file(bytes: u64) -> Index<E> {
        let written = u32::try_from(bytes / E::BYTES as u64).unwrap_or(u32::MAX);
        Index {
            written,
            unwritten: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.written as usize + self.unwritten.len()
    }

    /// What the file will have when all is written.
    pub(crate) fn bytes(&self) -> u64 {
        self.len() as u64 * E::BYTES as u64
    }

    pub(crate) fn push(&mut self, entry: E) {
        self.unwritten.push(entry);
    }

    /// Whether it is time to write.
    pub(crate) fn is_full(&self) -> bool {
        self.unwritten.len() >= UNWRITTEN_MAX
    }

    /// Puts the unwritten entries into the file and gives their memory back. The file is there afterwards, if only
    /// empty: Kafka's tools take a segment without one for damaged.
    pub(crate) fn write<D: Disk>(&mut self, disk: &D, path: &Path) -> io::Result<()> {
        if self.unwritten.is_empty() {
            self.unwritten = Vec::new();
            return if self.written == 0 {
                make(disk, path)
            } else {
                Ok(())
            };
        }
        let mut bytes = Vec::with_capacity(self.unwritten.len() * E::BYTES);
        for entry in &self.unwritten {
            entry.encode(&mut bytes);
        }
        let file = match disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(path)?,
            result => result?,
        };
        file.write_all_at(&bytes, u64::from(self.written) * E::BYTES as u64)?;
        self.written += self.unwritten.len() as u32;
        self.unwritten = Vec::new();
        Ok(())
    }

    /// The last entry of all.
    pub(crate) fn last<D: Disk>(&self, disk: &D, path: &Path) -> io::Result<Option<E>> {
        match (self.unwritten.last(), self.written) {
            (Some(entry), _) => Ok(Some(*entry)),
            (None, 0) => Ok(None),
            (None, written) => Ok(read_entries(&disk.open(path)?, written - 1, 1)?.pop()),
        }
    }

    /// The last entry for which `order` is not `Greater`; `order` must not fall along the index. A `window` from an
    /// earlier lookup in the same file spares the file, and is replaced if it does not help.
    pub(crate) fn floor<D: Disk>(
        &self,
        disk: &D,
        path: &Path,
        window: &mut Option<Window<E>>,
        order: impl Fn(&E) -> Ordering,
    ) -> io::Result<Option<E>> {
        let within = |entry: &E| order(entry) != Ordering::Greater;
        if self.unwritten.first().is_some_and(within) {
            return Ok(last_within(&self.unwritten, within));
        }
        if self.written == 0 {
            return Ok(None);
        }
        if let Some(window) = window
            && window.answers(within)
        {
            return Ok(last_within(&window.entries, within));
        }
        let file = disk.open(path)?;
        // Every entry below `low` is within; none from `high` on is.
        let (mut low, mut high) = (0, self.written);
        while high - low > WINDOW {
            let middle = low + (high - low) / 2;
            match read_entries(&file, middle, 1)?.first() {
                Some(entry) if within(entry) => low = middle,
                Some(_) => high = middle,
                None => break,
            }
        }
        // The window starts at the last entry known to be within, and goes as far as it may, for the next lookup is
        // most likely a little further on.
        let count = WINDOW.min(self.written - low);
        let entries: Vec<E> = read_entries(&file, low, count)?;
        let found = last_within(&entries, within);
        *window = Some(Window {
            entries,
            more: low + count < self.written,
        });
        Ok(found)
    }

    /// Keeps the entries at the front for which `keep` holds; `keep` must not become true again along the index.
    pub(crate) fn truncate<D: Disk>(
        &mut self,
        disk: &D,
        path: &Path,
        keep: impl Fn(&E) -> bool,
    ) -> io::Result<()> {
        if self.unwritten.first().is_some_and(&keep) || self.written == 0 {
            self.unwritten
                .truncate(self.unwritten.partition_point(|entry| keep(entry)));
            return Ok(());
        }
        self.unwritten.clear();
        let file = disk.open(path)?;
        let (mut low, mut high) = (0, self.written);
        while low < high {
            let middle = low + (high - low) / 2;
            match read_entries(&file, middle, 1)?.first() {
                Some(entry) if keep(entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        file.set_length(u64::from(low) * E::BYTES as u64)?;
        // Entries are otherwise never overwritten: after a power loss an index may lack some, or show zeros, but none
        // that was once right and no longer is.
        file.sync()?;
        self.written = low;
        Ok(())
    }

    /// The entries at the front of the file that grow as they must and for which `within` holds: what a power loss left of
    /// it that can be trusted, if what `within` accepts was there before.
    pub(crate) fn sound_front<D: Disk>(
        &self,
        disk: &D,
        path: &Path,
        within: impl Fn(&E) -> bool,
    ) -> io::Result<Vec<E>> {
        if self.written == 0 {
            return Ok(Vec::new());
        }
        let mut entries: Vec<E> = read_entries(&disk.open(path)?, 0, self.written)?;
        let breaks = entries
            .windows(2)
            .position(|pair| !pair[1].follows(pair[0]));
        entries.truncate(breaks.map_or(entries.len(), |last| last + 1));
        entries.truncate(entries.partition_point(within));
        Ok(entries)
    }

    /// Keeps so many entries at the front of the file, durably; what was not written is forgotten.
    pub(crate) fn keep_front<D: Disk>(
        &mut self,
        disk: &D,
        path: &Path,
        count: u32,
    ) -> io::Result<()> {
        self.unwritten.clear();
        if count < self.written {
            let file = disk.open(path)?;
            file.set_length(u64::from(count) * E::BYTES as u64)?;
            file.sync()?;
            self.written = count;
        }
        Ok(())
    }

    /// Calls `visit` with every entry.
    #[cfg(test)]
    pub(crate) fn all<D: Disk>(&self, disk: &D, path: &Path) -> io::Result<Vec<E>> {
        let mut entries = match self.written {
            0 => Vec::new(),
            written => read_entries(&disk.open(path)?, 0, written)?,
        };
        entries.extend_from_slice(&self.unwritten);
        Ok(entries)
    }
}

impl<E> Window<E> {
    /// Whether the answer to a lookup in the file is surely among these entries.
    fn answers(&self, within: impl Fn(&E) -> bool) -> bool {
        let starts_before = self.entries.first().is_some_and(&within);
        let ends_after = self.entries.last().is_some_and(|entry| !within(entry)) || !self.more;
        starts_before && ends_after
    }
}

fn last_within<E: Copy>(entries: &[E], within: impl Fn(&E) -> bool) -> Option<E> {
    entries
        .partition_point(within)
        .checked_sub(1)
        .map(|index| entries[index])
}

/// Up to `count` whole entries; fewer if the file is shorter than thought.
fn read_entries<E: IndexEntry, F: DiskFile>(
    file: &F,
    first: u32,
    count: u32,
) -> io::Result<Vec<E>> {
    let mut bytes = vec![0; count as usize * E::BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let position = u64::from(first) * E::BYTES as u64 + filled as u64;
        match file.read_at(&mut bytes[filled..], position)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(bytes[..filled]
        .chunks_exact(E::BYTES)
        .map(E::decode)
        .collect())
}

/// Makes an empty file, unless there is one.
fn make<D: Disk>(disk: &D, path: &Path) -> io::Result<()> {
    match disk.create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real_disk::RealDisk;

    fn filled(disk: &RealDisk, path: &Path, count: u32, written: u32) -> Index<OffsetEntry> {
        let mut index = Index::empty();
        for number in 0..count {
            if number == written {
                index.write(disk, path).expect("a fresh file takes entries");
            }
            index.push(OffsetEntry {
                relative_offset: number * 10,
                position: number * 100,
            });
        }
        if written == count {
            index.write(disk, path).expect("a fresh file takes entries");
        }
        index
    }

    #[test]
    fn floor_finds_the_same_entry_in_memory_in_the_file_and_across() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let count = 3 * WINDOW + 17;
        for (name, written) in [("memory", 0), ("file", count), ("both", count / 2)] {
            let path = folder.path().join(name);
            let index = filled(&RealDisk, &path, count, written);
            let mut window = None;
            for target in (0..count * 10 + 30)
                .step_by(7)
                .chain((0..count * 10).rev().step_by(4001))
            {
                let found = index
                    .floor(&RealDisk, &path, &mut window, |entry| {
                        entry.relative_offset.cmp(&target)
                    })
                    .expect("the file is there");
                let expected = (target / 10).min(count - 1);
                assert_eq!(
                    found.map(|entry| entry.position),
                    Some(expected * 100),
                    "{name}, target {target}"
                );
            }
        }
    }

    #[test]
    fn floor_before_the_first_entry_is_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("index");
        let mut index = Index::<OffsetEntry>::empty();
        let none = |index: &Index<OffsetEntry>| {
            index
                .floor(&RealDisk, &path, &mut None, |entry| {
                    entry.relative_offset.cmp(&4)
                })
                .expect("readable")
        };
        assert_eq!(none(&index), None);
        index.push(OffsetEntry {
            relative_offset: 5,
            position: 1,
        });
        assert_eq!(none(&index), None);
        index.write(&RealDisk, &path).expect("writable");
        assert_eq!(none(&index), None);
    }

    #[test]
    fn truncation_keeps_the_front() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, written) in [("none", 0_u32), ("some", 6), ("all", 10)] {
            for keep in 0..=10_u32 {
                let path = folder.path().join(format!("{name}-{keep}"));
                let mut index = filled(&RealDisk, &path, 10, written);
                index
                    .truncate(&RealDisk, &path, |entry| entry.relative_offset < keep * 10)
                    .expect("writable");
                let entries = index.all(&RealDisk, &path).expect("readable");
                assert_eq!(entries.len(), keep as usize, "{name}, keep {keep}");
                index.push(OffsetEntry {
                    relative_offset: 1000,
                    position: 1,
                });
                index.write(&RealDisk, &path).expect("writable");
                let length = index.all(&RealDisk, &path).expect("readable").len();
                assert_eq!(
                    length,
                    keep as usize + 1,
                    "{name}, keep {keep}, then one more"
                );
            }
        }
    }
}
