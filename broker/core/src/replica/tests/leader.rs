use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch};
use crate::replica::{
    Acknowledgement, AlterPartitionAnswer, BrokerStanding, Effect, FollowerFetch, IsrChange,
    Leader, LeaderLog, PartitionState, Settings,
};
use crate::time::Instant;

pub(super) const LAG_TIME_MAX_MS: u64 = 10_000;

pub(super) fn settings(min_insync_replicas: usize) -> Settings {
    Settings {
        replica_lag_time_max: Duration::from_millis(LAG_TIME_MAX_MS),
        replica_lag_messages_max: None,
        min_insync_replicas,
        flush_ack: false,
    }
}

/// Brokers 1 (the leader), 2 and 3, each registered with ten times its id as epoch.
pub(super) fn state(partition_epoch: i32, isr: &[i32]) -> PartitionState {
    PartitionState {
        leader_epoch: LeaderEpoch(4),
        partition_epoch: PartitionEpoch(partition_epoch),
        replicas: [1, 2, 3]
            .map(|id| (BrokerId(id), BrokerStanding::Active(epoch(id))))
            .to_vec(),
        isr: isr.iter().copied().map(BrokerId).collect(),
        has_eligible: false,
    }
}

pub(super) fn epoch(broker: i32) -> BrokerEpoch {
    BrokerEpoch(i64::from(broker) * 10)
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Append(i64),
    Flushed(i64),
    /// Broker, offset: reads at the leader's present end.
    Fetch(i32, i64),
    FetchAs(i32, i64, i64),
    LogStart(i64),
    Metadata(PartitionState),
    Standing(i32, BrokerStanding),
    Committed(u64, i32, &'static [i32]),
    NotApplied(u64),
    Unknown(u64),
    AwaitMetadata(u64),
    Timeout,
}

use Event::*;

/// A leader of a log from 0 to 5 with nothing known to be committed.
pub(super) fn leader(isr: &[i32], settings: Settings) -> Leader {
    let log = LeaderLog {
        log_start_offset: 0,
        log_end_offset: 5,
        flushed_offset: 5,
        high_watermark: 0,
    };
    Leader::new(BrokerId(1), &state(7, isr), log, settings, Instant::ZERO)
}

fn describe(effect: &Effect) -> String {
    match effect {
        Effect::HighWatermark(offset) => format!("hw {offset}"),
        Effect::LowWatermark(offset) => format!("lw {offset}"),
        Effect::AlterPartition(proposal) => {
            let change = match proposal.change {
                IsrChange::Expand => "expand",
                IsrChange::Shrink => "shrink",
            };
            let isr: Vec<String> = proposal
                .new_isr
                .iter()
                .map(|(broker, epoch)| format!("{broker}@{epoch}"))
                .collect();
            format!(
                "#{} {change} {} over {}",
                proposal.id,
                isr.join(","),
                proposal.partition_epoch
            )
        }
    }
}

/// What an event led to.
pub(super) struct Handled {
    effects: Vec<String>,
    outcome: Result<(), ErrorKind>,
}

pub(super) fn handle(leader: &mut Leader, at_ms: u64, event: &Event) -> Handled {
    let now = Instant::from_millis(at_ms);
    let mut effects = Vec::new();
    let mut outcome = Ok(());
    match event {
        Append(end) => leader.handle_append(now, *end, &mut effects),
        Flushed(offset) => leader.handle_flushed(now, *offset, &mut effects),
        Fetch(broker, offset) => {
            outcome = fetch(
                leader,
                now,
                *broker,
                Some(epoch(*broker)),
                *offset,
                &mut effects,
            );
        }
        FetchAs(broker, epoch, offset) => {
            outcome = fetch(
                leader,
                now,
                *broker,
                Some(BrokerEpoch(*epoch)),
                *offset,
                &mut effects,
            );
        }
        LogStart(offset) => leader.handle_log_start(*offset, &mut effects),
        Metadata(state) => leader.handle_metadata(now, state, &mut effects),
        Standing(broker, standing) => {
            let mut state = state(leader.partition_epoch().0, &[1]);
            state.replicas[*broker as usize - 1].1 = *standing;
            leader.handle_metadata(now, &state, &mut effects);
        }
        Committed(id, partition_epoch, isr) => {
            let committed = AlterPartitionAnswer::Committed {
                leader_epoch: LeaderEpoch(4),
                partition_epoch: PartitionEpoch(*partition_epoch),
                isr: isr.iter().copied().map(BrokerId).collect(),
                has_eligible: false,
            };
            leader.handle_alter_partition_answer(now, *id, committed, &mut effects);
        }
        NotApplied(id) => {
            leader.handle_alter_partition_answer(
                now,
                *id,
                AlterPartitionAnswer::NotApplied,
                &mut effects,
            );
        }
        Unknown(id) => {
            leader.handle_alter_partition_answer(
                now,
                *id,
                AlterPartitionAnswer::Unknown,
                &mut effects,
            );
        }
        AwaitMetadata(id) => {
            leader.handle_alter_partition_answer(
                now,
                *id,
                AlterPartitionAnswer::AwaitMetadata,
                &mut effects,
            );
        }
        Timeout => leader.handle_timeout(now, &mut effects),
    }
    Handled {
        effects: effects.iter().map(describe).collect(),
        outcome,
    }
}

fn fetch(
    leader: &mut Leader,
    now: Instant,
    broker: i32,
    broker_epoch: Option<BrokerEpoch>,
    fetch_offset: i64,
    effects: &mut Vec<Effect>,
) -> Result<(), ErrorKind> {
    let fetch = FollowerFetch {
        broker: BrokerId(broker),
        broker_epoch,
        fetch_offset,
        log_start_offset: 0,
        made_after: None,
        leader_log_end_offset: leader.log_end_offset(),
    };
    leader.handle_follower_fetch(now, fetch, effects)
}

/// Each event at its time in milliseconds, with the effects it must have.
pub(super) fn check(mut leader: Leader, steps: &[(u64, Event, &[&str])]) -> Leader {
    for (at_ms, event, expected) in steps {
        let found = handle(&mut leader, *at_ms, event).effects;
        assert_eq!(&found, expected, "at {at_ms}: {event:?}");
    }
    leader
}

fn isr(leader: &Leader) -> Vec<i32> {
    leader.isr().map(|broker| broker.0).collect()
}

#[test]
fn high_watermark_is_the_smallest_log_end_in_the_isr() {
    check(
        leader(&[1, 2, 3], settings(1)),
        &[
            (1, Fetch(2, 5), &[]),
            (1, Fetch(3, 4), &["hw 4", "lw 0"]),
            (2, Fetch(3, 5), &["hw 5"]),
            (3, Append(9), &[]),
            (4, Fetch(2, 9), &[]),
            (4, Fetch(3, 7), &["hw 7"]),
            // A follower that lost its tail does not take it back.
            (5, Fetch(3, 6), &[]),
            (6, Fetch(3, 9), &["hw 9"]),
        ],
    );
}

#[test]
fn a_leader_alone_commits_what_it_appends() {
    let alone = leader(&[1], settings(1));
    assert_eq!(alone.high_watermark(), 5);
    check(alone, &[(1, Append(6), &["hw 6"]), (1, Append(6), &[])]);
}

#[test]
fn initial_high_watermark_stays_within_the_log() {
    let check = |checkpoint: i64, expected: i64| {
        let log = LeaderLog {
            log_start_offset: 3,
            log_end_offset: 8,
            flushed_offset: 8,
            high_watermark: checkpoint,
        };
        let leader = Leader::new(
            BrokerId(1),
            &state(7, &[1, 2]),
            log,
            settings(1),
            Instant::ZERO,
        );
        assert_eq!(leader.high_watermark(), expected);
        let exposed = leader.exposed_high_watermark();
        let available = if expected >= 8 {
            Ok(expected)
        } else {
            Err(ErrorKind::OffsetNotAvailable)
        };
        assert_eq!(exposed, available);
    };
    check(0, 3);
    check(5, 5);
    check(9, 8);
}

#[test]
fn high_watermark_stands_still_under_min_isr() {
    let under = check(
        leader(&[1], settings(2)),
        &[
            (1, Append(6), &[]),
            // Being added counts for the high watermark at once, for the size only when committed.
            (2, Fetch(2, 6), &["#1 expand 1@10,2@20 over 7"]),
            (3, Committed(1, 8, &[1, 2]), &["hw 6"]),
        ],
    );
    assert_eq!(under.check_append(), Ok(()));
    // More than there are replicas means all of them.
    assert_eq!(leader(&[1, 2, 3], settings(9)).min_isr(), 3);
    assert_eq!(
        leader(&[1], settings(2)).check_append(),
        Err(ErrorKind::NotEnoughReplicas)
    );
}

/// The controller went by `min.insync.replicas` 2 when it committed this ISR, this broker goes by 1 already.
#[test]
fn high_watermark_stands_still_while_somebody_outside_of_the_isr_may_be_elected() {
    let mut eligible = state(8, &[1]);
    eligible.has_eligible = true;
    let mut leader = check(
        leader(&[1], settings(1)),
        &[(0, Metadata(eligible), &[]), (1, Append(9), &[])],
    );
    assert_eq!(leader.check_append(), Err(ErrorKind::NotEnoughReplicas));
    let cleared = state(9, &[1]);
    leader = check(leader, &[(2, Metadata(cleared), &["hw 9"])]);
    assert_eq!(leader.check_append(), Ok(()));

    let committed = AlterPartitionAnswer::Committed {
        leader_epoch: LeaderEpoch(4),
        partition_epoch: PartitionEpoch(10),
        isr: vec![BrokerId(1)],
        has_eligible: true,
    };
    let mut effects = Vec::new();
    let log = LeaderLog {
        log_start_offset: 0,
        log_end_offset: 5,
        flushed_offset: 5,
        high_watermark: 0,
    };
    let mut leader = Leader::new(
        BrokerId(1),
        &state(7, &[1, 2]),
        log,
        settings(1),
        Instant::ZERO,
    );
    let late = Instant::from_millis(LAG_TIME_MAX_MS + 1);
    leader.handle_timeout(late, &mut effects);
    assert_eq!(effects.len(), 1, "broker 2 is to leave");
    effects.clear();
    leader.handle_alter_partition_answer(late, 1, committed, &mut effects);
    assert_eq!(effects, []);
    assert_eq!(leader.high_watermark(), 0);
}

#[test]
fn follower_that_reached_high_watermark_and_epoch_start_joins() {
    let steps = |offset: i64, expected: &'static [&'static str]| {
        check(
            leader(&[1], settings(1)),
            &[(1, Append(9), &["hw 9"]), (2, Fetch(3, offset), expected)],
        );
    };
    steps(8, &[]);
    steps(9, &["#1 expand 1@10,3@30 over 7"]);
    // High watermark 0 after an election, epoch start 5: what came before the epoch is needed too.
    let behind = leader(&[1, 2], settings(1));
    check(
        behind,
        &[
            (1, Fetch(3, 4), &[]),
            (2, Fetch(3, 5), &["#1 expand 1@10,2@20,3@30 over 7"]),
        ],
    );
}

