//! What happens to a broker, and how long a producer may wait.

use std::fmt;

/// One kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    KillLeader,
    KillLeaderOfMany,
    KillLeaderAndController,
    KillFollower,
    StopLeader,
    StopLeaderAndController,
    PauseLeader,
}

/// What is asked for, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goal {
    /// The median of the repetitions stays below this.
    pub(crate) median: Option<f64>,
    /// The worst of them stays below this.
    pub(crate) worst: f64,
}

impl Event {
    pub(crate) const ALL: [Self; 7] = [
        Self::KillLeader,
        Self::KillLeaderOfMany,
        Self::KillLeaderAndController,
        Self::KillFollower,
        Self::StopLeader,
        Self::StopLeaderAndController,
        Self::PauseLeader,
    ];

    /// The partitions that the victim leads (or follows).
    pub(crate) fn partitions(self) -> usize {
        match self {
            Self::KillLeaderOfMany => 1000,
            Self::KillLeader
            | Self::KillLeaderAndController
            | Self::KillFollower
            | Self::StopLeader
            | Self::StopLeaderAndController
            | Self::PauseLeader => 1,
        }
    }

    pub(crate) fn is_killed_leader(self) -> bool {
        matches!(self, Self::KillLeader | Self::KillLeaderOfMany)
    }

    /// Whether the broker is the active controller, too.
    pub(crate) fn meets_controller(self) -> bool {
        matches!(
            self,
            Self::KillLeaderAndController | Self::StopLeaderAndController
        )
    }

    pub(crate) fn goal(self) -> Goal {
        let (median, worst) = match self {
            Self::KillLeader | Self::KillLeaderOfMany => (Some(1.0), 3.0),
            Self::KillLeaderAndController => (None, 5.0),
            Self::KillFollower => (None, 1.0),
            Self::StopLeader | Self::StopLeaderAndController => (None, 0.2),
            Self::PauseLeader => (None, 4.0),
        };
        Goal { median, worst }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KillLeader => "SIGKILL leader, 1 partition",
            Self::KillLeaderOfMany => "SIGKILL leader, 1,000 partitions",
            Self::KillLeaderAndController => "SIGKILL leader that is the controller",
            Self::KillFollower => "SIGKILL follower",
            Self::StopLeader => "SIGTERM leader",
            Self::StopLeaderAndController => "SIGTERM leader that is the controller",
            Self::PauseLeader => "SIGSTOP leader",
        })
    }
}
