//! The 61 bytes in front of a batch's records: read, checked by CRC, and patched in place where a broker may.

use super::Compression;
use crc_fast::{CrcAlgorithm, checksum};

/// Bytes of the header.
pub const BATCH_HEADER_LENGTH: usize = 61;
/// Bytes that `batch_length` does not count: base offset and itself.
pub const LENGTH_PREFIX: usize = 12;
/// The only format that is served; 0 and 1 are the message sets that Kafka 4 refuses too.
pub const MAGIC: i8 = 2;

const BASE_OFFSET: usize = 0;
const BATCH_LENGTH: usize = 8;
const PARTITION_LEADER_EPOCH: usize = 12;
const MAGIC_AT: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const MAX_TIMESTAMP: usize = 35;
const PRODUCER_ID: usize = 43;
const PRODUCER_EPOCH: usize = 51;
const BASE_SEQUENCE: usize = 53;
const RECORD_COUNT: usize = 57;

/// Bytes that are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end within the batch: a tail that was cut off, or a torn write.
    #[error("the batch at position {position} needs {needed} bytes, {remaining} are left")]
    Truncated {
        /// Where the batch starts.
        position: usize,
        /// Bytes that it takes (at least, if its header is cut off).
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A length too small for a header.
    #[error("the batch at position {position} claims a length of {length}")]
    BadLength {
        /// Where the batch starts.
        position: usize,
        /// The field as it stands.
        length: i32,
    },
    /// A message set (0 or 1), or a format of the future.
    #[error("the batch at position {position} has magic {magic}")]
    UnsupportedMagic {
        /// Where the batch starts.
        position: usize,
        /// The field as it stands.
        magic: i8,
    },
}

/// Who stamped the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// Each record has the time its producer gave it.
    CreateTime,
    /// All records have the batch's max timestamp, set by the leader.
    LogAppendTime,
}

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const COMPRESSION: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    pub(super) fn new(compression: Compression, transactional: bool, control: bool) -> Self {
        let flag = |set: bool, bit: i16| if set { bit } else { 0 };
        Self(
            compression.code()
                | flag(transactional, Self::TRANSACTIONAL)
                | flag(control, Self::CONTROL),
        )
    }

    /// The codec; none if the bits name no codec.
    pub fn compression(self) -> Option<Compression> {
        Compression::from_code(self.0 & Self::COMPRESSION)
    }

    /// Who stamped the records.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds a marker and not data.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is the time from which tombstones may go.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// These bits with those for log append time.
    pub fn with_log_append_time(self) -> Self {
        Self(self.0 | Self::LOG_APPEND_TIME)
    }

    pub(super) fn with_delete_horizon(self) -> Self {
        Self(self.0 | Self::DELETE_HORIZON)
    }
}

