//! Reads values from a frame. Checks every length against the bytes that are left before it allocates, and never panics.

use crate::error::DecodeError;
use crate::varint;
use crate::{Records, Uuid};

/// Memory that one message may take: this many times the bytes of its frame, plus the slack.
/// The leanest honest element, a struct of empty strings, takes 12 to 16 times its bytes.
const MEMORY_PER_FRAME_BYTE: usize = 16;
/// Lets small frames be odd; 64 KiB a request is nothing.
const MEMORY_SLACK: usize = 64 * 1024;

/// A cursor over one frame.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    frame: &'a [u8],
    position: usize,
    memory: usize,
}

impl<'a> Reader<'a> {
    /// Reads `frame` from its start.
    pub fn new(frame: &'a [u8]) -> Self {
        Self::at(frame, 0)
    }

    /// Reads `frame` from `position` on (its end if that is past it), so that `Records::Range` counts from the start of `frame`.
    pub fn at(frame: &'a [u8], position: usize) -> Self {
        let memory = frame
            .len()
            .saturating_mul(MEMORY_PER_FRAME_BYTE)
            .saturating_add(MEMORY_SLACK);
        Self {
            frame,
            position: position.min(frame.len()),
            memory,
        }
    }

    /// Bytes read so far, counted from the start of the frame.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.frame.len() - self.position
    }

    /// The bytes not yet read.
    pub fn rest(&self) -> &'a [u8] {
        &self.frame[self.position..]
    }

    /// An error unless everything was read.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            trailing => Err(DecodeError::TrailingBytes(trailing)),
        }
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        if length > self.remaining() {
            return Err(self.truncated(length));
        }
        let start = self.position;
        self.position += length;
        Ok(&self.frame[start..self.position])
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest().first_chunk::<N>() {
            Some(bytes) => {
                self.position += N;
                Ok(*bytes)
            }
            None => Err(self.truncated(N)),
        }
    }

    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated {
            position: self.position,
            needed,
            remaining: self.remaining(),
        }
    }

    /// One byte; anything but 0 is true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    /// One byte.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.take_array().map(i8::from_be_bytes)
    }

    /// Two bytes, big-endian.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.take_array().map(i16::from_be_bytes)
    }

    /// Two bytes, big-endian.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take_array().map(u16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.take_array().map(i32::from_be_bytes)
    }

    /// Four bytes, big-endian.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take_array().map(u32::from_be_bytes)
    }

    /// Eight bytes, big-endian.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.take_array().map(i64::from_be_bytes)
    }

    /// Eight bytes, big-endian.
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.take_array().map(f64::from_be_bytes)
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.take_array().map(Uuid)
    }

    /// An unsigned varint of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        self.varint_with(varint::read_unsigned)
    }

    /// A zigzag varint of at most 32 bits.
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        self.varint_with(varint::read)
    }

    /// A zigzag varint of at most 64 bits.
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        self.varint_with(varint::read_long)
    }

    fn varint_with<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<(T, usize), varint::VarintError>,
    ) -> Result<T, DecodeError> {
        match read(self.rest()) {
            Ok((value, length)) => {
                self.position += length;
                Ok(value)
            }
            Err(varint::VarintError::Truncated) => Err(self.truncated(self.remaining() + 1)),
            Err(varint::VarintError::TooLong) => Err(DecodeError::VarintTooLong {
                position: self.position,
            }),
        }
    }

    /// A string that may not be null.
    pub fn string(&mut self, flexible: bool) -> Result<String, DecodeError> {
        self.nullable_string(flexible)?
            .ok_or_else(|| self.null_not_allowed())
    }

    /// A string or null.
    pub fn nullable_string(&mut self, flexible: bool) -> Result<Option<String>, DecodeError> {
        let Some(text) = self.nullable_str(flexible)? else {
            return Ok(None);
        };
        self.charge(text.len())?;
        Ok(Some(text.to_owned()))
    }

    /// A string or null, borrowed from the frame.
    pub fn nullable_str(&mut self, flexible: bool) -> Result<Option<&'a str>, DecodeError> {
        let length = if flexible {
            self.compact_length()?
        } else {
            self.length_of(i32::from(self.peek_i16()?), 2)?
        };
        let Some(length) = length else {
            return Ok(None);
        };
        let position = self.position;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map(Some)
            .map_err(|_| DecodeError::NotUtf8 { position })
    }

    /// Bytes that may not be null.
    pub fn bytes(&mut self, flexible: bool) -> Result<Vec<u8>, DecodeError> {
        self.nullable_bytes(flexible)?
            .ok_or_else(|| self.null_not_allowed())
    }

    /// Bytes or null.
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<Vec<u8>>, DecodeError> {
        let Some(length) = self.array_length(flexible)? else {
            return Ok(None);
        };
        let bytes = self.take(length)?;
        self.charge(length)?;
        Ok(Some(bytes.to_vec()))
    }

    /// Records: where they stand in the frame, never a copy.
    pub fn nullable_records(&mut self, flexible: bool) -> Result<Records, DecodeError> {
        let Some(length) = self.array_length(flexible)? else {
            return Ok(Records::Null);
        };
        self.take(length)?;
        Ok(Records::Range(self.position - length..self.position))
    }

    /// Records that may not be null.
    pub fn records(&mut self, flexible: bool) -> Result<Records, DecodeError> {
        match self.nullable_records(flexible)? {
            Records::Null => Err(self.null_not_allowed()),
            records => Ok(records),
        }
    }

    /// An array that may not be null; an element takes at least `minimal_size` bytes (1 or more).
    pub fn array<T>(
        &mut self,
        flexible: bool,
        minimal_size: usize,
        read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        self.nullable_array(flexible, minimal_size, read)?
            .ok_or_else(|| self.null_not_allowed())
    }

    /// An array or null; an element takes at least `minimal_size` bytes (1 or more).
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        minimal_size: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(length) = self.array_length(flexible)? else {
            return Ok(None);
        };
        if length > self.remaining() / minimal_size.max(1) {
            return Err(DecodeError::ArrayTooLong {
                position: self.position,
                length,
                remaining: self.remaining(),
            });
        }
        self.charge(length.saturating_mul(size_of::<T>()))?;
        let mut elements = Vec::with_capacity(length);
        for _ in 0..length {
            elements.push(read(self)?);
        }
        Ok(Some(elements))
    }

    /// Takes what is about to be allocated off what the message may take.
    fn charge(&mut self, memory: usize) -> Result<(), DecodeError> {
        match self.memory.checked_sub(memory) {
            Some(left) => {
                self.memory = left;
                Ok(())
            }
            None => Err(DecodeError::TooMuchMemory {
                frame: self.frame.len(),
            }),
        }
    }

    /// A struct behind a marker byte: negative is null.
    pub fn nullable_struct<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.i8()? < 0 {
            return Ok(None);
        }
        read(self).map(Some)
    }

    /// The tagged fields at the end of a flexible struct. `read` reads a tag that it knows and says true, or says false;
    /// unknown ones are skipped.
    pub fn tagged_fields(
        &mut self,
        mut read: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let count = self.uvarint()?;
        let mut previous = None;
        for _ in 0..count {
            let tag = self.uvarint()?;
            if let Some(previous) = previous.filter(|previous| tag <= *previous) {
                return Err(DecodeError::TagOrder { previous, tag });
            }
            previous = Some(tag);
            let size = self.uvarint()? as usize;
            if size > self.remaining() {
                return Err(self.truncated(size));
            }
            let start = self.position;
            if !read(self, tag)? {
                self.position = start + size;
            }
            let used = self.position - start;
            if used != size {
                return Err(DecodeError::TagSize { tag, size, used });
            }
        }
        Ok(())
    }

    /// The length of bytes or an array; none is null.
    fn array_length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return self.compact_length();
        }
        let length = match self.rest().first_chunk::<4>() {
            Some(bytes) => i32::from_be_bytes(*bytes),
            None => return Err(self.truncated(4)),
        };
        self.length_of(length, 4)
    }

    fn peek_i16(&self) -> Result<i16, DecodeError> {
        match self.rest().first_chunk::<2>() {
            Some(bytes) => Ok(i16::from_be_bytes(*bytes)),
            None => Err(self.truncated(2)),
        }
    }

    fn length_of(&mut self, length: i32, width: usize) -> Result<Option<usize>, DecodeError> {
        self.position += width;
        match length {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => Err(DecodeError::BadLength {
                    position: self.position,
                    length: i64::from(length),
                }),
            },
        }
    }

    fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        Ok((self.uvarint()? as usize).checked_sub(1))
    }

    fn null_not_allowed(&self) -> DecodeError {
        DecodeError::BadLength {
            position: self.position,
            length: -1,
        }
    }
}
