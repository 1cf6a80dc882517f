//! How the clients fare while the cluster is tormented: acknowledgements, the longest time without, elections.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shared by all clients and the tormentor.
#[derive(Debug)]
pub(crate) struct Progress {
    acknowledged: AtomicU64,
    stop: AtomicBool,
    gaps: Mutex<Gaps>,
}

#[derive(Debug)]
struct Gaps {
    /// The last acknowledgement of each partition.
    last: Vec<Instant>,
    /// What is being done to the cluster.
    now: String,
    longest: Gap,
    elections: u64,
    failures: Vec<String>,
}

/// The longest time that some partition went without an acknowledgement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gap {
    /// How long.
    pub(crate) length: Duration,
    /// What was being done when it ended.
    pub(crate) during: String,
}

impl Progress {
    /// Nothing acknowledged yet.
    pub(crate) fn new(partitions: usize) -> Self {
        Self {
            acknowledged: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            gaps: Mutex::new(Gaps {
                last: vec![Instant::now(); partitions],
                now: String::new(),
                longest: Gap::default(),
                elections: 0,
                failures: Vec::new(),
            }),
        }
    }

    /// A record of this partition was acknowledged.
    pub(crate) fn acknowledge(&self, partition: i32) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        let mut gaps = self.gaps();
        let Some(last) = usize::try_from(partition)
            .ok()
            .and_then(|at| gaps.last.get_mut(at))
        else {
            return;
        };
        let length = last.elapsed();
        *last = Instant::now();
        if length > gaps.longest.length {
            gaps.longest = Gap {
                length,
                during: gaps.now.clone(),
            };
        }
    }

    /// What is being done to the cluster from now on.
    pub(crate) fn now(&self, what: &str) {
        what.clone_into(&mut self.gaps().now);
    }

    /// From now on gaps count.
    pub(crate) fn restart_clocks(&self) {
        let mut gaps = self.gaps();
        gaps.last.fill(Instant::now());
        gaps.longest = Gap::default();
    }

    /// Leaders were elected.
    pub(crate) fn elected(&self, count: u64) {
        self.gaps().elections += count;
    }

    /// Something happened that must not, and that the history does not show.
    pub(crate) fn fail(&self, what: String) {
        eprintln!("FAILED: {what}");
        self.gaps().failures.push(what);
    }

    /// Records acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The longest gap, elections, and what failed.
    pub(crate) fn outcome(&self) -> (Gap, u64, Vec<String>) {
        let gaps = self.gaps();
        (gaps.longest.clone(), gaps.elections, gaps.failures.clone())
    }

    /// Whether each partition had an acknowledgement after `moment`.
    pub(crate) fn all_acknowledged_after(&self, moment: Instant) -> bool {
        self.gaps().last.iter().all(|last| *last > moment)
    }

    /// Tells the clients to end. A partition that has been silent until now has a gap, too.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut gaps = self.gaps();
        let silent = gaps.last.iter().map(Instant::elapsed).max();
        if let Some(length) = silent.filter(|length| *length > gaps.longest.length) {
            let during = gaps.now.clone();
            gaps.longest = Gap { length, during };
        }
    }

    /// Whether the clients should end.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn gaps(&self) -> std::sync::MutexGuard<'_, Gaps> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
