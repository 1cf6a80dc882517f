//! All groups of one `__consumer_offsets` partition: finds the group of an event, keeps the deadlines, applies records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::ErrorKind;
use crate::ids::TopicId;
use crate::time::Instant;

use super::classic::{Classic, Turn};
use super::commit;
use super::member::milliseconds;
#[cfg(test)]
use super::protocols::Supporters;
use super::protocols::{bytes_of, check_protocols};
use super::record::{GroupValue, OffsetValue, Record, TEXT_BYTES_MAX};
use super::request::{
    Decision, Effect, FetchedTopic, Heartbeat, JoinGroup, JoinReply, LeaveGroup, LeaveReply,
    OffsetCommit, OffsetCommitReply, RequestToken, SyncGroup, SyncReply, WantedOffsets,
};
use super::settings::Settings;
use super::state::State;

/// Tombstones written at one timeout: some 100 bytes each, so that they fit into one batch of 1 MiB.
const EXPIRED_PER_TURN_MAX: usize = 1_000;

/// A group: what the log says of it, and the members that are here now.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The last settled generation. Written by [`Coordinator::apply`] only.
    pub(super) committed: Option<GroupValue>,
    /// Topic → partition → offset. Written by [`Coordinator::apply`] only.
    pub(super) offsets: BTreeMap<Arc<str>, BTreeMap<i32, OffsetValue>>,
    pub(super) classic: Classic,
    /// Its entry in the coordinator's deadlines. It may be earlier than the true one, never later.
    indexed: Option<Instant>,
}

impl Group {
    /// Members and generation.
    pub fn classic(&self) -> &Classic {
        &self.classic
    }

    /// The last settled generation that the log has.
    pub fn committed(&self) -> Option<&GroupValue> {
        self.committed.as_ref()
    }

    fn is_vacant(&self) -> bool {
        self.committed.is_none() && self.offsets.is_empty() && self.classic.is_vacant()
    }
}

/// Coordinates the groups of one partition of `__consumer_offsets`, in one leader epoch.
#[derive(Clone, Debug)]
pub struct Coordinator {
    settings: Settings,
    pub(super) groups: BTreeMap<Arc<str>, Group>,
    deadlines: BTreeSet<(Instant, Arc<str>)>,
    /// Names and metadata of the protocols of all members of all groups.
    protocol_bytes: usize,
    /// When to look for expired offsets, and from which group on.
    sweep_at: Instant,
    sweep_from: Option<Arc<str>>,
}

impl Coordinator {
    /// No groups: apply the log next.
    pub fn new(settings: Settings) -> Coordinator {
        Coordinator {
            settings,
            groups: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            protocol_bytes: 0,
            sweep_at: Instant::ZERO,
            sweep_from: None,
        }
    }

