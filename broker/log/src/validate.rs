//! What a producer's batch must be before it is appended, and the changes that the topic asks for. Runs outside of the
//! log's lock. (Kafka: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.)
//!
//! Uncompressed records are walked one by one. Compressed ones are decompressed only if the topic demands to know them:
//! it is compacted, it limits timestamps into the past, or it forces another codec. Otherwise their header counts.

use std::borrow::Cow;

use taffrail_protocol::records::{
    BATCH_HEADER_LENGTH, BatchError, BatchHeader, Compression, LENGTH_PREFIX, RecordIter,
    RecordsShape, TimestampType, compress, crc_matches, set_log_append_time, set_max_timestamp,
    uncompressed_records, validate_records,
};

use crate::config::LogConfig;

/// No timestamp in a record or batch.
const NO_TIMESTAMP: i64 = -1;

/// A compressed batch may grow to this at most when it is looked into: 32 times what the topic lets a producer send,
/// which text seldom exceeds and keeps the memory that one request can take in bounds (32 MiB by default); but at least
/// 16 MiB, for small limits hold well compressible records too.
pub(crate) fn decompressed_bytes_max(config: &LogConfig) -> usize {
    (config.max_message_bytes as usize)
        .saturating_mul(32)
        .max(16 << 20)
}

/// What a batch is checked against.
#[derive(Clone, Copy, Debug)]
pub struct ProduceRules<'a> {
    /// The topic's settings.
    pub config: &'a LogConfig,
    /// Wall time, in milliseconds.
    pub now_ms: i64,
    /// Whether the request's version knows zstd (Produce 7 and later).
    pub zstd_allowed: bool,
}

/// A batch that may be appended.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Its header, as it will be appended but for base offset and leader epoch.
    pub header: BatchHeader,
    /// What the response says: the broker's time if that stamps the records, else -1.
    pub log_append_time_ms: i64,
    /// The batch to append instead of the one that was sent, if the topic forces another codec.
    pub replacement: Option<Vec<u8>>,
}

/// Why a producer's batch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// INVALID_RECORD, with the records that are to blame, if it is about records.
    #[error("{message}")]
    InvalidRecord {
        /// What is wrong.
        message: String,
        /// Which records.
        records: Vec<RecordRefusal>,
    },
    /// INVALID_TIMESTAMP.
    #[error("{message}")]
    InvalidTimestamp {
        /// What is wrong.
        message: String,
        /// Which records; empty if they were not looked at.
        records: Vec<RecordRefusal>,
    },
    /// CORRUPT_MESSAGE.
    #[error("{message}")]
    Corrupt {
        /// What is wrong.
        message: String,
    },
    /// MESSAGE_TOO_LARGE.
    #[error("the batch has {bytes} bytes, max.message.bytes is {max}")]
    TooLarge {
        /// The batch's size.
        bytes: usize,
        /// What the topic allows.
        max: u32,
    },
    /// RECORD_LIST_TOO_LARGE.
    #[error("the batch has {bytes} bytes, segment.bytes is {segment_bytes}")]
    LargerThanSegment {
        /// The batch's size.
        bytes: usize,
        /// The size of a segment.
        segment_bytes: u32,
    },
    /// UNSUPPORTED_COMPRESSION_TYPE.
    #[error("zstd needs version 7 of the request or a later one")]
    UnsupportedCompression,
}

/// A record that is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRefusal {
    /// Its position in the batch, from 0.
    pub index: i32,
    /// What is wrong with it.
    pub message: String,
}

/// Records named in one refusal; a batch may have millions, and the response must stay small.
const NAMED_MAX: usize = 100;