#[test]
fn ineligible_followers_do_not_join_and_do_not_hold_the_high_watermark() {
    for standing in [
        BrokerStanding::Unregistered,
        BrokerStanding::Fenced(epoch(2)),
        BrokerStanding::ShuttingDown(epoch(2)),
        BrokerStanding::Active(BrokerEpoch(19)),
    ] {
        let Handled { effects, .. } = {
            let mut leader = leader(&[1], settings(1));
            handle(&mut leader, 1, &Standing(2, standing));
            handle(&mut leader, 2, &Fetch(2, 5));
            handle(&mut leader, 3, &Append(6))
        };
        assert_eq!(effects, ["hw 6"], "{standing:?}");
    }
    // Its broker is unfenced: it joins by what it fetched a moment ago.
    check(
        leader(&[1], settings(1)),
        &[
            (
                1,
                Standing(2, BrokerStanding::Fenced(epoch(2))),
                &["lw 0"; 0],
            ),
            (2, Fetch(2, 5), &[]),
            (
                3,
                Standing(2, BrokerStanding::Active(epoch(2))),
                &["#1 expand 1@10,2@20 over 7"],
            ),
        ],
    );
}

#[test]
fn fetches_of_older_incarnations_and_strangers_are_refused() {
    let mut leader = leader(&[1, 2, 3], settings(1));
    let refused = Err(ErrorKind::NotLeaderOrFollower);
    assert_eq!(handle(&mut leader, 1, &FetchAs(2, 19, 5)).outcome, refused);
    assert_eq!(handle(&mut leader, 1, &FetchAs(9, 90, 5)).outcome, refused);
    assert_eq!(handle(&mut leader, 1, &FetchAs(1, 10, 5)).outcome, refused);
    assert_eq!(handle(&mut leader, 1, &FetchAs(2, 21, 5)).outcome, Ok(()));
    assert_eq!(handle(&mut leader, 1, &FetchAs(2, 20, 5)).outcome, refused);
}

