//! The metadata log's files in words.

use std::path::Path;

use taffrail_core::raft::Entry;

use super::{frame, parse_name};
use crate::cluster::records;

/// The index in the name of a file of this kind.
pub(crate) fn metadata_file_index(path: &Path, extension: &str) -> Option<u64> {
    parse_name(path.file_name()?.to_str()?, extension)
}

/// A line for each entry and each record of a metadata log or snapshot; or why it cannot be read.
pub(crate) fn describe_metadata_file(path: &Path, bytes: &[u8]) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    if metadata_file_index(path, "snapshot").is_some() {
        let snapshot = frame::decode_snapshot(bytes).map_err(|error| error.to_string())?;
        lines.push(format!(
            "snapshot index: {} term: {} voters: {:?} learners: {:?}",
            snapshot.index, snapshot.term, snapshot.voters, snapshot.learners
        ));
        push_records(&mut lines, &snapshot.data)?;
        return Ok(lines);
    }
    if metadata_file_index(path, "log").is_none() {
        return Err("it is no file of a metadata log".to_owned());
    }
    let scan = frame::scan(bytes).map_err(|error| error.to_string())?;
    lines.push(format!(
        "log of broker: {} after snapshot index: {} term: {}",
        scan.header.broker_id, scan.header.snapshot_index, scan.header.snapshot_term
    ));
    for entry in &scan.entries {
        push_entry(&mut lines, entry)?;
    }
    if let Some(state) = scan.hard_state {
        lines.push(format!(
            "term: {} vote: {:?} commit: {}",
            state.term, state.vote, state.commit
        ));
    }
    if scan.end < bytes.len() {
        lines.push(format!(
            "{} bytes at the end were cut off by a crash and do not count",
            bytes.len() - scan.end
        ));
    }
    Ok(lines)
}

fn push_entry(lines: &mut Vec<String>, entry: &Entry) -> Result<(), String> {
    lines.push(format!(
        "entry index: {} term: {} type: {:?} size: {}",
        entry.index,
        entry.term,
        entry.entry_type,
        entry.data.len()
    ));
    if entry.entry_type == taffrail_core::raft::EntryType::Normal {
        push_records(lines, &entry.data)?;
    }
    Ok(())
}

fn push_records(lines: &mut Vec<String>, data: &[u8]) -> Result<(), String> {
    let records = records::decode(data).map_err(|error| error.to_string())?;
    lines.extend(records.iter().map(|record| format!("| {record:?}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_metadata_file_is_refused_with_a_reason() {
        for (name, bytes) in [
            ("00000000000000000000.log", &b"nothing of the kind"[..]),
            ("00000000000000000009.snapshot", b"short"),
            ("something.else", b""),
        ] {
            let reason = describe_metadata_file(Path::new(name), bytes).unwrap_err();
            assert!(reason.starts_with("it is"), "{name}: {reason}");
        }
    }
}
