//! A message field that holds record batches. Their bytes are never copied on decode, and need not be in memory on encode.

use std::ops::Range;

/// Record batches within a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// Null. Never send it in a fetch response: librdkafka and sarama break (KAFKA-18646).
    Null,
    /// What decoding gives: where the bytes stand, counted from the start of the frame that the `Reader` was made with.
    Range(Range<usize>),
    /// What encoding takes: the bytes.
    Inline(Vec<u8>),
    /// What encoding takes: this many bytes will follow from elsewhere; the `Writer` notes where.
    Hole(usize),
}

impl Default for Records {
    /// Empty, not null.
    fn default() -> Self {
        Self::Inline(Vec::new())
    }
}

impl Records {
    /// The bytes, given the frame that the message was decoded from; none for null and for holes.
    pub fn bytes<'a>(&'a self, frame: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Null | Self::Hole(_) => None,
            Self::Range(range) => frame.get(range.clone()),
            Self::Inline(bytes) => Some(bytes),
        }
    }

    /// Bytes on the wire, without the length in front.
    pub fn len(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Range(range) => range.len(),
            Self::Inline(bytes) => bytes.len(),
            Self::Hole(length) => *length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same with the bytes of the decoded frame, so that it can be encoded again.
    pub fn to_inline(&self, frame: &[u8]) -> Self {
        match self {
            Self::Range(range) => {
                Self::Inline(frame.get(range.clone()).unwrap_or_default().to_vec())
            }
            other => other.clone(),
        }
    }
}
