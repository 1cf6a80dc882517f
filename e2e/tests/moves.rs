//! Replicas that move between the log directories of their brokers under load, leaders and followers alike, while a broker is
//! killed: clients notice nothing, and every replica ends up where it was sent, whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::load::{Load, LoadSpec, read_back};
use taffrail_e2e::logcheck;
use taffrail_e2e::wait::wait_until;
use taffrail_e2e::wire::ask;
use taffrail_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use taffrail_protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use taffrail_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

const TOPIC: &str = "load";
const PARTITIONS: i32 = 3;
const BROKERS: usize = 3;
const RATE: u64 = 2000;
const LIMIT: Duration = Duration::from_secs(60);
const BROKER_RESOURCE: i8 = 4;
const SET: i8 = 0;

/// Where the replicas of a broker are, by partition; and the bytes of those that are being copied.
#[derive(Debug, Default)]
struct Places {
    current: BTreeMap<i32, String>,
    copied: BTreeMap<i32, i64>,
}

fn places(cluster: &Cluster, broker: usize) -> Result<Places> {
    let address = cluster.members()[broker].client.address();
    let described = ask(&address, &DescribeLogDirsRequest { topics: None })?;
    let mut places = Places::default();
    for result in described.results {
        let found = result.topics.iter().filter(|topic| topic.name == TOPIC);
        for partition in found.flat_map(|topic| &topic.partitions) {
            let index = partition.partition_index;
            if partition.is_future_key {
                places.copied.insert(index, partition.partition_size);
            } else {
                places.current.insert(index, result.log_dir.clone());
            }
        }
    }
    Ok(places)
}

/// Has every replica of a broker move to its other directory; gives where they shall be.
fn move_all(cluster: &Cluster, broker: usize) -> Result<BTreeMap<i32, String>> {
    let member = &cluster.members()[broker];
    let both = [member.data(), second(cluster, broker)].map(|path| path.display().to_string());
    let mut wanted = BTreeMap::new();
    for (partition, current) in places(cluster, broker)?.current {
        let other = both.iter().find(|path| **path != current);
        wanted.insert(partition, other.context("two directories")?.clone());
    }
    let dirs = wanted.iter().map(|(partition, path)| AlterReplicaLogDir {
        path: path.clone(),
        topics: vec![AlterReplicaLogDirTopic {
            name: TOPIC.to_owned(),
            partitions: vec![*partition],
        }],
    });
    let request = AlterReplicaLogDirsRequest {
        dirs: dirs.collect(),
    };
    let answer = ask(&member.client.address(), &request)?;
    let mut results = answer.results.iter().flat_map(|topic| &topic.partitions);
    ensure!(results.all(|result| result.error_code == 0), "{answer:?}");
    Ok(wanted)
}

fn second(cluster: &Cluster, broker: usize) -> PathBuf {
    cluster.members()[broker].folder.join("second")
}

/// Lets all brokers copy as fast as they can.
fn lift_rate(cluster: &Cluster) -> Result<()> {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: BROKER_RESOURCE,
            resource_name: String::new(),
            configs: vec![AlterableConfig {
                name: "replica.alter.log.dirs.io.max.bytes.per.second".to_owned(),
                config_operation: SET,
                value: Some("1000000000".to_owned()),
            }],
        }],
        validate_only: false,
    };
    let answer = ask(&cluster.members()[0].client.address(), &request)?;
    ensure!(answer.responses[0].error_code == 0, "{answer:?}");
    Ok(())
}

