//! What time does to a group: sessions end, rebalances complete, offsets that nobody uses go.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::classic::{Classic, Turn};
use super::coordinator::Group;
use super::record::{OffsetValue, Record};
use super::state::State;
use super::subscription;

impl Classic {
    pub(super) fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let pending = self.pending_join.len();
        self.pending_join.retain(|_, deadline| *deadline > now);
        if self.pending_join.len() < pending {
            self.complete_if_all_joined(turn);
        }
        self.end_sessions(turn);
        if self
            .pending_sync_deadline
            .is_some_and(|deadline| deadline <= now)
        {
            self.pending_sync_deadline = None;
            let silent = std::mem::take(&mut self.pending_sync);
            for member_id in &silent {
                self.forget_member(turn, member_id);
            }
            if !silent.is_empty() {
                self.prepare_rebalance(turn);
            }
        }
        if self
            .rebalance
            .as_ref()
            .is_some_and(|rebalance| rebalance.deadline <= now)
        {
            self.handle_rebalance_timeout(turn);
        }
    }

    /// All that ended go before the others are asked to join, so that one rebalance is enough.
    fn end_sessions(&mut self, turn: &mut Turn<'_>) {
        let ended: Vec<String> = self
            .members
            .iter()
            .filter(|(_, member)| member.deadline.is_some_and(|deadline| deadline <= turn.now))
            .map(|(id, _)| id.clone())
            .collect();
        for member_id in &ended {
            self.forget_member(turn, member_id);
        }
        if !ended.is_empty() {
            self.go_on_without(turn);
        }
    }

    /// Topics that members are subscribed to; `None` if that cannot be told.
    pub(super) fn subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if self.protocol_type.as_deref() != Some("consumer") {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let metadata = member.metadata(self.protocol.as_deref());
            topics.extend(
                subscription::topics(&metadata)?
                    .into_iter()
                    .map(str::to_owned),
            );
        }
        Some(topics)
    }
}

/// Since when an offset counts as unused.
enum Unused<'a> {
    /// It is used.
    Never,
    /// Since the group became empty, or since the commit if that was later.
    SinceEmpty(i64),
    /// Since the commit, for topics that are none of these.
    SinceCommit(Option<&'a BTreeSet<String>>),
}

impl Group {
    /// Tombstones for at most `limit` offsets that expired, and for the group itself when it has nothing left
    /// (Kafka's `OffsetExpirationConditionImpl`). Offsets of a group that rebalances stay.
    pub(super) fn expired(
        &self,
        group_id: &Arc<str>,
        wall_ms: i64,
        retention_ms: i64,
        limit: usize,
    ) -> Vec<Record> {
        let subscribed = self.classic.subscribed_topics();
        let unused = match (self.classic.state, &self.classic.protocol_type) {
            (State::Empty | State::Dead, Some(_)) => {
                Unused::SinceEmpty(self.classic.state_timestamp)
            }
            (State::Empty | State::Dead, None) => Unused::SinceCommit(None),
            (State::Stable, _) => match &subscribed {
                Some(topics) => Unused::SinceCommit(Some(topics)),
                None => Unused::Never,
            },
            (State::PreparingRebalance | State::CompletingRebalance, _) => Unused::Never,
        };
        let mut records: Vec<Record> = self
            .offsets()
            .filter(|(topic, _, value)| unused.has_expired(topic, value, wall_ms, retention_ms))
            .take(limit)
            .map(|(topic, partition, _)| Record::offset_tombstone(group_id, topic, partition))
            .collect();
        let nothing_left = records.len() == self.offsets().count();
        if nothing_left
            && self.classic.state == State::Empty
            && self.classic.is_vacant()
            && self.committed.is_some()
        {
            records.push(Record::group_tombstone(group_id));
        }
        records
    }
}

impl Unused<'_> {
    fn has_expired(
        &self,
        topic: &str,
        value: &OffsetValue,
        wall_ms: i64,
        retention_ms: i64,
    ) -> bool {
        let since = match self {
            Unused::Never => return false,
            Unused::SinceEmpty(empty_since) => value.commit_timestamp.max(*empty_since),
            Unused::SinceCommit(Some(topics)) if topics.contains(topic) => return false,
            Unused::SinceCommit(_) => value.commit_timestamp,
        };
        if value.expire_timestamp >= 0 {
            return wall_ms >= value.expire_timestamp;
        }
        wall_ms.saturating_sub(since) >= retention_ms
    }
}
