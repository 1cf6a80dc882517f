//! The one record of a control batch that ends a transaction (Kafka's `ControlRecordType` and `EndTransactionMarker`).
//!
//! ```text
//! key      i16 version (0), i16 type: 0 abort, 1 commit
//! value    i16 version (0), i32 leader epoch of the transaction coordinator's partition
//! ```
//!
//! Later versions may append fields, which a reader of this one leaves out.

use super::shape::RecordsError;
use super::{BatchHeader, Compression, RecordBatchBuilder, RecordIter, uncompressed_records};

const VERSION: i16 = 0;
const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// How a transaction ended in a partition, and who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    /// Commit or abort.
    pub commit: bool,
    /// Leader epoch of the transaction coordinator's partition.
    pub coordinator_epoch: i32,
}

/// A control batch whose record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MarkerError {
    /// The batch does not hold records.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// Control batches never are.
    #[error("a control batch that is compressed")]
    Compressed,
    /// Key or value are shorter than their fields, or of a version that is none.
    #[error("a control record with a {0} of {1} bytes")]
    Malformed(&'static str, usize),
}

impl EndTransactionMarker {
    /// The marker in a whole control batch. `None` if the batch was emptied by compaction, or ends no transaction.
    pub fn read(batch: &[u8]) -> Result<Option<EndTransactionMarker>, MarkerError> {
        let header = BatchHeader::parse(batch).map_err(RecordsError::from)?;
        if header.attributes.compression() != Some(Compression::None) {
            return Err(MarkerError::Compressed);
        }
        let (header, records) = uncompressed_records(batch, 0)?;
        let Some(record) = RecordIter::new(&header, &records).next() else {
            return Ok(None);
        };
        let record = record.map_err(|source| RecordsError::Record { index: 0, source })?;
        let key = record.key.unwrap_or_default();
        let record_type = match key {
            [high, low, type_high, type_low, ..]
                if i16::from_be_bytes([*high, *low]) >= VERSION =>
            {
                i16::from_be_bytes([*type_high, *type_low])
            }
            _ => return Err(MarkerError::Malformed("key", key.len())),
        };
        let commit = match record_type {
            ABORT => false,
            COMMIT => true,
            _ => return Ok(None),
        };
        let value = record.value.unwrap_or_default();
        let coordinator_epoch = match value {
            [high, low, a, b, c, d, ..] if i16::from_be_bytes([*high, *low]) >= VERSION => {
                i32::from_be_bytes([*a, *b, *c, *d])
            }
            _ => return Err(MarkerError::Malformed("value", value.len())),
        };
        Ok(Some(EndTransactionMarker {
            commit,
            coordinator_epoch,
        }))
    }

    /// The control batch that holds it.
    pub fn batch(self, producer_id: i64, producer_epoch: i16, timestamp: i64) -> Vec<u8> {
        let record_type = if self.commit { COMMIT } else { ABORT };
        let key = [VERSION.to_be_bytes(), record_type.to_be_bytes()].concat();
        let value = [
            VERSION.to_be_bytes().as_slice(),
            &self.coordinator_epoch.to_be_bytes(),
        ]
        .concat();
        let mut batch = RecordBatchBuilder::new(0, timestamp)
            .producer(producer_id, producer_epoch, -1)
            .transactional(true)
            .control(true);
        batch.push(Some(&key), Some(&value), &[]);
        batch.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_come_back() {
        for commit in [true, false] {
            let marker = EndTransactionMarker {
                commit,
                coordinator_epoch: 7,
            };
            let batch = marker.batch(1_000, 3, 1_700_000_000_000);
            let header = BatchHeader::parse(&batch).expect("a batch");
            assert!(header.attributes.is_control() && header.attributes.is_transactional());
            assert_eq!(
                (
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence
                ),
                (1_000, 3, -1)
            );
            assert_eq!(
                EndTransactionMarker::read(&batch).expect("reads"),
                Some(marker)
            );
        }
    }

    /// The bytes were written by Kafka 4.4.0.
    #[test]
    fn a_marker_has_the_bytes_of_kafka() {
        let hex = "000000000000000000000042ffffffff02ad320ccb0030000000000000018bcfe568000000018bcfe5680000000000\
                   000003e80003ffffffff000000012000000008000000010c00000000000700";
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
            .collect();
        let marker = EndTransactionMarker {
            commit: true,
            coordinator_epoch: 7,
        };
        assert_eq!(marker.batch(1_000, 3, 1_700_000_000_000), bytes);
        assert_eq!(
            EndTransactionMarker::read(&bytes).expect("reads"),
            Some(marker)
        );
    }

    fn control(key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
        let mut batch = RecordBatchBuilder::new(0, 0).control(true);
        batch.push(key, value, &[]);
        batch.build()
    }

    #[test]
    fn what_is_no_marker_is_told_from_what_is_damaged() {
        let read =
            |batch: &[u8]| EndTransactionMarker::read(batch).map_err(|error| error.to_string());
        assert_eq!(
            read(&RecordBatchBuilder::new(0, 0).control(true).build()),
            Ok(None)
        );
        // A leader change of KRaft, and a marker of a later version with more in it.
        assert_eq!(read(&control(Some(&[0, 0, 0, 2]), Some(&[]))), Ok(None));
        assert_eq!(
            read(&control(
                Some(&[0, 1, 0, 1, 9]),
                Some(&[0, 1, 0, 0, 0, 5, 9])
            )),
            Ok(Some(EndTransactionMarker {
                commit: true,
                coordinator_epoch: 5
            }))
        );
        for (key, value) in [
            (None, None),
            (Some(&[0, 0, 0][..]), None),
            (Some(&[0xff, 0xff, 0, 0]), Some(&[0, 0, 0, 0, 0, 5][..])),
            (Some(&[0, 0, 0, 0]), Some(&[0, 0, 0, 0, 5])),
            (Some(&[0, 0, 0, 0]), None),
        ] {
            assert!(read(&control(key, value)).is_err(), "{key:?} {value:?}");
        }
        assert!(read(&[0; 10]).is_err());
        let compressed = RecordBatchBuilder::new(0, 0)
            .control(true)
            .compression(Compression::Gzip);
        assert!(read(&compressed.build()).is_err());
    }
}
