//! How many bytes a second the replicas that are catching up may take (Kafka's `ReplicationQuotaManager`).
//!
//! Bytes are counted in windows. The quota is exceeded while more was counted in the kept windows than the rate allows over their
//! time, at least all but one of them: with 11 windows of a second and 1 MB/s, a move may take 10 MB at once and then waits until
//! the windows that counted them are forgotten.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Instant;

/// The quota of one direction of one broker.
#[derive(Clone, Debug)]
pub struct ReplicationThrottle {
    /// Bytes a second; `None` = no limit.
    rate: Option<u64>,
    window: Duration,
    windows: u64,
    /// The number of each window in which something was counted, and how much; as many as are kept.
    counted: VecDeque<(u64, u64)>,
}

impl ReplicationThrottle {
    /// No limit yet. Bytes are counted in `windows` windows of `window` each, at least one of a millisecond.
    pub fn new(window: Duration, windows: u64) -> Self {
        Self {
            rate: None,
            window: window.max(Duration::from_millis(1)),
            windows: windows.max(1),
            counted: VecDeque::new(),
        }
    }

    /// Sets the rate in bytes a second; `None` = no limit.
    pub fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate;
    }

    /// Counts bytes of replicas that are throttled.
    pub fn record(&mut self, now: Instant, bytes: u64) {
        let current = self.number(now);
        self.forget(current);
        match self.counted.back_mut() {
            Some((number, sum)) if *number == current => *sum += bytes,
            Some(_) | None => self.counted.push_back((current, bytes)),
        }
    }

    /// Whether replicas that are throttled have to wait.
    pub fn is_exceeded(&mut self, now: Instant) -> bool {
        let Some(rate) = self.rate else {
            return false;
        };
        let current = self.number(now);
        self.forget(current);
        let counted: u64 = self.counted.iter().map(|(_, bytes)| bytes).sum();
        let window = self.window.as_nanos();
        let time = window * u128::from(self.windows.max(2) - 1) + u128::from(now.0) % window;
        u128::from(counted) * 1_000_000_000 > u128::from(rate) * time
    }

    fn number(&self, now: Instant) -> u64 {
        let number = u128::from(now.0) / self.window.as_nanos();
        u64::try_from(number).unwrap_or(u64::MAX)
    }

    fn forget(&mut self, current: u64) {
        let kept_from = (current + 1).saturating_sub(self.windows);
        while self
            .counted
            .front()
            .is_some_and(|(number, _)| *number < kept_from)
        {
            self.counted.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_holds_up_what_comes_until_it_is_forgotten() {
        let mut throttle = ReplicationThrottle::new(Duration::from_secs(1), 11);
        let at = |ms: u64| Instant::from_millis(1_000_000 + ms);
        throttle.record(at(0), 1_000_000_000);
        assert!(!throttle.is_exceeded(at(0)), "no rate, no limit");
        throttle.set_rate(Some(1_000_000));
        assert!(throttle.is_exceeded(at(0)));
        assert!(throttle.is_exceeded(at(10_999)));
        assert!(!throttle.is_exceeded(at(11_000)));

        throttle.record(at(11_000), 10_000_000);
        assert!(!throttle.is_exceeded(at(11_000)), "ten seconds' worth");
        throttle.record(at(11_000), 1);
        assert!(throttle.is_exceeded(at(11_000)));
        assert!(!throttle.is_exceeded(at(11_001)));

        throttle.set_rate(Some(0));
        assert!(throttle.is_exceeded(at(21_000)));
        assert!(
            !throttle.is_exceeded(at(22_000)),
            "a rate of 0 lets through what nothing was counted before"
        );
    }

    #[test]
    fn over_time_no_more_than_the_rate_goes_through() {
        let mut throttle = ReplicationThrottle::new(Duration::from_secs(1), 11);
        throttle.set_rate(Some(1_000_000));
        let mut sent: u64 = 0;
        for ms in (0..100_000).step_by(10) {
            let now = Instant::from_millis(ms);
            if !throttle.is_exceeded(now) {
                throttle.record(now, 100_000);
                sent += 100_000;
            }
        }
        assert!((90_000_000..=111_000_000).contains(&sent), "{sent}");
        assert!(throttle.counted.len() <= 11);
    }
}
