//! Which replica a consumer should read from: one in its own rack (KIP-392, Kafka's `RackAwareReplicaSelector`).

use std::cmp::Reverse;

use crate::ids::BrokerId;

use super::leader::Leader;
use super::progress::{BrokerStanding, Replica};

impl Leader {
    /// The follower that a consumer at `fetch_offset` should read from; `None` = the leader. `near` says whether the consumer can
    /// reach a broker and stands in the same rack.
    ///
    /// Only members of the committed ISR on active brokers are asked for (KAFKA-14372, KAFKA-15390), and only those that have the
    /// offset. Of several, the one that has most is taken, then the one that was last caught up.
    pub fn preferred_read_replica(
        &self,
        fetch_offset: i64,
        near: impl Fn(BrokerId) -> bool,
    ) -> Option<BrokerId> {
        if near(self.me) {
            return None;
        }
        let serves = |replica: &&Replica| {
            replica.broker != self.me
                && replica.in_isr
                && matches!(replica.standing, BrokerStanding::Active(_))
                && replica
                    .log_start_offset
                    .is_some_and(|start| start <= fetch_offset)
                && replica
                    .log_end_offset
                    .is_some_and(|end| end >= fetch_offset)
                && near(replica.broker)
        };
        self.replicas
            .iter()
            .filter(serves)
            .max_by_key(|replica| {
                (
                    replica.log_end_offset,
                    replica.last_caught_up,
                    Reverse(replica.broker),
                )
            })
            .map(|replica| replica.broker)
    }
}
