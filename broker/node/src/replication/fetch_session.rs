//! The fetch session at a leader as its follower knows it: what the leader was told of each partition, also while two requests
//! are under way.

use std::collections::BTreeMap;

use taffrail_core::ids::TopicPartition;
use taffrail_core::replica::FetchPosition;

/// One session.
#[derive(Default)]
pub(super) struct Session {
    /// 0 = none yet.
    pub(super) id: i32,
    pub(super) epoch: i32,
    /// The partitions in the leader's session, with what it was last told of each; none if it has to be told again.
    told: BTreeMap<TopicPartition, Option<FetchPosition>>,
    /// While two requests are under way: what the first one told of partitions that the second one says otherwise of.
    told_before: BTreeMap<TopicPartition, Option<FetchPosition>>,
}

impl Session {
    pub(super) fn next_epoch(&mut self) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    pub(super) fn has(&self, id: TopicPartition) -> bool {
        self.told.contains_key(&id)
    }

    pub(super) fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        self.told.keys().copied()
    }

    /// The next request names the partition with this position; whether it has to.
    pub(super) fn tell(&mut self, id: TopicPartition, position: FetchPosition) -> bool {
        if self.told.get(&id) == Some(&Some(position)) {
            return false;
        }
        let before = self.told.insert(id, Some(position));
        self.told_before.insert(id, before.flatten());
        true
    }

    /// The next request takes the partition out of the session; whether it has to.
    pub(super) fn forget(&mut self, id: TopicPartition) -> bool {
        let Some(before) = self.told.remove(&id) else {
            return false;
        };
        self.told_before.insert(id, before);
        true
    }

    /// What the request that is answered next asked for. Its answer must not count for what was asked since: it may be of an
    /// epoch before (KAFKA-7164).
    pub(super) fn asked(&self, id: TopicPartition) -> Option<FetchPosition> {
        let told = self.told_before.get(&id).or_else(|| self.told.get(&id));
        told.copied().flatten()
    }

    /// The partition is named again even if its position stays, unless the request under way does so.
    pub(super) fn note_refused(&mut self, id: TopicPartition) {
        if !self.told_before.contains_key(&id) {
            self.told.insert(id, None);
        }
    }

    /// The first of two requests is answered, or the one that is made up is the only one.
    pub(super) fn note_first_answered(&mut self) {
        self.told_before.clear();
    }
}

#[cfg(test)]
mod tests {
    use taffrail_core::ids::{LeaderEpoch, TopicId};

    use super::*;

    const ID: TopicPartition = TopicPartition {
        topic_id: TopicId([1; 16]),
        partition: 0,
    };

    fn position(leader_epoch: i32, fetch_offset: i64) -> FetchPosition {
        FetchPosition {
            leader_epoch: LeaderEpoch(leader_epoch),
            fetch_offset,
            last_fetched_epoch: None,
            log_start_offset: 0,
        }
    }

    /// One request that asked for 12 in epoch 1 is under way.
    fn session() -> Session {
        let mut session = Session::default();
        assert!(session.tell(ID, position(1, 12)));
        session.note_first_answered();
        session
    }

    #[test]
    fn only_what_changed_is_told() {
        let mut session = session();
        assert!(!session.tell(ID, position(1, 12)));
        assert!(session.tell(ID, position(1, 13)));
        assert!(session.forget(ID));
        assert!(!session.forget(ID));
    }

    #[test]
    fn an_answer_counts_for_the_request_that_it_is_to() {
        let mut session = session();
        assert!(session.tell(ID, position(2, 12)));
        assert_eq!(session.asked(ID), Some(position(1, 12)));
        session.note_first_answered();
        assert_eq!(session.asked(ID), Some(position(2, 12)));
        assert!(session.forget(ID));
        assert_eq!(session.asked(ID), Some(position(2, 12)));
        session.note_first_answered();
        assert_eq!(session.asked(ID), None);
    }

    #[test]
    fn what_was_refused_is_told_again_once() {
        let mut session = session();
        session.note_refused(ID);
        assert!(session.tell(ID, position(1, 12)));
        session.note_first_answered();
        // Here the request under way names it already.
        assert!(session.tell(ID, position(2, 12)));
        session.note_refused(ID);
        session.note_first_answered();
        assert_eq!(session.asked(ID), Some(position(2, 12)));
        assert!(!session.tell(ID, position(2, 12)));
    }
}
