//! Replies that wait for their decisions to be committed. They go in the order of the decisions.

use std::collections::VecDeque;

use super::Release;

/// The replies of one leadership.
#[derive(Default)]
pub(super) struct PendingReplies {
    waiting: VecDeque<(u64, Release)>,
}

impl PendingReplies {
    /// Keeps a reply until the entry at `index` is committed.
    pub(super) fn push(&mut self, index: u64, release: Release) {
        debug_assert!(
            self.waiting.back().is_none_or(|(last, _)| *last <= index),
            "replies wait in order"
        );
        self.waiting.push_back((index, release));
    }

    /// The entries up to `index` are committed.
    pub(super) fn release(&mut self, index: u64) {
        while self
            .waiting
            .front()
            .is_some_and(|(waits_for, _)| *waits_for <= index)
        {
            if let Some((_, release)) = self.waiting.pop_front() {
                release();
            }
        }
    }

    /// The lead is lost: whoever waits is told so by the end of the channel.
    pub(super) fn drop_all(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn replies_go_when_their_entry_is_committed() {
        let gone = Arc::new(Mutex::new(Vec::new()));
        let mut pending = PendingReplies::default();
        for (index, name) in [(3, "a"), (3, "b"), (5, "c")] {
            let gone = Arc::clone(&gone);
            pending.push(index, Box::new(move || gone.lock().unwrap().push(name)));
        }
        let mut check = |committed: u64, expected: &[&str]| {
            pending.release(committed);
            assert_eq!(*gone.lock().unwrap(), expected);
        };
        check(2, &[]);
        check(3, &["a", "b"]);
        check(4, &["a", "b"]);
        check(9, &["a", "b", "c"]);
    }
}
