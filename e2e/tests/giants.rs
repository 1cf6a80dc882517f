//! Requests that are well formed and far larger than any client's: the cluster refuses or answers them, its metadata still moves, it
//! takes and gives records, and no broker takes more memory than the bytes that came justify.

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::process::{peak_mb, resident_mb};
use taffrail_e2e::serving::must_serve;
use taffrail_e2e::wire::{ask, ask_in_version};
use taffrail_protocol::Request;
use taffrail_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use taffrail_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use taffrail_protocol::messages::elect_leaders_request::TopicPartitions;
use taffrail_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use taffrail_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use taffrail_protocol::messages::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use taffrail_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use taffrail_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use taffrail_protocol::messages::{
    AlterPartitionReassignmentsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest,
};

/// How much a broker may grow over all of this, in MB. The largest request has 6.
const GROWTH_MB: f64 = 150.0;

/// How much a Taffrail broker may grow for a request of less than 2 MB, in MB.
const GROUPS_GROWTH_MB: f64 = 100.0;

const INVALID_REQUEST: i16 = 42;
const INVALID_CONFIG: i16 = 40;

#[test]
fn giants_hold_up_neither_the_controller_nor_its_brokers() -> Result<()> {
    let cluster = Cluster::of(3)?;
    let admin = cluster.admin()?;
    admin.create_assigned("moved", &[0, 1, 2], &[])?;
    let sizes = || -> Result<Vec<f64>> {
        let pids = cluster.members().iter().map(|member| member.pid());
        pids.map(|pid| resident_mb(pid.context("a broker is gone")?))
            .collect()
    };
    let before = sizes()?;
    let address = cluster.members()[0].client.address();
    for (name, giant) in GIANTS {
        giant(&address).with_context(|| (*name).to_owned())?;
        let topic = name.replace(' ', "-");
        admin
            .create_topic(&topic, 1, 3, &[])
            .with_context(|| format!("after {name}"))?;
    }
    for (before, after) in before.iter().zip(sizes()?) {
        println!("resident {before:.0} MB, then {after:.0} MB");
        ensure!(after - before < GROWTH_MB, "grown to {after:.0} MB");
    }
    cluster.finish();
    Ok(())
}

type Giant = fn(&str) -> Result<()>;

const GIANTS: &[(&str, Giant)] = &[
    ("an election named again and again", repeated_election),
    ("elections of more than there can be", many_elections),
    ("moves of what does not exist", many_moves),
    ("a list without end", endless_list),
];

/// A partition that its preferred replica does not lead: each election of it would be a record of the metadata.
fn repeated_election(address: &str) -> Result<()> {
    let moved = AlterPartitionReassignmentsRequest {
        topics: vec![ReassignableTopic {
            name: "moved".to_owned(),
            partitions: vec![ReassignablePartition {
                partition_index: 0,
                replicas: Some(vec![1, 0, 2]),
            }],
        }],
        ..AlterPartitionReassignmentsRequest::default()
    };
    let answer = ask(address, &moved)?;
    ensure!(answer.error_code == 0, "{answer:?}");
    let answer = ask(address, &election("moved", vec![0; 90_000]))?;
    let elected: Vec<_> = answer
        .replica_election_results
        .iter()
        .flat_map(|topic| &topic.partition_result)
        .map(|result| (result.partition_id, result.error_code))
        .collect();
    ensure!(elected == [(0, 0)], "{elected:?}");
    Ok(())
}

fn many_elections(address: &str) -> Result<()> {
    let answer = ask(address, &election("moved", (0..1_500_000).collect()))?;
    ensure!(
        answer.error_code == INVALID_REQUEST,
        "{}",
        answer.error_code
    );
    Ok(())
}

fn election(topic: &str, partitions: Vec<i32>) -> ElectLeadersRequest {
    ElectLeadersRequest {
        topic_partitions: Some(vec![TopicPartitions {
            topic: topic.to_owned(),
            partitions,
        }]),
        ..ElectLeadersRequest::default()
    }
}

fn many_moves(address: &str) -> Result<()> {
    let moves = |count: i32| {
        let partition = |partition_index| ReassignablePartition {
            partition_index,
            replicas: None,
        };
        AlterPartitionReassignmentsRequest {
            topics: vec![ReassignableTopic {
                name: "moved".to_owned(),
                partitions: (1..=count).map(partition).collect(),
            }],
            ..AlterPartitionReassignmentsRequest::default()
        }
    };
    let answer = ask(address, &moves(100_000))?;
    let results = answer.responses.first().context("no topic is answered")?;
    ensure!(results.partitions.len() == 100_000, "{}", answer.error_code);
    let answer = ask(address, &moves(1_000_000))?;
    ensure!(answer.error_code == INVALID_REQUEST, "{answer:?}");
    Ok(())
}