    /// Takes a record of the log, when loading and after each decision. Any record is fine in any order: compaction
    /// may have left a tombstone of what never was, or an offset before its group.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Offset {
                group_id,
                topic,
                partition,
                value: Some(value),
            } => {
                let offsets = &mut self.group_mut(group_id).offsets;
                match offsets.get_mut(topic) {
                    Some(partitions) => {
                        partitions.insert(*partition, value.clone());
                    }
                    None => {
                        let partitions = BTreeMap::from([(*partition, value.clone())]);
                        offsets.insert(Arc::clone(topic), partitions);
                    }
                }
            }
            Record::Offset {
                group_id,
                topic,
                partition,
                value: None,
            } => {
                let Some(group) = self.groups.get_mut(group_id) else {
                    return;
                };
                if let Some(partitions) = group.offsets.get_mut(topic) {
                    partitions.remove(partition);
                    if partitions.is_empty() {
                        group.offsets.remove(topic);
                    }
                }
                self.forget_if_vacant(group_id);
            }
            Record::Group {
                group_id,
                value: Some(value),
            } => {
                self.group_mut(group_id).committed = Some(value.clone());
            }
            Record::Group {
                group_id,
                value: None,
            } => {
                let Some(group) = self.groups.get_mut(group_id) else {
                    return;
                };
                group.committed = None;
                if group.classic.is_vacant() {
                    group.classic = Classic::default();
                }
                self.forget_if_vacant(group_id);
            }
        }
    }

    /// The log is applied to its end: groups are as it says, and the sessions of their members start now.
    pub fn handle_loaded(&mut self, now: Instant) {
        self.deadlines.clear();
        self.protocol_bytes = 0;
        for (group_id, group) in &mut self.groups {
            group.classic = group
                .committed
                .as_ref()
                .map(|value| Classic::loaded(now, value))
                .unwrap_or_default();
            self.protocol_bytes += group.classic.supporters.bytes();
            group.indexed = group.classic.next_deadline();
            self.deadlines
                .extend(group.indexed.map(|at| (at, group_id.clone())));
        }
        self.sweep_at = now + self.settings.offsets_retention_check_interval;
    }

    /// JoinGroup. The reply comes as an effect, now or when the rebalance is complete.
    pub fn handle_join_group(
        &mut self,
        now: Instant,
        wall_ms: i64,
        token: RequestToken,
        request: &JoinGroup,
        effects: &mut Vec<Effect>,
    ) -> Vec<Record> {
        if let Err(error) = self.check_join(request) {
            let reply = JoinReply::refused(error, &request.member_id);
            effects.push(Effect::JoinAnswered { token, reply });
            return Vec::new();
        }
        self.group_mut(&request.group_id);
        self.turn(now, wall_ms, &request.group_id, effects, |classic, turn| {
            classic.handle_join(turn, token, request);
        })
        .map_or_else(Vec::new, |decision| decision.records)
    }

    /// SyncGroup. The reply comes as an effect, now or when the leader has synced.
    pub fn handle_sync_group(
        &mut self,
        now: Instant,
        wall_ms: i64,
        token: RequestToken,
        request: &SyncGroup,
        effects: &mut Vec<Effect>,
    ) -> Vec<Record> {
        let decision = self.turn(now, wall_ms, &request.group_id, effects, |classic, turn| {
            classic.handle_sync(turn, token, request);
        });
        match decision {
            Some(decision) => decision.records,
            None => {
                let reply = SyncReply::refused(unknown_group(&request.group_id));
                effects.push(Effect::SyncAnswered { token, reply });
                Vec::new()
            }
        }
    }

    /// Heartbeat. May be answered at once.
    ///
    /// # Errors
    /// As in the table of [`State`]; [`ErrorKind::IllegalGeneration`] and [`ErrorKind::FencedInstanceId`] besides.
    pub fn handle_heartbeat(&mut self, now: Instant, request: &Heartbeat) -> Result<(), ErrorKind> {
        // The index of deadlines is left as it is: too early is fine, and this is the most frequent request.
        match self.groups.get_mut(request.group_id.as_str()) {
            Some(group) => group.classic.handle_heartbeat(now, request),
            None => Err(unknown_group(&request.group_id)),
        }
    }

    /// LeaveGroup.
    pub fn handle_leave_group(
        &mut self,
        now: Instant,
        wall_ms: i64,
        request: &LeaveGroup,
        effects: &mut Vec<Effect>,
    ) -> Decision<LeaveReply> {
        let decision = self.turn(now, wall_ms, &request.group_id, effects, |classic, turn| {
            classic.handle_leave(turn, &request.members)
        });
        match decision {
            Some(Decision { records, reply }) => Decision {
                records,
                reply: LeaveReply {
                    error: None,
                    members: reply,
                },
            },
            None => {
                // To leave a group that is not there is to have left; Kafka says so for each member.
                let error = unknown_group(&request.group_id);
                let members = request
                    .members
                    .iter()
                    .map(|member| (member.clone(), Some(error)))
                    .collect();
                let error = (error == ErrorKind::InvalidGroupId).then_some(error);
                Decision {
                    records: Vec::new(),
                    reply: LeaveReply { error, members },
                }
            }
        }
    }

    /// OffsetCommit.
    pub fn handle_offset_commit(
        &mut self,
        now: Instant,
        wall_ms: i64,
        request: &OffsetCommit,
    ) -> Decision<OffsetCommitReply> {
        if let Err(error) = self.check_commit(now, request) {
            return Decision {
                records: Vec::new(),
                reply: vec![Some(error); request.offsets.len()],
            };
        }
        let mut reply = Vec::with_capacity(request.offsets.len());
        let (mut records, mut bytes) = (Vec::new(), 0);
        for wanted in &request.offsets {
            match commit::commit(&self.settings, wall_ms, request, wanted) {
                Ok(record) => {
                    bytes += record.bytes_about();
                    if bytes > self.settings.batch_bytes_max {
                        // What would not fit is not made either.
                        let error = Some(ErrorKind::InvalidCommitOffsetSize);
                        return Decision {
                            records: Vec::new(),
                            reply: vec![error; request.offsets.len()],
                        };
                    }
                    records.push(record);
                    reply.push(None);
                }
                Err(error) => reply.push(Some(error)),
            }
        }
        Decision { records, reply }
    }

    /// OffsetFetch: the offsets of these topics and partitions, in this order, or all there are with `None`. A group
    /// that is not known has none.
    pub fn fetch_offsets(
        &self,
        group_id: &str,
        wanted: Option<&[WantedOffsets]>,
    ) -> Vec<FetchedTopic> {
        let offsets = self.groups.get(group_id).map(|group| &group.offsets);
        let Some(topics) = wanted else {
            let all = offsets.into_iter().flatten();
            return all
                .map(|(topic, partitions)| FetchedTopic {
                    topic: topic.to_string(),
                    partitions: partitions
                        .iter()
                        .map(|(partition, value)| commit::fetched(*partition, Some(value)))
                        .collect(),
                })
                .collect();
        };
        let fetched = |wanted: &WantedOffsets| {
            let held = offsets.and_then(|offsets| offsets.get(wanted.topic.as_str()));
            let partitions = wanted.partitions.iter().map(|partition| {
                let value = held.and_then(|held| held.get(partition));
                commit::fetched(
                    *partition,
                    value.filter(|value| value.is_of(wanted.topic_id)),
                )
            });
            FetchedTopic {
                topic: wanted.topic.clone(),
                partitions: partitions.collect(),
            }
        };
        topics.iter().map(fetched).collect()
    }

    /// Topics are deleted: nobody needs their offsets, unlike those of new topics of the same names. The tombstones may
    /// be split.
    pub fn handle_topics_removed(&self, topics: &BTreeMap<TopicId, String>) -> Vec<Record> {
        let mut records = Vec::new();
        for (group_id, group) in &self.groups {
            for (topic_id, name) in topics {
                let Some((topic, partitions)) = group.offsets.get_key_value(name.as_str()) else {
                    continue;
                };
                let tombstones = partitions
                    .iter()
                    .filter(|(_, value)| value.is_of(*topic_id))
                    .map(|(partition, _)| Record::offset_tombstone(group_id, topic, *partition));
                records.extend(tombstones);
            }
        }
        records
    }

    /// When to call [`Coordinator::handle_timeout`]; may be earlier than anything happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sweep_at = (!self.groups.is_empty()).then_some(self.sweep_at);
        self.deadlines
            .first()
            .map(|(at, _)| *at)
            .into_iter()
            .chain(sweep_at)
            .min()
    }

    /// Time passed: sessions end, rebalances complete, offsets expire. The tombstones of offsets may be split.
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        wall_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Vec<Record> {
        let mut records = Vec::new();
        let due: Vec<Arc<str>> = self
            .deadlines
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, group_id)| group_id.clone())
            .collect();
        for group_id in due {
            let decision = self.turn(now, wall_ms, &group_id, effects, |classic, turn| {
                classic.handle_timeout(turn)
            });
            records.extend(decision.into_iter().flat_map(|decision| decision.records));
        }
        // What has just been decided is not applied yet, so the sweep waits for the next call.
        if self.sweep_at <= now && records.is_empty() {
            self.sweep(now, wall_ms, &mut records);
        }
        records
    }

    /// The configuration it runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All groups in the order of their ids.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups
            .iter()
            .map(|(group_id, group)| (&**group_id, group))
    }

    /// One group.
    pub fn group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)
    }

    /// The records that rebuild the replicated state, in a stable order.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (group_id, group) in &self.groups {
            if group.committed.is_some() {
                records.push(Record::Group {
                    group_id: Arc::clone(group_id),
                    value: group.committed.clone(),
                });
            }
            records.extend(
                group
                    .offsets()
                    .map(|(topic, partition, value)| Record::Offset {
                        group_id: Arc::clone(group_id),
                        topic: Arc::clone(topic),
                        partition,
                        value: Some(value.clone()),
                    }),
            );
        }
        records
    }

    fn check_join(&self, request: &JoinGroup) -> Result<(), ErrorKind> {
        if request.group_id.is_empty() || request.group_id.len() > TEXT_BYTES_MAX {
            return Err(ErrorKind::InvalidGroupId);
        }
        if !request.is_writable() {
            return Err(ErrorKind::InvalidRequest);
        }
        let protocols = request.protocols.iter();
        let protocols = protocols.map(|(name, metadata)| (name.as_str(), metadata.len()));
        check_protocols(&self.settings, protocols)?;
        let session_timeout = milliseconds(request.session_timeout_ms);
        if session_timeout < self.settings.session_timeout_min
            || session_timeout > self.settings.session_timeout_max
        {
            return Err(ErrorKind::InvalidSessionTimeout);
        }
        let group = self.groups.get(request.group_id.as_str());
        if group.is_none() {
            if !request.member_id.is_empty() {
                return Err(ErrorKind::UnknownMemberId);
            }
            self.check_group_limit()?;
        }
        let more = group.map_or_else(
            || bytes_of(&request.protocols),
            |group| group.classic.grows_by(request),
        );
        if more > 0 && self.protocol_bytes + more > self.settings.protocol_bytes_max {
            return Err(ErrorKind::CoordinatorNotAvailable);
        }
        Ok(())
    }

    fn check_commit(&mut self, now: Instant, request: &OffsetCommit) -> Result<(), ErrorKind> {
        match self.groups.get_mut(&request.group_id) {
            Some(group) => group.classic.check_commit(now, request),
            None if request.group_id.len() > TEXT_BYTES_MAX => Err(ErrorKind::InvalidGroupId),
            // Kafka once let consumers without membership use an empty group id, and some still do.
            None if request.generation < 0 => self.check_group_limit(),
            None if request.knows_group_id_not_found => Err(ErrorKind::GroupIdNotFound),
            None => Err(ErrorKind::IllegalGeneration),
        }
    }

    /// Clients try again later, and groups without members and offsets go by themselves.
    fn check_group_limit(&self) -> Result<(), ErrorKind> {
        if self.groups.len() >= self.settings.groups_max {
            return Err(ErrorKind::CoordinatorNotAvailable);
        }
        Ok(())
    }

    /// Lets a group handle an event, and keeps the index of deadlines right; `None` if there is no such group.
    fn turn<R>(
        &mut self,
        now: Instant,
        wall_ms: i64,
        group_id: &str,
        effects: &mut Vec<Effect>,
        event: impl FnOnce(&mut Classic, &mut Turn<'_>) -> R,
    ) -> Option<Decision<R>> {
        let (key, _) = self.groups.get_key_value(group_id)?;
        let key = key.clone();
        let group = self.groups.get_mut(group_id)?;
        let mut turn = Turn {
            now,
            wall_ms,
            settings: &self.settings,
            group_id,
            records: Vec::new(),
            effects,
        };
        let bytes_before = group.classic.supporters.bytes();
        let reply = event(&mut group.classic, &mut turn);
        let records = turn.records;
        self.protocol_bytes -= bytes_before;
        self.protocol_bytes += group.classic.supporters.bytes();
        let deadline = group.classic.next_deadline();
        let indexed = std::mem::replace(&mut group.indexed, deadline);
        if indexed != deadline {
            if let Some(at) = indexed {
                self.deadlines.remove(&(at, key.clone()));
            }
            self.deadlines.extend(deadline.map(|at| (at, key)));
        }
        // A group that has something to write exists as soon as that is applied.
        if records.is_empty() {
            self.forget_if_vacant(group_id);
        }
        Some(Decision { records, reply })
    }

    fn sweep(&mut self, now: Instant, wall_ms: i64, records: &mut Vec<Record>) {
        let retention_ms =
            i64::try_from(self.settings.offsets_retention.as_millis()).unwrap_or(i64::MAX);
        let from = self.sweep_from.take();
        let rest = self
            .groups
            .iter()
            .filter(|(group_id, _)| from.as_ref().is_none_or(|from| *group_id >= from));
        for (group_id, group) in rest {
            let limit = EXPIRED_PER_TURN_MAX - records.len();
            if limit == 0 {
                self.sweep_from = Some(group_id.clone());
                self.sweep_at = now;
                return;
            }
            let expired = group.expired(group_id, wall_ms, retention_ms, limit);
            records.extend(expired);
            if records.len() >= EXPIRED_PER_TURN_MAX {
                // The same group may have more.
                self.sweep_from = Some(group_id.clone());
                self.sweep_at = now;
                return;
            }
        }
        self.sweep_at = now + self.settings.offsets_retention_check_interval;
    }

    fn group_mut(&mut self, group_id: &str) -> &mut Group {
        if !self.groups.contains_key(group_id) {
            self.groups.insert(Arc::from(group_id), Group::default());
        }
        self.groups
            .get_mut(group_id)
            .expect("it was just put there")
    }

    pub(super) fn forget_if_vacant(&mut self, group_id: &str) {
        if self.groups.get(group_id).is_some_and(Group::is_vacant)
            && let Some((key, group)) = self.groups.remove_entry(group_id)
            && let Some(at) = group.indexed
        {
            self.deadlines.remove(&(at, key));
        }
    }

    /// What is counted along is what a count of all gives.
    #[cfg(test)]
    pub(super) fn assert_protocols_are_counted(&self) {
        let mut bytes = 0;
        for group in self.groups.values() {
            let members = group.classic.members.values();
            assert_eq!(group.classic.supporters, Supporters::of(members));
            bytes += group.classic.supporters.bytes();
        }
        assert_eq!(self.protocol_bytes, bytes);
    }

    /// The state that DescribeGroups shows; an unknown group is Dead.
    pub fn state(&self, group_id: &str) -> State {
        self.groups
            .get(group_id)
            .map_or(State::Dead, |group| group.classic.state())
    }
}

fn unknown_group(group_id: &str) -> ErrorKind {
    if group_id.is_empty() {
        ErrorKind::InvalidGroupId
    } else {
        ErrorKind::UnknownMemberId
    }
}
