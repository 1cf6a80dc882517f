//! The states of a classic group.

use std::fmt;

/// Where a classic group stands (Kafka's `ClassicGroupState`).
///
/// | | Empty | PreparingRebalance | CompletingRebalance | Stable |
/// |---|---|---|---|---|
/// | what it is | no members, perhaps offsets | members are asked to join again | all joined, the leader's assignment is awaited | every member can know its assignment |
/// | new member joins | → Preparing, after the initial delay at the soonest | waits with the others | → Preparing, waiting syncs get REBALANCE_IN_PROGRESS | → Preparing |
/// | member joins again | UNKNOWN_MEMBER_ID | waits with the others | same metadata: told this generation again; changed: → Preparing | leader, or changed: → Preparing; else told this generation again |
/// | all joined, or time is up | | → Completing with the next generation, or → Empty if nobody is left | | |
/// | leader syncs | | REBALANCE_IN_PROGRESS | → Stable: a record, then all who wait are answered | its own assignment |
/// | member syncs | | REBALANCE_IN_PROGRESS | waits | its assignment |
/// | heartbeat | UNKNOWN_MEMBER_ID | REBALANCE_IN_PROGRESS, lives on | lives on | lives on |
/// | commit by a member | UNKNOWN_MEMBER_ID | yes | REBALANCE_IN_PROGRESS | yes |
/// | commit without generation | yes | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID |
/// | member leaves or its session ends | | the others may be complete now | → Preparing | → Preparing |
/// | no sync within the rebalance timeout | | | the silent leave, → Preparing | the silent leave, → Preparing |
/// | is deleted | → Dead: tombstones, forgotten | NON_EMPTY_GROUP | NON_EMPTY_GROUP | NON_EMPTY_GROUP |
/// | its last offset expires | → Dead: tombstone, forgotten | | | |
///
/// A Dead group is one that the coordinator does not know; it needs no object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No members.
    #[default]
    Empty,
    /// Members are joining.
    PreparingRebalance,
    /// The leader is assigning.
    CompletingRebalance,
    /// Settled.
    Stable,
    /// Not known to the coordinator.
    Dead,
}

impl State {
    /// Every state that a group may be shown in.
    pub(super) const ALL: [State; 5] = [
        State::Empty,
        State::PreparingRebalance,
        State::CompletingRebalance,
        State::Stable,
        State::Dead,
    ];
}

impl fmt::Display for State {
    /// As DescribeGroups and ListGroups name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
            State::Dead => "Dead",
        })
    }
}