/// Appended to a list of a topic: 5 MB of replicas that are all different.
fn endless_list(address: &str) -> Result<()> {
    const APPEND: i8 = 2;
    const TOPIC: i8 = 2;
    let replicas: Vec<String> = (0..600_000).map(|n| format!("{n}:1")).collect();
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: "moved".to_owned(),
            configs: vec![AlterableConfig {
                name: "leader.replication.throttled.replicas".to_owned(),
                config_operation: APPEND,
                value: Some(replicas.join(",")),
            }],
        }],
        validate_only: false,
    };
    let answer = ask(address, &request)?;
    let result = answer.responses.first().context("no result")?;
    ensure!(result.error_code == INVALID_CONFIG, "{result:?}");
    Ok(())
}

#[test]
fn giants_of_groups_leave_the_broker_serving_in_bounded_memory() -> Result<()> {
    let cluster = Cluster::start(ClusterSpec::new(1)?)?;
    cluster.admin()?.create_topic("text", 1, 1, &[])?;
    let address = cluster.members()[0].client.address();
    let pid = cluster.members()[0].pid().context("the broker runs")?;
    must_serve(&cluster)?;
    let find = FindCoordinatorRequest {
        coordinator_keys: vec!["g".to_owned()],
        ..FindCoordinatorRequest::default()
    };
    take_any(&address, &find);
    let before = peak_mb(pid)?;
    for (name, giant) in OF_GROUPS {
        giant(&address);
        must_serve(&cluster).with_context(|| format!("after {name}"))?;
        let growth = peak_mb(pid)? - before;
        println!("{name}: grown by {growth:.0} MB at most");
        ensure!(
            cluster.kind() == BrokerKind::Kafka || growth < GROUPS_GROWTH_MB,
            "the broker grew by {growth:.0} MB for {name}"
        );
    }
    cluster.finish();
    Ok(())
}

type OfGroups = fn(&str);

const OF_GROUPS: &[(&str, OfGroups)] = &[
    ("offsets of a topic with a long name", |address| {
        take_any(
            address,
            &fetch_much("x".repeat(30_000), (0..20_000).collect()),
        );
    }),
    ("the same offset again and again", |address| {
        take_any(address, &fetch_much("text".to_owned(), vec![0; 300_000]));
    }),
    ("commits of a group with a long name", |address| {
        take_any(address, &commit_much("g".repeat(32_000), 20_000));
    }),
    ("the same commit again and again", |address| {
        take_any(address, &commit_much("g".to_owned(), 50_000));
    }),
    ("a member with many protocols", |address| {
        take_any(address, &join_with(150_000));
    }),
    ("the same group again and again", |address| {
        let groups = vec!["g".to_owned(); 500_000];
        let request = DescribeGroupsRequest {
            groups,
            ..DescribeGroupsRequest::default()
        };
        take_any(address, &request);
    }),
];

/// Asks and takes whatever comes: an answer, or a connection that is closed.
fn take_any<R: Request>(address: &str, request: &R) {
    let version = R::MAX_VERSION.min(9);
    if let Err(error) = ask_in_version(address, request, version) {
        println!("refused: {error:#}");
    }
}

fn fetch_much(topic: String, partitions: Vec<i32>) -> OffsetFetchRequest {
    OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g".to_owned(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: topic,
                partition_indexes: partitions,
                ..OffsetFetchRequestTopics::default()
            }]),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    }
}

fn commit_much(group_id: String, times: usize) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id,
        topics: vec![OffsetCommitRequestTopic {
            name: "text".to_owned(),
            partitions: vec![OffsetCommitRequestPartition::default(); times],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

/// A member that joins at once, without being told an id first.
fn join_with(protocols: usize) -> JoinGroupRequest {
    let protocol = |number| JoinGroupRequestProtocol {
        name: format!("p{number}"),
        ..JoinGroupRequestProtocol::default()
    };
    JoinGroupRequest {
        group_id: "g".to_owned(),
        group_instance_id: Some("i".to_owned()),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".to_owned(),
        protocols: (0..protocols).map(protocol).collect(),
        ..JoinGroupRequest::default()
    }
}

/// What clients may send says nothing about the frames of the brokers: an entry of the metadata log has to reach the voters.
#[test]
fn metadata_moves_though_clients_may_send_little() -> Result<()> {
    let spec = ClusterSpec::new(3)?.with("socket.request.max.bytes", "2000");
    let cluster = Cluster::start(spec)?;
    cluster.admin()?.create_topic("wide", 300, 3, &[])?;
    cluster.finish();
    Ok(())
}
