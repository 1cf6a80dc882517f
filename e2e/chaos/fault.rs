//! The kinds of faults: what each needs of the machine, how long it lasts, and what may go together.

use std::time::Duration;

use crate::sandbox::Means;

/// What can be done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// SIGKILL of one broker.
    Kill,
    /// SIGKILL of all at once.
    KillAll,
    /// SIGSTOP, and SIGCONT later.
    Pause,
    /// SIGTERM of one after the other, each started again.
    Restart,
    /// One broker's power fails.
    PowerLoss,
    /// All brokers' power fails at once.
    PowerLossAll,
    /// One broker no longer hears from another one.
    OneWay,
    /// Each broker sees a majority, and no two the same.
    Ring,
    /// One broker is cut off from the others, and from clients perhaps.
    Isolate,
    /// Connections of one broker are reset.
    Reset,
    /// One broker's disk writes slowly.
    SlowDisk,
    /// One broker's disk is full.
    FullDisk,
    /// One broker's wall clock jumps.
    Clock,
    /// A partition moves to other replicas and back.
    Reassign,
    /// A topic is created, written, read, deleted, and created again.
    Topics,
    /// Preferred replicas are told to lead.
    Elect,
}

impl FaultKind {
    /// Every kind.
    pub(crate) const ALL: [Self; 16] = [
        Self::Kill,
        Self::KillAll,
        Self::Pause,
        Self::Restart,
        Self::PowerLoss,
        Self::PowerLossAll,
        Self::OneWay,
        Self::Ring,
        Self::Isolate,
        Self::Reset,
        Self::SlowDisk,
        Self::FullDisk,
        Self::Clock,
        Self::Reassign,
        Self::Topics,
        Self::Elect,
    ];

    /// Its name on the command line and in counts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAll => "kill-all",
            Self::Pause => "pause",
            Self::Restart => "restart",
            Self::PowerLoss => "power-loss",
            Self::PowerLossAll => "power-loss-all",
            Self::OneWay => "one-way",
            Self::Ring => "ring",
            Self::Isolate => "isolate",
            Self::Reset => "reset",
            Self::SlowDisk => "slow-disk",
            Self::FullDisk => "full-disk",
            Self::Clock => "clock",
            Self::Reassign => "reassign",
            Self::Topics => "topics",
            Self::Elect => "elect",
        }
    }

    /// The kind of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What this machine lacks for it.
    pub(crate) fn lacking(
        self,
        means: Means,
        clocks: bool,
        slow_disks: bool,
    ) -> Option<&'static str> {
        let (has, what) = match self {
            Self::Kill
            | Self::KillAll
            | Self::Pause
            | Self::Restart
            | Self::Reassign
            | Self::Topics
            | Self::Elect => (true, ""),
            Self::OneWay | Self::Ring | Self::Isolate | Self::Reset => {
                (means.network, "network namespaces with ip and iptables")
            }
            Self::PowerLoss | Self::PowerLossAll | Self::FullDisk => {
                (means.disks, "root and loop devices")
            }
            Self::SlowDisk => (
                means.disks && slow_disks,
                "root, loop devices and the block controller of cgroup v1",
            ),
            Self::Clock => (clocks, "libfaketime (make tools)"),
        };
        (!has).then_some(what)
    }

    /// How long it lasts before it is undone.
    pub(crate) fn span(self) -> (Duration, Duration) {
        let ms = |from, to| (Duration::from_millis(from), Duration::from_millis(to));
        match self {
            Self::Kill | Self::PowerLoss => ms(0, 4000),
            Self::KillAll | Self::PowerLossAll => ms(0, 1000),
            // Shorter and longer than a session.
            Self::Pause | Self::OneWay | Self::Ring | Self::Isolate => ms(200, 7000),
            Self::Reset => ms(50, 500),
            Self::SlowDisk | Self::FullDisk => ms(2000, 6000),
            Self::Clock => ms(1500, 4000),
            Self::Reassign => ms(0, 2000),
            Self::Restart | Self::Topics | Self::Elect => ms(0, 0),
        }
    }

    /// Whether it may happen while another one lasts. Losing power is alone where acknowledged records may be in memory only, since
    /// another fault could take the replicas that hold them; what needs a healthy cluster to be judged is alone as well.
    pub(crate) fn mixes(self, flushed: bool) -> bool {
        match self {
            Self::PowerLoss => flushed,
            Self::KillAll | Self::PowerLossAll | Self::Restart | Self::FullDisk | Self::Topics => {
                false
            }
            Self::Kill
            | Self::Pause
            | Self::OneWay
            | Self::Ring
            | Self::Isolate
            | Self::Reset
            | Self::SlowDisk
            | Self::Clock
            | Self::Reassign
            | Self::Elect => true,
        }
    }
}
