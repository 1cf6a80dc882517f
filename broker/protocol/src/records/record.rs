//! The records within a batch, borrowed from its decompressed bytes.

use super::{BatchHeader, TimestampType};
use crate::varint::{self, VarintError};
use std::iter::FusedIterator;

/// A record that is not laid out as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end within the record, or a length within it points behind its end.
    #[error("the record is cut off")]
    Truncated,
    /// A varint that does not fit its type.
    #[error("a varint is too long")]
    VarintTooLong,
    /// A negative length that does not stand for null.
    #[error("a length of {0}")]
    BadLength(i32),
    /// The fields take fewer bytes than the record's length.
    #[error("{0} bytes behind the last header")]
    TrailingBytes(usize),
}

impl From<VarintError> for RecordError {
    fn from(error: VarintError) -> Self {
        match error {
            VarintError::Truncated => Self::Truncated,
            VarintError::TooLong => Self::VarintTooLong,
        }
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// No bit is in use.
    pub attributes: i8,
    /// Its place in the log.
    pub offset: i64,
    /// Its offset less the batch's base offset.
    pub offset_delta: i32,
    /// In milliseconds; the batch's max timestamp if the leader stamped it.
    pub timestamp: i64,
    /// Null without a key.
    pub key: Option<&'a [u8]>,
    /// Null in a tombstone.
    pub value: Option<&'a [u8]>,
    header_count: usize,
    headers: &'a [u8],
}

/// A key and a value beside a record. Keys may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader<'a> {
    /// UTF-8 by convention, but nobody checks.
    pub key: &'a [u8],
    /// May be null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// The headers, in order. They were checked when the record was read.
    pub fn headers(&self) -> HeaderIter<'a> {
        HeaderIter {
            bytes: self.headers,
            count: self.header_count,
        }
    }
}

/// The headers of a record.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = RecordHeader<'a>;

    fn next(&mut self) -> Option<RecordHeader<'a>> {
        self.count = self.count.checked_sub(1)?;
        read_header(&mut self.bytes).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

/// Reads the records of a batch from its decompressed bytes; ends after the first error or the batch's record count.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    left: i32,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
}

impl<'a> RecordIter<'a> {
    /// `records` is what stands behind the header, decompressed.
    pub fn new(header: &BatchHeader, records: &'a [u8]) -> Self {
        let append_time = match header.attributes.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp),
        };
        Self {
            rest: records,
            left: header.record_count.max(0),
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time,
        }
    }

    /// The bytes behind the records read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn read(&mut self) -> Result<Record<'a>, RecordError> {
        let length = read_varint(&mut self.rest)?;
        let mut body = take(&mut self.rest, length)?;
        let attributes = take(&mut body, 1)?[0] as i8;
        let (timestamp_delta, width) = varint::read_long(body)?;
        body = &body[width..];
        let offset_delta = read_varint(&mut body)?;
        let key = read_nullable(&mut body)?;
        let value = read_nullable(&mut body)?;
        let count = read_varint(&mut body)?;
        let header_count = usize::try_from(count).map_err(|_| RecordError::BadLength(count))?;
        let headers = body;
        for _ in 0..header_count {
            read_header(&mut body)?;
        }
        if !body.is_empty() {
            return Err(RecordError::TrailingBytes(body.len()));
        }
        Ok(Record {
            attributes,
            offset: self.base_offset.wrapping_add(i64::from(offset_delta)),
            offset_delta,
            timestamp: self
                .append_time
                .unwrap_or(self.base_timestamp.wrapping_add(timestamp_delta)),
            key,
            value,
            header_count,
            headers,
        })
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let record = self.read();
        self.left = if record.is_ok() { self.left - 1 } else { 0 };
        Some(record)
    }
}

impl FusedIterator for RecordIter<'_> {}

#[inline]
fn read_varint(bytes: &mut &[u8]) -> Result<i32, RecordError> {
    let (value, width) = varint::read(bytes)?;
    *bytes = &bytes[width..];
    Ok(value)
}

#[inline]
fn take<'a>(bytes: &mut &'a [u8], length: i32) -> Result<&'a [u8], RecordError> {
    let length = usize::try_from(length).map_err(|_| RecordError::BadLength(length))?;
    let (taken, rest) = bytes
        .split_at_checked(length)
        .ok_or(RecordError::Truncated)?;
    *bytes = rest;
    Ok(taken)
}

#[inline]
fn read_nullable<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, RecordError> {
    match read_varint(bytes)? {
        -1 => Ok(None),
        length => take(bytes, length).map(Some),
    }
}

fn read_header<'a>(bytes: &mut &'a [u8]) -> Result<RecordHeader<'a>, RecordError> {
    let length = read_varint(bytes)?;
    Ok(RecordHeader {
        key: take(bytes, length)?,
        value: read_nullable(bytes)?,
    })
}
