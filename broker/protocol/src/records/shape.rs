//! Walks the records of one batch as Kafka does before it appends them, and tells what a log needs to know of them.

use super::{
    BATCH_HEADER_LENGTH, BatchError, BatchHeader, Compression, DecompressError, RecordError,
    RecordIter, TimestampType, decompress,
};
use std::borrow::Cow;

/// A batch whose records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// No batch, or not a whole one.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Attribute bits that name no codec.
    #[error("no codec has the number {0}")]
    UnknownCompression(i16),
    /// Compressed data that does not decompress.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// A record that is not laid out as one.
    #[error("record {index}: {source}")]
    Record {
        /// Position in the batch, from 0.
        index: i32,
        /// What is wrong.
        source: RecordError,
    },
    /// Fewer records than the header says.
    #[error("{found} records where the header says {claimed}")]
    TooFewRecords {
        /// Records in the batch.
        found: i32,
        /// Records that the header claims.
        claimed: i32,
    },
    /// Bytes behind the last record.
    #[error("{0} bytes behind the last record")]
    TrailingBytes(usize),
}

/// What the records of a batch look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordsShape {
    /// Records, as the header says.
    pub record_count: i32,
    /// Bytes of the records, decompressed.
    pub uncompressed_length: usize,
    /// Whether the offset deltas are 0, 1, 2, …, as a producer must write them.
    pub offsets_are_consecutive: bool,
    /// The position of the first record without a key, which a compacted topic refuses.
    pub first_without_key: Option<i32>,
    /// The smallest timestamp, in milliseconds; -1 without records.
    pub min_timestamp: i64,
    /// The largest timestamp, in milliseconds; -1 without records.
    pub max_timestamp: i64,
    /// The position of the first record that has it.
    pub max_timestamp_index: i32,
}

/// The records of one whole batch, decompressed to at most `limit` bytes; borrowed if they are not compressed.
pub fn uncompressed_records(
    batch: &[u8],
    limit: usize,
) -> Result<(BatchHeader, Cow<'_, [u8]>), RecordsError> {
    let header = BatchHeader::parse(batch)?;
    let needed = header.total_length();
    let Some(records) = batch.get(BATCH_HEADER_LENGTH..needed) else {
        return Err(BatchError::Truncated {
            position: 0,
            needed,
            remaining: batch.len(),
        }
        .into());
    };
    match header.attributes.compression() {
        None => Err(RecordsError::UnknownCompression(header.attributes.0 & 7)),
        Some(Compression::None) => Ok((header, Cow::Borrowed(records))),
        Some(codec) => Ok((header, Cow::Owned(decompress(codec, records, limit)?))),
    }
}

/// Reads every record of one whole batch (`DefaultRecordBatch`, `DefaultRecord` in Kafka); compressed ones are
/// decompressed to at most `limit` bytes. Neither CRC nor header fields are judged here.
pub fn validate_records(batch: &[u8], limit: usize) -> Result<RecordsShape, RecordsError> {
    let (header, records) = uncompressed_records(batch, limit)?;
    let mut shape = RecordsShape {
        record_count: header.record_count,
        uncompressed_length: records.len(),
        offsets_are_consecutive: true,
        min_timestamp: -1,
        max_timestamp: -1,
        ..RecordsShape::default()
    };
    let mut walk = RecordIter::new(&header, &records);
    let mut index = 0;
    while let Some(record) = walk.next() {
        let record = match record {
            Ok(record) => record,
            Err(RecordError::Truncated)
                if walk.rest().is_empty() && header.record_count > index =>
            {
                return Err(RecordsError::TooFewRecords {
                    found: index,
                    claimed: header.record_count,
                });
            }
            Err(source) => return Err(RecordsError::Record { index, source }),
        };
        shape.offsets_are_consecutive &= record.offset_delta == index;
        if record.key.is_none() && shape.first_without_key.is_none() {
            shape.first_without_key = Some(index);
        }
        if index == 0 || record.timestamp < shape.min_timestamp {
            shape.min_timestamp = record.timestamp;
        }
        if index == 0 || record.timestamp > shape.max_timestamp {
            shape.max_timestamp = record.timestamp;
            shape.max_timestamp_index = index;
        }
        index += 1;
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime && index == 0 {
        shape.max_timestamp = header.max_timestamp;
    }
    match walk.rest() {
        [] => Ok(shape),
        trailing => Err(RecordsError::TrailingBytes(trailing.len())),
    }
}
