//! Writes values into a growing buffer; bytes that stay in a file are left out as holes.

use crate::error::EncodeError;
use crate::varint;
use crate::{Records, Uuid};

/// Bytes that belong into the frame but come from elsewhere, a file mostly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Where in `Writer::buf` the bytes go: before the byte at this position.
    pub position: usize,
    /// How many bytes.
    pub length: usize,
}

/// A message as it is written. What is sent is `buf` with the holes filled, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writer {
    /// The bytes, without those of the holes.
    pub buf: Vec<u8>,
    /// By ascending position.
    pub holes: Vec<Hole>,
}

impl Writer {
    /// Nothing written yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes behind what `buf` holds, so that a buffer can be used again.
    pub fn with_buffer(buf: Vec<u8>) -> Self {
        Self {
            buf,
            holes: Vec::new(),
        }
    }

    /// Bytes on the wire: the buffer and the holes.
    pub fn total_length(&self) -> usize {
        self.buf.len() + self.holes.iter().map(|hole| hole.length).sum::<usize>()
    }

    /// One byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.buf.push(u8::from(value));
    }

    /// One byte.
    pub fn i8(&mut self, value: i8) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Two bytes, big-endian.
    pub fn i16(&mut self, value: i16) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Two bytes, big-endian.
    pub fn u16(&mut self, value: u16) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Four bytes, big-endian.
    pub fn i32(&mut self, value: i32) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Four bytes, big-endian.
    pub fn u32(&mut self, value: u32) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Eight bytes, big-endian.
    pub fn i64(&mut self, value: i64) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Eight bytes, big-endian.
    pub fn f64(&mut self, value: f64) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self, value: &Uuid) {
        self.buf.extend_from_slice(&value.0);
    }

    /// An unsigned varint.
    pub fn uvarint(&mut self, value: u32) {
        varint::write_unsigned(&mut self.buf, value);
    }

    /// A string; at most 32,767 bytes before flexible versions.
    pub fn string(&mut self, value: &str, flexible: bool) -> Result<(), EncodeError> {
        if flexible {
            self.compact_length(value.len())?;
        } else {
            let length = i16::try_from(value.len()).map_err(|_| EncodeError::TooLong {
                length: value.len(),
            })?;
            self.i16(length);
        }
        self.buf.extend_from_slice(value.as_bytes());
        Ok(())
    }

    /// A null string.
    pub fn null_string(&mut self, flexible: bool) {
        if flexible {
            self.uvarint(0)
        } else {
            self.i16(-1)
        }
    }

    /// Bytes.
    pub fn bytes(&mut self, value: &[u8], flexible: bool) -> Result<(), EncodeError> {
        self.array_length(value.len(), flexible)?;
        self.buf.extend_from_slice(value);
        Ok(())
    }

    /// The length in front of an array's elements, or of bytes.
    pub fn array_length(&mut self, length: usize, flexible: bool) -> Result<(), EncodeError> {
        if flexible {
            return self.compact_length(length);
        }
        self.i32(i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?);
        Ok(())
    }

    /// A null array, or null bytes.
    pub fn null_array(&mut self, flexible: bool) {
        if flexible {
            self.uvarint(0)
        } else {
            self.i32(-1)
        }
    }

    /// Records; a hole is noted and not written.
    pub fn records(&mut self, records: &Records, flexible: bool) -> Result<(), EncodeError> {
        match records {
            Records::Null => self.null_array(flexible),
            Records::Inline(bytes) => self.bytes(bytes, flexible)?,
            Records::Hole(length) => {
                self.array_length(*length, flexible)?;
                if *length > 0 {
                    self.holes.push(Hole {
                        position: self.buf.len(),
                        length: *length,
                    });
                }
            }
            Records::Range(_) => return Err(EncodeError::RecordsOfAnotherFrame),
        }
        Ok(())
    }

    /// A tagged field: tag, size, and what `write` writes (which holds no records).
    pub fn tagged_field(
        &mut self,
        tag: u32,
        write: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.uvarint(tag);
        let start = self.buf.len();
        write(self)?;
        let end = self.buf.len();
        let size = u32::try_from(end - start).map_err(|_| EncodeError::TooLong {
            length: end - start,
        })?;
        // The size is known only now: write it behind the value, then turn the two round.
        self.uvarint(size);
        let size_width = self.buf.len() - end;
        self.buf[start..].rotate_right(size_width);
        Ok(())
    }

    fn compact_length(&mut self, length: usize) -> Result<(), EncodeError> {
        match i32::try_from(length) {
            Ok(fits) => self.uvarint(fits as u32 + 1),
            Err(_) => return Err(EncodeError::TooLong { length }),
        }
        Ok(())
    }
}
