//! What tools do to groups: list, describe and delete them, and delete offsets that nobody is subscribed to.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::ErrorKind;

use super::classic::Classic;
use super::coordinator::Coordinator;
use super::record::{Bytes, Record};
use super::request::{Decision, OffsetDelete};
use super::state::State;

/// The type of all groups here, as ListGroups names it (Kafka's `GroupType`).
pub const CLASSIC_TYPE: &str = "classic";

/// Which groups ListGroups shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFilter {
    states: Vec<State>,
}

impl ListFilter {
    /// Groups in one of these states and of one of these types, each whatever its case; all where nothing is named. A name
    /// that does not exist matches no group. However many are named, they are looked at once.
    pub fn new(states: &[String], types: &[String]) -> ListFilter {
        let is_named = |names: &[String], name: &str| {
            let is_it = |named: &String| named.trim().eq_ignore_ascii_case(name);
            names.is_empty() || names.iter().any(is_it)
        };
        let mut shown = State::ALL.to_vec();
        shown.retain(|state| is_named(types, CLASSIC_TYPE) && is_named(states, &state.to_string()));
        ListFilter { states: shown }
    }
}

/// A group in a ListGroups answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// Its id.
    pub group_id: String,
    /// `consumer` for consumers; empty if nobody ever joined.
    pub protocol_type: String,
    /// Where it stands.
    pub state: State,
}

/// A group in a DescribeGroups answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup {
    /// Where it stands.
    pub state: State,
    /// `consumer` for consumers; empty if nobody ever joined.
    pub protocol_type: String,
    /// The chosen protocol; empty unless the group is stable.
    pub protocol: String,
    /// By member id.
    pub members: Vec<DescribedMember>,
}

/// A member in a DescribeGroups answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub group_instance_id: Option<String>,
    /// The client's `client.id`.
    pub client_id: String,
    /// The address it came from.
    pub client_host: String,
    /// Its metadata for the chosen protocol; empty unless the group is stable.
    pub metadata: Bytes,
    /// What it was assigned; empty unless the group is stable.
    pub assignment: Bytes,
}

impl Coordinator {
    /// ListGroups.
    pub fn list_groups(&self, filter: &ListFilter) -> Vec<ListedGroup> {
        self.groups()
            .filter(|(_, group)| filter.states.contains(&group.classic.state()))
            .map(|(group_id, group)| ListedGroup {
                group_id: group_id.to_owned(),
                protocol_type: group.classic.protocol_type().unwrap_or_default().to_owned(),
                state: group.classic.state(),
            })
            .collect()
    }

    /// DescribeGroups; `None` if there is no such group.
    pub fn describe_group(&self, group_id: &str) -> Option<DescribedGroup> {
        Some(self.group(group_id)?.classic.describe())
    }

    /// DeleteGroups: one result for each group of the request, in its order. The tombstones may be split.
    ///
    /// Nothing but members keeps a group: who was only told an id is told UNKNOWN_MEMBER_ID when it comes with it, and
    /// begins anew.
    pub fn handle_delete_groups(
        &mut self,
        group_ids: &[String],
    ) -> Decision<Vec<Option<ErrorKind>>> {
        let mut records = Vec::new();
        let reply = group_ids
            .iter()
            .map(|group_id| self.delete_group(group_id, &mut records).err())
            .collect();
        Decision { records, reply }
    }

    fn delete_group(&mut self, group_id: &str, records: &mut Vec<Record>) -> Result<(), ErrorKind> {
        let known = self.groups.get_key_value(group_id);
        let (key, _) = known.ok_or(ErrorKind::GroupIdNotFound)?;
        let key = Arc::clone(key);
        let group = self
            .groups
            .get_mut(group_id)
            .ok_or(ErrorKind::GroupIdNotFound)?;
        match group.classic.state {
            State::Empty => {}
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {
                return Err(ErrorKind::NonEmptyGroup);
            }
            State::Dead => return Err(ErrorKind::GroupIdNotFound),
        }
        group.classic.pending_join.clear();
        let tombstones = group
            .offsets()
            .map(|(topic, partition, _)| Record::offset_tombstone(&key, topic, partition));
        records.extend(tombstones);
        if group.committed.is_some() {
            records.push(Record::group_tombstone(&key));
        }
        self.forget_if_vacant(group_id);
        Ok(())
    }

    /// OffsetDelete: one result for each partition of the request, in its order. The tombstones may be split.
    ///
    /// # Errors
    /// [`ErrorKind::GroupIdNotFound`]; [`ErrorKind::NonEmptyGroup`] if it has members whose subscriptions cannot be told.
    pub fn handle_offset_delete(
        &self,
        request: &OffsetDelete,
    ) -> Decision<Result<Vec<Option<ErrorKind>>, ErrorKind>> {
        let mut records = Vec::new();
        let reply = self.delete_offsets(request, &mut records);
        Decision { records, reply }
    }

    fn delete_offsets(
        &self,
        request: &OffsetDelete,
        records: &mut Vec<Record>,
    ) -> Result<Vec<Option<ErrorKind>>, ErrorKind> {
        let known = self.groups.get_key_value(request.group_id.as_str());
        let (group_id, group) = known.ok_or(ErrorKind::GroupIdNotFound)?;
        group.classic.check_offset_delete()?;
        let is_subscribed = group.classic.subscriptions();
        let mut results = Vec::new();
        // One that is named again is gone already.
        let mut gone: BTreeSet<(&str, i32)> = BTreeSet::new();
        for (topic, partitions) in &request.topics {
            let subscribed = is_subscribed(topic);
            let result = subscribed.then_some(ErrorKind::GroupSubscribedToTopic);
            results.extend(partitions.iter().map(|_| result));
            let held = group.offsets.get_key_value(topic.as_str());
            let Some((topic, offsets)) = held.filter(|_| !subscribed) else {
                continue;
            };
            for partition in partitions {
                if offsets.contains_key(partition) && gone.insert((&**topic, *partition)) {
                    records.push(Record::offset_tombstone(group_id, topic, *partition));
                }
            }
        }
        Ok(results)
    }
}

impl Classic {
    fn describe(&self) -> DescribedGroup {
        let stable = self.state == State::Stable;
        let protocol = self.protocol.as_deref().filter(|_| stable);
        let members = self
            .members
            .iter()
            .map(|(member_id, member)| DescribedMember {
                member_id: member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                metadata: member.metadata(protocol),
                assignment: if stable {
                    member.assignment.clone()
                } else {
                    Bytes::default()
                },
            });
        DescribedGroup {
            state: self.state,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: members.collect(),
        }
    }

    /// Members that are no consumers may use any topic, so nothing can be taken from them.
    fn check_offset_delete(&self) -> Result<(), ErrorKind> {
        if self.members.is_empty() || self.protocol_type.as_deref() == Some("consumer") {
            Ok(())
        } else {
            Err(ErrorKind::NonEmptyGroup)
        }
    }

    /// Tells whether members are subscribed to a topic, or may be for all that can be told.
    fn subscriptions(&self) -> impl Fn(&str) -> bool + use<> {
        let topics = if self.members.is_empty() {
            Some(BTreeSet::new())
        } else {
            self.subscribed_topics()
        };
        move |topic| topics.as_ref().is_none_or(|topics| topics.contains(topic))
    }
}
