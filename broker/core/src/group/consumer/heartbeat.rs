//! ConsumerGroupHeartbeat: joining, staying, being given partitions, leaving (KIP-848; Kafka's `GroupMetadataManager`).

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{ApiError, ErrorKind};
use crate::ids::TopicId;
use crate::time::Instant;

use super::Partitions;
use super::assignment::{CurrentAssignment, Reported, Target};
use super::assignor::Subscriber;
use super::describe::partitions;
use super::group::{ConsumerGroup, ConsumerSettings};
use super::record::{ConsumerRecord, GroupEpoch, MemberMetadata};
use super::request::{
    ConsumerDecision, ConsumerHeartbeat, ConsumerReply, JOIN, LEAVE, LEAVE_FOR_A_WHILE, Topics,
};

/// The member that a heartbeat is of, as it was before.
struct Known {
    /// Whether it joins, so that there was none.
    is_new: bool,
    metadata: MemberMetadata,
    current: CurrentAssignment,
    target: Partitions,
    /// The static member whose place it takes.
    replaces: Option<String>,
}

impl ConsumerGroup {
    /// Takes a heartbeat that [`ConsumerHeartbeat::check`] let pass.
    ///
    /// # Errors
    /// - [`ErrorKind::UnknownMemberId`] and [`ErrorKind::FencedMemberEpoch`]: the member must give up all its partitions and join anew.
    /// - [`ErrorKind::UnreleasedInstanceId`]: another member with this instance id has not left.
    /// - [`ErrorKind::FencedInstanceId`]: another member has taken the instance id.
    /// - [`ErrorKind::GroupMaxSizeReached`].
    pub fn handle_heartbeat(
        &mut self,
        now: Instant,
        settings: &ConsumerSettings,
        topics: &impl Topics,
        request: &ConsumerHeartbeat,
    ) -> Result<ConsumerDecision, ApiError> {
        if let LEAVE | LEAVE_FOR_A_WHILE = request.member_epoch {
            return self.leave(request);
        }
        let known = self.known(settings, request)?;
        let id = &request.member_id;
        let metadata = updated(&known.metadata, request);
        let mut records = Vec::new();
        if let Some(other) = &known.replaces {
            records.push(ConsumerRecord::Current(other.clone(), None));
            records.push(ConsumerRecord::Target(other.clone(), None));
            records.push(ConsumerRecord::Member(other.clone(), None));
        }
        if known.is_new || metadata != known.metadata {
            let value = Some(metadata.clone());
            records.push(ConsumerRecord::Member(id.clone(), value));
        }

        let subscribed = |metadata: &MemberMetadata| metadata.subscribed_topic_names.clone();
        let subscription_changed = subscribed(&metadata) != subscribed(&known.metadata);
        let group = self.next_epoch(topics, id, &known, &metadata, subscription_changed);
        if group != self.group {
            records.push(ConsumerRecord::Group(Some(group)));
        }
        let mut target = known.target.clone();
        if group.epoch > self.target_epoch {
            let targets = self.next_targets(topics, id, &known, &metadata);
            for (member, next) in targets {
                if member == *id {
                    target = next.clone();
                }
                let before = self.targets.get(&member);
                if before.map_or(!next.is_empty(), |before| *before != next) {
                    records.push(ConsumerRecord::Target(member, Some(next)));
                }
            }
            records.push(ConsumerRecord::TargetEpoch(Some(group.epoch)));
        } else if known.replaces.is_some() {
            records.push(ConsumerRecord::Target(id.clone(), Some(target.clone())));
        }

        let topic_ids = topic_ids(topics, &metadata);
        let place = known.replaces.as_deref().unwrap_or(id);
        let next = known.current.next(
            Target {
                epoch: group.epoch.max(self.target_epoch),
                partitions: &target,
                subscribed: &topic_ids,
            },
            Reported {
                owned: request.owned.as_ref(),
                subscription_changed,
            },
            |topic, partition| self.others_have(place, topic, partition),
        );
        let changed = next.as_ref();
        let changed = changed.is_some_and(|next| next.assigned != known.current.assigned);
        let current = next.clone().unwrap_or(known.current);
        if next.is_some() || known.is_new {
            records.push(ConsumerRecord::Current(id.clone(), Some(current.clone())));
        }

        let until = now + settings.session_timeout;
        self.sessions.insert(id.clone(), until);
        self.watch_revocation(now, id, &metadata, current.state, next.is_some());
        let tells = request.member_epoch == JOIN || request.is_full() || changed;
        Ok(ConsumerDecision {
            records,
            reply: ConsumerReply {
                member_id: id.clone(),
                member_epoch: current.member_epoch,
                assignment: tells.then(|| partitions(&current.assigned)),
            },
        })
    }