#[test]
fn caught_up_follower_outside_the_isr_holds_the_high_watermark_for_a_while() {
    // Otherwise a leader alone in its ISR would run away from it for ever.
    check(
        leader(&[1], settings(1)),
        &[
            (1, Fetch(2, 5), &["#1 expand 1@10,2@20 over 7"]),
            (2, NotApplied(1), &[]),
            (3, Append(6), &[]),
            (4, Fetch(2, 6), &["hw 6"]),
            (5, Append(7), &[]),
            (4 + LAG_TIME_MAX_MS, Timeout, &[]),
            (5 + LAG_TIME_MAX_MS, Timeout, &["hw 7"]),
        ],
    );
}

#[test]
fn follower_behind_too_long_leaves_isr() {
    let steps: &[(u64, Event, &[&str])] = &[
        (1, Fetch(2, 5), &[]),
        (1, Fetch(3, 5), &["hw 5", "lw 0"]),
        (2, Append(9), &[]),
        (3, Fetch(2, 9), &[]),
        (1 + LAG_TIME_MAX_MS, Timeout, &[]),
        (
            2 + LAG_TIME_MAX_MS,
            Timeout,
            &["#1 shrink 1@10,2@20 over 7"],
        ),
        // One in flight; the high watermark waits for the controller.
        (3 + LAG_TIME_MAX_MS, Timeout, &[]),
        (4 + LAG_TIME_MAX_MS, Committed(1, 8, &[1, 2]), &["hw 9"]),
    ];
    let mut probe = check(leader(&[1, 2, 3], settings(1)), &steps[..4]);
    let due = probe.next_deadline().unwrap();
    assert_eq!(
        due,
        Instant(Instant::from_millis(1 + LAG_TIME_MAX_MS).0 + 1)
    );
    handle(&mut probe, 2 + LAG_TIME_MAX_MS, &Timeout);
    assert_eq!(probe.next_deadline(), None);
    assert_eq!(isr(&check(leader(&[1, 2, 3], settings(1)), steps)), [1, 2]);
}

