//! How fast a cleaning may read and write. It knows no clock: time is an argument, and waiting is the caller's.

/// Bytes per second over all cleanings that share it. Whoever is ahead of the rate waits; time without work is not saved up, so
/// that a cleaning never begins with a burst.
#[derive(Clone, Debug)]
pub struct CleanerRate {
    bytes_per_second: u64,
    /// When everything that was done so far is paid for, in milliseconds.
    paid_at_ms: i64,
}

impl CleanerRate {
    /// `log.cleaner.io.max.bytes.per.second`; at least one byte.
    pub fn new(bytes_per_second: u64) -> CleanerRate {
        CleanerRate {
            bytes_per_second: bytes_per_second.max(1),
            paid_at_ms: 0,
        }
    }

    /// So many bytes were read and written. Returns for how many milliseconds nothing more may be done.
    pub fn handle_done(&mut self, bytes: u64, now_ms: i64) -> u64 {
        let cost_ms = u128::from(bytes) * 1000 / u128::from(self.bytes_per_second);
        let cost_ms = i64::try_from(cost_ms).unwrap_or(i64::MAX);
        self.paid_at_ms = self.paid_at_ms.max(now_ms).saturating_add(cost_ms);
        self.paid_at_ms.abs_diff(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for_and_idleness_is_not_saved_up() {
        let mut rate = CleanerRate::new(1_000_000);
        assert_eq!(rate.handle_done(500_000, 1_000), 500);
        assert_eq!(rate.handle_done(500_000, 1_200), 800);
        assert_eq!(rate.handle_done(1_000, 60_000), 1);
        assert_eq!(rate.handle_done(0, 70_000), 0);
        let mut stopped = CleanerRate::new(0);
        assert_eq!(stopped.handle_done(2, 0), 2_000);
        assert!(stopped.handle_done(u64::MAX, 0) > 1 << 50);
    }
}
