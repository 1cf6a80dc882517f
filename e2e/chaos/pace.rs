//! How far a run is, and how long it will still take.

use std::time::{Duration, Instant};

/// The pace of a run that ends after a time, or after so many faults if they come first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    start: Instant,
    duration: Duration,
    count: u64,
}

impl Pace {
    /// A run that begins now; `u64::MAX` faults are no limit.
    pub(crate) fn new(duration: Duration, count: u64) -> Self {
        Self {
            start: Instant::now(),
            duration,
            count,
        }
    }

    /// How long it has taken.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self, faults: u64) -> bool {
        faults >= self.count || self.elapsed() >= self.duration
    }

    /// How far it is after so many faults.
    pub(crate) fn words(&self, faults: u64) -> String {
        let left = time_left(self.elapsed(), faults, self.duration, self.count).as_secs();
        let of = match self.count {
            u64::MAX => String::new(),
            count => format!(" of {count}"),
        };
        let left = match left {
            0..120 => format!("{left} s"),
            _ => format!("{} min", left.div_ceil(60)),
        };
        format!("{faults}{of} faults, about {left} left")
    }
}

/// What is left if all faults take as long as those until now.
fn time_left(elapsed: Duration, faults: u64, duration: Duration, count: u64) -> Duration {
    let by_time = duration.saturating_sub(elapsed);
    if count == u64::MAX || faults == 0 {
        return by_time;
    }
    let each = elapsed.as_secs_f64() / faults as f64;
    let by_count = each * count.saturating_sub(faults) as f64;
    Duration::try_from_secs_f64(by_count).map_or(by_time, |by_count| by_count.min(by_time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_was() {
        let check = |elapsed, faults, duration, count, expected| {
            let seconds = Duration::from_secs;
            let left = time_left(seconds(elapsed), faults, seconds(duration), count);
            assert_eq!(left, seconds(expected));
        };
        check(600, 100, 1800, u64::MAX, 1200);
        check(60, 12, 14_400, 48, 180);
        check(60, 0, 14_400, 48, 14_340);
        check(1790, 10, 1800, 50, 10);
        check(1900, 50, 1800, 50, 0);
    }
}
