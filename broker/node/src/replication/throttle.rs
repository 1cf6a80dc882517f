//! The bytes that throttled replicas of this broker may take, as leader and as follower (`…replication.throttled.rate`).
//! Which replicas are throttled is their topic's to say; those that are in sync never are.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use taffrail_core::config::BrokerConfig;
use taffrail_core::replica::ReplicationThrottle;
use taffrail_core::time::Instant;

/// Both directions of one broker.
#[derive(Debug)]
pub(crate) struct Throttles {
    /// What it sends to followers.
    pub(crate) leader: Throttle,
    /// What it fetches.
    pub(crate) follower: Throttle,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<ReplicationThrottle>);

impl Throttles {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let window = Duration::from_secs(unsigned(
            config.replication_quota_window_size_seconds.into(),
        ));
        let windows = unsigned(config.replication_quota_window_num.into());
        let throttle = || Throttle(Mutex::new(ReplicationThrottle::new(window, windows)));
        let throttles = Self {
            leader: throttle(),
            follower: throttle(),
        };
        throttles.set_rates(config);
        throttles
    }

    /// Takes the rates that hold now.
    pub(crate) fn set_rates(&self, config: &BrokerConfig) {
        let rate = |configured: i64| (configured < i64::MAX).then(|| unsigned(configured));
        let leader = rate(config.leader_replication_throttled_rate);
        let follower = rate(config.follower_replication_throttled_rate);
        self.leader.lock().set_rate(leader);
        self.follower.lock().set_rate(follower);
    }
}

impl Throttle {
    pub(crate) fn is_exceeded(&self, now: Instant) -> bool {
        self.lock().is_exceeded(now)
    }

    pub(crate) fn record(&self, now: Instant, bytes: usize) {
        self.lock().record(now, bytes as u64);
    }

    fn lock(&self) -> MutexGuard<'_, ReplicationThrottle> {
        self.0.lock().expect("no panic while locked")
    }
}

/// Rates and windows are checked to be positive where they are configured.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
