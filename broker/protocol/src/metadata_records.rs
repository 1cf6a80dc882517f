//! Bytes of the metadata log's records: one record, and a list of them (a Raft entry, a piece of a snapshot).
//!
//! ```text
//! record   unsigned varint frame version (1), unsigned varint type, unsigned varint version, the fields
//! list     for each record: unsigned varint length, the record
//! ```

pub use crate::messages::MetadataRecord;

use crate::error::{DecodeError, EncodeError};
use crate::reader::Reader;
use crate::writer::Writer;

const FRAME_VERSION: u32 = 1;

/// The bytes of one record.
pub fn encode(record: &MetadataRecord) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::new();
    encode_into(&mut w, record)?;
    Ok(w.buf)
}

fn encode_into(w: &mut Writer, record: &MetadataRecord) -> Result<(), EncodeError> {
    w.uvarint(FRAME_VERSION);
    w.uvarint(record.record_type());
    w.uvarint(u32::from(record.version().unsigned_abs()));
    record.encode_body(w, record.version())
}

/// Reads one record, which must fill the bytes.
pub fn decode(bytes: &[u8]) -> Result<MetadataRecord, DecodeError> {
    let mut r = Reader::new(bytes);
    let frame_version = r.uvarint()?;
    if frame_version != FRAME_VERSION {
        return Err(DecodeError::UnknownType(frame_version));
    }
    let record_type = r.uvarint()?;
    let version = r.uvarint()?;
    let version = i16::try_from(version).map_err(|_| DecodeError::UnknownType(version))?;
    let record = MetadataRecord::decode_body(&mut r, record_type, version)?;
    r.finish()?;
    Ok(record)
}

/// The bytes of a list of records; none for an empty list.
pub fn encode_all(records: &[MetadataRecord]) -> Result<Vec<u8>, EncodeError> {
    let mut out = Writer::new();
    let mut one = Writer::new();
    for record in records {
        one.buf.clear();
        encode_into(&mut one, record)?;
        let length = one.buf.len();
        out.uvarint(u32::try_from(length).map_err(|_| EncodeError::TooLong { length })?);
        out.buf.extend_from_slice(&one.buf);
    }
    Ok(out.buf)
}

/// Reads a list of records, which must fill the bytes.
pub fn decode_all(bytes: &[u8]) -> Result<Vec<MetadataRecord>, DecodeError> {
    let mut r = Reader::new(bytes);
    let mut records = Vec::new();
    while r.remaining() > 0 {
        let length = r.uvarint()? as usize;
        records.push(decode(r.take(length)?)?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uuid;
    use crate::messages::*;

    fn samples() -> Vec<MetadataRecord> {
        vec![
            MetadataRecord::RegisterBroker(RegisterBrokerRecord {
                broker_id: 1,
                broker_epoch: 7,
                incarnation: Uuid([1; 16]),
                log_directories: vec![Uuid([2; 16])],
                listeners: vec![register_broker_record::Listener {
                    name: "internal".into(),
                    host: "localhost".into(),
                    port: 9093,
                }],
                rack: Some("a".into()),
                fenced: true,
            }),
            MetadataRecord::Topic(TopicRecord {
                topic_id: Uuid([3; 16]),
                name: "orders".into(),
            }),
            MetadataRecord::Partition(PartitionRecord {
                topic_id: Uuid([3; 16]),
                partition: 2,
                replicas: vec![1, 2, 3],
                isr: vec![1],
                leader: 1,
                leader_epoch: 4,
                partition_epoch: 9,
                ..PartitionRecord::default()
            }),
            MetadataRecord::Config(ConfigRecord {
                resource_type: 2,
                resource_name: "orders".into(),
                name: "retention.ms".into(),
                value: None,
            }),
            MetadataRecord::Voter(VoterRecord {
                broker_id: 1,
                directory_id: Uuid([2; 16]),
                since: 3,
            }),
            MetadataRecord::RemoveVoter(RemoveVoterRecord {
                broker_id: 1,
                since: 4,
            }),
            MetadataRecord::VoterLog(VoterLogRecord {
                broker_id: 1,
                log_end: 9,
            }),
            MetadataRecord::InviteVoter(InviteVoterRecord {
                broker_id: 1,
                directory_id: Uuid([3; 16]),
                since: 5,
                removed: 4,
            }),
            MetadataRecord::NoOp(NoOpRecord::default()),
        ]
    }

    #[test]
    fn records_come_back_alone_and_in_a_list() {
        let records = samples();
        for record in &records {
            assert_eq!(decode(&encode(record).unwrap()).as_ref(), Ok(record));
        }
        assert_eq!(decode_all(&encode_all(&records).unwrap()), Ok(records));
        assert_eq!(decode_all(&[]), Ok(vec![]));
    }

    #[test]
    fn known_bytes() {
        let record = MetadataRecord::Topic(TopicRecord {
            topic_id: Uuid([9; 16]),
            name: "ab".into(),
        });
        let mut expected = vec![1, 5, 0];
        expected.extend_from_slice(&[9; 16]);
        expected.extend_from_slice(&[3, b'a', b'b', 0]);
        assert_eq!(encode(&record), Ok(expected));
    }

    #[test]
    fn unknown_frames_types_and_versions_are_refused() {
        assert_eq!(decode(&[2, 5, 0]), Err(DecodeError::UnknownType(2)));
        assert_eq!(decode(&[1, 99, 0]), Err(DecodeError::UnknownType(99)));
        assert_eq!(
            decode(&[1, 11, 1, 0]),
            Err(DecodeError::UnsupportedVersion {
                message: "NoOpRecord",
                version: 1
            })
        );
        assert_eq!(
            decode(&[1, 11, 0, 0, 0]),
            Err(DecodeError::TrailingBytes(1))
        );
    }

    #[test]
    fn every_truncation_is_refused() {
        for record in samples() {
            let bytes = encode(&record).unwrap();
            for length in 0..bytes.len() {
                assert!(
                    decode(&bytes[..length]).is_err(),
                    "{record:?} cut to {length}"
                );
            }
        }
    }
}
