//! What changes the cluster, its configs and its topics, and what tells of them.

use taffrail_protocol::Uuid;
use taffrail_protocol::messages::*;

use super::{LONG, PARTITIONS, Row, SIZE, TOPIC, by_name, by_partition, each, names, row};

pub(super) fn cluster() -> Vec<Row> {
    use alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
    let mut rows = by_partition(4, 2, |topics| ElectLeadersRequest {
        topic_partitions: Some(each(topics, |topic, partitions| {
            elect_leaders_request::TopicPartitions { topic, partitions }
        })),
        timeout_ms: 1000,
        ..ElectLeadersRequest::default()
    });
    rows.extend(by_partition(6, 0, |topics| {
        AlterPartitionReassignmentsRequest {
            timeout_ms: 1000,
            topics: each(topics, |name, partitions| ReassignableTopic {
                name,
                partitions: (partitions.into_iter())
                    .map(|partition_index| ReassignablePartition {
                        partition_index,
                        replicas: None,
                    })
                    .collect(),
            }),
            ..AlterPartitionReassignmentsRequest::default()
        }
    }));
    rows.push(row(
        "many replicas of one partition",
        0,
        AlterPartitionReassignmentsRequest {
            timeout_ms: 1000,
            topics: vec![ReassignableTopic {
                name: TOPIC.to_owned(),
                partitions: vec![ReassignablePartition {
                    partition_index: 0,
                    replicas: Some((0..SIZE as i32 / 4).collect()),
                }],
            }],
            ..AlterPartitionReassignmentsRequest::default()
        },
    ));
    rows.extend(by_partition(4, 0, |topics| {
        ListPartitionReassignmentsRequest {
            timeout_ms: 1000,
            topics: Some(each(topics, |name, partition_indexes| {
                list_partition_reassignments_request::ListPartitionReassignmentsTopics {
                    name,
                    partition_indexes,
                }
            })),
        }
    }));
    rows.extend(by_partition(4, 2, |topics| AlterReplicaLogDirsRequest {
        dirs: vec![alter_replica_log_dirs_request::AlterReplicaLogDir {
            path: "d".repeat(LONG),
            topics: each(topics, |name, partitions| {
                alter_replica_log_dirs_request::AlterReplicaLogDirTopic { name, partitions }
            }),
        }],
    }));
    rows.extend(by_partition(4, 4, |topics| DescribeLogDirsRequest {
        topics: Some(each(topics, |topic, partitions| {
            describe_log_dirs_request::DescribableLogDirTopic { topic, partitions }
        })),
    }));
    rows.push(row(
        "many listeners",
        1,
        AddRaftVoterRequest {
            timeout_ms: 1000,
            voter_id: 7,
            listeners: names(SIZE / 12)
                .map(|name| add_raft_voter_request::Listener {
                    host: name.clone(),
                    name,
                    port: 1,
                })
                .collect(),
            ..AddRaftVoterRequest::default()
        },
    ));
    rows.push(row(
        "a long cluster id",
        0,
        RemoveRaftVoterRequest {
            cluster_id: Some("c".repeat(SIZE)),
            ..RemoveRaftVoterRequest::default()
        },
    ));
    rows.push(row(
        "a long id",
        4,
        InitProducerIdRequest {
            transactional_id: Some("t".repeat(SIZE)),
            ..InitProducerIdRequest::default()
        },
    ));
    rows
}

