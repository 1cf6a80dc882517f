//! Records, offsets of logs, and what describes the cluster.

use taffrail_protocol::messages::*;
use taffrail_protocol::{Records, Uuid};

use super::{Row, SIZE, by_name, by_partition, each, row};

pub(super) fn data() -> Vec<Row> {
    use fetch_request::{FetchPartition, FetchTopic};
    use list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
    use offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
    use produce_request::{PartitionProduceData, TopicProduceData};
    let mut rows = by_partition(6, 12, |topics| ProduceRequest {
        acks: -1,
        timeout_ms: 1000,
        topic_data: each(topics, |name, partitions| TopicProduceData {
            name,
            partition_data: (partitions.into_iter())
                .map(|index| PartitionProduceData {
                    index,
                    records: Records::Null,
                })
                .collect(),
            ..TopicProduceData::default()
        }),
        ..ProduceRequest::default()
    });
    rows.extend(by_partition(33, 12, |topics| FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        max_bytes: 1 << 20,
        topics: each(topics, |topic, partitions| FetchTopic {
            topic,
            partitions: (partitions.into_iter())
                .map(|partition| FetchPartition {
                    partition,
                    partition_max_bytes: 1000,
                    ..FetchPartition::default()
                })
                .collect(),
            ..FetchTopic::default()
        }),
        ..FetchRequest::default()
    }));
    for timestamp in [-1, 1000] {
        rows.extend(by_partition(17, 8, |topics| ListOffsetsRequest {
            replica_id: -1,
            topics: each(topics, |name, partitions| ListOffsetsTopic {
                name,
                partitions: (partitions.into_iter())
                    .map(|partition_index| ListOffsetsPartition {
                        partition_index,
                        timestamp,
                        current_leader_epoch: -1,
                    })
                    .collect(),
            }),
            ..ListOffsetsRequest::default()
        }));
    }
    rows.extend(by_partition(13, 4, |topics| OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: each(topics, |topic, partitions| OffsetForLeaderTopic {
            topic,
            partitions: (partitions.into_iter())
                .map(|partition| OffsetForLeaderPartition {
                    partition,
                    current_leader_epoch: -1,
                    leader_epoch: 0,
                })
                .collect(),
        }),
    }));
    rows.extend(by_partition(13, 2, |topics| DeleteRecordsRequest {
        timeout_ms: 1000,
        topics: each(topics, |name, partitions| {
            delete_records_request::DeleteRecordsTopic {
                name,
                partitions: (partitions.into_iter())
                    .map(
                        |partition_index| delete_records_request::DeleteRecordsPartition {
                            partition_index,
                            offset: 0,
                        },
                    )
                    .collect(),
            }
        }),
    }));
    rows
}

pub(super) fn metadata() -> Vec<Row> {
    use describe_topic_partitions_request::TopicRequest;
    use metadata_request::MetadataRequestTopic;
    // Nothing is created by asking: a thousand new topics take a test too long.
    let mut rows = by_name(17, 12, |names| MetadataRequest {
        allow_auto_topic_creation: false,
        topics: Some(
            (names.into_iter())
                .map(|name| MetadataRequestTopic {
                    name: Some(name),
                    ..MetadataRequestTopic::default()
                })
                .collect(),
        ),
        ..MetadataRequest::default()
    });
    rows.push(row(
        "an id again and again",
        12,
        MetadataRequest {
            topics: Some(vec![
                MetadataRequestTopic {
                    topic_id: Uuid([7; 16]),
                    name: None,
                };
                SIZE / 18
            ]),
            ..MetadataRequest::default()
        },
    ));
    rows.extend(by_name(1, 0, |names| DescribeTopicPartitionsRequest {
        topics: names
            .into_iter()
            .map(|name| TopicRequest { name })
            .collect(),
        response_partition_limit: 2000,
        cursor: None,
    }));
    rows.push(row("all", 1, DescribeClusterRequest::default()));
    rows.extend(by_partition(5, 2, |topics| DescribeQuorumRequest {
        topics: each(topics, |topic_name, partitions| {
            describe_quorum_request::TopicData {
                topic_name,
                partitions: (partitions.into_iter())
                    .map(|partition_index| describe_quorum_request::PartitionData {
                        partition_index,
                    })
                    .collect(),
            }
        }),
    }));
    rows.push(row(
        "a long name of the client's software",
        3,
        ApiVersionsRequest {
            client_software_name: "n".repeat(SIZE),
            client_software_version: "1".to_owned(),
            ..ApiVersionsRequest::default()
        },
    ));
    rows
}
