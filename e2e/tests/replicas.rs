//! Where replicas take load from their leader, and where they must not: consumers that read near them, and replicas that catch up
//! under a throttle.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::read::read_all_with;
use taffrail_e2e::wait::wait_until;

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
    let address = cluster.members()[broker].metrics.address();
    let mut stream = TcpStream::connect(&address)?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    let series = format!("kafka_server_brokertopicmetrics_bytesout_total{{topic=\"{topic}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    line.map_or(Ok(0.0), |value| value.parse().context("a number"))
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
    let spec = ClusterSpec::new(2)?
        .with("leader.replication.throttled.rate", "1000000")
        // One full window: no more than a second or two of the rate goes through at once.
        .with("replication.quota.window.num", "2");
    let mut cluster = Cluster::start(spec)?;
    let admin = cluster.admin()?;
    admin.create_assigned(
        "slow",
        &[0, 1],
        &[("leader.replication.throttled.replicas", "*")],
    )?;
    // Nobody is out of sync: nothing is held up.
    produce(&cluster, "slow", "all", 3000)?;
    cluster.kill(1)?;
    wait_until("the ISR to shrink", LIMIT, || {
        Ok(admin.partitions("slow")?[0].isr.len() == 1)
    })?;
    produce(&cluster, "slow", "1", 7000)?;
    let started = Instant::now();
    cluster.start_broker(1)?;
    admin.wait_in_sync("slow", 1, 2, LIMIT)?;
    let took = started.elapsed();
    ensure!(
        took >= Duration::from_secs(4),
        "7 MB at 1 MB/s, two of which may come at once, took {took:?}"
    );
    cluster.finish();
    Ok(())
}
