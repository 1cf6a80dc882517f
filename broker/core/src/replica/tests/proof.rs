//! When it is certain that nobody else led.

use super::leader::Event::Metadata;
use super::leader::{epoch, handle, leader, settings, state};
use crate::ids::{BrokerId, LeaderEpoch};
use crate::replica::{FollowerFetch, Leader, PartitionState};
use crate::time::Instant;

#[test]
fn nobody_else_led_before_what_all_that_may_lead_have_followed_after() {
    let mut leader = leader(&[1, 2], settings(1));
    let fetch_made_after = |leader: &mut Leader, broker, made_after_ms: Option<u64>| {
        let fetch = FollowerFetch {
            broker: BrokerId(broker),
            broker_epoch: Some(epoch(broker)),
            fetch_offset: 5,
            log_start_offset: 0,
            made_after: made_after_ms.map(Instant::from_millis),
            leader_log_end_offset: 5,
        };
        let now = Instant::from_millis(9000);
        leader.handle_follower_fetch(now, fetch, &mut Vec::new())
    };
    let led_until = |leader: &Leader, ms| leader.led_until(Instant::from_millis(ms));
    fetch_made_after(&mut leader, 2, None).unwrap();
    assert!(!led_until(&leader, 0), "when it was made is not known");
    fetch_made_after(&mut leader, 2, Some(100)).unwrap();
    fetch_made_after(&mut leader, 2, Some(90)).unwrap();
    assert!(led_until(&leader, 100) && !led_until(&leader, 101));
    assert!(leader.needs_fetch_of(BrokerId(2), Instant::from_millis(101)));
    assert!(!leader.needs_fetch_of(BrokerId(3), Instant::from_millis(101)));
    // Proposed for the ISR with this fetch, it may be elected as soon as the controller agrees.
    fetch_made_after(&mut leader, 3, Some(99)).unwrap();
    assert!(led_until(&leader, 99) && !led_until(&leader, 100));
    handle(&mut leader, 9001, &Metadata(state(8, &[1, 3])));
    assert!(
        led_until(&leader, 99) && !led_until(&leader, 100),
        "in the ISR it may be, too"
    );
    let next_epoch = PartitionState {
        leader_epoch: LeaderEpoch(5),
        ..state(10, &[1, 2])
    };
    handle(&mut leader, 9003, &Metadata(next_epoch));
    assert!(
        !led_until(&leader, 100),
        "another epoch, which nobody has followed yet"
    );
    let mut alone = super::leader::leader(&[1], settings(1));
    assert!(led_until(&alone, 9003), "nobody else may lead");
    let with_eligible = PartitionState {
        has_eligible: true,
        ..state(10, &[1])
    };
    handle(&mut alone, 9004, &Metadata(with_eligible));
    assert!(!led_until(&alone, 0), "one that is eligible may");
}
