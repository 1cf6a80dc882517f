//! Monotonic time as a value. The shell reads the clock; the cores only compare and add.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment of the monotonic clock, in nanoseconds since an arbitrary start. Never comparable across processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Instant = Instant(0);

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// A moment so many milliseconds after the start of the clock; for tests and simulations.
    pub const fn from_millis(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_since(earlier)
    }
}
