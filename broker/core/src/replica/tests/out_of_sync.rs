use std::time::Duration;

use super::leader::{LAG_TIME_MAX_MS, epoch, settings, state};
use crate::ids::{BrokerEpoch, BrokerId};
use crate::replica::{BrokerStanding, FollowerFetch, Lag, Leader, LeaderLog, OutOfSync};
use crate::time::Instant;

/// Broker 1 leads alone, from 0 to 9, all of it committed.
fn leader(standing: BrokerStanding) -> Leader {
    let mut state = state(7, &[1]);
    state.replicas[1].1 = standing;
    let log = LeaderLog {
        log_start_offset: 0,
        log_end_offset: 9,
        flushed_offset: 9,
        high_watermark: 9,
    };
    Leader::new(BrokerId(1), &state, log, settings(1), Instant::ZERO)
}

#[test]
fn the_first_thing_that_keeps_a_replica_out_is_named() {
    let active = BrokerStanding::Active(epoch(2));
    // Standing, what it fetched as (epoch, offset) at 0 ms, when it is asked, the answer.
    let check = |standing, fetched: Option<(i64, i64)>, at_ms, expected: OutOfSync| {
        let mut leader = leader(standing);
        if let Some((epoch, fetch_offset)) = fetched {
            let fetch = FollowerFetch {
                broker: BrokerId(2),
                broker_epoch: Some(BrokerEpoch(epoch)),
                fetch_offset,
                log_start_offset: 0,
                made_after: None,
                leader_log_end_offset: 9,
            };
            let taken = leader.handle_follower_fetch(Instant::ZERO, fetch, &mut Vec::new());
            assert_eq!(taken, Ok(()));
        }
        let found = leader.why_out_of_sync(&leader.replicas()[1], Instant::from_millis(at_ms));
        assert_eq!(found, Some(expected));
    };
    check(
        BrokerStanding::Unregistered,
        None,
        0,
        OutOfSync::Unregistered,
    );
    check(
        BrokerStanding::Fenced(epoch(2)),
        Some((20, 9)),
        0,
        OutOfSync::Fenced,
    );
    check(
        BrokerStanding::ShuttingDown(epoch(2)),
        None,
        0,
        OutOfSync::ShuttingDown,
    );
    check(active, None, 0, OutOfSync::NotFetched);
    check(active, Some((21, 9)), 0, OutOfSync::EarlierRegistration);
    check(active, Some((20, 4)), 0, OutOfSync::Behind(5));
    check(active, Some((20, 9)), 0, OutOfSync::Joining);
    let late = LAG_TIME_MAX_MS + 1;
    check(
        active,
        Some((20, 9)),
        late,
        OutOfSync::Silent(Duration::from_millis(late)),
    );
    let leader = leader(active);
    assert_eq!(
        leader.why_out_of_sync(&leader.replicas()[0], Instant::ZERO),
        None
    );
}

#[test]
fn lag_is_counted_in_records_and_in_time() {
    let mut leader = leader(BrokerStanding::Active(epoch(2)));
    let lag = |leader: &Leader| leader.lag(&leader.replicas()[1], Instant::from_millis(1_500));
    let nothing = Lag {
        records: None,
        since_caught_up: None,
    };
    assert_eq!(lag(&leader), nothing);
    for (at_ms, fetch_offset, leader_log_end_offset) in [(0, 9, 9), (1_000, 9, 12)] {
        leader.handle_append(Instant::ZERO, leader_log_end_offset, &mut Vec::new());
        let fetch = FollowerFetch {
            broker: BrokerId(2),
            broker_epoch: Some(epoch(2)),
            fetch_offset,
            log_start_offset: 0,
            made_after: None,
            leader_log_end_offset,
        };
        let now = Instant::from_millis(at_ms);
        leader
            .handle_follower_fetch(now, fetch, &mut Vec::new())
            .unwrap();
    }
    let behind = Lag {
        records: Some(3),
        since_caught_up: Some(Duration::from_millis(1_500)),
    };
    assert_eq!(lag(&leader), behind);
}
