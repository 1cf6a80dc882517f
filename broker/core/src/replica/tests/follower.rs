use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::{BrokerId, LeaderEpoch};
use crate::replica::{
    Advance, EpochEnd, FetchedPartition, Follower, FollowerAction, LocalLog, WaitReason,
};
use crate::time::Instant;

const NOW: Instant = Instant::from_millis(1_000);

/// Offsets 10 to 30, epoch 1 from 10, epoch 3 from 20.
fn log() -> LocalLog {
    LocalLog {
        log_start_offset: 10,
        log_end_offset: 30,
        last_epoch: Some(LeaderEpoch(3)),
    }
}

fn end_of_epoch(asked: LeaderEpoch) -> Option<EpochEnd> {
    match asked.0 {
        ..=0 => None,
        1 | 2 => Some(EpochEnd {
            epoch: LeaderEpoch(1),
            end_offset: 20,
        }),
        _ => Some(EpochEnd {
            epoch: LeaderEpoch(3),
            end_offset: 30,
        }),
    }
}

fn follower() -> Follower {
    Follower::new(BrokerId(1), LeaderEpoch(5), log(), 25)
}

fn answered() -> FetchedPartition {
    FetchedPartition {
        error: None,
        high_watermark: 27,
        log_start_offset: Some(10),
        diverging: None,
    }
}

fn check_answer(answer: FetchedPartition, expected: FollowerAction) {
    let mut follower = follower();
    let asked = follower.fetch_position(NOW).unwrap();
    assert_eq!(
        follower.handle_fetched(NOW, &asked, &answer, end_of_epoch),
        expected,
        "{answer:?}"
    );
}

#[test]
fn answers_lead_to_actions() {
    check_answer(answered(), FollowerAction::Append);
    let failed = |error| FetchedPartition {
        error: Some(error),
        log_start_offset: None,
        ..answered()
    };
    check_answer(
        failed(ErrorKind::OffsetOutOfRange),
        FollowerAction::AskLogStart,
    );
    for error in [
        ErrorKind::NotLeaderOrFollower,
        ErrorKind::FencedLeaderEpoch,
        ErrorKind::UnknownTopicId,
        ErrorKind::UnknownTopicOrPartition,
    ] {
        check_answer(
            failed(error),
            FollowerAction::Wait(WaitReason::Metadata(error)),
        );
    }
    for error in [ErrorKind::UnknownLeaderEpoch, ErrorKind::KafkaStorageError] {
        check_answer(
            failed(error),
            FollowerAction::Wait(WaitReason::Error(error)),
        );
    }
    let ranged = |start| FetchedPartition {
        log_start_offset: Some(start),
        ..failed(ErrorKind::OffsetOutOfRange)
    };
    check_answer(ranged(50), FollowerAction::RestartAt(50));
    // Our end is in the leader's range by now.
    let again = FollowerAction::Wait(WaitReason::Error(ErrorKind::OffsetOutOfRange));
    check_answer(ranged(30), again);
    check_answer(ranged(5), again);
}

#[test]
fn truncation_goes_by_epochs_alone() {
    // Where the leader's log ends in which epoch → where ours is cut. The high watermark (25) plays no part.
    let check = |epoch: i32, end_offset: i64, expected: i64| {
        let diverging = Some(EpochEnd {
            epoch: LeaderEpoch(epoch),
            end_offset,
        });
        check_answer(
            FetchedPartition {
                diverging,
                ..answered()
            },
            FollowerAction::TruncateTo(expected),
        );
    };
    check(3, 26, 26);
    check(3, 22, 22);
    check(3, 40, 30);
    check(1, 15, 15);
    check(1, 28, 20);
    // We do not know epoch 2: what we have of epoch 1 may be shared, the next fetch will tell.
    check(2, 18, 20);
    // We have nothing that old.
    check(0, 12, 12);
    check(0, 4, 10);
}

#[test]
fn stale_answers_are_ignored() {
    let mut follower = follower();
    let asked = follower.fetch_position(NOW).unwrap();
    follower.handle_leader(BrokerId(1), LeaderEpoch(6));
    let action = follower.handle_fetched(NOW, &asked, &answered(), end_of_epoch);
    assert_eq!(action, FollowerAction::Ignore);
    let asked = follower.fetch_position(NOW).unwrap();
    follower.handle_truncated(LocalLog {
        log_end_offset: 29,
        ..log()
    });
    let action = follower.handle_fetched(NOW, &asked, &answered(), end_of_epoch);
    assert_eq!(action, FollowerAction::Ignore);
}

#[test]
fn an_answer_whose_records_are_here_already_still_tells_the_high_watermark() {
    let mut follower = follower();
    let asked = follower.fetch_position(NOW).unwrap();
    follower.handle_append(31, Some(LeaderEpoch(5)), &answered());
    let later = FetchedPartition {
        high_watermark: 31,
        ..answered()
    };
    let action = follower.handle_fetched(NOW, &asked, &later, end_of_epoch);
    assert_eq!(action, FollowerAction::AppendNothing);
    follower.handle_append(31, Some(LeaderEpoch(5)), &later);
    assert_eq!(follower.high_watermark(), 31);
    for useless in [
        FetchedPartition {
            error: Some(ErrorKind::NotLeaderOrFollower),
            ..later
        },
        FetchedPartition {
            diverging: Some(EpochEnd {
                epoch: LeaderEpoch(3),
                end_offset: 25,
            }),
            ..later
        },
    ] {
        let action = follower.handle_fetched(NOW, &asked, &useless, end_of_epoch);
        assert_eq!(action, FollowerAction::Ignore, "{useless:?}");
    }
}

