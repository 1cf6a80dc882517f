//! The bytes that throttled replicas of this broker may take, as leader and as follower (`…replication.throttled.rate`), and
//! those that move between its log directories. Which replicas are throttled over the network is their topic's to say; those
//! that are in sync never are.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use taffrail_core::config::BrokerConfig;
use taffrail_core::replica::ReplicationThrottle;
use taffrail_core::time::Instant;

/// All of one broker.
#[derive(Debug)]
pub(crate) struct Throttles {
    /// What it sends to followers.
    pub(crate) leader: Throttle,
    /// What it fetches.
    pub(crate) follower: Throttle,
    /// What it copies between its log directories.
    pub(crate) log_dirs: Throttle,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<ReplicationThrottle>);

impl Throttles {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let throttle = |seconds: i32, windows: i32| {
            let window = Duration::from_secs(unsigned(seconds.into()));
            let windows = unsigned(windows.into());
            Throttle(Mutex::new(ReplicationThrottle::new(window, windows)))
        };
        let between_brokers = || {
            throttle(
                config.replication_quota_window_size_seconds,
                config.replication_quota_window_num,
            )
        };
        let throttles = Self {
            leader: between_brokers(),
            follower: between_brokers(),
            log_dirs: throttle(
                config.alter_log_dirs_quota_window_size_seconds,
                config.alter_log_dirs_quota_window_num,
            ),
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
        let log_dirs = rate(config.replica_alter_log_dirs_io_max_bytes_per_second);
        self.log_dirs.lock().set_rate(log_dirs);
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
