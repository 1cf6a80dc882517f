//! Groups: their members, and the offsets that they commit.

use taffrail_protocol::messages::*;

use super::{GROUP, LONG, Row, SIZE, by_name, by_partition, each, row};

pub(super) fn members(member_id: &str) -> Vec<Row> {
    use join_group_request::JoinGroupRequestProtocol;
    use leave_group_request::MemberIdentity;
    use sync_group_request::SyncGroupRequestAssignment;
    let mut rows = by_name(0, 4, |names| FindCoordinatorRequest {
        coordinator_keys: names,
        ..FindCoordinatorRequest::default()
    });
    rows.extend(by_name(2, 9, |names| JoinGroupRequest {
        group_id: format!("group-{}", names.len()),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".to_owned(),
        member_id: String::new(),
        group_instance_id: Some("one".to_owned()),
        protocols: (names.into_iter())
            .map(|name| JoinGroupRequestProtocol {
                name,
                metadata: Vec::new(),
            })
            .collect(),
        ..JoinGroupRequest::default()
    }));
    rows.extend(by_name(2, 5, |names| SyncGroupRequest {
        group_id: GROUP.to_owned(),
        generation_id: 1,
        member_id: member_id.to_owned(),
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignments: (names.into_iter())
            .map(|member_id| SyncGroupRequestAssignment {
                member_id,
                assignment: Vec::new(),
            })
            .collect(),
        ..SyncGroupRequest::default()
    }));
    rows.push(row(
        "long names",
        4,
        HeartbeatRequest {
            group_id: "g".repeat(SIZE / 2),
            member_id: "m".repeat(SIZE / 2),
            ..HeartbeatRequest::default()
        },
    ));
    rows.extend(by_name(3, 5, |names| LeaveGroupRequest {
        group_id: GROUP.to_owned(),
        members: (names.into_iter())
            .map(|member_id| MemberIdentity {
                member_id,
                ..MemberIdentity::default()
            })
            .collect(),
        ..LeaveGroupRequest::default()
    }));
    rows.extend(by_name(0, 5, |states_filter| ListGroupsRequest {
        states_filter,
        ..ListGroupsRequest::default()
    }));
    for name in [GROUP, "n"] {
        rows.push(row(
            "a group again and again",
            5,
            DescribeGroupsRequest {
                groups: vec![name.to_owned(); SIZE / (name.len() + 1)],
                ..DescribeGroupsRequest::default()
            },
        ));
    }
    rows.extend(by_name(0, 5, |groups| DescribeGroupsRequest {
        groups,
        ..DescribeGroupsRequest::default()
    }));
    rows.extend(by_name(0, 2, |groups_names| DeleteGroupsRequest {
        groups_names,
    }));
    rows
}

pub(super) fn offsets() -> Vec<Row> {
    use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    use offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
    use offset_fetch_request::{
        OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    };
    let mut rows = Vec::new();
    for group_id in ["committers".to_owned(), "g".repeat(LONG)] {
        rows.extend(by_partition(18, 9, |topics| OffsetCommitRequest {
            group_id: group_id.clone(),
            generation_id_or_member_epoch: -1,
            topics: each(topics, |name, partitions| OffsetCommitRequestTopic {
                name,
                partitions: (partitions.into_iter())
                    .map(|partition_index| OffsetCommitRequestPartition {
                        partition_index,
                        committed_offset: 1,
                        committed_leader_epoch: -1,
                        committed_metadata: None,
                    })
                    .collect(),
                ..OffsetCommitRequestTopic::default()
            }),
            ..OffsetCommitRequest::default()
        }));
    }
    rows.extend(by_partition(4, 9, |topics| OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: GROUP.to_owned(),
            member_epoch: -1,
            topics: Some(each(topics, |name, partition_indexes| {
                OffsetFetchRequestTopics {
                    name,
                    partition_indexes,
                    ..OffsetFetchRequestTopics::default()
                }
            })),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    }));
    rows.extend(by_partition(4, 7, |topics| OffsetFetchRequest {
        group_id: GROUP.to_owned(),
        topics: Some(each(topics, |name, partition_indexes| {
            OffsetFetchRequestTopic {
                name,
                partition_indexes,
            }
        })),
        ..OffsetFetchRequest::default()
    }));
    rows.extend(by_name(7, 9, |names| OffsetFetchRequest {
        groups: (names.into_iter())
            .map(|group_id| OffsetFetchRequestGroup {
                group_id,
                member_epoch: -1,
                ..OffsetFetchRequestGroup::default()
            })
            .collect(),
        ..OffsetFetchRequest::default()
    }));
    rows.extend(by_partition(4, 0, |topics| OffsetDeleteRequest {
        group_id: "committers".to_owned(),
        topics: each(topics, |name, partitions| OffsetDeleteRequestTopic {
            name,
            partitions: (partitions.into_iter())
                .map(|partition_index| OffsetDeleteRequestPartition { partition_index })
                .collect(),
        }),
    }));
    rows
}
