//! Bytes of the metadata log's files (`../FORMAT.md`): encoding, and scanning what a crash left.
//! Reads nothing and writes nothing.

use crc_fast::{CrcAlgorithm, checksum};
use taffrail_core::ids::BrokerId;
use taffrail_core::raft::{Entry, EntryType, HardState, Snapshot};
use thiserror::Error;

const LOG_MAGIC: &[u8; 8] = b"TFMETALG";
const SNAPSHOT_MAGIC: &[u8; 8] = b"TFMETASN";
const FRAME_MAGIC: [u8; 4] = *b"TFFR";
const MARK_MAGIC: [u8; 4] = *b"TFOK";
const VERSION: u16 = 2;
/// The vote of a voter that has not voted.
const NOBODY: i32 = -1;

/// Size of a log file's header, without founders.
pub(super) const HEADER_SIZE: usize = 38;
/// Magic, length, sequence, CRC.
const FRAME_HEADER_SIZE: usize = 20;
/// The room behind every frame for its mark: magic, sequence, CRC.
pub(super) const MARK_SIZE: usize = 16;
/// The least an entry takes: index, term, type and two lengths.
const ENTRY_SIZE_MIN: usize = 25;

/// What the header of a log file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) broker_id: i32,
    pub(super) snapshot_index: u64,
    pub(super) snapshot_term: u64,
    /// Who votes in a quorum that has no snapshot yet; empty once there is one.
    pub(super) founders: Vec<BrokerId>,
}

/// Bytes that are not what the format says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum FormatError {
    #[error("it is not a file of this format")]
    Magic,
    #[error("its format version is {0}, this release reads {VERSION}")]
    Version(u16),
    #[error("it is cut short")]
    Short,
    #[error("it is missing, and the log goes on from it")]
    Missing,
    #[error("its checksum does not match")]
    Checksum,
    #[error("the frame at byte {position} is damaged, though it was once safely on disk")]
    Damaged { position: usize },
    #[error("its entries are not consecutive: {found} follows {last}")]
    Order { last: u64, found: u64 },
}

/// What a log file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) header: Header,
    /// The last hard state, if any frame was written.
    pub(super) hard_state: Option<HardState>,
    /// The entries that were not replaced by later ones, in order.
    pub(super) entries: Vec<Entry>,
    /// Where the next frame belongs: behind the room for the last one's mark, so it may be beyond the end of the file.
    /// What stands there is a torn tail.
    pub(super) end: usize,
    /// Whether the last frame is marked as durable; true if there is none.
    pub(super) marked: bool,
    /// The sequence of the next frame.
    pub(super) next_sequence: u64,
}

fn crc32c(bytes: &[u8]) -> u32 {
    // A 32-bit algorithm fills only the low half.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The header of a new log file.
pub(super) fn encode_header(header: &Header) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_SIZE + 4 * header.founders.len());
    out.extend_from_slice(LOG_MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&header.broker_id.to_be_bytes());
    out.extend_from_slice(&header.snapshot_index.to_be_bytes());
    out.extend_from_slice(&header.snapshot_term.to_be_bytes());
    encode_ids(&mut out, &header.founders);
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

/// Appends one frame to `out`.
pub(super) fn encode_frame(
    out: &mut Vec<u8>,
    sequence: u64,
    hard_state: HardState,
    entries: &[Entry],
) {
    let start = out.len();
    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    let payload = out.len();
    out.extend_from_slice(&hard_state.term.to_be_bytes());
    out.extend_from_slice(
        &hard_state
            .vote
            .map_or(NOBODY, |broker| broker.0)
            .to_be_bytes(),
    );
    out.extend_from_slice(&hard_state.commit.to_be_bytes());
    out.extend_from_slice(&length32(entries.len()));
    for entry in entries {
        out.extend_from_slice(&entry.index.to_be_bytes());
        out.extend_from_slice(&entry.term.to_be_bytes());
        out.extend_from_slice(&(entry.entry_type as i8).to_be_bytes());
        out.extend_from_slice(&length32(entry.context.len()));
        out.extend_from_slice(&entry.context);
        out.extend_from_slice(&length32(entry.data.len()));
        out.extend_from_slice(&entry.data);
    }
    let length = length32(out.len() - payload);
    out[start + 4..start + 8].copy_from_slice(&length);
    let crc = frame_crc(&out[start..start + FRAME_HEADER_SIZE], &out[payload..]);
    out[start + 16..start + 20].copy_from_slice(&crc.to_be_bytes());
}

/// What is written behind a frame once that is durable, and is itself never waited for: if the frame cannot be read any
/// more, its mark tells damage from a write that a crash cut short.
pub(super) fn encode_mark(sequence: u64) -> [u8; MARK_SIZE] {
    let mut mark = [0; MARK_SIZE];
    mark[..4].copy_from_slice(&MARK_MAGIC);
    mark[4..12].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc32c(&mark[..12]);
    mark[12..].copy_from_slice(&crc.to_be_bytes());
    mark
}

