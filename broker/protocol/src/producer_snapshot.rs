//! Producer state of a partition as Kafka keeps it in `<offset, 20 digits>.snapshot` (`ProducerStateManager`), version 1.
//!
//! ```text
//! position  bytes  field
//!        0      2  version, 1
//!        2      4  CRC32C of all from 6 on
//!        6      4  number of entries
//!       10     46  an entry: producer id 8, epoch 2, last sequence 4, last offset 8, offset delta 4, timestamp 8,
//!                  coordinator epoch 4, first offset of the open transaction 8
//! ```

use crate::error::{DecodeError, EncodeError};
use crate::reader::Reader;
use crate::writer::Writer;
use crc_fast::{CrcAlgorithm, checksum};

const VERSION: i16 = 1;
const CRC_AT: usize = 2;
const ENTRIES_AT: usize = 6;
const ENTRY_LENGTH: usize = 46;

/// What a partition remembers of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSnapshotEntry {
    /// The producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Sequence of its last record; -1 if only a marker is known.
    pub last_sequence: i32,
    /// Offset of its last record, inclusive; -1 if only a marker is known.
    pub last_offset: i64,
    /// Last offset less first offset of its last batch.
    pub offset_delta: i32,
    /// Of its last batch, in milliseconds.
    pub timestamp: i64,
    /// Of the transaction coordinator that wrote the last marker, -1 for none.
    pub coordinator_epoch: i32,
    /// Where its open transaction starts, -1 for none.
    pub current_txn_first_offset: i64,
}

/// The bytes of a snapshot file.
pub fn encode(entries: &[ProducerSnapshotEntry]) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::with_buffer(Vec::with_capacity(
        ENTRIES_AT + 4 + entries.len() * ENTRY_LENGTH,
    ));
    w.i16(VERSION);
    w.u32(0);
    w.array_length(entries.len(), false)?;
    for entry in entries {
        w.i64(entry.producer_id);
        w.i16(entry.producer_epoch);
        w.i32(entry.last_sequence);
        w.i64(entry.last_offset);
        w.i32(entry.offset_delta);
        w.i64(entry.timestamp);
        w.i32(entry.coordinator_epoch);
        w.i64(entry.current_txn_first_offset);
    }
    let computed = crc(&w.buf[ENTRIES_AT..]);
    w.buf[CRC_AT..ENTRIES_AT].copy_from_slice(&computed.to_be_bytes());
    Ok(w.buf)
}

/// Reads a snapshot file, which may have been torn or damaged.
pub fn decode(bytes: &[u8]) -> Result<Vec<ProducerSnapshotEntry>, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.i16()?;
    if version != VERSION {
        return Err(DecodeError::UnsupportedVersion {
            message: "ProducerSnapshot",
            version,
        });
    }
    let stored = r.u32()?;
    let computed = crc(r.rest());
    if stored != computed {
        return Err(DecodeError::Checksum { stored, computed });
    }
    let entries = r.array(false, ENTRY_LENGTH, |r| {
        Ok(ProducerSnapshotEntry {
            producer_id: r.i64()?,
            producer_epoch: r.i16()?,
            last_sequence: r.i32()?,
            last_offset: r.i64()?,
            offset_delta: r.i32()?,
            timestamp: r.i64()?,
            coordinator_epoch: r.i32()?,
            current_txn_first_offset: r.i64()?,
        })
    })?;
    r.finish()?;
    Ok(entries)
}

fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(producer_id: i64) -> ProducerSnapshotEntry {
        ProducerSnapshotEntry {
            producer_id,
            producer_epoch: 3,
            last_sequence: 41,
            last_offset: 1000,
            offset_delta: 4,
            timestamp: 1_700_000_000_000,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
        }
    }

    #[test]
    fn entries_come_back() {
        for entries in [vec![], vec![entry(1)], vec![entry(1), entry(i64::MAX)]] {
            let bytes = encode(&entries).unwrap();
            assert_eq!(bytes.len(), 10 + 46 * entries.len());
            assert_eq!(decode(&bytes), Ok(entries));
        }
    }

    #[test]
    fn an_empty_snapshot_has_known_bytes() {
        // CRC32C of four zero bytes.
        assert_eq!(
            encode(&[]).unwrap(),
            [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]
        );
    }

    #[test]
    fn damage_is_found() {
        let bytes = encode(&[entry(1), entry(2)]).unwrap();
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err());
            let mut flipped = bytes.clone();
            flipped[length] ^= 1;
            assert!(decode(&flipped).is_err(), "byte {length}");
        }
    }
}