#[test]
fn follower_that_was_at_the_end_of_its_previous_fetch_counts_as_caught_up_then() {
    check(
        leader(&[1, 2], settings(1)),
        &[
            (1_000, Fetch(2, 4), &["hw 4"]),
            (2_000, Append(9), &[]),
            // Has what was there at 1,000.
            (3_000, Fetch(2, 5), &["hw 5"]),
            (4_000, Append(12), &[]),
            (1_000 + LAG_TIME_MAX_MS, Timeout, &[]),
            (1_001 + LAG_TIME_MAX_MS, Timeout, &["#1 shrink 1@10 over 7"]),
        ],
    );
}

#[test]
fn follower_with_too_many_records_to_go_leaves_if_that_is_asked_for() {
    let settings = Settings {
        replica_lag_messages_max: Some(3),
        ..settings(1)
    };
    check(
        leader(&[1, 2], settings),
        &[
            (1, Fetch(2, 5), &["hw 5"]),
            (2, Append(8), &[]),
            (3, Timeout, &[]),
            (4, Append(9), &[]),
            (5, Timeout, &["#1 shrink 1@10 over 7"]),
        ],
    );
}

#[test]
fn unanswered_proposals_are_sent_again_and_keep_counting() {
    let steps: &[(u64, Event, &[&str])] = &[
        (1, Fetch(2, 5), &["#1 expand 1@10,2@20 over 7"]),
        (2, Unknown(1), &[]),
        (3, Timeout, &[]),
        // It may have been committed unseen: it goes on holding the high watermark, whatever the time.
        (4, Append(6), &[]),
        (60_000, Timeout, &["#2 expand 1@10,2@20 over 7"]),
        // An answer to the first sending says nothing of the second.
        (60_000, NotApplied(1), &[]),
        (60_001, AwaitMetadata(2), &[]),
        (60_500, Append(7), &[]),
        (60_501, Metadata(state(8, &[1, 2])), &[]),
        (60_502, Fetch(2, 7), &["hw 7"]),
        // Settled: a late answer is nobody's.
        (60_503, NotApplied(2), &[]),
        (60_503, Committed(2, 9, &[1]), &[]),
    ];
    assert_eq!(isr(&check(leader(&[1], settings(1)), steps)), [1, 2]);
}

