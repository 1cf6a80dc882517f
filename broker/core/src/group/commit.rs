//! OffsetCommit and OffsetFetch: who may commit, what is written, what is read.

use std::sync::Arc;

use crate::error::ErrorKind;
use crate::ids::TopicId;
use crate::time::Instant;

use super::classic::Classic;
use super::coordinator::Group;
use super::record::{OffsetValue, Record};
use super::request::{CommitPartition, FetchedOffset, OffsetCommit};
use super::settings::Settings;
use super::state::State;

impl Classic {
    /// Whether this commit is one of the group's (Kafka's `ClassicGroup.validateOffsetCommit`). A member's is also a
    /// sign of life.
    pub(super) fn check_commit(
        &mut self,
        now: Instant,
        request: &OffsetCommit,
    ) -> Result<(), ErrorKind> {
        if request.generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        let as_member = request.generation >= 0
            || !request.member_id.is_empty()
            || request.group_instance_id.is_some();
        if !as_member {
            // A consumer without membership would fight with the members over the group's offsets.
            return Err(ErrorKind::UnknownMemberId);
        }
        self.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        self.check_generation(request.generation)?;
        self.touch(now, &request.member_id);
        match self.state {
            State::CompletingRebalance => Err(ErrorKind::RebalanceInProgress),
            State::Empty | State::PreparingRebalance | State::Stable | State::Dead => Ok(()),
        }
    }
}

/// The record of one offset, or why it is refused.
pub(super) fn commit(
    settings: &Settings,
    wall_ms: i64,
    request: &OffsetCommit,
    wanted: &CommitPartition,
) -> Result<Record, ErrorKind> {
    let metadata = wanted.metadata.as_deref().unwrap_or_default();
    if metadata.len() > settings.offset_metadata_bytes_max {
        return Err(ErrorKind::OffsetMetadataTooLarge);
    }
    let expire_timestamp = match request.retention_time_ms {
        Some(retention_ms) if retention_ms >= 0 => wall_ms.saturating_add(retention_ms),
        Some(_) | None => -1,
    };
    Ok(Record::Offset {
        group_id: Arc::clone(&request.group_id),
        topic: Arc::clone(&wanted.topic),
        partition: wanted.partition,
        value: Some(OffsetValue {
            offset: wanted.offset,
            leader_epoch: if expire_timestamp < 0 {
                wanted.leader_epoch
            } else {
                -1
            },
            metadata: metadata.to_owned(),
            commit_timestamp: wall_ms,
            expire_timestamp,
            // Kafka's format has room for one of the two.
            topic_id: if expire_timestamp < 0 {
                wanted.topic_id
            } else {
                TopicId::ZERO
            },
        }),
    })
}

/// One partition of an OffsetFetch reply.
pub(super) fn fetched(partition: i32, value: Option<&OffsetValue>) -> FetchedOffset {
    FetchedOffset {
        partition,
        offset: value.map_or(-1, |value| value.offset),
        leader_epoch: value.map_or(-1, |value| value.leader_epoch),
        metadata: value
            .map(|value| value.metadata.clone())
            .unwrap_or_default(),
    }
}

impl Group {
    /// All committed offsets, by topic and partition.
    pub fn offsets(&self) -> impl Iterator<Item = (&Arc<str>, i32, &OffsetValue)> {
        self.offsets.iter().flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(partition, value)| (topic, *partition, value))
        })
    }
}
