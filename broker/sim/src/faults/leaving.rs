//! A broker that goes for good: its replicas are moved to others by an administrator, and then it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use taffrail_core::time::Instant;

use crate::cluster::Cluster;
use crate::random::Random;

/// Nobody's id.
const NOBODY: i32 = -1;
/// Each partition has three replicas.
const BROKERS_MIN: usize = 4;

/// Who is to go. Clones name the same broker.
#[derive(Clone)]
pub(crate) struct Leaving {
    broker: Arc<AtomicI32>,
    /// When it was stopped, if it holds nothing that is known.
    pub(super) stopped_at: Option<Instant>,
}

impl Default for Leaving {
    fn default() -> Leaving {
        Leaving {
            broker: Arc::new(AtomicI32::new(NOBODY)),
            stopped_at: None,
        }
    }
}

impl Leaving {
    /// One that does not vote is to go, if enough are left. Only one ever goes.
    pub(super) fn begin(&self, cluster: &Cluster, random: &mut Random) {
        let joined = cluster.joined();
        let mut others = joined.clone();
        others.retain(|broker| !cluster.votes(*broker));
        let Some(broker) = random.pick(&others).copied() else {
            return;
        };
        if joined.len() >= BROKERS_MIN && self.broker().is_none() {
            self.broker.store(broker as i32, Ordering::Relaxed);
            tracing::info!(broker, "is to leave");
        }
    }

    /// Whoever has not gone yet stays.
    pub(super) fn give_up(&mut self, cluster: &Cluster) {
        if self
            .broker()
            .is_some_and(|broker| !cluster.has_left(broker))
        {
            self.broker.store(NOBODY, Ordering::Relaxed);
            self.stopped_at = None;
        }
    }

    /// Who is to go, or went.
    pub(crate) fn broker(&self) -> Option<usize> {
        usize::try_from(self.broker.load(Ordering::Relaxed)).ok()
    }
}
