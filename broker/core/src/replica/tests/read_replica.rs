use super::leader::{epoch, settings, state};
use crate::ids::BrokerId;
use crate::replica::{BrokerStanding, FollowerFetch, Leader, LeaderLog, PartitionState};
use crate::time::Instant;

/// Broker 1 leads a log from 0 to 9; broker 2 has 2 to 9, broker 3 has 0 to 7.
fn leader(change: impl Fn(&mut PartitionState)) -> Leader {
    let mut state = state(7, &[1, 2, 3]);
    change(&mut state);
    let log = LeaderLog {
        log_start_offset: 0,
        log_end_offset: 9,
        flushed_offset: 9,
        high_watermark: 5,
    };
    let mut leader = Leader::new(BrokerId(1), &state, log, settings(1), Instant::ZERO);
    for (broker, log_start_offset, fetch_offset) in [(2, 2, 9), (3, 0, 7)] {
        let fetch = FollowerFetch {
            broker: BrokerId(broker),
            broker_epoch: Some(epoch(broker)),
            fetch_offset,
            log_start_offset,
            made_after: None,
            leader_log_end_offset: 9,
        };
        // One that is fenced is known to the leader all the same.
        let _ = leader.handle_follower_fetch(Instant::ZERO, fetch, &mut Vec::new());
    }
    leader
}

#[test]
fn consumers_read_from_a_replica_that_is_near_in_sync_and_has_the_offset() {
    let check = |change: &dyn Fn(&mut PartitionState), near: &[i32], offset, expected| {
        let leader = leader(change);
        let found = leader.preferred_read_replica(offset, |broker| near.contains(&broker.0));
        assert_eq!(
            found,
            Option::map(expected, BrokerId),
            "{near:?} at {offset}"
        );
    };
    let as_is = |_: &mut PartitionState| {};
    check(&as_is, &[], 5, None);
    check(&as_is, &[3], 5, Some(3));
    check(&as_is, &[2, 3], 5, Some(2));
    check(&as_is, &[1, 2, 3], 5, None);
    // What it deleted or does not have yet.
    check(&as_is, &[2], 1, None);
    check(&as_is, &[2, 3], 1, Some(3));
    check(&as_is, &[3], 8, None);
    check(&as_is, &[3], 7, Some(3));
    check(
        &|state| state.isr = vec![BrokerId(1), BrokerId(2)],
        &[3],
        5,
        None,
    );
    for standing in [
        BrokerStanding::Fenced(epoch(3)),
        BrokerStanding::ShuttingDown(epoch(3)),
        BrokerStanding::Unregistered,
    ] {
        check(&|state| state.replicas[2].1 = standing, &[3], 5, None);
    }
}
