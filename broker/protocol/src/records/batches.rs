//! The batches of a piece of log or of a request, one after the other.

use super::{BatchError, BatchHeader};
use std::iter::FusedIterator;
use std::ops::Range;

/// Yields each batch's header and where the whole batch stands in the bytes; ends after the first error.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// Starts at the first byte, which must be the first of a batch.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            position: 0,
            failed: false,
        }
    }

    /// Bytes of the whole batches so far: where a torn tail is to be cut.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<(BatchHeader, Range<usize>), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if self.failed || rest.is_empty() {
            return None;
        }
        let header = match BatchHeader::parse_at(rest, self.position) {
            Ok(header) => header,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        let (position, needed, remaining) = (self.position, header.total_length(), rest.len());
        if needed > remaining {
            self.failed = true;
            return Some(Err(BatchError::Truncated {
                position,
                needed,
                remaining,
            }));
        }
        self.position += needed;
        Some(Ok((header, position..self.position)))
    }
}

impl FusedIterator for Batches<'_> {}
