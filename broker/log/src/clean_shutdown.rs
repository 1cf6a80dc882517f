//! The marker of a clean stop. It is the last thing a broker writes and is gone the moment it was read, so that a
//! crash at any time afterwards is seen as one (KAFKA-10471).

use std::io;
use std::path::Path;

use crate::checkpoint::{read_if_present, replace};
use crate::disk::Disk;

const NAME: &str = ".kafka_cleanshutdown";

/// What a log directory tells about the stop before this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanShutdown {
    /// No marker: logs must be recovered.
    No,
    /// All files were closed as they should. The broker epoch is the proof that KIP-966 asks for at registration.
    Yes {
        /// The epoch under which the broker stopped, if the marker tells.
        broker_epoch: Option<i64>,
    },
}

pub(crate) fn take<D: Disk>(disk: &D, directory: &Path) -> io::Result<CleanShutdown> {
    let path = directory.join(NAME);
    let Some(content) = read_if_present(disk, &path)? else {
        return Ok(CleanShutdown::No);
    };
    disk.remove_file(&path)?;
    disk.sync_dir(directory)?;
    Ok(CleanShutdown::Yes {
        broker_epoch: parse(&content),
    })
}

pub(crate) fn write<D: Disk>(disk: &D, directory: &Path, broker_epoch: i64) -> io::Result<()> {
    let content = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}\n");
    replace(disk, directory, NAME, content.as_bytes())
}

fn parse(content: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(content).ok()?;
    let value = text
        .split_once("\"brokerEpoch\"")?
        .1
        .trim_start()
        .strip_prefix(':')?
        .trim_start();
    let end = value
        .find(|character: char| character != '-' && !character.is_ascii_digit())
        .unwrap_or(value.len());
    value[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_read_from_any_spelling_and_its_absence_is_known() {
        for (text, expected) in [
            ("{\"version\":0,\"brokerEpoch\":12}\n", Some(12)),
            ("{ \"brokerEpoch\" : -1 , \"version\" : 0 }", Some(-1)),
            ("{\"version\":0}", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }
}