/// Checks what a producer sent for one partition: exactly one batch. Timestamps are set in place where the topic
/// demands it.
pub fn check_produce(sent: &mut [u8], rules: &ProduceRules<'_>) -> Result<Checked, Refusal> {
    let config = rules.config;
    let header = one_batch(sent)?;
    check_size(sent.len(), config)?;
    if !crc_matches(sent) {
        return Err(Refusal::Corrupt {
            message: "the checksum of the batch does not match".to_owned(),
        });
    }
    let codec = check_header(&header, rules)?;
    let forced = config.compression.filter(|forced| *forced != codec);
    let looks_inside = codec == Compression::None
        || config.compact
        || forced.is_some()
        || config.timestamp_type == TimestampType::CreateTime
            && config.timestamp_before_max_ms < i64::MAX;
    let max_timestamp = if looks_inside {
        check_records(sent, &header, rules)?.max_timestamp
    } else {
        check_timestamp_range(header.max_timestamp, header.max_timestamp, rules).map_err(
            |message| Refusal::InvalidTimestamp {
                message,
                records: Vec::new(),
            },
        )?;
        header.max_timestamp
    };
    let replacement = match forced {
        Some(codec) => Some(recompressed(sent, codec, config)?),
        None => None,
    };
    let mut checked = Checked {
        header,
        log_append_time_ms: -1,
        replacement,
    };
    let batch = match &mut checked.replacement {
        Some(replacement) => replacement.as_mut_slice(),
        None => sent,
    };
    match config.timestamp_type {
        TimestampType::LogAppendTime => {
            set_log_append_time(batch, rules.now_ms);
            checked.log_append_time_ms = rules.now_ms;
        }
        TimestampType::CreateTime if max_timestamp != header.max_timestamp => {
            set_max_timestamp(batch, max_timestamp)
        }
        TimestampType::CreateTime => {}
    }
    checked.header = one_batch(batch)?;
    Ok(checked)
}

impl Checked {
    /// The bytes to append: the replacement, or what was sent.
    pub fn bytes<'a>(&'a mut self, sent: &'a mut [u8]) -> &'a mut [u8] {
        self.replacement.as_deref_mut().unwrap_or(sent)
    }
}

fn one_batch(sent: &[u8]) -> Result<BatchHeader, Refusal> {
    let header = match BatchHeader::parse(sent) {
        Ok(header) => header,
        Err(BatchError::UnsupportedMagic { magic, .. }) => {
            return Err(invalid(format!(
                "a batch of magic {magic} was sent, only 2 is taken"
            )));
        }
        Err(BatchError::Truncated { .. }) if sent.is_empty() => {
            return Err(invalid("no batch was sent".to_owned()));
        }
        Err(error) => {
            return Err(Refusal::Corrupt {
                message: error.to_string(),
            });
        }
    };
    match header.total_length() {
        length if length == sent.len() => Ok(header),
        length if length < sent.len() => Err(invalid(
            "more than one batch was sent for a partition".to_owned(),
        )),
        _ => Err(Refusal::Corrupt {
            message: "the batch is cut off".to_owned(),
        }),
    }
}

fn check_size(bytes: usize, config: &LogConfig) -> Result<(), Refusal> {
    if bytes > config.max_message_bytes as usize {
        return Err(Refusal::TooLarge {
            bytes,
            max: config.max_message_bytes,
        });
    }
    if bytes > config.segment_bytes as usize {
        return Err(Refusal::LargerThanSegment {
            bytes,
            segment_bytes: config.segment_bytes,
        });
    }
    Ok(())
}

/// What the header alone tells.
fn check_header(header: &BatchHeader, rules: &ProduceRules<'_>) -> Result<Compression, Refusal> {
    if header.base_offset != 0 {
        return Err(invalid(format!(
            "the base offset of a new batch must be 0, not {}",
            header.base_offset
        )));
    }
    let by_offsets = i64::from(header.last_offset_delta) + 1;
    if by_offsets <= 0 || i64::from(header.record_count) != by_offsets {
        let count = header.record_count;
        return Err(invalid(format!(
            "the batch claims {count} records and offsets for {by_offsets}"
        )));
    }
    if header.attributes.is_control() {
        return Err(invalid("a client may not write control records".to_owned()));
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(invalid(format!(
            "sequence {} with a producer id",
            header.base_sequence
        )));
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        let message = "a client may not stamp records with log append time".to_owned();
        return Err(Refusal::InvalidTimestamp {
            message,
            records: Vec::new(),
        });
    }
    match header.attributes.compression() {
        None => Err(invalid("the batch names an unknown codec".to_owned())),
        Some(Compression::Zstd) if !rules.zstd_allowed => Err(Refusal::UnsupportedCompression),
        Some(codec) => Ok(codec),
    }
}