pub(super) fn configs() -> Vec<Row> {
    use describe_configs_request::DescribeConfigsResource;
    use incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
    let describe = |names: Vec<String>, resource_type| DescribeConfigsRequest {
        resources: (names.into_iter())
            .map(|resource_name| DescribeConfigsResource {
                resource_type,
                resource_name,
                configuration_keys: None,
            })
            .collect(),
        include_synonyms: true,
        include_documentation: true,
    };
    let mut rows = by_name(3, 4, |names| describe(names, 2));
    rows.extend(by_name(3, 4, |names| describe(names, 4)));
    // "0", "00", "000" are the same broker.
    let zeros = (1..400).map(|length| "0".repeat(length)).collect();
    rows.push(row("a broker under many names", 4, describe(zeros, 4)));
    rows.extend(by_name(1, 4, |names| DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: 2,
            resource_name: TOPIC.to_owned(),
            configuration_keys: Some(names),
        }],
        ..DescribeConfigsRequest::default()
    }));
    let alter = |resources| IncrementalAlterConfigsRequest {
        resources,
        validate_only: true,
    };
    rows.extend(by_name(3, 1, |names| {
        alter(
            (names.into_iter())
                .map(|resource_name| AlterConfigsResource {
                    resource_type: 2,
                    resource_name,
                    configs: Vec::new(),
                })
                .collect(),
        )
    }));
    rows.extend(by_name(3, 1, |names| {
        alter(vec![AlterConfigsResource {
            resource_type: 2,
            resource_name: TOPIC.to_owned(),
            configs: (names.into_iter())
                .map(|name| AlterableConfig {
                    name,
                    config_operation: 0,
                    value: Some(String::new()),
                })
                .collect(),
        }])
    }));
    // APPEND, of a list whose values are all others.
    let values: Vec<String> = (0..SIZE / 8).map(|number| format!("{number}:1")).collect();
    for config_operation in [2, 3] {
        rows.push(row(
            "a long list of values",
            1,
            alter(vec![AlterConfigsResource {
                resource_type: 2,
                resource_name: TOPIC.to_owned(),
                configs: vec![AlterableConfig {
                    name: "leader.replication.throttled.replicas".to_owned(),
                    config_operation,
                    value: Some(values.join(",")),
                }],
            }]),
        ));
    }
    rows
}

pub(super) fn topics() -> Vec<Row> {
    use create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
    use create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig};
    use delete_topics_request::DeleteTopicState;
    let create = |topics| CreateTopicsRequest {
        topics,
        timeout_ms: 1000,
        validate_only: true,
    };
    let mut rows = by_name(10, 7, |names| {
        create(
            (names.into_iter())
                .map(|name| CreatableTopic {
                    // One that cannot be created: an answer tells all configs of one that can.
                    name: format!("{name}/"),
                    num_partitions: -1,
                    replication_factor: -1,
                    ..CreatableTopic::default()
                })
                .collect(),
        )
    });
    rows.extend(by_name(3, 7, |names| {
        create(vec![CreatableTopic {
            name: "new".to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            configs: (names.into_iter())
                .map(|name| CreatableTopicConfig {
                    name,
                    value: Some(String::new()),
                })
                .collect(),
            ..CreatableTopic::default()
        }])
    }));
    for replicas in [1, SIZE as i32 / 4] {
        rows.push(row(
            "many replicas",
            7,
            create(vec![CreatableTopic {
                name: "new".to_owned(),
                num_partitions: -1,
                replication_factor: -1,
                assignments: (0..SIZE as i32 / (4 * replicas + 6))
                    .map(|partition_index| CreatableReplicaAssignment {
                        partition_index,
                        broker_ids: (0..replicas).collect(),
                    })
                    .collect(),
                ..CreatableTopic::default()
            }]),
        ));
    }
    rows.extend(by_name(17, 6, |names| DeleteTopicsRequest {
        topics: (names.into_iter())
            .map(|name| DeleteTopicState {
                name: Some(format!("{name}/")),
                ..DeleteTopicState::default()
            })
            .collect(),
        timeout_ms: 1000,
        ..DeleteTopicsRequest::default()
    }));
    rows.extend(by_name(0, 5, |names| DeleteTopicsRequest {
        topic_names: names.into_iter().map(|name| format!("{name}/")).collect(),
        timeout_ms: 1000,
        ..DeleteTopicsRequest::default()
    }));
    rows.push(row(
        "an id again and again",
        6,
        DeleteTopicsRequest {
            topics: vec![
                DeleteTopicState {
                    name: None,
                    topic_id: Uuid([7; 16]),
                };
                SIZE / 18
            ],
            timeout_ms: 1000,
            ..DeleteTopicsRequest::default()
        },
    ));
    let grow = |topics| CreatePartitionsRequest {
        topics,
        timeout_ms: 1000,
        validate_only: true,
    };
    rows.extend(by_name(7, 3, |names| {
        grow(
            (names.into_iter())
                .map(|name| CreatePartitionsTopic {
                    name,
                    count: PARTITIONS + 1,
                    assignments: None,
                })
                .collect(),
        )
    }));
    rows.push(row(
        "many assignments",
        3,
        grow(vec![CreatePartitionsTopic {
            name: TOPIC.to_owned(),
            count: PARTITIONS + SIZE as i32 / 6,
            assignments: Some(vec![
                CreatePartitionsAssignment {
                    broker_ids: vec![0]
                };
                SIZE / 6
            ]),
        }]),
    ));
    rows
}