fn encode_ids(out: &mut Vec<u8>, ids: &[BrokerId]) {
    out.extend_from_slice(&length32(ids.len()));
    for id in ids {
        out.extend_from_slice(&id.0.to_be_bytes());
    }
}

/// Lengths in frames are bounded far below 4 GiB by what one raft message may carry.
fn length32(length: usize) -> [u8; 4] {
    u32::try_from(length)
        .expect("a metadata frame is smaller than 4 GiB")
        .to_be_bytes()
}

fn frame_crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[4..16]);
    digest.update(payload);
    digest.finalize() as u32
}

/// Reads a whole log file.
pub(super) fn scan(bytes: &[u8]) -> Result<Scan, FormatError> {
    let header = decode_header(bytes)?;
    let snapshot_index = header.snapshot_index;
    let mut scan = Scan {
        end: HEADER_SIZE + 4 * header.founders.len(),
        header,
        hard_state: None,
        entries: Vec::new(),
        marked: true,
        next_sequence: 0,
    };
    while scan.end < bytes.len() {
        let Some((length, payload)) =
            frame_at(bytes, scan.end, |sequence| sequence == scan.next_sequence)
        else {
            if was_durable(bytes, scan.end, scan.next_sequence) {
                return Err(FormatError::Damaged { position: scan.end });
            }
            break;
        };
        let (hard_state, entries) =
            decode_payload(payload).ok_or(FormatError::Damaged { position: scan.end })?;
        for entry in entries {
            push_entry(&mut scan.entries, entry, snapshot_index)?;
        }
        scan.hard_state = Some(hard_state);
        scan.end += length;
        scan.marked = mark_at(bytes, scan.end) == Some(scan.next_sequence);
        scan.end += MARK_SIZE;
        scan.next_sequence += 1;
    }
    Ok(scan)
}

/// Puts an entry where its index belongs; it replaces what was there and everything behind.
fn push_entry(
    entries: &mut Vec<Entry>,
    entry: Entry,
    snapshot_index: u64,
) -> Result<(), FormatError> {
    if let Some(last) = entries.last() {
        let last = last.index;
        if entry.index > last + 1 {
            return Err(FormatError::Order {
                last,
                found: entry.index,
            });
        }
        while entries.last().is_some_and(|last| last.index >= entry.index) {
            entries.pop();
        }
    } else if entry.index > snapshot_index + 1 {
        return Err(FormatError::Order {
            last: snapshot_index,
            found: entry.index,
        });
    }
    entries.push(entry);
    Ok(())
}

fn decode_header(bytes: &[u8]) -> Result<Header, FormatError> {
    let mut cursor = Cursor { bytes };
    check_magic(&mut cursor, LOG_MAGIC)?;
    let broker_id = cursor.id().ok_or(FormatError::Short)?;
    let snapshot_index = cursor.u64().ok_or(FormatError::Short)?;
    let snapshot_term = cursor.u64().ok_or(FormatError::Short)?;
    let founders = cursor.ids().ok_or(FormatError::Short)?;
    let checked = bytes.len() - cursor.bytes.len();
    let crc = cursor.u32().ok_or(FormatError::Short)?;
    if crc != crc32c(&bytes[..checked]) {
        return Err(FormatError::Checksum);
    }
    Ok(Header {
        broker_id,
        snapshot_index,
        snapshot_term,
        founders,
    })
}

fn check_magic(cursor: &mut Cursor<'_>, magic: &[u8; 8]) -> Result<(), FormatError> {
    if cursor.take(8) != Some(magic.as_slice()) {
        return Err(FormatError::Magic);
    }
    let version = cursor
        .take(2)
        .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
        .ok_or(FormatError::Short)?;
    if version == VERSION {
        Ok(())
    } else {
        Err(FormatError::Version(version))
    }
}

/// The whole length and the payload of a frame at `position`, if it is whole, intact and of an accepted sequence.
fn frame_at(bytes: &[u8], position: usize, accept: impl Fn(u64) -> bool) -> Option<(usize, &[u8])> {
    let rest = &bytes[position..];
    let mut cursor = Cursor { bytes: rest };
    if cursor.take(4)? != FRAME_MAGIC {
        return None;
    }
    let length = cursor.u32()? as usize;
    let sequence = cursor.u64()?;
    let crc = cursor.u32()?;
    if !accept(sequence) {
        return None;
    }
    let payload = cursor.take(length)?;
    (frame_crc(&rest[..FRAME_HEADER_SIZE], payload) == crc)
        .then_some((FRAME_HEADER_SIZE + length, payload))
}

/// The sequence that an intact mark at `position` names.
fn mark_at(bytes: &[u8], position: usize) -> Option<u64> {
    let mut cursor = Cursor {
        bytes: bytes.get(position..)?,
    };
    let mark = cursor.take(MARK_SIZE)?;
    let sequence = u64::from_be_bytes(mark[4..12].try_into().ok()?);
    (encode_mark(sequence) == mark).then_some(sequence)
}

