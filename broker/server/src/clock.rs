//! The process's monotonic clock, and a coarse copy of it that one task moves on: whoever needs a rough time reads an
//! atomic, and whoever asks whether the event loop still turns looks at how old the copy is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the coarse time moves: as often as what comes round most often, so that it costs no wake-up of its own.
const TICK: Duration = Duration::from_millis(200);

/// An event loop that has not moved the coarse time for so long is stuck: fifty ticks in a row were missed.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Time since the process started.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    coarse_ms: AtomicU64,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Arc<Clock> {
        Arc::new(Clock {
            started: Instant::now(),
            coarse_ms: AtomicU64::new(0),
        })
    }

    /// The moment that all times count from.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Milliseconds since the start, up to a tick too few.
    pub(crate) fn coarse_ms(&self) -> u64 {
        self.coarse_ms.load(Ordering::Relaxed)
    }

    /// The next moment that is a whole number of intervals after the start. All that comes round now and then waits for such
    /// moments, so that an idle process is woken once for all of it.
    pub(crate) fn next_round(&self, interval: Duration) -> Instant {
        let interval = interval.as_nanos().max(1);
        let nanos = (self.started.elapsed().as_nanos() / interval + 1) * interval;
        self.started + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Moves the coarse time for ever. Runs on the event loop that it vouches for.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.coarse_ms.store(self.elapsed_ms(), Ordering::Relaxed);
            tokio::time::sleep_until(self.next_round(TICK).into()).await;
        }
    }

    /// For how long the event loop has been stuck, if it is.
    pub(crate) fn stuck_for(&self) -> Option<Duration> {
        let age = Duration::from_millis(self.elapsed_ms().saturating_sub(self.coarse_ms()));
        (age >= STUCK_AFTER).then_some(age)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_round_waits_for_whole_intervals_since_the_start() {
        let clock = Clock::start();
        for interval in [
            Duration::ZERO,
            Duration::from_nanos(7),
            Duration::from_secs(1),
            Duration::from_secs(3600),
            Duration::from_millis(i64::MAX as u64),
        ] {
            let before = clock.started().elapsed();
            let next = clock.next_round(interval).duration_since(clock.started());
            assert!(before < next, "{interval:?}");
            if interval < Duration::from_secs(3600 * 24) {
                assert_eq!(next.as_nanos() % interval.as_nanos().max(1), 0);
            }
        }
    }
}
