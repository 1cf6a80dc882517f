//! The states of a transactional id.

use std::fmt;

/// Where a transactional id stands (Kafka's `TransactionState`).
///
/// `e` is the epoch that the log has. EndTxn of transaction version 0 must name `e`; where version 2 differs it is said.
///
/// | | Empty | Ongoing | PrepareCommit | PrepareAbort | CompleteCommit | CompleteAbort |
/// |---|---|---|---|---|---|---|
/// | what it is | nothing since InitProducerId | partitions were added | markers are on their way | markers are on their way | all markers are written | all markers are written |
/// | InitProducerId | → Empty, `e + 1` | → PrepareAbort, `e + 1`, told CONCURRENT_TRANSACTIONS | CONCURRENT_TRANSACTIONS | CONCURRENT_TRANSACTIONS | → Empty, `e + 1` | → Empty, `e + 1` |
/// | partitions are added | → Ongoing | stays, unless all are there a record | CONCURRENT_TRANSACTIONS | CONCURRENT_TRANSACTIONS | → Ongoing | → Ongoing |
/// | commit | INVALID_TXN_STATE | → PrepareCommit; v2: `e + 1` | CONCURRENT_TRANSACTIONS; v2: the same for a retry (of `e − 1`), else PRODUCER_FENCED | INVALID_TXN_STATE; v2: PRODUCER_FENCED | done already; v2: for a retry, else INVALID_TXN_STATE | INVALID_TXN_STATE; v2: PRODUCER_FENCED for a retry |
/// | abort | INVALID_TXN_STATE; v2: → PrepareAbort → CompleteAbort, `e + 1` | → PrepareAbort; v2: `e + 1` | INVALID_TXN_STATE | as commit in PrepareCommit | INVALID_TXN_STATE; v2: → PrepareAbort → CompleteAbort, `e + 1`, but INVALID_TXN_STATE for a retry | done already; v2: for a retry, else → PrepareAbort → CompleteAbort, `e + 1` |
/// | its timeout passes | | → PrepareAbort, `e + 1` | | | | |
/// | last marker is written | | | → CompleteCommit | → CompleteAbort | | |
/// | silent for the expiration | → forgotten: tombstone | | | | → forgotten | → forgotten |
///
/// A retry is one of version 2 whose end was of version 2 too: after an abort of version 0 that fenced it, `e − 1` is fenced.
///
/// Epochs end at 32766: InitProducerId, or an end in version 2, then goes on with a fresh producer id and epoch 0. Markers
/// alone may carry 32767.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No transaction since InitProducerId.
    Empty,
    /// A transaction has begun.
    Ongoing,
    /// It will be committed.
    PrepareCommit,
    /// It will be aborted.
    PrepareAbort,
    /// It was committed.
    CompleteCommit,
    /// It was aborted.
    CompleteAbort,
}

impl State {
    /// All of them.
    pub const ALL: [State; 6] = [
        State::Empty,
        State::Ongoing,
        State::PrepareCommit,
        State::PrepareAbort,
        State::CompleteCommit,
        State::CompleteAbort,
    ];

    /// The number that Kafka's records have. 6 (Dead) and 7 (PrepareEpochFence) are never in the log.
    pub fn id(self) -> i8 {
        match self {
            State::Empty => 0,
            State::Ongoing => 1,
            State::PrepareCommit => 2,
            State::PrepareAbort => 3,
            State::CompleteCommit => 4,
            State::CompleteAbort => 5,
        }
    }

    /// The state of that number.
    pub fn from_id(id: i8) -> Option<State> {
        State::ALL.into_iter().find(|state| state.id() == id)
    }

    /// The name that DescribeTransactions and ListTransactions tell.
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::PrepareCommit => "PrepareCommit",
            State::PrepareAbort => "PrepareAbort",
            State::CompleteCommit => "CompleteCommit",
            State::CompleteAbort => "CompleteAbort",
        }
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether Kafka has a state of that name, be it one that nothing here is ever in.
    pub fn is_known_name(name: &str) -> bool {
        State::from_name(name).is_some() || matches!(name, "Dead" | "PrepareEpochFence")
    }

    /// Whether its end is decided and not all markers are written.
    pub fn is_preparing(self) -> bool {
        matches!(self, State::PrepareCommit | State::PrepareAbort)
    }

    /// Whether there is no transaction.
    pub fn is_at_rest(self) -> bool {
        matches!(
            self,
            State::Empty | State::CompleteCommit | State::CompleteAbort
        )
    }

    /// Whether the log may say `next` after this (Kafka's `VALID_PREVIOUS_STATES`).
    pub fn may_become(self, next: State) -> bool {
        match next {
            State::Empty => self.is_at_rest(),
            State::Ongoing | State::PrepareAbort => self.is_at_rest() || self == State::Ongoing,
            State::PrepareCommit => self == State::Ongoing,
            State::CompleteCommit => self == State::PrepareCommit,
            State::CompleteAbort => self == State::PrepareAbort,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
