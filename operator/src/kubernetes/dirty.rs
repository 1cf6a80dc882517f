//! The queue of Clusters to look at, shared by the watches that mark and the loop that runs passes.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::queue::{Next, Outcome, Queue};
use crate::object::ObjectKey;

/// The shared queue.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    queue: Mutex<Queue>,
    changed: Notify,
}

impl Dirty {
    /// Something of the Cluster changed.
    pub(super) fn mark(&self, key: ObjectKey) {
        self.with(|queue| queue.mark(key, Instant::now()));
        self.changed.notify_one();
    }

    /// The next pass.
    pub(super) fn next(&self, running_max: usize) -> Next {
        self.with(|queue| queue.next(Instant::now(), running_max))
    }

    /// A pass ended.
    pub(super) fn ended(&self, key: &ObjectKey, outcome: Outcome) {
        let now = Instant::now();
        self.with(|queue| queue.ended(key, outcome, now, jitter()));
        self.changed.notify_one();
    }

    /// Passes were given up.
    pub(super) fn abandon(&self) {
        self.with(|queue| queue.abandon(Instant::now()));
    }

    /// Waits until something was marked or ended.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn with<T>(&self, act: impl FnOnce(&mut Queue) -> T) -> T {
        // Every change of the queue is complete before something that could panic.
        act(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Something between 0 and 1 that differs from call to call; nothing depends on how well.
fn jitter() -> f64 {
    let nanoseconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    f64::from(nanoseconds % 1000) / 1000.0
}
