//! What a scan makes of whole, torn and damaged files.

use super::*;

fn entry(index: u64, term: u64) -> Entry {
    Entry {
        entry_type: EntryType::Normal,
        term,
        index,
        data: vec![index as u8; 3],
        context: vec![1],
    }
}

fn state(term: u64) -> HardState {
    HardState {
        term,
        vote: (term > 1).then_some(BrokerId(0)),
        commit: 0,
    }
}

/// A file of frames with their marks, and where each frame starts.
fn file(frames: &[&[Entry]]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = encode_header(&Header {
        broker_id: 7,
        snapshot_index: 0,
        snapshot_term: 0,
        founders: vec![BrokerId(7), BrokerId(8)],
    });
    let mut starts = Vec::new();
    for (sequence, entries) in frames.iter().enumerate() {
        starts.push(bytes.len());
        encode_frame(
            &mut bytes,
            sequence as u64,
            state(sequence as u64 + 1),
            entries,
        );
        bytes.extend_from_slice(&encode_mark(sequence as u64));
    }
    (bytes, starts)
}

fn check(bytes: &[u8], expected: Result<(Vec<u64>, usize), FormatError>) {
    let found = scan(bytes).map(|scan| {
        (
            scan.entries.iter().map(|entry| entry.index).collect(),
            scan.end,
        )
    });
    assert_eq!(found, expected);
}

#[test]
fn whole_file_is_read_back() {
    let (bytes, _) = file(&[&[entry(1, 1), entry(2, 1)], &[], &[entry(3, 2)]]);
    let scanned = scan(&bytes).unwrap();
    assert_eq!(scanned.entries, vec![entry(1, 1), entry(2, 1), entry(3, 2)]);
    assert_eq!(scanned.hard_state, Some(state(3)));
    assert_eq!((scanned.end, scanned.next_sequence), (bytes.len(), 3));
    assert!(scanned.marked);
    assert_eq!(scanned.header.founders, [BrokerId(7), BrokerId(8)]);
}

#[test]
fn later_entry_replaces_earlier_ones() {
    let (bytes, _) = file(&[&[entry(1, 1), entry(2, 1), entry(3, 1)], &[entry(2, 2)]]);
    assert_eq!(
        scan(&bytes).unwrap().entries,
        vec![entry(1, 1), entry(2, 2)]
    );
}

#[test]
fn torn_tail_is_cut_at_every_length() {
    let (bytes, starts) = file(&[&[entry(1, 1)], &[entry(2, 1)]]);
    let unmarked = bytes.len() - MARK_SIZE;
    for end in starts[1]..unmarked {
        check(&bytes[..end], Ok((vec![1], starts[1])));
    }
    let mut garbled = bytes[..unmarked].to_vec();
    garbled[starts[1] + 30] ^= 1;
    check(&garbled, Ok((vec![1], starts[1])));
}

#[test]
fn last_frame_that_was_durable_is_never_cut() {
    let (bytes, starts) = file(&[&[entry(1, 1)], &[entry(2, 1)]]);
    for position in starts[1]..bytes.len() - MARK_SIZE {
        let mut garbled = bytes.clone();
        garbled[position] ^= 1;
        let position = starts[1];
        check(&garbled, Err(FormatError::Damaged { position }));
    }
}

#[test]
fn mark_that_a_crash_lost_changes_nothing() {
    let (bytes, starts) = file(&[&[entry(1, 1)], &[entry(2, 1)]]);
    for end in bytes.len() - MARK_SIZE..bytes.len() {
        let scan = scan(&bytes[..end]).unwrap();
        assert_eq!((scan.end, scan.marked), (bytes.len(), false));
    }
    // Mark and next frame are under way together, and only the frame arrives.
    let mut garbled = bytes.clone();
    garbled[starts[1] - MARK_SIZE..starts[1]].fill(0);
    check(&garbled, Ok((vec![1, 2], bytes.len())));
}

#[test]
fn damage_before_the_tail_is_refused() {
    let (bytes, starts) = file(&[&[entry(1, 1)], &[entry(2, 1)], &[entry(3, 1)]]);
    for position in [
        starts[0],
        starts[1],
        starts[1] + 5,
        starts[1] + 9,
        starts[1] + 40,
    ] {
        let mut garbled = bytes.clone();
        garbled[position] ^= 0x40;
        let start = if position < starts[1] {
            starts[0]
        } else {
            starts[1]
        };
        check(&garbled, Err(FormatError::Damaged { position: start }));
    }
    let mut header = bytes.clone();
    header[12] ^= 1;
    check(&header, Err(FormatError::Checksum));
    check(&bytes[..10], Err(FormatError::Short));
}

#[test]
fn gap_between_entries_is_refused() {
    let (bytes, _) = file(&[&[entry(1, 1)], &[entry(3, 1)]]);
    check(&bytes, Err(FormatError::Order { last: 1, found: 3 }));
    let (bytes, _) = file(&[&[entry(2, 1)]]);
    check(&bytes, Err(FormatError::Order { last: 0, found: 2 }));
}

#[test]
fn snapshot_is_read_back_and_any_damage_is_seen() {
    let voters = vec![BrokerId(0), BrokerId(1), BrokerId(2)];
    let snapshot = Snapshot {
        index: 9,
        term: 3,
        voters,
        learners: vec![],
        data: b"records".to_vec(),
    };
    let bytes = encode_snapshot(&snapshot);
    assert_eq!(decode_snapshot(&bytes), Ok(snapshot));
    for position in 0..bytes.len() {
        let mut garbled = bytes.clone();
        garbled[position] ^= 1;
        assert!(decode_snapshot(&garbled).is_err());
        assert!(decode_snapshot(&bytes[..position]).is_err());
    }
}