/// Whether anything behind `position` proves that the frame that cannot be read there, of this sequence, was durable: its
/// mark, or what was written later, which began only after the frame's fsync.
fn was_durable(bytes: &[u8], position: usize, sequence: u64) -> bool {
    (position + 1..bytes.len())
        .filter(|&candidate| bytes[candidate] == FRAME_MAGIC[0])
        .any(|candidate| {
            mark_at(bytes, candidate).is_some_and(|found| found >= sequence)
                || frame_at(bytes, candidate, |found| found > sequence).is_some()
        })
}

fn decode_payload(payload: &[u8]) -> Option<(HardState, Vec<Entry>)> {
    let mut cursor = Cursor { bytes: payload };
    let hard_state = HardState {
        term: cursor.u64()?,
        vote: cursor.vote()?,
        commit: cursor.u64()?,
    };
    let count = cursor.u32()? as usize;
    if count > cursor.bytes.len() / ENTRY_SIZE_MIN {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let index = cursor.u64()?;
        let term = cursor.u64()?;
        let entry_type = EntryType::try_from(i8::from_be_bytes([cursor.take(1)?[0]])).ok()?;
        let length = cursor.u32()? as usize;
        let context = cursor.take(length)?.to_vec();
        let length = cursor.u32()? as usize;
        let data = cursor.take(length)?.to_vec();
        entries.push(Entry {
            entry_type,
            term,
            index,
            data,
            context,
        });
    }
    cursor.bytes.is_empty().then_some((hard_state, entries))
}

/// A whole snapshot file.
pub(super) fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + snapshot.data.len());
    out.extend_from_slice(SNAPSHOT_MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&snapshot.index.to_be_bytes());
    out.extend_from_slice(&snapshot.term.to_be_bytes());
    encode_ids(&mut out, &snapshot.voters);
    encode_ids(&mut out, &snapshot.learners);
    out.extend_from_slice(&(snapshot.data.len() as u64).to_be_bytes());
    out.extend_from_slice(&snapshot.data);
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

/// Reads a whole snapshot file.
pub(super) fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, FormatError> {
    let mut cursor = Cursor { bytes };
    check_magic(&mut cursor, SNAPSHOT_MAGIC)?;
    let body = bytes.len().checked_sub(4).ok_or(FormatError::Short)?;
    if crc32c(&bytes[..body]).to_be_bytes() != bytes[body..] {
        return Err(FormatError::Checksum);
    }
    decode_snapshot_body(&mut cursor).ok_or(FormatError::Short)
}

fn decode_snapshot_body(cursor: &mut Cursor<'_>) -> Option<Snapshot> {
    let index = cursor.u64()?;
    let term = cursor.u64()?;
    let voters = cursor.ids()?;
    let learners = cursor.ids()?;
    let length = usize::try_from(cursor.u64()?).ok()?;
    let data = cursor.take(length)?.to_vec();
    Some(Snapshot {
        index,
        term,
        voters,
        learners,
        data,
    })
}

/// Whatever bytes come: they are read or refused. What an intact frame holds is read back the same.
pub(in crate::cluster) fn try_bytes(bytes: &[u8]) {
    if let Ok(scan) = scan(bytes) {
        assert!(scan.end <= bytes.len() + MARK_SIZE);
    }
    if let Ok(snapshot) = decode_snapshot(bytes) {
        assert_eq!(decode_snapshot(&encode_snapshot(&snapshot)), Ok(snapshot));
    }
    if let Some((hard_state, entries)) = decode_payload(bytes) {
        let mut frame = Vec::new();
        encode_frame(&mut frame, 0, hard_state, &entries);
        let found = frame_at(&frame, 0, |sequence| sequence == 0);
        assert_eq!(found.map(|(_, payload)| payload), Some(bytes));
    }
}

/// A log file, a snapshot file and what a frame holds.
pub(in crate::cluster) fn seeds(
    hard_state: HardState,
    entries: &[Entry],
    snapshot: &Snapshot,
) -> Vec<Vec<u8>> {
    let mut log = encode_header(&Header {
        broker_id: 0,
        snapshot_index: 0,
        snapshot_term: 0,
        founders: vec![BrokerId(0)],
    });
    let start = log.len();
    encode_frame(&mut log, 0, hard_state, entries);
    let payload = log[start + FRAME_HEADER_SIZE..].to_vec();
    log.extend_from_slice(&encode_mark(0));
    encode_frame(&mut log, 1, hard_state, &[]);
    vec![log, encode_snapshot(snapshot), payload]
}

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    fn id(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    fn vote(&mut self) -> Option<Option<BrokerId>> {
        self.id().map(|id| (id != NOBODY).then_some(BrokerId(id)))
    }

    fn ids(&mut self) -> Option<Vec<BrokerId>> {
        let count = self.u32()? as usize;
        if count > self.bytes.len() / 4 {
            return None;
        }
        (0..count).map(|_| self.id().map(BrokerId)).collect()
    }
}

#[cfg(test)]
mod tests;
