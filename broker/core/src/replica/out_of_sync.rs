//! Why a replica is not in the ISR, as its leader sees it: for `/admin/state`, metrics and logs.

use std::fmt;
use std::time::Duration;

use crate::time::Instant;

use super::leader::Leader;
use super::progress::{BrokerStanding, Replica};

/// How far a follower is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Records that the leader has and it has not; `None` until it fetched in this leader epoch.
    pub records: Option<i64>,
    /// Since it last had all that the leader had; `None` = never in this leader epoch.
    pub since_caught_up: Option<Duration>,
}

/// The first thing that keeps a replica out of the ISR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfSync {
    /// Its broker is not registered.
    Unregistered,
    /// Its broker is fenced.
    Fenced,
    /// Its broker is about to stop.
    ShuttingDown,
    /// It has not fetched since this leader was elected.
    NotFetched,
    /// It last fetched before its broker was registered anew.
    EarlierRegistration,
    /// It lacks so many records of what it must have before it may join.
    Behind(i64),
    /// It has what it needs, but has not fetched for so long.
    Silent(Duration),
    /// It has what it needs; the controller is asked, or will be.
    Joining,
}

impl fmt::Display for OutOfSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutOfSync::Unregistered => f.write_str("its broker is not registered"),
            OutOfSync::Fenced => f.write_str("its broker is fenced"),
            OutOfSync::ShuttingDown => f.write_str("its broker is shutting down"),
            OutOfSync::NotFetched => f.write_str("it has not fetched from this leader yet"),
            OutOfSync::EarlierRegistration => {
                f.write_str("it has not fetched since its broker restarted")
            }
            OutOfSync::Behind(records) => {
                write!(f, "it lacks {records} of the records that it needs to join")
            }
            OutOfSync::Silent(time) => {
                write!(f, "it has not fetched for {} ms", time.as_millis())
            }
            OutOfSync::Joining => f.write_str("it is about to join"),
        }
    }
}

impl Leader {
    /// How far a replica is behind.
    pub fn lag(&self, replica: &Replica, now: Instant) -> Lag {
        let records = replica.log_end_offset;
        Lag {
            records: records.map(|end| (self.log_end_offset - end).max(0)),
            since_caught_up: replica.last_caught_up.map(|at| now.saturating_since(at)),
        }
    }

    /// What keeps a replica out of the ISR; `None` for a member.
    pub fn why_out_of_sync(&self, replica: &Replica, now: Instant) -> Option<OutOfSync> {
        if replica.in_isr {
            return None;
        }
        match replica.standing {
            BrokerStanding::Unregistered => return Some(OutOfSync::Unregistered),
            BrokerStanding::Fenced(_) => return Some(OutOfSync::Fenced),
            BrokerStanding::ShuttingDown(_) => return Some(OutOfSync::ShuttingDown),
            BrokerStanding::Active(_) => {}
        }
        let (Some(end), Some(fetched)) = (replica.log_end_offset, replica.last_fetch) else {
            return Some(OutOfSync::NotFetched);
        };
        let silent = now.saturating_since(fetched.at);
        let needed = self.high_watermark.max(self.epoch_start_offset);
        Some(if !replica.eligible() {
            OutOfSync::EarlierRegistration
        } else if silent > self.settings.replica_lag_time_max {
            OutOfSync::Silent(silent)
        } else if end < needed {
            OutOfSync::Behind(needed - end)
        } else {
            OutOfSync::Joining
        })
    }
}
