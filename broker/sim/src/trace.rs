//! A hash of everything that happens in this thread's simulation: what arrives over the network, what is asked of disks,
//! what clients learn. Equal for equal seeds, or something asked the real world.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

/// Odd, with its bits spread evenly (the golden ratio).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

thread_local! {
    static TRACE: Cell<u64> = const { Cell::new(0) };
}

/// Starts anew.
pub(crate) fn begin(seed: u64) {
    TRACE.set(mix(FACTOR, seed));
}

/// Adds an event.
pub(crate) fn note(event: impl Hash) {
    let mut state = State(TRACE.get());
    event.hash(&mut state);
    TRACE.set(state.0);
}

/// All events so far.
pub(crate) fn hash() -> u64 {
    TRACE.get()
}

fn mix(state: u64, word: u64) -> u64 {
    (state.rotate_left(23) ^ word).wrapping_mul(FACTOR)
}

struct State(u64);

impl Hasher for State {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.0 = mix(self.0, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.0 = mix(self.0, u64::from_le_bytes(last));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(events: &[&[u8]]) -> u64 {
        begin(1);
        for event in events {
            note(event);
        }
        hash()
    }

    #[test]
    fn every_event_and_their_order_count() {
        let all: [&[&[u8]]; 6] = [
            &[],
            &[b"a"],
            &[b"a", b"b"],
            &[b"b", b"a"],
            &[b"ab"],
            &[b"0123456789"],
        ];
        let mut hashes: Vec<u64> = all.iter().map(|events| of(events)).collect();
        assert_eq!(hashes[2], of(&[b"a", b"b"]));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all.len());
    }
}
