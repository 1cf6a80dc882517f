//! May this fetch be served, and does the fetcher's log still agree with ours? Asked by a leader before each read.

use crate::error::ErrorKind;
use crate::ids::LeaderEpoch;

/// Where a leader epoch ends in a log: the largest known epoch that is not above the asked one, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch found.
    pub epoch: LeaderEpoch,
    /// Exclusive: the offset where the next epoch starts, or the log end.
    pub end_offset: i64,
}

/// What a fetch says of its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedFrom {
    /// The next offset wanted.
    pub fetch_offset: i64,
    /// The epoch of the last record the fetcher has; `None` = not said (−1 on the wire).
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

/// The answer of [`check_fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchCheck {
    /// Read from the offset.
    Read,
    /// The logs part before the offset: answer without data. Such a fetch must not be counted as progress.
    Diverging(EpochEnd),
    /// Answer with this error.
    Refused(ErrorKind),
}

/// Compares the leader epoch that a request expects with the one that rules here (KIP-320). `None` = not checked.
///
/// # Errors
/// [`ErrorKind::FencedLeaderEpoch`] if the request's is older, [`ErrorKind::UnknownLeaderEpoch`] if it is newer.
pub fn check_leader_epoch(
    expected: Option<LeaderEpoch>,
    current: LeaderEpoch,
) -> Result<(), ErrorKind> {
    #[cfg(feature = "mutants")]
    if taffrail_mutants::is_planted(taffrail_mutants::Mutant::SkipEpochFence) {
        return Ok(());
    }
    match expected {
        Some(expected) if expected < current => Err(ErrorKind::FencedLeaderEpoch),
        Some(expected) if expected > current => Err(ErrorKind::UnknownLeaderEpoch),
        Some(_) | None => Ok(()),
    }
}

/// Checks a position against the log `[log_start_offset, log_end_offset)`.
///
/// The log start comes first: an offset below it is out of range whatever its epoch (KAFKA-12996). Then the epoch: a
/// fetcher whose last epoch ends earlier here than where it stands has records that this log never had (KIP-595's
/// use of KIP-320). The end of the log comes last, so that a follower that is ahead learns where to truncate.
/// `end_of_epoch` looks up this log's epoch cache and answers `None` for an epoch above all it knows.
pub fn check_fetch(
    from: FetchedFrom,
    log_start_offset: i64,
    log_end_offset: i64,
    end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<EpochEnd>,
) -> FetchCheck {
    if from.fetch_offset < log_start_offset {
        return FetchCheck::Refused(ErrorKind::OffsetOutOfRange);
    }
    if let Some(asked) = from.last_fetched_epoch {
        match end_of_epoch(asked) {
            None => return FetchCheck::Refused(ErrorKind::OffsetOutOfRange),
            Some(end) if end.epoch < asked || end.end_offset < from.fetch_offset => {
                return FetchCheck::Diverging(end);
            }
            Some(_) => {}
        }
    }
    if from.fetch_offset > log_end_offset {
        return FetchCheck::Refused(ErrorKind::OffsetOutOfRange);
    }
    FetchCheck::Read
}
