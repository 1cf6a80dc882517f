//! The kinds of fault, each of which can be left out of a run to see whether a failure needs it.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A broker is killed, stopped, or its machine loses its power; it is started again some time.
    Down,
    /// The same, and it is started again at once, out of reach of one other.
    Reboot,
    /// A broker's process stands still for a while.
    Pause,
    /// Ways are cut, in both directions or in one.
    Cut,
    /// Connections are closed.
    Reset,
    /// Everything, or one way, takes longer.
    Slow,
    /// A wall clock jumps.
    Clock,
    /// A broker joins.
    Join,
    /// One of a broker's log directories fails, its volume fills up, or an old byte changes.
    Disk,
    /// A broker is left without replicas and goes for good.
    Leave,
    /// A batch arrives once more on another connection.
    Repeat,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 11] = [
        Kind::Down,
        Kind::Reboot,
        Kind::Pause,
        Kind::Cut,
        Kind::Reset,
        Kind::Slow,
        Kind::Clock,
        Kind::Join,
        Kind::Disk,
        Kind::Leave,
        Kind::Repeat,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Down => "down",
            Kind::Reboot => "reboot",
            Kind::Pause => "pause",
            Kind::Cut => "cut",
            Kind::Reset => "reset",
            Kind::Slow => "slow",
            Kind::Clock => "clock",
            Kind::Join => "join",
            Kind::Disk => "disk",
            Kind::Leave => "leave",
            Kind::Repeat => "repeat",
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// The same and one more.
    #[must_use]
    pub fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | (1 << (kind as u32)))
    }

    /// Whether one is in it.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << (kind as u32)) != 0
    }

    /// Those in it.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL
            .into_iter()
            .filter(move |kind| self.contains(*kind))
    }
}
