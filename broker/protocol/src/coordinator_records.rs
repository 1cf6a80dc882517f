//! Bytes of the records in `__consumer_offsets`, as Kafka's group coordinator writes and reads them.
//!
//! A key starts with an `i16` that is the record's type (0 and 1: a committed offset, 2: a group), a value with an `i16`
//! that is its version. A record with a null value removes what its key names.

use crate::Message;
use crate::error::{DecodeError, EncodeError};
use crate::messages::{GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue};
use crate::reader::Reader;
use crate::writer::Writer;

/// Kafka still reads type 0, written before 0.9.
const LEGACY_OFFSET_COMMIT: i16 = 0;
const OFFSET_COMMIT: i16 = 1;
const GROUP_METADATA: i16 = 2;
const KEY_VERSION: i16 = 0;
const GROUP_METADATA_VALUE: i16 = 3;

/// What a record is about.
#[derive(Clone, Debug, PartialEq)]
pub enum CoordinatorKey {
    /// The offset that a group committed for a partition; the value is an `OffsetCommitValue`.
    OffsetCommit(OffsetCommitKey),
    /// A classic group; the value is a `GroupMetadataValue`.
    GroupMetadata(GroupMetadataKey),
}

impl CoordinatorKey {
    /// The key's bytes.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        match self {
            Self::OffsetCommit(key) => encode_behind(OFFSET_COMMIT, key, KEY_VERSION),
            Self::GroupMetadata(key) => encode_behind(GROUP_METADATA, key, KEY_VERSION),
        }
    }

    /// Reads a key. `UnknownType` means a record of a later coordinator, which a reader may skip.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let key = match r.i16()? {
            LEGACY_OFFSET_COMMIT | OFFSET_COMMIT => {
                Self::OffsetCommit(OffsetCommitKey::decode(&mut r, KEY_VERSION)?)
            }
            GROUP_METADATA => Self::GroupMetadata(GroupMetadataKey::decode(&mut r, KEY_VERSION)?),
            unknown => return Err(DecodeError::UnknownType(unknown as u16 as u32)),
        };
        r.finish()?;
        Ok(key)
    }
}

/// The value of a committed offset: version 4 as Kafka 4.4 writes it, or 1 where an expiry time is set.
pub fn encode_offset_commit_value(value: &OffsetCommitValue) -> Result<Vec<u8>, EncodeError> {
    let version = if value.expire_timestamp == -1 {
        OffsetCommitValue::MAX_VERSION
    } else {
        1
    };
    encode_behind(version, value, version)
}

/// Reads the value of a committed offset.
pub fn decode_offset_commit_value(bytes: &[u8]) -> Result<OffsetCommitValue, DecodeError> {
    decode_versioned(bytes)
}

/// The value of a classic group, in the version that Kafka 4.4 writes (4 differs only by being flexible).
pub fn encode_group_metadata_value(value: &GroupMetadataValue) -> Result<Vec<u8>, EncodeError> {
    encode_behind(GROUP_METADATA_VALUE, value, GROUP_METADATA_VALUE)
}

/// Reads the value of a classic group.
pub fn decode_group_metadata_value(bytes: &[u8]) -> Result<GroupMetadataValue, DecodeError> {
    decode_versioned(bytes)
}

fn encode_behind<M: Message>(
    prefix: i16,
    message: &M,
    version: i16,
) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::new();
    w.i16(prefix);
    message.encode(&mut w, version)?;
    Ok(w.buf)
}

fn decode_versioned<M: Message>(bytes: &[u8]) -> Result<M, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.i16()?;
    let value = M::decode(&mut r, version)?;
    r.finish()?;
    Ok(value)
}
