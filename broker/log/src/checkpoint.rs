//! Small text files that are replaced as a whole: Kafka's offset checkpoints and the leader-epoch checkpoint, and the
//! one way in which a side file is replaced.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::disk::{Disk, DiskFile};
use crate::epochs::{EpochEntry, LeaderEpochs};

/// Which of the three offset checkpoints of a log directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// Every record below is on the disk.
    RecoveryPoint,
    /// The first offset that may be read.
    LogStart,
    /// The high watermark.
    HighWatermark,
}

/// Offsets by (topic, partition).
pub type Offsets = BTreeMap<(String, i32), i64>;

impl CheckpointKind {
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            CheckpointKind::RecoveryPoint => "recovery-point-offset-checkpoint",
            CheckpointKind::LogStart => "log-start-offset-checkpoint",
            CheckpointKind::HighWatermark => "replication-offset-checkpoint",
        }
    }
}

/// Puts `content` in the place of `folder/name`, durably, at no moment showing half of it.
pub(crate) fn replace<D: Disk>(
    disk: &D,
    folder: &Path,
    name: &str,
    content: &[u8],
) -> io::Result<()> {
    replace_unnamed(disk, folder, name, content)?;
    disk.sync_dir(folder)
}

/// The same, except that a power loss may still bring the old file back, whole, until the folder is fsynced.
pub(crate) fn replace_unnamed<D: Disk>(
    disk: &D,
    folder: &Path,
    name: &str,
    content: &[u8],
) -> io::Result<()> {
    let temporary = folder.join(format!("{name}.tmp"));
    remove_if_present(disk, &temporary)?;
    let file = disk.create(&temporary)?;
    file.write_all_at(content, 0)?;
    file.sync()?;
    drop(file);
    disk.rename(&temporary, &folder.join(name))
}

/// Removes a file that need not be there.
pub(crate) fn remove_if_present<D: Disk>(disk: &D, path: &Path) -> io::Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A whole file, or `None` if it is not there.
pub(crate) fn read_if_present<D: Disk>(disk: &D, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match disk.read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn format_offsets(offsets: &Offsets) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for ((topic, partition), offset) in offsets {
        let _ = writeln!(text, "{topic} {partition} {offset}");
    }
    text
}

pub(crate) fn parse_offsets(content: &[u8]) -> Option<Offsets> {
    let mut offsets = Offsets::new();
    for line in parse_lines(content)? {
        let mut fields = line.split(' ');
        let topic = fields.next()?.to_owned();
        let partition = fields.next()?.parse().ok()?;
        let offset: i64 = fields.next()?.parse().ok()?;
        if fields.next().is_some() || offset < 0 {
            return None;
        }
        offsets.insert((topic, partition), offset);
    }
    Some(offsets)
}

pub(crate) fn format_epochs(epochs: &LeaderEpochs) -> String {
    let mut text = format!("0\n{}\n", epochs.entries().len());
    for entry in epochs.entries() {
        let _ = writeln!(text, "{} {}", entry.epoch, entry.start_offset);
    }
    text
}

pub(crate) fn parse_epochs(content: &[u8]) -> Option<LeaderEpochs> {
    let mut entries = Vec::new();
    for line in parse_lines(content)? {
        let (epoch, start_offset) = line.split_once(' ')?;
        entries.push(EpochEntry {
            epoch: epoch.parse().ok()?,
            start_offset: start_offset.parse().ok()?,
        });
    }
    LeaderEpochs::from_entries(entries)
}

/// The lines behind version and count, if both are right.
fn parse_lines(content: &[u8]) -> Option<Vec<&str>> {
    let text = std::str::from_utf8(content).ok()?;
    let mut lines = text.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let lines: Vec<&str> = lines.collect();
    (lines.len() == count).then_some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_written_as_kafka_writes_them() {
        let mut offsets = Offsets::new();
        offsets.insert(("orders".to_owned(), 1), 42);
        offsets.insert(("orders".to_owned(), 0), 7);
        let text = format_offsets(&offsets);
        assert_eq!(text, "0\n2\norders 0 7\norders 1 42\n");
        assert_eq!(parse_offsets(text.as_bytes()), Some(offsets));
    }

    #[test]
    fn a_damaged_checkpoint_is_no_checkpoint() {
        for text in [
            "",
            "0\n",
            "1\n0\n",
            "0\n2\na 0 1\n",
            "0\n1\na 0\n",
            "0\n1\na 0 -5\n",
            "0\n1\na 0 1 2\n",
            "0\nx\n",
        ] {
            assert_eq!(parse_offsets(text.as_bytes()), None, "{text:?}");
        }
        for text in [
            "0\n1\n5\n",
            "0\n2\n5 1\n4 2\n",
            "0\n2\n4 5\n5 5\n",
            "0\n1\n-1 0\n",
        ] {
            assert_eq!(parse_epochs(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn epochs_round_trip() {
        let text = "0\n2\n3 0\n5 17\n";
        let epochs = parse_epochs(text.as_bytes()).expect("well formed");
        assert_eq!(format_epochs(&epochs), text);
    }
}