/// Walks the records.
fn check_records(
    sent: &[u8],
    header: &BatchHeader,
    rules: &ProduceRules<'_>,
) -> Result<RecordsShape, Refusal> {
    let limit = decompressed_bytes_max(rules.config);
    let shape = validate_records(sent, limit).map_err(|error| invalid(error.to_string()))?;
    if !shape.offsets_are_consecutive {
        return Err(invalid(
            "the records' offsets are not 0, 1, 2, …".to_owned(),
        ));
    }
    if rules.config.compact && shape.first_without_key.is_some() {
        let message = "a compacted topic takes no record without a key".to_owned();
        let records = blame(sent, header, limit, |key, _| {
            key.is_none().then(|| message.clone())
        });
        return Err(Refusal::InvalidRecord { message, records });
    }
    if let Err(message) = check_timestamp_range(shape.min_timestamp, shape.max_timestamp, rules) {
        let records = blame(sent, header, limit, |_, at| {
            check_timestamp_range(at, at, rules).err()
        });
        return Err(Refusal::InvalidTimestamp { message, records });
    }
    Ok(shape)
}

/// Whether the broker's clock and the topic's limits allow timestamps from `min` to `max`; the message says what not.
fn check_timestamp_range(min: i64, max: i64, rules: &ProduceRules<'_>) -> Result<(), String> {
    let config = rules.config;
    if config.timestamp_type == TimestampType::LogAppendTime {
        return Ok(());
    }
    let earliest = rules.now_ms.saturating_sub(config.timestamp_before_max_ms);
    let latest = rules.now_ms.saturating_add(config.timestamp_after_max_ms);
    match () {
        () if min != NO_TIMESTAMP && min < earliest => {
            Err(format!("timestamp {min} is before {earliest}"))
        }
        () if max != NO_TIMESTAMP && max > latest => {
            Err(format!("timestamp {max} is after {latest}"))
        }
        () => Ok(()),
    }
}

/// The records for which `fault` has something to say.
fn blame(
    sent: &[u8],
    header: &BatchHeader,
    limit: usize,
    fault: impl Fn(Option<&[u8]>, i64) -> Option<String>,
) -> Vec<RecordRefusal> {
    // The same records were read a moment ago.
    let Ok((_, records)) = uncompressed_records(sent, limit) else {
        return Vec::new();
    };
    let records = RecordIter::new(header, &records).flatten().enumerate();
    let faults = records.filter_map(|(index, record)| {
        let message = fault(record.key, record.timestamp)?;
        Some(RecordRefusal {
            index: index as i32,
            message,
        })
    });
    faults.take(NAMED_MAX).collect()
}

/// The same records under another codec, at its default level.
fn recompressed(sent: &[u8], codec: Compression, config: &LogConfig) -> Result<Vec<u8>, Refusal> {
    let (header, records) = uncompressed_records(sent, decompressed_bytes_max(config))
        .map_err(|error| invalid(error.to_string()))?;
    let records: Cow<'_, [u8]> = match codec {
        Compression::None => records,
        Compression::Gzip | Compression::Snappy | Compression::Lz4 | Compression::Zstd => {
            Cow::Owned(compress(codec, &records))
        }
    };
    let size = BATCH_HEADER_LENGTH + records.len();
    check_size(size, config)?;
    let mut batch = Vec::with_capacity(size);
    batch.extend_from_slice(&sent[..BATCH_HEADER_LENGTH]);
    batch.extend_from_slice(&records);
    // The size was just found to be below a limit of 32 bits.
    let length = (size - LENGTH_PREFIX) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let attributes = (header.attributes.0 & !7) | codec.code();
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    // Unchanged, but the CRC is renewed with it.
    set_max_timestamp(&mut batch, header.max_timestamp);
    Ok(batch)
}

fn invalid(message: String) -> Refusal {
    Refusal::InvalidRecord {
        message,
        records: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