    /// Finds the member, or says why it is none.
    fn known(
        &self,
        settings: &ConsumerSettings,
        request: &ConsumerHeartbeat,
    ) -> Result<Known, ApiError> {
        let joins = request.member_epoch == JOIN;
        let instance = request.instance_id.as_deref();
        let same_instance = instance.and_then(|instance| self.of_instance(instance));
        match same_instance {
            Some(other) if other != request.member_id => {
                let current = self.member(other)?;
                if !joins {
                    return Err(ErrorKind::FencedInstanceId.into());
                }
                if current.member_epoch != LEAVE_FOR_A_WHILE {
                    return Err(ErrorKind::UnreleasedInstanceId.into());
                }
                let current = CurrentAssignment {
                    member_epoch: JOIN,
                    previous_member_epoch: JOIN,
                    ..current.clone()
                };
                return Ok(Known {
                    is_new: true,
                    metadata: self.members[other].clone(),
                    current,
                    target: self.targets.get(other).cloned().unwrap_or_default(),
                    replaces: Some(other.to_owned()),
                });
            }
            _ => {}
        }
        // Only who joins may bring an instance id.
        if same_instance.is_none() && instance.is_some() && !joins {
            return Err(ErrorKind::UnknownMemberId.into());
        }
        if let Ok(current) = self.member(&request.member_id) {
            check_epoch(current, request)?;
            let target = self.targets.get(&request.member_id);
            return Ok(Known {
                is_new: false,
                metadata: self.members[&request.member_id].clone(),
                current: current.clone(),
                target: target.cloned().unwrap_or_default(),
                replaces: None,
            });
        }
        if !joins {
            return Err(ErrorKind::UnknownMemberId.into());
        }
        if self.members.len() >= settings.group_size_max {
            return Err(ErrorKind::GroupMaxSizeReached.into());
        }
        Ok(Known {
            is_new: true,
            metadata: MemberMetadata::default(),
            current: CurrentAssignment::new(),
            target: Partitions::new(),
            replaces: None,
        })
    }

    /// The group's epoch with this heartbeat: one more if there must be a new target assignment.
    fn next_epoch(
        &mut self,
        topics: &impl Topics,
        id: &str,
        known: &Known,
        metadata: &MemberMetadata,
        subscription_changed: bool,
    ) -> GroupEpoch {
        let joined = known.is_new && known.replaces.is_none();
        let voted = known.is_new || metadata.server_assignor != known.metadata.server_assignor;
        let assignor = voted
            && self.assignor_with(Some((id, metadata)), known.replaces.as_deref())
                != self.assignor_with(None, None);
        let must = joined || subscription_changed || assignor;
        if !must && self.topics_checked {
            return self.group;
        }
        let metadata_hash = self.metadata_hash(topics, id, metadata);
        self.topics_checked = true;
        if must || metadata_hash != self.group.metadata_hash {
            GroupEpoch {
                epoch: self.group.epoch.saturating_add(1),
                metadata_hash,
            }
        } else {
            self.group
        }
    }