#[test]
fn refused_proposals_are_dropped_and_tried_later() {
    check(
        leader(&[1], settings(1)),
        &[
            (1, Fetch(2, 5), &["#1 expand 1@10,2@20 over 7"]),
            (2, NotApplied(1), &[]),
            (3, Fetch(2, 5), &[]),
            (502, Fetch(2, 5), &["#2 expand 1@10,2@20 over 7"]),
        ],
    );
}

#[test]
fn older_metadata_changes_nothing_and_a_new_epoch_starts_over() {
    let mut leader = check(
        leader(&[1, 2], settings(1)),
        &[
            (1, Metadata(state(6, &[1])), &[]),
            (2, Fetch(2, 5), &["hw 5"]),
            (3, Append(9), &[]),
        ],
    );
    assert_eq!(isr(&leader), [1, 2]);
    let next = PartitionState {
        leader_epoch: LeaderEpoch(5),
        ..state(8, &[1, 2])
    };
    handle(&mut leader, 4, &Metadata(next));
    assert_eq!(
        (leader.epoch_start_offset(), leader.high_watermark()),
        (9, 5)
    );
    assert_eq!(
        leader.exposed_high_watermark(),
        Err(ErrorKind::OffsetNotAvailable)
    );
    assert_eq!(leader.replicas()[1].log_end_offset, None);
    handle(&mut leader, 5, &Fetch(2, 9));
    assert_eq!(leader.exposed_high_watermark(), Ok(9));
}

#[test]
fn acknowledgements_wait_for_enough_replicas() {
    let check = |isr: &'static [i32], end_offset: i64, expected: Acknowledgement| {
        let mut leader = leader(&[1, 2], settings(2));
        handle(&mut leader, 1, &Fetch(2, 5));
        let mut committed = state(8, isr);
        if isr.len() == 1 {
            committed.replicas[1].1 = BrokerStanding::Fenced(epoch(2));
        }
        handle(&mut leader, 2, &Metadata(committed));
        assert_eq!(leader.acknowledgement(end_offset), expected);
    };
    check(&[1, 2], 5, Acknowledgement::Committed);
    check(&[1, 2], 6, Acknowledgement::Waiting);
    check(&[1], 5, Acknowledgement::TooFew);
    check(&[1], 6, Acknowledgement::Waiting);
}

#[test]
fn with_flush_ack_the_leader_counts_what_is_fsynced() {
    let settings = Settings {
        flush_ack: true,
        ..settings(1)
    };
    check(
        leader(&[1, 2], settings),
        &[
            (1, Append(9), &[]),
            (2, Fetch(2, 9), &["hw 5"]),
            (3, Flushed(7), &["hw 7"]),
            (4, Flushed(12), &["hw 9"]),
        ],
    );
}

#[test]
fn low_watermark_is_the_smallest_log_start_of_live_replicas() {
    let mut leader = leader(&[1, 2], settings(1));
    for broker in [2, 3] {
        handle(&mut leader, 1, &Fetch(broker, 5));
    }
    assert_eq!(handle(&mut leader, 2, &LogStart(4)).effects, [""; 0]);
    let mut fetch = |broker: i32, log_start_offset: i64| {
        let mut effects = Vec::new();
        let fetch = FollowerFetch {
            broker: BrokerId(broker),
            broker_epoch: None,
            fetch_offset: 5,
            log_start_offset,
            made_after: None,
            leader_log_end_offset: 5,
        };
        leader
            .handle_follower_fetch(Instant::from_millis(3), fetch, &mut effects)
            .unwrap();
        effects.iter().map(describe).collect::<Vec<_>>()
    };
    assert_eq!(fetch(2, 4), [""; 0]);
    assert_eq!(fetch(3, 3), ["lw 3"]);
    assert_eq!(leader.low_watermark(), Some(3));
    let fenced = Standing(3, BrokerStanding::Fenced(epoch(3)));
    assert!(
        handle(&mut leader, 4, &fenced)
            .effects
            .contains(&"lw 4".to_owned())
    );
}
