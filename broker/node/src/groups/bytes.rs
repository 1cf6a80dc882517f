//! Where a coordinator's records meet their bytes: Kafka's formats, one batch per decision.

use std::sync::Arc;

use taffrail_core::group::{Coordinator, GroupValue, MemberValue, OffsetValue, Record};
use taffrail_core::ids::TopicId;
use taffrail_protocol::coordinator_records::{
    CoordinatorKey, decode_group_metadata_value, decode_offset_commit_value,
    encode_group_metadata_value, encode_offset_commit_value,
};
use taffrail_protocol::messages::group_metadata_value::MemberMetadata;
use taffrail_protocol::messages::{
    GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue,
};
use taffrail_protocol::records::{BatchHeader, RecordBatchBuilder};
use taffrail_protocol::{DecodeError, Uuid};

use crate::coordinator_batch::for_each_record;

/// Splits the records of a decision where one batch could not hold them. Only those of a timeout are ever that many,
/// and those may be split.
pub(super) fn batches(records: &[Record], bytes_max: usize) -> Vec<&[Record]> {
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, record) in records.iter().enumerate() {
        let more = record.bytes_about();
        if bytes + more > bytes_max && index > start {
            batches.push(&records[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += more;
    }
    if start < records.len() {
        batches.push(&records[start..]);
    }
    batches
}

/// One batch of records.
pub(super) fn encode(records: &[Record], wall_ms: i64) -> Result<Vec<u8>, String> {
    let mut batch = RecordBatchBuilder::new(0, wall_ms);
    for record in records {
        let (key, value) = encode_one(record).map_err(|error| error.to_string())?;
        batch.push(Some(&key), value.as_deref(), &[]);
    }
    Ok(batch.build())
}

type KeyAndValue = (Vec<u8>, Option<Vec<u8>>);

fn encode_one(record: &Record) -> Result<KeyAndValue, taffrail_protocol::EncodeError> {
    Ok(match record {
        Record::Offset {
            group_id,
            topic,
            partition,
            value,
        } => {
            let key = CoordinatorKey::OffsetCommit(OffsetCommitKey {
                group: group_id.to_string(),
                topic: topic.to_string(),
                partition: *partition,
            });
            let value = value
                .as_ref()
                .map(|value| encode_offset_commit_value(&offset_value(value)))
                .transpose()?;
            (key.encode()?, value)
        }
        Record::Group { group_id, value } => {
            let key = CoordinatorKey::GroupMetadata(GroupMetadataKey {
                group: group_id.to_string(),
            });
            let value = value
                .as_ref()
                .map(|value| encode_group_metadata_value(&group_value(value)))
                .transpose()?;
            (key.encode()?, value)
        }
    })
}

// Values are taken apart with all of their fields, so that one that is added cannot be left unwritten.

fn offset_value(value: &OffsetValue) -> OffsetCommitValue {
    let OffsetValue {
        offset,
        leader_epoch,
        metadata,
        commit_timestamp,
        expire_timestamp,
        topic_id,
    } = value;
    OffsetCommitValue {
        offset: *offset,
        leader_epoch: *leader_epoch,
        metadata: metadata.clone(),
        commit_timestamp: *commit_timestamp,
        expire_timestamp: *expire_timestamp,
        topic_id: Uuid(topic_id.0),
    }
}

fn group_value(value: &GroupValue) -> GroupMetadataValue {
    let GroupValue {
        protocol_type,
        generation,
        protocol,
        leader,
        state_timestamp,
        members,
    } = value;
    GroupMetadataValue {
        protocol_type: protocol_type.clone(),
        generation: *generation,
        protocol: protocol.clone(),
        leader: leader.clone(),
        current_state_timestamp: *state_timestamp,
        members: members.iter().map(member_metadata).collect(),
    }
}

fn member_metadata(member: &MemberValue) -> MemberMetadata {
    let MemberValue {
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    } = member;
    MemberMetadata {
        member_id: member_id.clone(),
        group_instance_id: group_instance_id.clone(),
        client_id: client_id.clone(),
        client_host: client_host.clone(),
        rebalance_timeout: *rebalance_timeout_ms,
        session_timeout: *session_timeout_ms,
        subscription: subscription.to_vec(),
        assignment: assignment.to_vec(),
    }
}

/// Applies every record of a batch.
pub(super) fn apply_batch(coordinator: &mut Coordinator, header: &BatchHeader, batch: &[u8]) {
    for_each_record(header, batch, decode_one, |record| {
        coordinator.apply(&record);
    });
}

fn decode_one(key: &[u8], value: Option<&[u8]>) -> Result<Record, DecodeError> {
    Ok(match CoordinatorKey::decode(key)? {
        CoordinatorKey::OffsetCommit(key) => Record::Offset {
            group_id: Arc::from(key.group),
            topic: Arc::from(key.topic),
            partition: key.partition,
            value: value
                .map(decode_offset_commit_value)
                .transpose()?
                .map(|value| OffsetValue {
                    offset: value.offset,
                    leader_epoch: value.leader_epoch,
                    metadata: value.metadata,
                    commit_timestamp: value.commit_timestamp,
                    expire_timestamp: value.expire_timestamp,
                    topic_id: TopicId(value.topic_id.0),
                }),
        },
        CoordinatorKey::GroupMetadata(key) => Record::Group {
            group_id: Arc::from(key.group),
            value: value
                .map(decode_group_metadata_value)
                .transpose()?
                .map(|value| GroupValue {
                    protocol_type: value.protocol_type,
                    generation: value.generation,
                    protocol: value.protocol,
                    leader: value.leader,
                    state_timestamp: value.current_state_timestamp,
                    members: value.members.into_iter().map(member).collect(),
                }),
        },
    })
}

fn member(member: MemberMetadata) -> MemberValue {
    MemberValue {
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        rebalance_timeout_ms: member.rebalance_timeout,
        session_timeout_ms: member.session_timeout,
        subscription: Arc::from(member.subscription),
        assignment: Arc::from(member.assignment),
    }
}
