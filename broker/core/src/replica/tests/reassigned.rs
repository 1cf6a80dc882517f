//! Replicas that a reassignment brings.

use super::leader::{Event, check, handle, leader, settings, state};
use crate::ids::BrokerId;

use Event::{Committed, Fetch, Metadata, Timeout, Unknown};

/// The answer to what was sent again tells the epoch of a reassignment that came in between, and only the ISR.
#[test]
fn replicas_are_learned_of_metadata_whose_epoch_an_answer_told_before() {
    let mut leader = check(
        leader(&[1], settings(1)),
        &[
            (1, Fetch(2, 5), &["#1 expand 1@10,2@20 over 7"]),
            (2, Unknown(1), &[]),
            (60_000, Timeout, &["#2 expand 1@10,2@20 over 7"]),
            (60_001, Committed(2, 9, &[1, 2]), &[]),
        ],
    );
    let mut reassigned = state(9, &[1, 2]);
    let (_, standing) = reassigned.replicas[0];
    reassigned.replicas.push((BrokerId(9), standing));
    let count = reassigned.replicas.len();
    handle(&mut leader, 60_002, &Metadata(reassigned));
    assert_eq!(leader.replicas().len(), count);
}