#[test]
fn batches_of_later_epochs_are_left_out() {
    let asked = follower().fetch_position(NOW).unwrap();
    assert!(asked.takes(LeaderEpoch(5)));
    assert!(!asked.takes(LeaderEpoch(6)));
}

#[test]
fn high_watermark_and_log_start_follow_the_leader_within_our_log() {
    let check = |log_end_offset: i64,
                 leader_hw: i64,
                 leader_start: Option<i64>,
                 expected: (Option<i64>, Option<i64>)| {
        let answer = FetchedPartition {
            high_watermark: leader_hw,
            log_start_offset: leader_start,
            ..answered()
        };
        let advance = follower().handle_append(log_end_offset, Some(LeaderEpoch(5)), &answer);
        let expected = Advance {
            high_watermark: expected.0,
            log_start_offset: expected.1,
        };
        assert_eq!(advance, expected, "{answer:?}");
    };
    check(30, 27, Some(10), (Some(27), None));
    check(30, 99, Some(10), (Some(30), None));
    check(40, 35, Some(10), (Some(35), None));
    check(30, 20, Some(10), (None, None));
    check(30, 27, Some(26), (Some(27), Some(26)));
    check(30, 25, Some(28), (None, Some(25)));
    check(30, -1, None, (None, None));
}

#[test]
fn truncation_and_restart_keep_the_order_of_offsets() {
    let mut follower = follower();
    follower.handle_truncated(LocalLog {
        log_end_offset: 22,
        ..log()
    });
    assert_eq!(
        (follower.high_watermark(), follower.log().log_end_offset),
        (22, 22)
    );
    follower.handle_restarted(100);
    assert_eq!(
        (follower.high_watermark(), follower.log().log_start_offset),
        (100, 100)
    );
    assert_eq!(
        follower.fetch_position(NOW).unwrap().last_fetched_epoch,
        None
    );
}

#[test]
fn a_log_start_that_was_asked_for_leads_on() {
    let mut follower = follower();
    let asked = follower.fetch_position(NOW).unwrap();
    let out_of_range = FetchedPartition {
        error: Some(ErrorKind::OffsetOutOfRange),
        log_start_offset: None,
        ..answered()
    };
    follower.handle_fetched(NOW, &asked, &out_of_range, end_of_epoch);
    assert_eq!(follower.fetch_position(NOW), None);
    let stale = follower.handle_leader_log_start(NOW, LeaderEpoch(4), 77);
    assert_eq!(stale, FollowerAction::Ignore);
    let action = follower.handle_leader_log_start(NOW, LeaderEpoch(5), 77);
    assert_eq!(action, FollowerAction::RestartAt(77));
}

#[test]
fn waits_end_by_time_or_by_a_new_leader() {
    let mut follower = follower();
    follower.handle_failed(NOW);
    assert_eq!(follower.fetch_position(NOW), None);
    assert!(
        follower
            .fetch_position(follower.next_deadline().unwrap())
            .is_some()
    );
    follower.handle_leader(BrokerId(2), LeaderEpoch(6));
    assert_eq!(follower.leader(), BrokerId(2));
    assert!(follower.fetch_position(NOW).is_some());
}

#[test]
fn a_leader_that_refuses_is_asked_again_soon_and_then_less_often() {
    let check = |error, expected_ms: &[u64]| {
        let mut follower = follower();
        let refused = FetchedPartition {
            error: Some(error),
            ..answered()
        };
        let mut now = NOW;
        let mut refuse = |follower: &mut Follower| {
            let asked = follower.fetch_position(now).unwrap();
            follower.handle_fetched(now, &asked, &refused, end_of_epoch);
            let before = now;
            now = follower.next_deadline().unwrap();
            u64::try_from((now - before).as_millis()).unwrap()
        };
        for expected in expected_ms {
            assert_eq!(refuse(&mut follower), *expected, "{error:?}");
        }
        // A new leader has refused nothing yet, nor has one that has answered since.
        follower.handle_leader(BrokerId(2), LeaderEpoch(6));
        assert_eq!(refuse(&mut follower), 10);
        assert_eq!(refuse(&mut follower), 20);
        let later = NOW + Duration::from_secs(60);
        let asked = follower.fetch_position(later).unwrap();
        follower.handle_fetched(later, &asked, &answered(), end_of_epoch);
        assert_eq!(refuse(&mut follower), 10);
    };
    check(
        ErrorKind::NotLeaderOrFollower,
        &[10, 20, 40, 80, 160, 320, 640, 1000, 1000],
    );
    check(
        ErrorKind::UnknownLeaderEpoch,
        &[10, 20, 40, 80, 160, 200, 200],
    );
}
