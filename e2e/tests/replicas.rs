//! Where replicas take load from their leader, and where they must not: consumers that read near them, and replicas that catch up
//! under a throttle.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::http;
use taffrail_e2e::read::read_all_with;
use taffrail_e2e::wait::wait_until;
use taffrail_e2e::wire::ask;
use taffrail_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use taffrail_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use taffrail_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use taffrail_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use taffrail_protocol::records::RecordBatchBuilder;
use taffrail_protocol::{ErrorCode, Records, Uuid};

const LIMIT: Duration = Duration::from_secs(60);

/// Kafka would do the same, but its property file and its metrics are found elsewhere.
fn is_kafka() -> Result<bool> {
    Ok(BrokerKind::from_environment()? == BrokerKind::Kafka)
}

fn produce(cluster: &Cluster, topic: &str, acks: &str, records: usize) -> Result<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap())
        .set("acks", acks)
        .create()?;
    let value = [b'v'; 1000];
    for _ in 0..records {
        let mut record = BaseRecord::<(), _>::to(topic).payload(&value[..]);
        while let Err((_, again)) = producer.send(record) {
            producer.poll(Duration::from_millis(50));
            record = again;
        }
    }
    producer.flush(LIMIT)?;
    Ok(())
}

/// What a broker has sent to consumers of a topic.
fn bytes_out(cluster: &Cluster, broker: usize, topic: &str) -> Result<f64> {
    let series = format!("kafka_server_brokertopicmetrics_bytesout_total{{topic=\"{topic}\"}}");
    let found = http::metric(&cluster.members()[broker].http("/metrics"), &series)?;
    Ok(found.unwrap_or(0.0))
}

#[test]
fn a_consumer_reads_from_the_replica_in_its_rack() -> Result<()> {
    if is_kafka()? {
        return Ok(());
    }
    let rack_aware = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let spec = ClusterSpec::new(3)?.with("replica.selector.class", rack_aware);
    let mut cluster = Cluster::prepare(spec)?;
    for member in cluster.members() {
        let file = member.folder.join("broker.properties");
        let mut file = OpenOptions::new().append(true).open(file)?;
        writeln!(file, "broker.rack=rack-{}", member.id)?;
    }
    for id in 0..3 {
        cluster.start_broker(id)?;
    }
    cluster.wait_ready()?;
    cluster.admin()?.create_assigned("near", &[0, 1, 2], &[])?;
    produce(&cluster, "near", "all", 2000)?;
    let read = |rack: &str| {
        let settings = [("client.rack", rack)];
        read_all_with(&cluster.bootstrap(), "near", &settings, |_| ())
    };
    ensure!(read("rack-2")? == 2000);
    let out = |broker| bytes_out(&cluster, broker, "near");
    let (leader, other, near) = (out(0)?, out(1)?, out(2)?);
    ensure!(
        near >= 2_000_000.0 && leader == 0.0 && other == 0.0,
        "sent by the leader {leader}, by the replica in the rack {near}, by the other one {other}"
    );
    // A consumer of a rack without a replica reads from the leader.
    ensure!(read("elsewhere")? == 2000);
    let leader = out(0)?;
    ensure!(leader >= 2_000_000.0, "sent by the leader: {leader}");
    cluster.finish();
    Ok(())
}

#[test]
fn a_throttled_replica_catches_up_no_faster_than_its_rate() -> Result<()> {
    if is_kafka()? {
        return Ok(());
    }
    // One topic is held up by its leader, the other by its follower, each at its own rate.
    let topics = [
        ("led", "leader.replication.throttled.replicas", "*"),
        ("followed", "follower.replication.throttled.replicas", "0:1"),
    ];
    let spec = ClusterSpec::new(2)?
        .with("leader.replication.throttled.rate", "1000000")
        .with("follower.replication.throttled.rate", "1000000")
        // One full window: no more than a second or two of the rate goes through at once.
        .with("replication.quota.window.num", "2");
    let mut cluster = Cluster::start(spec)?;
    let admin = cluster.admin()?;
    for (topic, config, replicas) in topics {
        admin.create_assigned(topic, &[0, 1], &[(config, replicas)])?;
        // Nobody is out of sync: nothing is held up.
        produce(&cluster, topic, "all", 3000)?;
        ensure!(admin.partitions(topic)?[0].isr.len() == 2, "{topic}");
    }
    cluster.kill(1)?;
    for (topic, ..) in topics {
        wait_until("the ISR to shrink", LIMIT, || {
            Ok(admin.partitions(topic)?[0].isr.len() == 1)
        })?;
        produce(&cluster, topic, "1", 7000)?;
    }
    let started = Instant::now();
    cluster.start_broker(1)?;
    let (mut waiting, mut took) = (topics.map(|(topic, ..)| topic).to_vec(), Vec::new());
    wait_until("both replicas to be in sync", LIMIT, || {
        let mut behind = Vec::new();
        for topic in &waiting {
            match admin.partitions(topic)?[0].isr.len() {
                2 => took.push((*topic, started.elapsed())),
                _ => behind.push(*topic),
            }
        }
        waiting = behind;
        Ok(waiting.is_empty())
    })?;
    ensure!(
        took.iter().all(|(_, took)| *took >= Duration::from_secs(4)),
        "7 MB at 1 MB/s, two of which may come at once, took {took:?}"
    );
    cluster.finish();
    Ok(())
}

/// DeleteRecords may leave the log start within a batch. A replica that begins there is sent all of that batch.
#[test]
fn a_new_replica_begins_where_the_log_start_lies_within_a_batch() -> Result<()> {
    if is_kafka()? {
        return Ok(());
    }
    let cluster = Cluster::of(2)?;
    let admin = cluster.admin()?;
    admin.create_assigned("cut", &[0], &[])?;
    let leader = cluster.members()[0].client.address();
    let mut batch = RecordBatchBuilder::new(0, 1_700_000_000_000);
    for _ in 0..10 {
        batch.push(None, Some(b"value"), &[]);
    }
    let produce = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            topic_id: topic_id(&leader, "cut")?,
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Records::Inline(batch.build()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    // The leader may hear of the topic later than whom the client asked.
    wait_until("the leader to take a batch", LIMIT, || {
        let answer = ask(&leader, &produce)?;
        let code = answer.responses[0].partition_responses[0].error_code;
        ensure!(
            [0, ErrorCode::NotLeaderOrFollower.code()].contains(&code),
            "{answer:?}"
        );
        Ok(code == 0)
    })?;
    let delete = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: "cut".to_owned(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset: 5,
            }],
        }],
        timeout_ms: 10_000,
    };
    let answer = ask(&leader, &delete)?;
    ensure!(
        answer.topics[0].partitions[0].low_watermark == 5,
        "{answer:?}"
    );
    let add = AlterPartitionReassignmentsRequest {
        timeout_ms: 10_000,
        topics: vec![ReassignableTopic {
            name: "cut".to_owned(),
            partitions: vec![ReassignablePartition {
                partition_index: 0,
                replicas: Some(vec![0, 1]),
            }],
        }],
        ..AlterPartitionReassignmentsRequest::default()
    };
    let answer = ask(&leader, &add)?;
    ensure!(
        answer.error_code == 0 && answer.responses[0].partitions[0].error_code == 0,
        "{answer:?}"
    );
    admin.wait_in_sync("cut", 1, 2, LIMIT)?;
    cluster.finish();
    Ok(())
}

fn topic_id(address: &str, topic: &str) -> Result<Uuid> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    let answer = ask(address, &request)?;
    Ok(answer.topics.first().context("the topic")?.topic_id)
}
