//! Three nodes in three zones: replicas stand apart, and a node may go and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use taffrail_e2e::kubernetes::client::{self, Client};
use taffrail_e2e::kubernetes::command::{bed, kubectl, run, text};
use taffrail_e2e::kubernetes::kafka::Kafka;
use taffrail_e2e::kubernetes::kinds::{cluster, topic, with};
use taffrail_e2e::kubernetes::namespace::Namespace;
use taffrail_e2e::kubernetes::turn::alone;

const ZONE: &str = "topology.kubernetes.io/zone";
const READY_LIMIT: Duration = Duration::from_secs(90);
/// A node is given up by Kubernetes after a while, and its pods come back with it.
const NODE_LIMIT: Duration = Duration::from_secs(180);
/// How long a record may wait for its acknowledgement: longer than any outage.
const RECORD_LIMIT: Duration = Duration::from_secs(300);
/// How long a partition may go without an acknowledgement when its leader's node dies.
const SILENCE_LIMIT: Duration = Duration::from_secs(15);

fn client() -> Result<&'static Client> {
    client::client(Path::new(env!("CARGO_BIN_EXE_taffrail-e2e-client")))
}

#[test]
fn replicas_of_each_partition_stand_in_three_zones() -> Result<()> {
    alone("zones", |namespace| {
        // More brokers than zones, so that the placement has a choice.
        namespace.apply(&with(cluster(5), "rack", json!({"topologyKey": ZONE})))?;
        namespace.apply(&topic("orders", 10))?;
        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        namespace.wait_ready("topic/orders", READY_LIMIT)?;
        let kafka = Kafka::of(namespace, client()?);
        let zones = zones_of_brokers(namespace)?;
        let apart: BTreeSet<&String> = zones.values().collect();
        ensure!(apart.len() == 3, "the brokers stand in {zones:?}");
        for partition in kafka.wait_in_sync("orders", 10, 3, READY_LIMIT)? {
            let of: BTreeSet<Option<&String>> = partition
                .replicas
                .iter()
                .map(|broker| zones.get(broker))
                .collect();
            ensure!(
                of.len() == 3,
                "replicas {:?} of partition {} stand in {of:?}",
                partition.replicas,
                partition.partition
            );
        }
        Ok(())
    })
}

#[test]
fn node_killed_and_started_under_load_loses_nothing_and_heals_by_itself() -> Result<()> {
    alone("node", |namespace| {
        namespace.apply(&with(cluster(3), "rack", json!({"topologyKey": ZONE})))?;
        namespace.apply(&topic("load", 6))?;
        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        namespace.wait_ready("topic/load", READY_LIMIT)?;
        let kafka = Kafka::of(namespace, client()?);
        let (victim, broker) = node_to_kill(namespace)?;
        let mut load = kafka.load("load", 6, RECORD_LIMIT)?;
        load.wait_for_more(4000, READY_LIMIT)?;

        run(&mut bed(&["kill-node", &victim])?, &[])?;
        let killed = Instant::now();
        load.wait_for_more(20_000, NODE_LIMIT)?;
        println!(
            "{victim} with broker {broker} killed: 20000 more records after {:.1} s",
            killed.elapsed().as_secs_f64()
        );
        namespace.wait_for("cluster/demo", "not ready", NODE_LIMIT, |cluster| {
            let ready = taffrail_e2e::kubernetes::namespace::condition(cluster, "Ready");
            ensure!(
                ready.is_some_and(|ready| ready["status"] != "True"),
                "Ready is {ready:?}"
            );
            Ok(())
        })?;

        run(&mut bed(&["start-node", &victim])?, &[])?;
        let started = Instant::now();
        namespace.wait_ready("cluster/demo", NODE_LIMIT)?;
        kafka.wait_in_sync("load", 6, 3, NODE_LIMIT)?;
        println!(
            "{victim} started: ready after {:.1} s",
            started.elapsed().as_secs_f64()
        );
        load.wait_for_more(4000, READY_LIMIT)?;
        let verdict = load.stop()?;
        println!("{verdict:?}");
        ensure!(
            verdict.longest_silence < SILENCE_LIMIT,
            "some partition was silent for {:?}",
            verdict.longest_silence
        );
        Ok(())
    })
}

/// A node with a broker, and without the client pod; with the broker's id.
fn node_to_kill(namespace: &Namespace) -> Result<(String, i32)> {
    let of_client = client()?.node()?;
    nodes_of_brokers(namespace)?
        .into_iter()
        .find(|(_, node)| *node != of_client)
        .map(|(broker, node)| (node, broker))
        .context("all brokers run on the client's node")
}

fn zones_of_brokers(namespace: &Namespace) -> Result<BTreeMap<i32, String>> {
    let nodes = text(&mut kubectl(&["get", "nodes", "-o", "json"]), "")?;
    let nodes: Value = serde_json::from_str(&nodes)?;
    let zone_of = |name: &str| {
        let nodes = nodes["items"].as_array().into_iter().flatten();
        let mut named = nodes.filter(|node| node["metadata"]["name"] == name);
        named
            .next()
            .and_then(|node| node["metadata"]["labels"][ZONE].as_str())
            .map(str::to_owned)
            .with_context(|| format!("node {name} has no zone: run with NODES=3"))
    };
    nodes_of_brokers(namespace)?
        .into_iter()
        .map(|(broker, node)| Ok((broker, zone_of(&node)?)))
        .collect()
}

fn nodes_of_brokers(namespace: &Namespace) -> Result<BTreeMap<i32, String>> {
    let pods = namespace.list("pods", "taffrail.io/cluster=demo")?;
    pods.iter()
        .map(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let ordinal = name.rsplit('-').next().unwrap_or_default();
            let node = pod["spec"]["nodeName"].as_str();
            Ok((
                ordinal.parse()?,
                node.with_context(|| format!("{name} has no node"))?
                    .to_owned(),
            ))
        })
        .collect()
}
