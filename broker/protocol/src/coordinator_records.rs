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

/// A message behind an `i16`: its version, or the type of its record.
pub(crate) fn encode_behind<M: Message>(
    prefix: i16,
    message: &M,
    version: i16,
) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::new();
    w.i16(prefix);
    message.encode(&mut w, version)?;
    Ok(w.buf)
}

/// A message behind its version.
pub(crate) fn decode_versioned<M: Message>(bytes: &[u8]) -> Result<M, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.i16()?;
    let value = M::decode(&mut r, version)?;
    r.finish()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uuid;
    use crate::messages::group_metadata_value::MemberMetadata;

    fn from_hex(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn counted_id() -> Uuid {
        Uuid(std::array::from_fn(|position| position as u8 + 1))
    }

    #[test]
    fn keys_have_the_bytes_of_kafka() {
        let commit = OffsetCommitKey {
            group: "g".into(),
            topic: "t".into(),
            partition: 5,
        };
        let group = GroupMetadataKey { group: "g".into() };
        for (key, hex) in [
            (
                CoordinatorKey::OffsetCommit(commit.clone()),
                "000100016700017400000005",
            ),
            (CoordinatorKey::GroupMetadata(group), "0002000167"),
        ] {
            assert_eq!(key.encode().unwrap(), from_hex(hex));
            assert_eq!(CoordinatorKey::decode(&from_hex(hex)), Ok(key));
        }
        let legacy = from_hex("000000016700017400000005");
        assert_eq!(
            CoordinatorKey::decode(&legacy),
            Ok(CoordinatorKey::OffsetCommit(commit))
        );
        assert_eq!(
            CoordinatorKey::decode(&[0, 3, 0, 0]),
            Err(DecodeError::UnknownType(3))
        );
    }

    /// The bytes were written by Kafka 4.4.0.
    #[test]
    fn committed_offsets_have_the_bytes_of_kafka() {
        let value = OffsetCommitValue {
            offset: 42,
            leader_epoch: 3,
            metadata: "m".into(),
            commit_timestamp: 1_700_000_000_000,
            topic_id: counted_id(),
            ..OffsetCommitValue::default()
        };
        let bytes = from_hex(
            "0004000000000000002a00000003026d0000018bcfe568000100100102030405060708090a0b0c0d0e0f10",
        );
        assert_eq!(encode_offset_commit_value(&value).unwrap(), bytes);
        assert_eq!(decode_offset_commit_value(&bytes), Ok(value.clone()));
        let expiring = OffsetCommitValue {
            leader_epoch: -1,
            topic_id: Uuid::ZERO,
            expire_timestamp: 7,
            ..value
        };
        let bytes = from_hex("0001000000000000002a00016d0000018bcfe568000000000000000007");
        assert_eq!(encode_offset_commit_value(&expiring).unwrap(), bytes);
        assert_eq!(decode_offset_commit_value(&bytes), Ok(expiring));
    }

    #[test]
    fn groups_have_the_bytes_of_kafka() {
        let value = GroupMetadataValue {
            protocol_type: "consumer".into(),
            generation: 4,
            protocol: Some("range".into()),
            leader: Some("m1".into()),
            current_state_timestamp: 99,
            members: vec![MemberMetadata {
                member_id: "m1".into(),
                group_instance_id: None,
                client_id: "c".into(),
                client_host: "/h".into(),
                rebalance_timeout: 300,
                session_timeout: 45,
                subscription: vec![1, 2],
                assignment: vec![3],
            }],
        };
        let bytes = from_hex(
            "00030008636f6e73756d657200000004000572616e676500026d3100000000000000630000000100026d31ffff000163\
             00022f680000012c0000002d0000000201020000000103",
        );
        assert_eq!(encode_group_metadata_value(&value).unwrap(), bytes);
        assert_eq!(decode_group_metadata_value(&bytes), Ok(value));
        for length in 0..bytes.len() {
            assert!(decode_group_metadata_value(&bytes[..length]).is_err());
        }
    }
}
