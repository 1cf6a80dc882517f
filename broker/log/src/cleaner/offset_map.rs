//! Where the newest record of each key is, in memory of a given size (Kafka's `SkimpyOffsetMap`). Keys are not kept but
//! their hashes, of 128 bits, which a secret of the map goes into: two keys that meet would lose one of them, so nobody may be
//! able to choose such. Of 2^32 keys two meet with a probability of 2^-65.

use std::hash::{BuildHasher, RandomState};

/// Bytes that a key takes.
const SLOT_BYTES: usize = size_of::<Slot>();

/// Of ten slots, how many may be taken. More than that makes searches long.
const TAKEN_OF_TEN: usize = 9;

#[derive(Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    /// Negative in a free slot.
    offset: i64,
}

const FREE: Slot = Slot {
    hash: [0; 2],
    offset: -1,
};

/// The offset of the newest record of each of so many keys.
pub(crate) struct OffsetMap {
    slots: Vec<Slot>,
    taken: usize,
    taken_max: usize,
    hashers: [RandomState; 2],
}

impl OffsetMap {
    /// A map of at most `bytes_max` bytes, and no more than `keys` keys need. One key always fits, for otherwise nothing would
    /// ever be cleaned.
    pub(crate) fn new(bytes_max: usize, keys: u64) -> OffsetMap {
        let wanted = usize::try_from(keys).unwrap_or(usize::MAX);
        let wanted = (wanted / TAKEN_OF_TEN)
            .saturating_mul(10)
            .saturating_add(20);
        // One slot is always free, where a search ends.
        let slots = (bytes_max / SLOT_BYTES).min(wanted).max(2);
        OffsetMap {
            slots: vec![FREE; slots],
            taken: 0,
            taken_max: (slots / 10 * TAKEN_OF_TEN + slots % 10 * TAKEN_OF_TEN / 10).max(1),
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Notes a record; a later one of the key replaces an earlier one. False if the key is new and there is no room for it.
    pub(crate) fn put(&mut self, key: &[u8], offset: i64) -> bool {
        let hash = self.hash(key);
        let at = self.find(hash);
        let slot = &mut self.slots[at];
        if slot.offset < 0 {
            if self.taken == self.taken_max {
                return false;
            }
            self.taken += 1;
        }
        *slot = Slot {
            hash,
            offset: slot.offset.max(offset),
        };
        true
    }

    /// The offset of the newest record of a key that was noted.
    pub(crate) fn get(&self, key: &[u8]) -> Option<i64> {
        let slot = self.slots[self.find(self.hash(key))];
        (slot.offset >= 0).then_some(slot.offset)
    }

    /// Keys in it.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(key))
    }

    /// The slot of a hash, or the free one that it would take.
    fn find(&self, hash: [u64; 2]) -> usize {
        let count = self.slots.len();
        let mut at = (hash[0] % count as u64) as usize;
        while self.slots[at].offset >= 0 && self.slots[at].hash != hash {
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_offset_of_each_key_is_found() {
        let mut map = OffsetMap::new(1 << 20, 1000);
        for offset in 0..3000_i64 {
            assert!(map.put(&(offset % 1000).to_be_bytes(), offset));
        }
        assert_eq!(map.len(), 1000);
        for key in 0..1000_i64 {
            assert_eq!(map.get(&key.to_be_bytes()), Some(2000 + key));
        }
        assert_eq!(map.get(b"another"), None);
        assert_eq!(map.get(b""), None);
        assert!(map.put(b"", 0));
        assert_eq!(map.get(b""), Some(0));
    }

    #[test]
    fn memory_is_what_was_given_or_what_the_keys_need() {
        for (bytes, keys, at_most) in [
            (24_000, u64::MAX, 24_000),
            (24_000, 10, 24 * 32),
            (usize::MAX, 90, 24 * 120),
            (0, u64::MAX, 48),
        ] {
            let mut map = OffsetMap::new(bytes, keys);
            assert!(map.bytes() <= at_most, "{bytes} {keys}: {}", map.bytes());
            let mut offset = 0_i64;
            while offset < 2000 && map.put(&offset.to_be_bytes(), offset) {
                offset += 1;
            }
            let slots = map.bytes() / SLOT_BYTES;
            assert_eq!(map.len(), (slots * 9 / 10).max(1), "{bytes} {keys}");
            assert!(keys == u64::MAX || map.len() as u64 >= keys);
            // What is in it is found, what is not is not, and a known key may still move.
            assert_eq!(map.get(&0_i64.to_be_bytes()), Some(0));
            assert_eq!(map.get(&offset.to_be_bytes()), None);
            assert!(map.put(&0_i64.to_be_bytes(), 5000));
            assert_eq!(map.get(&0_i64.to_be_bytes()), Some(5000));
        }
    }
}
