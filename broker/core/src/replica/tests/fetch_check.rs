use crate::error::ErrorKind;
use crate::ids::LeaderEpoch;
use crate::replica::{EpochEnd, FetchCheck, FetchedFrom, check_fetch, check_leader_epoch};

#[test]
fn leader_epochs_fence_both_ways() {
    let check = |expected: Option<i32>, outcome: Result<(), ErrorKind>| {
        let found = check_leader_epoch(expected.map(LeaderEpoch), LeaderEpoch(5));
        assert_eq!(found, outcome, "{expected:?}");
    };
    check(None, Ok(()));
    check(Some(5), Ok(()));
    check(Some(4), Err(ErrorKind::FencedLeaderEpoch));
    check(Some(6), Err(ErrorKind::UnknownLeaderEpoch));
}

/// The log: offsets 10 to 30, epoch 1 from 10 (and before), epoch 3 from 20.
fn end_of_epoch(asked: LeaderEpoch) -> Option<EpochEnd> {
    let end = |epoch, end_offset| {
        Some(EpochEnd {
            epoch: LeaderEpoch(epoch),
            end_offset,
        })
    };
    match asked.0 {
        0 => end(0, 10),
        1 => end(1, 20),
        2 => end(1, 20),
        3 => end(3, 30),
        _ => None,
    }
}

#[test]
fn positions_are_checked_against_range_and_epochs() {
    let check = |fetch_offset: i64, last_fetched_epoch: Option<i32>, expected: FetchCheck| {
        let from = FetchedFrom {
            fetch_offset,
            last_fetched_epoch: last_fetched_epoch.map(LeaderEpoch),
        };
        assert_eq!(
            check_fetch(from, 10, 30, end_of_epoch),
            expected,
            "{from:?}"
        );
    };
    let out_of_range = FetchCheck::Refused(ErrorKind::OffsetOutOfRange);
    let diverging = |epoch, end_offset| {
        FetchCheck::Diverging(EpochEnd {
            epoch: LeaderEpoch(epoch),
            end_offset,
        })
    };
    check(10, None, FetchCheck::Read);
    check(30, None, FetchCheck::Read);
    check(9, None, out_of_range);
    check(31, None, out_of_range);
    // Below the log start is out of range even if the epoch diverges too.
    check(9, Some(2), out_of_range);
    check(20, Some(1), FetchCheck::Read);
    check(21, Some(1), diverging(1, 20));
    check(20, Some(2), diverging(1, 20));
    check(30, Some(3), FetchCheck::Read);
    // A follower that is ahead is told where to cut, not that it is out of range.
    check(35, Some(3), diverging(3, 30));
    check(35, Some(1), diverging(1, 20));
    check(20, Some(4), out_of_range);
    check(12, Some(0), diverging(0, 10));
}
