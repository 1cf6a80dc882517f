//! Topics whose deletion coordinators have seen and not yet written tombstones for, so that a coordinator that loads, or
//! lacks replicas at that moment, does it later.

use std::collections::BTreeMap;

use taffrail_core::ids::TopicId;

/// Deleted topics by name, so that the offsets of a new topic of a name are told from those of the old one.
pub(super) type Topics = BTreeMap<TopicId, String>;

/// What the coordinators of this broker still have to forget, by partition of the offsets topic.
#[derive(Debug, Default)]
pub(super) struct RemovedTopics {
    owed: BTreeMap<i32, Topics>,
}

impl RemovedTopics {
    /// Topics are deleted while this broker leads these partitions; those of others see it at their leaders.
    pub(super) fn note(&mut self, partitions: &[i32], topics: &Topics) {
        for partition in partitions {
            let owed = self.owed.entry(*partition).or_default();
            owed.extend(topics.iter().map(|(id, name)| (*id, name.clone())));
        }
    }

    /// What the coordinator of a partition has to forget; it is owed until it is done.
    pub(super) fn owed(&self, partition: i32) -> Option<Topics> {
        self.owed.get(&partition).cloned()
    }

    /// These are forgotten.
    pub(super) fn done(&mut self, partition: i32, topics: &Topics) {
        if let Some(owed) = self.owed.get_mut(&partition) {
            owed.retain(|id, _| !topics.contains_key(id));
            if owed.is_empty() {
                self.owed.remove(&partition);
            }
        }
    }

    /// Another broker leads the partition.
    pub(super) fn drop_partition(&mut self, partition: i32) {
        self.owed.remove(&partition);
    }

    /// The offsets topic itself is gone.
    pub(super) fn clear(&mut self) {
        self.owed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(numbers: &[u8]) -> Topics {
        let topic = |number: &u8| (TopicId([*number; 16]), format!("t{number}"));
        numbers.iter().map(topic).collect()
    }

    #[test]
    fn deleted_topics_are_owed_until_their_tombstones_are_written() {
        let mut removed = RemovedTopics::default();
        assert_eq!(removed.owed(3), None);
        removed.note(&[3, 7], &topics(&[1]));
        let portion = removed.owed(3).unwrap();
        assert_eq!(portion, topics(&[1]));
        // Another one goes while that portion is written, or the write fails and is tried again.
        removed.note(&[3], &topics(&[2]));
        removed.done(3, &portion);
        assert_eq!(removed.owed(3), Some(topics(&[2])));
        removed.done(3, &topics(&[2]));
        assert_eq!(removed.owed(3), None);
        assert_eq!(
            removed.owed(7),
            Some(topics(&[1])),
            "each coordinator by itself"
        );
        removed.drop_partition(7);
        assert_eq!(removed.owed(7), None);
    }
}
