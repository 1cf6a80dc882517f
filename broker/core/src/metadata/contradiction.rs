//! What a metadata record may not say of the image that it comes to. No controller decides such a record, so it shows that the
//! record, or what came before it, is not what was decided.

use super::record::Partition;
use crate::ids::{TopicId, TopicPartition};

/// A record that contradicts the image that it comes to: it was not applied, and nothing after it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Two topics never have one name.
    #[error("topic {topic_id} is named \"{name}\", which topic {holder} is")]
    TopicNameTaken {
        /// The topic of the record.
        topic_id: TopicId,
        /// The name that it gives.
        name: String,
        /// The topic that has this name.
        holder: TopicId,
    },
    /// An id is never used again.
    #[error("topic \"{name}\" has the id {topic_id}, which topic \"{holder}\" has")]
    TopicIdTaken {
        /// The id that the record gives.
        topic_id: TopicId,
        /// The topic of the record.
        name: String,
        /// The topic that has this id.
        holder: String,
    },
    /// The partitions of a topic come in order.
    #[error("partition {partition} is new, and its topic has {partitions} partitions")]
    PartitionGap {
        /// The partition of the record.
        partition: TopicPartition,
        /// How many the topic has.
        partitions: usize,
    },
    /// See `Partition::check_invariants`.
    #[error("partition {partition} breaks \"{rule}\": {state:?}")]
    PartitionInvariant {
        /// The partition of the record.
        partition: TopicPartition,
        /// What does not hold.
        rule: &'static str,
        /// The state that the record gives.
        state: Box<Partition>,
    },
    /// The epochs of a partition only grow.
    #[error("the epochs of partition {partition} go back from {before:?} to {state:?}")]
    PartitionEpochs {
        /// The partition of the record.
        partition: TopicPartition,
        /// Its state in the image.
        before: Box<Partition>,
        /// The state that the record gives.
        state: Box<Partition>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BrokerId, LeaderEpoch, PartitionEpoch};
    use crate::metadata::{Image, Record};

    const ORDERS: TopicId = TopicId([1; 16]);
    const OTHER: TopicId = TopicId([2; 16]);

    fn state(leader_epoch: i32, partition_epoch: i32) -> Partition {
        Partition {
            replicas: vec![BrokerId(0)],
            isr: vec![BrokerId(0)],
            leader: Some(BrokerId(0)),
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            ..Partition::default()
        }
    }

    fn topic(topic_id: TopicId, name: &str) -> Record {
        let name = name.to_owned();
        Record::Topic { topic_id, name }
    }

    fn partition(partition: i32, state: Partition) -> Record {
        Record::Partition {
            topic_id: ORDERS,
            partition,
            state,
        }
    }

    #[test]
    fn a_record_that_contradicts_the_image_is_named_and_changes_nothing() {
        let image = Image::replay(&[topic(ORDERS, "orders"), partition(0, state(3, 5))]).unwrap();
        let check = |record: Record, expected: &str| {
            let mut after = image.clone();
            let refused = after.try_apply(&record).map_err(|error| error.to_string());
            match refused {
                Ok(()) => assert_eq!("", expected, "{record:?}"),
                Err(said) => {
                    assert!(!expected.is_empty() && said.starts_with(expected), "{said}");
                    assert_eq!(after, image, "{record:?}");
                }
            }
        };
        check(topic(OTHER, "others"), "");
        check(
            topic(OTHER, "orders"),
            &format!("topic {OTHER} is named \"orders\", which topic {ORDERS} is"),
        );
        check(
            topic(ORDERS, "others"),
            &format!("topic \"others\" has the id {ORDERS}, which topic \"orders\" has"),
        );
        check(partition(0, state(3, 6)), "");
        check(partition(1, state(0, 0)), "");
        for index in [2, -1] {
            check(
                partition(index, state(0, 0)),
                &format!("partition {ORDERS}-{index} is new, and its topic has 1 partitions"),
            );
        }
        for back in [state(2, 6), state(4, 4)] {
            check(
                partition(0, back),
                &format!("the epochs of partition {ORDERS}-0 go back from Partition {{"),
            );
        }
        let mut leaderless = state(4, 6);
        leaderless.isr.clear();
        check(
            partition(0, leaderless),
            &format!("partition {ORDERS}-0 breaks \"the leader is in the ISR\": Partition {{"),
        );
    }
}
