//! What happens to a group.

use std::fmt;

/// One kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A third member joins.
    Join,
    /// One of three members is killed.
    KillMember,
    /// The broker that coordinates the group is killed.
    KillCoordinator,
}

impl Event {
    pub(crate) const ALL: [Self; 3] = [Self::Join, Self::KillMember, Self::KillCoordinator];

    /// How often it is repeated, as a multiple: how long a join takes depends on when the other members' next heartbeats are due.
    pub(crate) fn reps_factor(self) -> usize {
        match self {
            Self::Join => 4,
            Self::KillMember | Self::KillCoordinator => 1,
        }
    }

    /// How many members there are before it.
    pub(crate) fn members_before(self) -> usize {
        match self {
            Self::Join => 2,
            Self::KillMember | Self::KillCoordinator => 3,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Join => "a third member joins",
            Self::KillMember => "SIGKILL of a member",
            Self::KillCoordinator => "SIGKILL of the coordinator",
        })
    }
}