    /// Of all topics that anybody subscribes to, with their ids and sizes.
    fn metadata_hash(&self, topics: &impl Topics, id: &str, metadata: &MemberMetadata) -> i64 {
        let others = self.members.iter().filter(|(other, _)| *other != id);
        let all = others.map(|(_, metadata)| metadata).chain([metadata]);
        let names: BTreeSet<&String> = all.flat_map(|one| &one.subscribed_topic_names).collect();
        // FNV-1a; it is compared with itself only.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut take = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for name in names {
            if let Some((topic, size)) = topics.topic(name) {
                take(name.as_bytes());
                take(&[0]);
                take(&topic.0);
                take(&size.to_be_bytes());
            }
        }
        hash as i64
    }

    /// What each member is to have from now on.
    fn next_targets(
        &self,
        topics: &impl Topics,
        id: &str,
        known: &Known,
        metadata: &MemberMetadata,
    ) -> BTreeMap<String, Partitions> {
        let gone = known.replaces.as_deref();
        let others = self.members.iter();
        let others = others
            .filter(|(other, _)| *other != id && Some(other.as_str()) != gone)
            .map(|(other, metadata)| {
                let target = self.targets.get(other).cloned();
                (other.as_str(), metadata, target.unwrap_or_default())
            });
        let all = others.chain([(id, metadata, known.target.clone())]);
        let mut sizes = BTreeMap::new();
        let mut members: Vec<Subscriber> = all
            .map(|(id, metadata, assigned)| {
                let names = metadata.subscribed_topic_names.iter();
                let subscribed = names.filter_map(|name| topics.topic(name));
                Subscriber {
                    id: id.to_owned(),
                    instance_id: metadata.instance_id.clone(),
                    topics: subscribed
                        .inspect(|(topic, size)| {
                            sizes.insert(*topic, *size);
                        })
                        .map(|(topic, _)| topic)
                        .collect(),
                    assigned,
                }
            })
            .collect();
        members.sort_by(|one, other| one.id.cmp(&other.id));
        let assignor = self.assignor_with(Some((id, metadata)), gone);
        assignor.assign(&members, &sizes)
    }

    fn leave(&mut self, request: &ConsumerHeartbeat) -> Result<ConsumerDecision, ApiError> {
        let id = &request.member_id;
        let current = match request.instance_id.as_deref() {
            None => self.member(id)?,
            Some(instance) => match self.of_instance(instance) {
                None => return Err(ErrorKind::UnknownMemberId.into()),
                Some(other) if other != id => return Err(ErrorKind::FencedInstanceId.into()),
                Some(_) => self.member(id)?,
            },
        };
        let records = if request.member_epoch == LEAVE_FOR_A_WHILE {
            // It keeps its place until it is back or its session ends.
            let away = CurrentAssignment {
                member_epoch: LEAVE_FOR_A_WHILE,
                previous_member_epoch: current.member_epoch,
                pending_revocation: BTreeMap::new(),
                ..current.clone()
            };
            self.revocations.remove(id);
            vec![ConsumerRecord::Current(id.clone(), Some(away))]
        } else {
            self.without(std::slice::from_ref(id))
        };
        Ok(ConsumerDecision {
            records,
            reply: ConsumerReply {
                member_id: id.clone(),
                member_epoch: request.member_epoch,
                assignment: None,
            },
        })
    }
}

/// A member names its epoch of now; the one before it if the answer that told it was lost, and it has nothing that it may not have;
/// or 0, which says that it gave up everything.
fn check_epoch(current: &CurrentAssignment, request: &ConsumerHeartbeat) -> Result<(), ApiError> {
    let named = request.member_epoch;
    if named == JOIN || named == current.member_epoch {
        return Ok(());
    }
    let has_no_more = request.owned.as_ref().is_some_and(|owned| {
        owned.iter().all(|(topic, partitions)| {
            let assigned = current.assigned.get(topic);
            let mut partitions = partitions.iter();
            assigned.is_some_and(|assigned| partitions.all(|one| assigned.contains_key(one)))
        })
    });
    if named == current.previous_member_epoch && named < current.member_epoch && has_no_more {
        return Ok(());
    }
    let message = format!(
        "the member's epoch is {}, not {named}: it must give up all its partitions and join anew",
        current.member_epoch
    );
    Err(ApiError::new(ErrorKind::FencedMemberEpoch, message))
}

fn updated(before: &MemberMetadata, request: &ConsumerHeartbeat) -> MemberMetadata {
    let names = request.subscribed_topic_names.as_ref().map(|names| {
        let names: BTreeSet<&String> = names.iter().collect();
        names.into_iter().cloned().collect()
    });
    let or = |new: &Option<String>, old: &Option<String>| new.clone().or_else(|| old.clone());
    MemberMetadata {
        instance_id: or(&request.instance_id, &before.instance_id),
        rack_id: or(&request.rack_id, &before.rack_id),
        client_id: request.client_id.clone(),
        client_host: request.client_host.clone(),
        subscribed_topic_names: names.unwrap_or_else(|| before.subscribed_topic_names.clone()),
        server_assignor: or(&request.server_assignor, &before.server_assignor),
        rebalance_timeout_ms: request
            .rebalance_timeout_ms
            .unwrap_or(before.rebalance_timeout_ms),
    }
}

fn topic_ids(topics: &impl Topics, metadata: &MemberMetadata) -> BTreeSet<TopicId> {
    let names = metadata.subscribed_topic_names.iter();
    names
        .filter_map(|name| Some(topics.topic(name)?.0))
        .collect()
}
