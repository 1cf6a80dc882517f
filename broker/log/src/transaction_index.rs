//! The entries of `<base>.txnindex` (Kafka's `TransactionIndex`): the aborted transactions whose markers are in a segment.
//! The bytes are in FORMAT.md.

pub(crate) const TRANSACTION_INDEX_SUFFIX: &str = ".txnindex";
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 34;

const VERSION: i16 = 0;

/// An aborted transaction as the log keeps it. All offsets are inclusive but the last stable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
    /// First offset of the earliest transaction that was still open, or the offset behind the marker: what began before it is
    /// in this index from here on backwards.
    pub last_stable_offset: i64,
}

impl AbortedTransaction {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        entry[..2].copy_from_slice(&VERSION.to_be_bytes());
        let fields = [
            self.producer_id,
            self.first_offset,
            self.last_offset,
            self.last_stable_offset,
        ];
        for (field, bytes) in fields.iter().zip(entry[2..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&field.to_be_bytes());
        }
        entry
    }

    /// `None` if the bytes are none of ours, or of a later version.
    pub(crate) fn decode(entry: &[u8; ENTRY_BYTES]) -> Option<AbortedTransaction> {
        if i16::from_be_bytes([entry[0], entry[1]]) != VERSION {
            return None;
        }
        let field = |number: usize| {
            let start = 2 + 8 * number;
            i64::from_be_bytes(std::array::from_fn(|at| entry[start + at]))
        };
        Some(AbortedTransaction {
            producer_id: field(0),
            first_offset: field(1),
            last_offset: field(2),
            last_stable_offset: field(3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_bytes_of_kafka() {
        let aborted = AbortedTransaction {
            producer_id: 1,
            first_offset: 2,
            last_offset: 0x0304,
            last_stable_offset: -1,
        };
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[9], bytes[17], bytes[24], bytes[25]) = (1, 2, 3, 4);
        bytes[26..].fill(0xff);
        assert_eq!(aborted.encode(), bytes);
        assert_eq!(AbortedTransaction::decode(&bytes), Some(aborted));
        bytes[1] = 1;
        assert_eq!(AbortedTransaction::decode(&bytes), None);
    }
}