fn wait_moved(cluster: &Cluster, wanted: &[BTreeMap<i32, String>]) -> Result<()> {
    wait_until("all replicas to be where they were sent", LIMIT, || {
        for (broker, wanted) in wanted.iter().enumerate() {
            let places = places(cluster, broker)?;
            if places.current != *wanted || !places.copied.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// All batches of a replica, wherever it is; there must be one.
fn content(cluster: &Cluster, broker: usize, partition: i32) -> Result<Vec<u8>> {
    let name = format!("{TOPIC}-{partition}");
    let both = [cluster.members()[broker].data(), second(cluster, broker)];
    let there: Vec<PathBuf> = both
        .iter()
        .map(|directory| directory.join(&name))
        .filter(|replica| replica.is_dir())
        .collect();
    ensure!(there.len() == 1, "{there:?}");
    let mut paths: Vec<PathBuf> = fs::read_dir(&there[0])?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "log"));
    paths.sort();
    let mut content = Vec::new();
    for path in paths {
        content.extend(fs::read(path)?);
    }
    Ok(content)
}

#[test]
fn replicas_move_between_directories_under_load_over_a_kill() -> Result<()> {
    if BrokerKind::from_environment()? == BrokerKind::Kafka {
        return Ok(());
    }
    // Slower than the load, so that no move ends before the kill.
    let spec = ClusterSpec::new(BROKERS)?
        .with("replica.alter.log.dirs.io.max.bytes.per.second", "10000")
        .with("alter.log.dirs.replication.quota.window.num", "2");
    let mut cluster = Cluster::prepare(spec)?;
    for broker in 0..BROKERS {
        let file = cluster.members()[broker].folder.join("broker.properties");
        let data = cluster.members()[broker].data().display().to_string();
        let both = format!("log.dirs={data},{}\n", second(&cluster, broker).display());
        let text = fs::read_to_string(&file)?;
        fs::write(&file, text.replace(&format!("log.dirs={data}\n"), &both))?;
        cluster.start_broker(broker)?;
    }
    cluster.wait_ready()?;
    let admin = cluster.admin()?;
    let config = [("min.insync.replicas", "2"), ("segment.bytes", "1048576")];
    admin.create_topic(TOPIC, PARTITIONS, BROKERS as i32, &config)?;
    let spec = LoadSpec {
        topic: TOPIC.to_owned(),
        partitions: PARTITIONS,
        rate: RATE,
    };
    let load = Load::start(&cluster.bootstrap(), spec)?;
    let goes_on = || {
        let before = load.acknowledged();
        wait_until("the load to go on", LIMIT, || {
            Ok(load.acknowledged() > before + RATE / 2)
        })
    };
    goes_on()?;

    let wanted: Vec<_> = (0..BROKERS)
        .map(|broker| move_all(&cluster, broker))
        .collect::<Result<_>>()?;
    wait_until("a part of a replica to be copied", LIMIT, || {
        Ok(places(&cluster, 1)?.copied.values().any(|size| *size > 0))
    })?;
    cluster.kill(1)?;
    goes_on()?;
    cluster.start_broker(1)?;
    admin.wait_in_sync(TOPIC, PARTITIONS as usize, BROKERS, LIMIT)?;
    // Nobody asks again: what is moved now was gone on with.
    lift_rate(&cluster)?;
    wait_moved(&cluster, &wanted)?;

    // Back, at full speed: nothing but the moves themselves may hold anybody up.
    let began = Instant::now();
    let wanted: Vec<_> = (0..BROKERS)
        .map(|broker| move_all(&cluster, broker))
        .collect::<Result<_>>()?;
    wait_moved(&cluster, &wanted)?;
    let ended = Instant::now();
    goes_on()?;
    admin.wait_in_sync(TOPIC, PARTITIONS as usize, BROKERS, LIMIT)?;
    let outcomes = load.stop()?;
    println!(
        "{} replicas moved back within {:.2} s, longest silence of a partition {:.3} s",
        BROKERS as i32 * PARTITIONS,
        (ended - began).as_secs_f64(),
        outcomes.longest_silence_between(began, ended).as_secs_f64()
    );
    ensure!(
        outcomes.first_error.is_none(),
        "a record met an error: {:?}",
        outcomes.first_error
    );
    logcheck::check(&outcomes.sent, &[read_back(&cluster.bootstrap(), TOPIC)?]).must_hold()?;
    for broker in 0..BROKERS {
        cluster.stop(broker)?;
    }
    for partition in 0..PARTITIONS {
        let whole = content(&cluster, 0, partition)?;
        ensure!(!whole.is_empty());
        for broker in 1..BROKERS {
            ensure!(
                content(&cluster, broker, partition)? == whole,
                "{TOPIC}-{partition} of broker {broker} is not as that of broker 0"
            );
        }
    }
    cluster.finish();
    Ok(())
}