/// A batch's header. Only magic and length were checked, everything else is as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record, also of one that compaction removed.
    pub base_offset: i64,
    /// Bytes behind this field; the whole batch takes `total_length`.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch.
    pub partition_leader_epoch: i32,
    /// 2.
    pub magic: i8,
    /// CRC32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// Offset of the last record less the base offset; survives compaction.
    pub last_offset_delta: i32,
    /// In milliseconds; the records' timestamps count from it.
    pub base_timestamp: i64,
    /// In milliseconds; -1 if the records have none.
    pub max_timestamp: i64,
    /// -1 if the producer is not idempotent.
    pub producer_id: i64,
    /// -1 if the producer is not idempotent.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 if the producer is not idempotent.
    pub base_sequence: i32,
    /// Records in the batch; 0 in a batch that compaction emptied.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which need not hold the whole batch.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::parse_at(bytes, 0)
    }

    pub(super) fn parse_at(bytes: &[u8], position: usize) -> Result<Self, BatchError> {
        let remaining = bytes.len();
        // The magic stands at the same place in all formats, and a message set may be shorter than a header.
        if let Some(&magic) = bytes.get(MAGIC_AT).filter(|magic| **magic as i8 != MAGIC) {
            return Err(BatchError::UnsupportedMagic {
                position,
                magic: magic as i8,
            });
        }
        let Some(header) = bytes.first_chunk::<BATCH_HEADER_LENGTH>() else {
            return Err(BatchError::Truncated {
                position,
                needed: BATCH_HEADER_LENGTH,
                remaining,
            });
        };
        let parsed = Self {
            base_offset: i64::from_be_bytes(field(header, BASE_OFFSET)),
            batch_length: i32::from_be_bytes(field(header, BATCH_LENGTH)),
            partition_leader_epoch: i32::from_be_bytes(field(header, PARTITION_LEADER_EPOCH)),
            magic: MAGIC,
            crc: u32::from_be_bytes(field(header, CRC)),
            attributes: Attributes(i16::from_be_bytes(field(header, ATTRIBUTES))),
            last_offset_delta: i32::from_be_bytes(field(header, LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(header, BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(header, MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(field(header, PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(field(header, PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(field(header, BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(header, RECORD_COUNT)),
        };
        if parsed.batch_length < (BATCH_HEADER_LENGTH - LENGTH_PREFIX) as i32 {
            return Err(BatchError::BadLength {
                position,
                length: parsed.batch_length,
            });
        }
        Ok(parsed)
    }

    pub(super) fn write(&self, header: &mut [u8; BATCH_HEADER_LENGTH]) {
        put(header, BASE_OFFSET, &self.base_offset.to_be_bytes());
        put(header, BATCH_LENGTH, &self.batch_length.to_be_bytes());
        put(
            header,
            PARTITION_LEADER_EPOCH,
            &self.partition_leader_epoch.to_be_bytes(),
        );
        put(header, MAGIC_AT, &self.magic.to_be_bytes());
        put(header, CRC, &self.crc.to_be_bytes());
        put(header, ATTRIBUTES, &self.attributes.0.to_be_bytes());
        put(
            header,
            LAST_OFFSET_DELTA,
            &self.last_offset_delta.to_be_bytes(),
        );
        put(header, BASE_TIMESTAMP, &self.base_timestamp.to_be_bytes());
        put(header, MAX_TIMESTAMP, &self.max_timestamp.to_be_bytes());
        put(header, PRODUCER_ID, &self.producer_id.to_be_bytes());
        put(header, PRODUCER_EPOCH, &self.producer_epoch.to_be_bytes());
        put(header, BASE_SEQUENCE, &self.base_sequence.to_be_bytes());
        put(header, RECORD_COUNT, &self.record_count.to_be_bytes());
    }

    /// Bytes of the whole batch, header and all.
    pub fn total_length(&self) -> usize {
        LENGTH_PREFIX + self.batch_length.max(0) as usize
    }

    /// Offset of the last record, inclusive.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset behind the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Sequence of the last record; sequences wrap from 2^31 - 1 to 0. -1 without a sequence.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (last & i64::from(i32::MAX)) as i32
    }

    /// Whether the producer is idempotent.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id >= 0
    }
}

fn field<const N: usize>(header: &[u8; BATCH_HEADER_LENGTH], at: usize) -> [u8; N] {
    std::array::from_fn(|position| header[at + position])
}

fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Whether the CRC of one whole batch is right; false for bytes too short to hold one.
pub fn crc_matches(batch: &[u8]) -> bool {
    match batch.first_chunk::<BATCH_HEADER_LENGTH>() {
        Some(header) => u32::from_be_bytes(field(header, CRC)) == crc(&batch[ATTRIBUTES..]),
        None => false,
    }
}

pub(super) fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Sets what a leader sets on append. Both fields stand in front of what the CRC covers.
///
/// Does nothing to bytes too short to hold a header.
pub fn patch_base_offset_and_epoch(
    batch: &mut [u8],
    base_offset: i64,
    partition_leader_epoch: i32,
) {
    if let Some(header) = batch.first_chunk_mut::<BATCH_HEADER_LENGTH>() {
        put(header, BASE_OFFSET, &base_offset.to_be_bytes());
        put(
            header,
            PARTITION_LEADER_EPOCH,
            &partition_leader_epoch.to_be_bytes(),
        );
    }
}

/// Stamps one whole batch with the leader's time, in milliseconds, and renews its CRC (topic config
/// `message.timestamp.type=LogAppendTime`). The base timestamp stays, as in Kafka.
pub fn set_log_append_time(batch: &mut [u8], timestamp: i64) {
    let Some(header) = batch.first_chunk_mut::<BATCH_HEADER_LENGTH>() else {
        return;
    };
    let attributes =
        Attributes(i16::from_be_bytes(field(header, ATTRIBUTES))).with_log_append_time();
    put(header, ATTRIBUTES, &attributes.0.to_be_bytes());
    set_max_timestamp(batch, timestamp);
}

/// Sets the max timestamp of one whole batch, in milliseconds, and renews its CRC.
pub fn set_max_timestamp(batch: &mut [u8], timestamp: i64) {
    if batch.len() < BATCH_HEADER_LENGTH {
        return;
    }
    put(batch, MAX_TIMESTAMP, &timestamp.to_be_bytes());
    let renewed = crc(&batch[ATTRIBUTES..]);
    put(batch, CRC, &renewed.to_be_bytes());
}
