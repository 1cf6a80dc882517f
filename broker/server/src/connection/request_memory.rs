//! How many bytes the large frames of all connections may hold together (`queued.max.request.bytes`).

use std::sync::atomic::{AtomicUsize, Ordering};

/// A budget of bytes. A connection that finds it spent waits with the bytes left in its socket.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    used: AtomicUsize,
    limit: usize,
}

impl RequestMemory {
    /// Nothing used yet of `limit` bytes.
    pub(crate) fn new(limit: usize) -> RequestMemory {
        RequestMemory {
            used: AtomicUsize::new(0),
            limit,
        }
    }

    /// Takes so many bytes, if they are to be had; whoever is alone gets them in any case, so that one frame always passes.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used == 0 || used.saturating_add(bytes) <= self.limit)
                    .then(|| used.saturating_add(bytes))
            })
            .is_ok()
    }

    /// Gives so many bytes back.
    pub(crate) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether more than half is used: time to hold nothing that is not needed.
    pub(crate) fn is_short(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit / 2
    }
}
